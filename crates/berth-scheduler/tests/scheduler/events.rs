//! Each helpful event wakes the pod that it helps, and does not wake one that it cannot help.

use crate::api::Api;
use crate::world::World;
use berth_core::api::Kind;
use berth_core::names;
use berth_scheduler::queue::Place;
use berth_testing::{Manifest, capacity, claim, class, local_class, node, pod, sized, volume};
use serde_json::{Value, json};

/// Both `helped` and `other` wait; the event happens; only `helped` is woken, and it is scheduled.
#[track_caller]
fn check(objects: impl IntoIterator<Item = Value>, event: impl FnOnce(&mut Api)) {
    let mut world = World::of(objects);
    world.settle();
    world.advance(30);
    for pod in ["default/helped", "default/other"] {
        assert_eq!(
            world.place(pod),
            Some(Place::Unschedulable),
            "{pod}: {}",
            world.message(pod)
        );
    }
    let woken = world.scheduler.counts().woken;
    event(&mut world.api);
    world.settle();
    world.assert_placed("default/helped");
    assert_eq!(world.place("default/other"), Some(Place::Unschedulable));
    assert_eq!(
        world.scheduler.counts().woken,
        woken + 1,
        "just the pod that was helped is woken"
    );
    world.check();
}

/// No pod is woken.
#[track_caller]
fn check_nothing(objects: impl IntoIterator<Item = Value>, event: impl FnOnce(&mut Api)) {
    let mut world = World::of(objects);
    world.settle();
    world.advance(30);
    assert_eq!(world.place("default/other"), Some(Place::Unschedulable));
    event(&mut world.api);
    world.settle();
    assert_eq!(world.scheduler.counts().woken, 0);
}

pub(crate) fn bound(mut claim: Value, volume: &str) -> Value {
    claim["spec"]["volumeName"] = json!(volume);
    claim["metadata"]["annotations"] = json!({names::BIND_COMPLETED: "yes"});
    claim
}

pub(crate) fn selecting(mut pod: Value, key: &str, value: &str) -> Value {
    pod["spec"]["nodeSelector"] = json!({key: value});
    pod
}

#[test]
fn claim_added() {
    let objects = [
        node("n1"),
        local_class(),
        volume("pv1", "local", 10).on("n1"),
        pod("helped", &["late"]),
        pod("other", &["never"]),
    ];
    check(objects, |api| api.put(claim("late", "local", 5)));
}

#[test]
fn claim_updated() {
    let immediate = |name| {
        let mut class = class(name, "disk.example.com");
        class["volumeBindingMode"] = json!("Immediate");
        class
    };
    let mut reserved = volume("pv1", "now", 10).on("n1");
    reserved["spec"]["claimRef"] = json!({"namespace": "default", "name": "a"});
    reserved["status"]["phase"] = json!("Bound");
    let objects = [
        node("n1"),
        immediate("now"),
        reserved,
        claim("a", "now", 5),
        claim("b", "now", 5),
        pod("helped", &["a"]),
        pod("other", &["b"]),
    ];
    check(objects, |api| {
        let claim = api
            .get(Kind::PersistentVolumeClaim, "default/a")
            .expect("it is there")
            .clone();
        api.put(bound(claim, "pv1"));
    });
}

fn two_local_classes() -> Vec<Value> {
    vec![
        node("n1"),
        local_class(),
        class("other", names::NO_PROVISIONER),
        claim("a", "local", 5),
        claim("b", "other", 5),
        pod("helped", &["a"]),
        pod("other", &["b"]),
    ]
}

#[test]
fn volume_added() {
    check(two_local_classes(), |api| api.put(volume("pv1", "local", 10).on("n1")));
}

#[test]
fn volume_updated() {
    let mut objects = two_local_classes();
    let mut released = volume("pv1", "local", 10).on("n1");
    released["status"]["phase"] = json!("Released");
    objects.push(released);
    check(objects, |api| {
        api.edit(Kind::PersistentVolume, "pv1", |volume| {
            volume["status"]["phase"] = json!("Available");
        });
    });
}

#[test]
fn class_added() {
    let objects = [
        node("n1"),
        volume("pv1", "local", 10).on("n1"),
        claim("a", "local", 5),
        claim("b", "never", 5),
        pod("helped", &["a"]),
        pod("other", &["b"]),
    ];
    check(objects, |api| api.put(local_class()));
}

