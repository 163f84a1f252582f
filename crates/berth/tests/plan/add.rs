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
fn what_changes_is_in_the_table_and_in_the_data() {
    let directory = TempDir::new().unwrap();
    let cluster = write(&directory, "cluster.json", &too_few_disks(4));
    let answer = json_of(&["plan", "-f", &cluster, "-o", "json"]);
    let overlay = directory.path().join("plan.yaml");
    std::fs::write(&overlay, berth(&["plan", "-f", &cluster, "-o", "yaml"]).stdout).unwrap();
    let overlay = overlay.display().to_string();
    let simulated = json_of(&[
        "simulate",
        "-f",
        &cluster,
        "--overlay",
        &overlay,
        "--diff",
        "-o",
        "json",
    ]);
    assert_eq!(answer["changes"], simulated["changes"]);
    assert_eq!(
        answer["changes"]["unblocked"].as_array().map(Vec::len),
        Some(1),
        "{answer}"
    );
    let text = String::from_utf8(berth(&["plan", "-f", &cluster]).stdout).unwrap();
    let (_, changes) = text
        .split_once("WHAT WOULD CHANGE\n")
        .unwrap_or_else(|| panic!("{text}"));
    assert!(changes.contains("pods that start running: 1 (default/db-2)"), "{text}");
    assert!(changes.contains("FREE IN ZONE"), "{text}");
}

/// Pools that no node brings along: capacity is the whole answer, and the manifests are sufficient.
#[test]
fn capacity_alone_is_added_where_pools_are_full() {
    let directory = TempDir::new().unwrap();
    let cluster = "examples/plan/add-capacity.yaml";
    let plan = berth(&["plan", "-f", cluster, "-o", "yaml"]);
    assert_eq!(plan.status.code(), Some(0));
    let overlay = directory.path().join("plan.yaml");
    std::fs::write(&overlay, &plan.stdout).unwrap();
    let overlay = overlay.display().to_string();
    assert_eq!(berth(&["simulate", "-f", cluster]).status.code(), Some(1));
    assert_eq!(
        berth(&["simulate", "-f", cluster, "--overlay", &overlay]).status.code(),
        Some(0)
    );
    let answer = json_of(&["plan", "-f", cluster, "-o", "json"]);
    let items = answer["addition"]["items"].as_array().unwrap().iter();
    let grown: Vec<_> = items
        .map(|item| (&item["kind"], &item["fromBytes"], &item["toBytes"]))
        .collect();
    let gi = |count: i64| json!(count << 30);
    let (kind, from, to) = (json!("capacity"), [gi(100), gi(20)], gi(120));
    assert_eq!(grown, [(&kind, &from[0], &to), (&kind, &from[1], &to)], "{answer}");
}

/// Its driver publishes less than it provides: no number of nodes follows from that.
#[test]
fn what_no_node_provides_is_no_bound_on_nodes() {
    let directory = TempDir::new().unwrap();
    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/plan/add-capacity.yaml"
    ));
    let class = "provisioner: lvm.example.com\n";
    let keys = format!("{class}parameters: {{berth.dev/topology-keys: topology.kubernetes.io/zone}}\n");
    let cluster = directory.path().join("cluster.yaml");
    std::fs::write(&cluster, text.unwrap().replace(class, &keys)).unwrap();
    let answer = json_of(&["plan", "-f", &cluster.display().to_string(), "-o", "json"]);
    assert!(answer["atLeast"]["nodes"].as_u64().unwrap() < 10, "{answer}");
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

