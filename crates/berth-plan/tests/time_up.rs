//! A search that runs out of time returns what is known by then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth_cluster::Objects;
use berth_cluster::simulation::Options;
use berth_plan::{Offers, Oracle, Subject, Survive, Watch, Why, add, candidates_of_cluster, fit, shrink, survive};
use serde_json::{Value, json};

/// Ends a search after this many simulations.
struct After(usize);

impl Watch for After {
    fn goes_on(&mut self, simulations: usize, _placed: u64) -> bool {
        simulations <= self.0
    }
}

fn node(name: &str, cpus: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpus.to_string(), "pods": "110"}}})
}

/// A Deployment of pods with this many CPUs.
fn deployment(replicas: u32, cpus: u32) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpus.to_string()}}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}})
}

fn offers(objects: &[Value]) -> Offers {
    let view: Objects = objects.iter().cloned().collect();
    Offers {
        nodes: candidates_of_cluster(&view),
        disks: None,
        capacity: true,
    }
}

/// A search that ends after this many simulations.
fn within<T>(simulations: usize, search: impl FnOnce(&mut Oracle<'_>) -> T) -> T {
    let mut watch = After(simulations);
    search(&mut Oracle::new(Options::default(), &mut watch))
}

#[test]
fn the_number_that_was_reached_is_at_least_what_fits() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let mut objects = vec![node("n", 30)];
    let subject = Subject::of_file(vec![pod], &mut objects).unwrap();
    let fits = |simulations: usize| {
        let found = within(simulations, |oracle| fit(oracle, &objects, &subject)).unwrap();
        (found.fits, found.time_up, found.with_one_more.is_some())
    };
    assert_eq!(fits(0), (0, true, false));
    assert_eq!(fits(2), (8, true, false));
    let whole = fits(100);
    assert_eq!(whole, (30, false, true));
    for simulations in 0..10 {
        let (found, time_up, exact) = fits(simulations);
        assert!(found <= whole.0);
        assert_eq!(exact, found == whole.0 && !time_up, "{simulations}");
    }
}

#[test]
fn an_addition_that_was_not_found_in_time_has_a_bound() {
    let objects = [node("n", 4), deployment(6, 2)];
    let offers = offers(&objects);
    let found = |simulations: usize| within(simulations, |oracle| add(oracle, &objects, &offers)).unwrap();
    let whole = found(usize::MAX);
    let addition = whole.addition.as_ref().expect("nodes help");
    assert_eq!((addition.items.len(), whole.time_up), (2, false));
    // Not even the current cluster is simulated, or nothing else.
    for simulations in [0, 1] {
        let early = found(simulations);
        assert!(early.time_up && early.addition.is_none(), "{simulations}");
        assert_eq!(early.before.is_at_rest, simulations > 0);
        assert!(!early.left.is_empty() || !early.before.is_at_rest, "{simulations}");
        let (least, need) = early.least_nodes;
        assert_eq!(least, 2, "six pods need 12 CPUs, and a node has 4");
        assert_eq!(need.map(|need| (need.needed, need.free)), Some((12_000, 4_000)));
        assert_eq!(early.at_least, addition.cost);
    }
    for simulations in 2..20 {
        let some = found(simulations);
        assert!(some.at_least <= addition.cost, "{simulations}");
        if let Some(found) = &some.addition {
            assert_eq!(found.after.standing.unrun, 0, "{simulations}");
        } else {
            assert!(some.time_up, "{simulations}");
        }
    }
}

#[test]
fn losses_that_were_not_tried_in_time_are_no_losses_that_are_survived() {
    let objects = [node("n1", 4), node("n2", 4), node("n3", 4), deployment(3, 3)];
    let offers = offers(&objects);
    let found = |simulations: usize| {
        let what = Survive::Nodes(1);
        within(simulations, |oracle| survive(oracle, &objects, what, &offers)).unwrap()
    };
    let whole = found(usize::MAX);
    assert!(whole.is_safe() && whole.addition.is_some() && !whole.time_up);
    assert_eq!((whole.losses, whole.tried, whole.bad.len()), (3, 3, 3));
    for simulations in 0..4 {
        let early = found(simulations);
        assert!(early.time_up && !early.is_safe(), "{simulations}");
        assert_eq!(early.tried, simulations.saturating_sub(1));
        assert_eq!(early.bad.len(), early.tried, "each of them leaves a pod behind");
    }
}

#[test]
fn nodes_that_were_not_tried_in_time_stay() {
    let objects = [node("n1", 4), node("n2", 4), node("n3", 4), deployment(3, 1)];
    let found = |simulations: usize| within(simulations, |oracle| shrink(oracle, &objects, &[])).unwrap();
    let whole = found(usize::MAX);
    assert_eq!((whole.removed.len(), whole.time_up), (2, false));
    assert!(whole.saved() <= whole.at_most);
    for simulations in 0..3 {
        let early = found(simulations);
        assert!(early.time_up, "{simulations}");
        assert_eq!(early.removed.len(), simulations.saturating_sub(1));
        assert!(
            early.at_most >= whole.saved() && early.at_most <= early.cost,
            "{simulations}"
        );
        let not_tried = early.kept.iter().filter(|kept| kept.why == Why::NotTried).count();
        assert_eq!(not_tried + early.removed.len(), 3);
    }
}