#[test]
fn class_topologies_changed() {
    let allowed = |name: &str| json!([{"matchLabelExpressions": [{"key": names::HOSTNAME, "values": [name]}]}]);
    let narrow = |name| {
        let mut class = class(name, "disk.example.com");
        class["allowedTopologies"] = allowed("elsewhere");
        class
    };
    let objects = [
        node("n1"),
        narrow("fast"),
        narrow("slow"),
        claim("a", "fast", 5),
        claim("b", "slow", 5),
        pod("helped", &["a"]),
        pod("other", &["b"]),
    ];
    check(objects, |api| {
        api.edit(Kind::StorageClass, "fast", |class| {
            class["allowedTopologies"] = allowed("n1");
        });
    });
}

fn picky() -> [Value; 3] {
    [
        node("n1"),
        selecting(pod("helped", &[]), "disk", "ssd"),
        selecting(pod("other", &[]), "disk", "tape"),
    ]
}

#[test]
fn node_added() {
    check(picky(), |api| {
        let mut new = node("n2");
        new["metadata"]["labels"]["disk"] = json!("ssd");
        api.put(new);
    });
}

#[test]
fn node_labels_changed() {
    check(picky(), |api| {
        api.edit(Kind::Node, "n1", |node| {
            node["metadata"]["labels"]["disk"] = json!("ssd");
        });
    });
}

#[test]
fn node_labels_changed_so_that_a_volume_is_reachable() {
    let mut objects = two_local_classes();
    objects.push(volume("pv1", "local", 10).on("host-1"));
    check(objects, |api| {
        api.edit(Kind::Node, "n1", |node| {
            node["metadata"]["labels"][names::HOSTNAME] = json!("host-1");
        });
    });
}

#[test]
fn node_taints_changed() {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let mut tainted = node("n1");
    tainted["spec"]["taints"] = json!([taint("a"), taint("b")]);
    let mut tolerant = pod("helped", &[]);
    tolerant["spec"]["tolerations"] = json!([{"key": "b", "operator": "Exists"}]);
    check([tainted, tolerant, pod("other", &[])], |api| {
        api.edit(Kind::Node, "n1", |node| node["spec"]["taints"] = json!([taint("b")]));
    });
}

#[test]
fn node_uncordoned() {
    let mut cordoned = node("n1");
    cordoned["spec"]["unschedulable"] = json!(true);
    let objects = [
        cordoned,
        pod("helped", &[]),
        selecting(pod("other", &[]), "disk", "tape"),
    ];
    check(objects, |api| {
        api.edit(Kind::Node, "n1", |node| node["spec"]["unschedulable"] = json!(false));
    });
}

#[test]
fn node_allocatable_raised() {
    check([node("n1"), sized("helped", 6), sized("other", 64)], |api| {
        api.edit(Kind::Node, "n1", |node| {
            node["status"]["allocatable"]["cpu"] = json!("8");
        });
    });
}

#[test]
fn node_heartbeat_wakes_nobody() {
    check_nothing([node("n1"), sized("other", 64)], |api| {
        api.edit(Kind::Node, "n1", |node| {
            node["metadata"]["annotations"] = json!({"beat": "1"});
        });
    });
}

/// A node on which a driver's attach limit is what runs there.
pub(crate) fn limited(name: &str) -> Vec<Value> {
    let csi_node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
        "spec": {"drivers": [{"name": "disk.example.com", "nodeID": "x", "allocatable": {"count": 1}}]}});
    let mut objects = vec![node(name), csi_node];
    for user in ["running", "new"] {
        let (data, disk) = (format!("{user}-{name}"), format!("disk-{user}-{name}"));
        let mut volume = volume(&disk, "fast", 10).on(name);
        volume["spec"]["local"] = Value::Null;
        volume["spec"]["csi"] = json!({"driver": "disk.example.com", "volumeHandle": disk});
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": data});
        volume["status"]["phase"] = json!("Bound");
        objects.extend([volume, bound(claim(&data, "fast", 5), &disk)]);
    }
    objects.push(pod(&format!("running-{name}"), &[&format!("running-{name}")]).on(name));
    objects
}

