use super::*;
use berth_cluster::simulation::{Options, Simulation};
use serde_json::{Value, json};

/// A small cluster with everything that a page shows, with the nastiest possible names: names in files are not
/// validated.
fn simulation(nasty: &str) -> Simulation {
    let mut simulation = Simulation::new(Options::default());
    let mut create = |object: Value| simulation.create(object).unwrap();
    let name = |plain: &str| format!("{plain}{nasty}");
    for (node, zone) in [("n1", "a"), ("n2", "b")] {
        create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name(node), "labels": {
            "kubernetes.io/hostname": name(node), "topology.kubernetes.io/zone": name(zone), "topology.berth.dev/rack": name("rack")}},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}}),
        );
    }
    create(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    for (volume, node) in [("v1", "n1"), ("v2", "n2")] {
        create(
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name(volume)}, "status": {"phase": "Available"},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                "local": {"path": "/d"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [name(node)]}]}]}}}}),
        );
    }
    for (pod, size) in [("fits", "8Gi"), ("waits", "20Gi")] {
        create(
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name(pod), "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": size}}}}),
        );
        create(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name(pod), "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": name(pod)}}]}}),
        );
    }
    simulation
}

fn outcome(nasty: &str) -> Outcome {
    let mut simulation = simulation(nasty);
    simulation.run(&mut |_| {});
    crate::simulate::examined(&simulation, &crate::input::Gaps::default())
}

#[test]
fn the_page_is_as_it_was() {
    let page = render(&outcome(""), &Subject::default(), None);
    let page = page.replace(LOOK, "STYLE\n").replace(&bundle(&SCRIPT), "SCRIPT\n");
    insta::assert_snapshot!(page.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn nothing_from_the_input_becomes_markup() {
    let nasty = "</script><script>alert(1)</script><img src=x onerror='a'>\"&";
    let recording = Recording::of(&simulation(nasty));
    let page = render(&outcome(nasty), &Subject::default(), Some(&recording));
    let markup = page.replace(LOOK, "").replace(&bundle(&SCRIPT), "");
    for forbidden in [
        "<img",
        "<script>alert",
        "</script><script>",
        "onerror='a'>\"",
        "alert(1)</script>",
    ] {
        assert!(!markup.contains(forbidden), "{forbidden}");
    }
    assert_eq!(
        markup.matches("</script>").count(),
        3,
        "the three that the page has itself"
    );
    assert!(markup.contains("&lt;img src=x onerror=&#39;a&#39;&gt;&quot;&amp;"));
    assert!(markup.contains("waits"), "it is told of all the same");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = render(&outcome(""), &Subject::default(), None);
    // The name of a namespace is no address.
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for forbidden in ["http:", "https:", "//cdn", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn refusals_are_told_on_the_node_and_for_the_pod() {
    let page = render(&outcome(""), &Subject::default(), None);
    assert!(page.contains("1 pod is pending"), "{page}");
    assert!(page.contains("default/waits: node(s) didn&#39;t find available persistent volumes to bind"));
    assert!(page.contains("What would help"));
    assert!(page.contains("8Gi/10Gi"));
}

#[test]
fn many_nodes_are_drawn_small_and_take_little_room() {
    let mut simulation = Simulation::new(Options::default());
    for number in 0..1000 {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number:04}"),
            "labels": {"topology.kubernetes.io/zone": format!("zone-{}", number % 3)}}});
        simulation.create(node).unwrap();
    }
    let outcome = crate::simulate::examined(&simulation, &crate::input::Gaps::default());
    let page = render(&outcome, &Subject::default(), None);
    assert!(page.contains("class=\"small\""));
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}