/// One pod needs more CPU than any node has left, the other one a disk on a node that it selects: neither nodes nor disks alone help both.
#[test]
fn nodes_and_disks_are_added_together_where_both_are_needed() {
    let directory = TempDir::new().unwrap();
    let pod = |name: &str, spec: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
        pod["spec"]["containers"] = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]);
        pod
    };
    let objects = [
        local_class(),
        node("n1", "zone-a", 4),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "80Gi"}}}}),
        pod(
            "tied",
            json!({"nodeSelector": {"kubernetes.io/hostname": "n1"},
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
        ),
        pod("free", json!({})),
    ];
    let cluster = write(&directory, "cluster.json", &objects);
    let answer = json_of(&["plan", "-f", &cluster, "-o", "json"]);
    let mut kinds: Vec<&str> = answer["addition"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["kind"].as_str().unwrap())
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["disk", "node"], "{answer}");
    assert_eq!(answer["left"], json!([]), "{answer}");
}

/// Two large pods need one more node, and the others disks: a plain node and disks are cheaper than nodes with disks.
#[test]
fn disks_replace_nodes_that_are_there_only_for_their_disks() {
    let directory = TempDir::new().unwrap();
    let mut objects = too_few_disks(3);
    objects.extend(["big-1", "big-2"].map(|name| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec":
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}})
    }));
    let cluster = write(&directory, "cluster.json", &objects);
    let prices = directory.path().join("prices.yaml");
    let text = "apiVersion: berth.dev/v1alpha1\nkind: Candidates\nnodes:\n\
                - {name: plain, cost: 5, allocatable: {cpu: '4', memory: 8Gi, pods: '20'}}\n\
                - {like: n1, cost: 9}\ndisks:\n- {storageClass: local, size: 100Gi, cost: 1}\n";
    std::fs::write(&prices, text).unwrap();
    let answer = json_of(&[
        "plan",
        "-f",
        &cluster,
        "--candidates",
        &prices.display().to_string(),
        "-o",
        "json",
    ]);
    assert_eq!(answer["addition"]["cost"], 7.0, "{answer}");
    assert_eq!(answer["left"], json!([]), "{answer}");
}

/// The names in backticks of an error about an unknown field.
fn expected_fields(said: &str) -> Vec<String> {
    let (_, fields) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
    let mut fields: Vec<String> = fields.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    fields.sort();
    fields
}

#[test]
fn the_schema_of_candidates_has_the_fields_that_are_read() {
    let schema = json_of(&["schema", "candidates"]);
    let directory = TempDir::new().unwrap();
    let cluster = write(&directory, "cluster.json", &too_few_disks(4));
    let prices = directory.path().join("prices.yaml");
    let head = "apiVersion: berth.dev/v1alpha1\nkind: Candidates\n";
    for (text, pointer) in [
        ("price: 1\n", ""),
        ("nodes:\n- {price: 1}\n", "/$defs/node"),
        ("disks:\n- {price: 1}\n", "/$defs/disk"),
    ] {
        std::fs::write(&prices, format!("{head}{text}")).unwrap();
        let output = berth(&["plan", "-f", &cluster, "--candidates", &prices.display().to_string()]);
        assert_eq!(output.status.code(), Some(2));
        let properties = schema.pointer(&format!("{pointer}/properties")).unwrap();
        let fields: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
        assert_eq!(
            fields,
            expected_fields(&String::from_utf8(output.stderr).unwrap()),
            "{text}"
        );
    }
}

#[test]
fn every_question_has_a_page_and_only_additions_have_manifests() {
    for question in [
        ["--fit", "sts/db", "-f", "examples/plan/fit.yaml"].as_slice(),
        &["--survive", "zone", "-f", "examples/plan/survive.yaml"],
        &["--shrink", "-f", "examples/plan/shrink.yaml"],
    ] {
        let page = berth(&[&["plan", "-o", "html"], question].concat());
        let text = String::from_utf8(page.stdout).unwrap();
        assert!(text.contains("What would change"), "{question:?}: {text}");
    }
    for question in [
        ["--fit", "sts/db", "-f", "examples/plan/fit.yaml"].as_slice(),
        &["--shrink", "-f", "examples/plan/shrink.yaml"],
    ] {
        let output = berth(&[&["plan", "-o", "yaml"], question].concat());
        assert_eq!(output.status.code(), Some(2), "{question:?}");
    }
}