fn limited_twice() -> Vec<Value> {
    let mut objects = vec![class("fast", "disk.example.com")];
    objects.extend(limited("n1"));
    objects.extend(limited("n2"));
    objects.extend([pod("helped", &["new-n1"]), pod("other", &["new-n2"])]);
    objects
}

#[test]
fn csi_node_raises_its_limit() {
    check(limited_twice(), |api| {
        api.edit(Kind::CsiNode, "n1", |node| {
            node["spec"]["drivers"][0]["allocatable"]["count"] = json!(2);
        });
    });
}

#[test]
fn pod_with_a_volume_gone() {
    check(limited_twice(), |api| api.delete(Kind::Pod, "default/running-n1"));
}

fn tracked(name: &str) -> [Value; 3] {
    let (provisioner, data) = (format!("{name}.example.com"), format!("data-{name}"));
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": provisioner},
                        "spec": {"storageCapacity": true}});
    [driver, class(name, &provisioner), claim(&data, name, 50)]
}

fn too_little_capacity() -> Vec<Value> {
    let mut objects = vec![
        node("n1"),
        capacity("fast", "fast", 10).on("n1"),
        capacity("slow", "slow", 10).on("n1"),
    ];
    objects.extend(tracked("fast"));
    objects.extend(tracked("slow"));
    objects.extend([pod("helped", &["data-fast"]), pod("other", &["data-slow"])]);
    objects
}

#[test]
fn capacity_raised() {
    check(too_little_capacity(), |api| {
        api.put(capacity("fast", "fast", 100).on("n1"));
    });
}

#[test]
fn capacity_lowered_wakes_nobody() {
    check_nothing(too_little_capacity(), |api| {
        api.put(capacity("fast", "fast", 1).on("n1"));
    });
}

#[test]
fn csi_driver_changed() {
    check(too_little_capacity(), |api| {
        api.edit(Kind::CsiDriver, "fast.example.com", |driver| {
            driver["spec"]["storageCapacity"] = json!(false);
        });
    });
}

#[test]
fn pod_gone() {
    let objects = [
        node("n1"),
        sized("running", 3).on("n1"),
        sized("helped", 4),
        sized("other", 64),
    ];
    check(objects, |api| api.delete(Kind::Pod, "default/running"));
}

#[test]
fn pod_finished() {
    let objects = [
        node("n1"),
        sized("running", 3).on("n1"),
        sized("helped", 4),
        sized("other", 64),
    ];
    check(objects, |api| {
        api.edit(Kind::Pod, "default/running", |pod| {
            pod["status"]["phase"] = json!("Succeeded");
        });
    });
}

#[test]
fn status_of_a_running_pod_wakes_nobody() {
    let mut near = pod("other", &[]);
    near["spec"]["affinity"]["podAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": names::HOSTNAME}]});
    check_nothing([node("n1"), pod("running", &[]).on("n1"), near], |api| {
        api.edit(Kind::Pod, "default/running", |pod| {
            pod["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
        });
    });
}

#[test]
fn pod_moved_near() {
    let near = |name: &str, app: &str| {
        let mut pod = pod(name, &[]);
        pod["spec"]["affinity"]["podAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": names::HOSTNAME}]});
        pod
    };
    check([node("n1"), near("helped", "web"), sized("other", 64)], |api| {
        let mut friend = pod("friend", &[]).on("n1");
        friend["metadata"]["labels"] = json!({"app": "web"});
        api.put(friend);
    });
}

#[test]
fn gates_removed() {
    let mut gated = pod("helped", &[]);
    gated["spec"]["schedulingGates"] = json!([{"name": "wait"}]);
    let mut world = World::of([node("n1"), gated]);
    world.settle();
    assert_eq!(world.place("default/helped"), Some(Place::Gated));
    world.api.edit(Kind::Pod, "default/helped", |pod| {
        pod["spec"]["schedulingGates"] = json!([]);
    });
    world.settle();
    world.assert_on("default/helped", "n1");
}

#[test]
fn a_pod_that_nothing_wakes_is_tried_again_after_five_minutes() {
    let mut world = World::of([node("n1"), sized("other", 64)]);
    world.settle();
    world.advance(299);
    assert_eq!(world.scheduler.counts().unschedulable, 1);
    world.advance(1);
    assert_eq!(world.scheduler.counts().unschedulable, 2);
}

