//! What to add, as the command prints it.

use crate::{berth, disk, json_of, local_class, node, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Two nodes with a disk each in two zones, and a StatefulSet with more pods than disks.
fn too_few_disks(replicas: u32) -> Vec<Value> {
    vec![
        local_class(),
        node("n1", "zone-a", 4),
        node("n2", "zone-b", 4),
        disk("n1-disk0", "n1", 100),
        disk("n2-disk0", "n2", 100),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"},
            "spec": {"serviceName": "db", "replicas": replicas, "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i",
                    "resources": {"requests": {"cpu": "500m"}}}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                    "storageClassName": "local", "resources": {"requests": {"storage": "80Gi"}}}}]}}),
    ]
}

#[test]
fn the_manifests_make_everything_run_in_a_simulation() {
    let directory = TempDir::new().unwrap();
    let cluster = write(&directory, "cluster.json", &too_few_disks(4));
    assert_eq!(berth(&["simulate", "-f", &cluster]).status.code(), Some(1));
    let plan = berth(&["plan", "-f", &cluster, "-o", "yaml"]);
    assert_eq!(plan.status.code(), Some(0));
    let overlay = directory.path().join("plan.yaml");
    std::fs::write(&overlay, &plan.stdout).unwrap();
    let overlay = overlay.display().to_string();
    let simulated = berth(&["simulate", "-f", &cluster, "--overlay", &overlay]);
    assert_eq!(
        simulated.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&plan.stdout)
    );
}

#[test]
fn disks_are_cheaper_than_nodes_and_a_price_list_has_the_last_word() {
    let directory = TempDir::new().unwrap();
    let cluster = write(&directory, "cluster.json", &too_few_disks(4));
    let kinds = |answer: &Value| -> Vec<String> {
        let items = answer["addition"]["items"].as_array().unwrap().iter();
        items.map(|item| item["kind"].as_str().unwrap().to_owned()).collect()
    };
    let answer = json_of(&["plan", "-f", &cluster, "-o", "json"]);
    assert_eq!(kinds(&answer), ["disk", "disk"], "{answer}");
    let prices = directory.path().join("prices.yaml");
    let text = "apiVersion: berth.dev/v1alpha1\nkind: Candidates\nnodes:\n- name: storage\n  zones: [zone-b]\n  cost: 7\n  \
                allocatable: {cpu: '4', memory: 8Gi, pods: '20'}\n  disks: [{storageClass: local, size: 100Gi, count: 2}]\n\
                - {like: n1, cost: 4, atMost: 1}\n";
    std::fs::write(&prices, text).unwrap();
    let prices = prices.display().to_string();
    let answer = json_of(&["plan", "-f", &cluster, "--candidates", &prices, "-o", "json"]);
    assert_eq!(kinds(&answer), ["node"], "{answer}");
    assert_eq!(answer["addition"]["cost"], 7.0);
    assert_eq!(answer["addition"]["items"][0]["like"], "storage");
    assert_eq!(answer["addition"]["isOptimal"], true);
}

/// Each pod has two claims. The large nodes have no disk, so a pod there needs two more; the small ones have one.
#[test]
fn disks_are_added_where_fewest_are_missing() {
    let directory = TempDir::new().unwrap();
    let mut objects = too_few_disks(2);
    objects.extend([node("n3", "zone-a", 16), node("n4", "zone-b", 16)]);
    let set = objects
        .iter_mut()
        .find(|object| object["kind"] == "StatefulSet")
        .unwrap();
    let mut log = set["spec"]["volumeClaimTemplates"][0].clone();
    log["metadata"]["name"] = json!("log");
    set["spec"]["volumeClaimTemplates"].as_array_mut().unwrap().push(log);
    let cluster = write(&directory, "cluster.json", &objects);
    let answer = json_of(&["plan", "-f", &cluster, "-o", "json"]);
    let items = answer["addition"]["items"].as_array().unwrap().iter();
    let nodes: Vec<&str> = items.map(|item| item["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["n1", "n2"], "{answer}");
    assert_eq!(answer["left"], json!([]));
    assert_eq!(answer["atLeastDisks"]["disks"], 2);
    let text = String::from_utf8(berth(&["plan", "-f", &cluster]).stdout).unwrap();
    assert!(
        text.contains("At least 2 disks are needed: claims need 4 disks"),
        "{text}"
    );
}

#[test]
fn a_pod_that_nothing_helps_is_left_and_the_exit_status_says_so() {
    let directory = TempDir::new().unwrap();
    let mut objects = too_few_disks(2);
    objects.push(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "picky", "namespace": "default"}, "spec":
        {"nodeSelector": {"gpu": "yes"}, "containers": [{"name": "c", "image": "i"}]}}),
    );
    let cluster = write(&directory, "cluster.json", &objects);
    let output = berth(&["plan", "-f", &cluster]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("No addition helps: 1 pod would not run"), "{said}");
    assert!(said.contains("default/picky"), "{said}");
}

#[test]
fn nothing_is_added_to_a_cluster_on_which_everything_runs() {
    let directory = TempDir::new().unwrap();
    let cluster = write(&directory, "cluster.json", &too_few_disks(2));
    let output = berth(&["plan", "-f", &cluster]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .starts_with("Everything runs: nothing to add.")
    );
    let page = berth(&["plan", "-f", &cluster, "-o", "html"]);
    assert!(String::from_utf8(page.stdout).unwrap().contains("What would change"));
}

#[test]
fn a_broken_price_list_is_an_error_that_names_the_field() {
    let directory = TempDir::new().unwrap();
    let cluster = write(&directory, "cluster.json", &too_few_disks(4));
    let prices = directory.path().join("prices.yaml");
    let head = "apiVersion: berth.dev/v1alpha1\nkind: Candidates\n";
    for (text, expected) in [
        (
            "nodes:\n- {like: none}\n",
            "nodes[0].like: there is no node \"none\" to copy",
        ),
        (
            "nodes:\n- {like: n1, cost: -1}\n",
            "nodes[0].cost: found -1, expected a number",
        ),
        ("nodes:\n- {like: n1, price: 1}\n", "nodes[0].price"),
        (
            "nodes:\n- {cost: 1}\n",
            "nodes[0].like: expected either like or allocatable",
        ),
        ("disks: []\n", "nodes: there is none"),
    ] {
        std::fs::write(&prices, format!("{head}{text}")).unwrap();
        let output = berth(&["plan", "-f", &cluster, "--candidates", &prices.display().to_string()]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(expected), "{text}: {said}");
    }
}
