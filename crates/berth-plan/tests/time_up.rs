//! A search that runs out of time returns what is known by then.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth_cluster::simulation::Options;
use berth_plan::{Halt, Oracle, Subject, Watch, fit};
use serde_json::{Value, json};

/// Ends a search after this many simulations.
struct After(usize);

impl Watch for After {
    fn goes_on(&mut self, simulations: usize, _placed: u64) -> bool {
        simulations <= self.0
    }
}

fn objects() -> (Vec<Value>, Vec<Value>) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "30", "pods": "110"}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    (vec![node], vec![pod])
}

#[test]
fn the_number_that_was_reached_is_at_least_what_fits() {
    let (mut objects, pod) = objects();
    let subject = Subject::of_file(pod, &mut objects).unwrap();
    let fits = |simulations: usize| {
        let mut watch = After(simulations);
        let mut oracle = Oracle::new(Options::default(), &mut watch);
        fit(&mut oracle, &objects, &subject).map(|found| (found.fits, found.time_up, found.with_one_more.is_some()))
    };
    assert!(matches!(fits(0), Err(Halt::TimeUp)));
    assert_eq!(fits(2).unwrap(), (8, true, false));
    let whole = fits(100).unwrap();
    assert_eq!(whole, (30, false, true));
    for simulations in 1..10 {
        let (found, time_up, exact) = fits(simulations).unwrap();
        assert!(found <= whole.0);
        assert_eq!(exact, found == whole.0 && !time_up, "{simulations}");
    }
}