fn near(name: &str, app: &str) -> Value {
    affine(pod(name, &[]), "podAffinity", app)
}

fn affine(mut pod: Value, side: &str, app: &str) -> Value {
    pod["spec"]["affinity"][side] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": names::ZONE}]});
    pod
}

fn labelled(mut pod: Value, app: &str) -> Value {
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

fn in_zone(name: &str) -> Value {
    let mut node = node(name);
    node["metadata"]["labels"][names::ZONE] = json!("a");
    node
}

#[test]
fn the_scheduler_itself_places_a_pod_that_another_waits_for() {
    check([in_zone("n1"), near("helped", "web"), near("other", "db")], |api| {
        api.put(labelled(pod("friend", &[]), "web"));
    });
}

#[test]
fn the_scheduler_itself_evens_out_a_spread() {
    let spread = |name: &str, app: &str| {
        let mut pod = labelled(pod(name, &[]), app);
        pod["spec"]["nodeSelector"] = json!({names::HOSTNAME: "n1"});
        pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": names::HOSTNAME,
            "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": "Ignore",
            "labelSelector": {"matchLabels": {"app": app}}}]);
        pod
    };
    let objects = [
        node("n1"),
        node("n2"),
        labelled(pod("web", &[]), "web").on("n1"),
        labelled(pod("db", &[]), "db").on("n1"),
        spread("helped", "web"),
        spread("other", "db"),
    ];
    check(objects, |api| {
        let balance = selecting(labelled(pod("balance", &[]), "web"), names::HOSTNAME, "n2");
        api.put(balance);
    });
}

#[test]
fn a_pod_that_shunned_others_is_gone() {
    let shunning = |name: &str, app: &str| affine(pod(name, &[]), "podAntiAffinity", app).on("n1");
    let objects = [
        in_zone("n1"),
        shunning("shuns-web", "web"),
        shunning("shuns-db", "db"),
        labelled(pod("helped", &[]), "web"),
        labelled(pod("other", &[]), "db"),
    ];
    check(objects, |api| api.delete(Kind::Pod, "default/shuns-web"));
}

#[test]
fn a_node_is_gone_with_a_pod_that_another_shuns() {
    let objects = [
        in_zone("n1"),
        in_zone("n2"),
        labelled(pod("web", &[]), "web").on("n2"),
        affine(pod("helped", &[]), "podAntiAffinity", "web"),
        near("other", "db"),
    ];
    check(objects, |api| {
        api.delete(Kind::Node, "n2");
        api.delete(Kind::Pod, "default/web");
    });
}

#[test]
fn a_node_is_gone_with_the_pod_that_had_a_claim_for_itself() {
    let alone = |name: &str| {
        let mut claim = bound(claim(name, "local", 5), &format!("pv-{name}"));
        claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        claim
    };
    let reserved = |name: &str| {
        let mut volume = volume(&format!("pv-{name}"), "local", 10).on("n1");
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name});
        volume["status"]["phase"] = json!("Bound");
        volume
    };
    let objects = [
        node("n1"),
        node("n2"),
        local_class(),
        reserved("a"),
        reserved("b"),
        alone("a"),
        alone("b"),
        pod("user-of-a", &["a"]).on("n2"),
        pod("user-of-b", &["b"]).on("n1"),
        pod("helped", &["a"]),
        pod("other", &["b"]),
    ];
    check(objects, |api| api.delete(Kind::Node, "n2"));
}

#[test]
fn a_namespace_changes_its_labels() {
    let of_team = |name: &str, team: &str| {
        let mut pod = near(name, "web");
        pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] =
            json!({"matchLabels": {"team": team}});
        pod
    };
    let team = |team: &str, phase: &str| {
        json!({"apiVersion": "v1", "kind": "Namespace", "status": {"phase": phase},
               "metadata": {"name": "default", "labels": {"team": team}}})
    };
    let mut world = World::of([
        in_zone("n1"),
        team("x", "Active"),
        labelled(pod("web", &[]), "web").on("n1"),
        of_team("helped", "y"),
    ]);
    world.settle();
    world.advance(30);
    world.api.put(team("x", "Terminating"));
    world.settle();
    assert_eq!(world.scheduler.counts().woken, 0, "its labels are the same");
    world.api.put(team("y", "Terminating"));
    world.settle();
    world.assert_placed("default/helped");
}
