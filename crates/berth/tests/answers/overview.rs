//! All that waits by cause, and answers about workloads, claims, volumes and nodes.

use super::*;

/// Three pods of a StatefulSet that are too large, one with a gate, and one that runs.
fn busy_cluster() -> String {
    let owner = "ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: s1, controller: true}]";
    let pod = |name: &str, metadata: &str, spec: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop, {metadata}}}, status: {{phase: \
             Pending}}, spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 9}}}}}}]{spec}}}}}\n"
        )
    };
    let mut yaml = node("n1", "") + &class("local", LOCAL) + &volume("v1", "n1", 5, "Available", "");
    for index in 0..3 {
        yaml += &pod(&format!("db-{index}"), owner, "");
    }
    yaml += &pod("gated", "uid: g", ", schedulingGates: [{name: quota}]").replace("cpu: 9", "cpu: 1");
    yaml += &pod("runs", "uid: r", ", nodeName: n1").replace("cpu: 9", "cpu: 1");
    yaml + &claim("data", "local", 5, "", "")
}

#[test]
fn everything_that_waits_is_told_by_cause() {
    let yaml = busy_cluster();
    let (text, status) = run(&yaml, &[]);
    assert_told("all_waiting", text);
    assert_eq!(status, 1, "some fit nowhere");
    let (text, status) = run(&yaml, &["-n", "default"]);
    assert_eq!((text.as_str(), status), ("there are no pods of namespace default\n", 0));
    let (json, _) = run(&yaml, &["-A", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["waiting"][0]["code"], "Pod.Unschedulable");
    assert_eq!(json["waiting"][0]["pods"].as_array().unwrap().len(), 3);
    assert_eq!(json["waiting"][1]["code"], "Pod.Gated");
    let only_gated = yaml.replace("cpu: 9", "cpu: 1");
    assert_eq!(
        run(&only_gated, &["--pending"]).1,
        3,
        "what fits is kept by something else"
    );
}

#[test]
fn workloads_claims_volumes_and_nodes_are_explained() {
    let yaml = busy_cluster();
    for (name, arguments) in [
        ("of_set", &["sts/db", "-n", "shop"][..]),
        ("of_claim", &["pvc/data"]),
        ("of_volume", &["pv", "v1"]),
        ("of_node", &["node/n1"]),
    ] {
        let (text, _) = run(&yaml, arguments);
        assert_told(name, text);
    }
    let of_deployment = yaml.replace("kind: StatefulSet, name: db", "kind: ReplicaSet, name: db-5d4")
        + "---\n{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: db-5d4, namespace: shop, uid: s1, \
           ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: db, uid: d1, controller: true}]}}\n";
    let (text, status) = run(&of_deployment, &["deploy/db", "-n", "shop"]);
    assert!(
        text.contains("shop/db-0, shop/db-1, shop/db-2") && status == 1,
        "{text}"
    );
    let (text, status) = run(&of_deployment, &["deploy/web", "-n", "shop"]);
    assert!(
        text.contains("there is no pod of Deployment shop/web") && status == 2,
        "{text}"
    );
    let (text, status) = run(&yaml, &["pv/none"]);
    assert!(text.contains("there is no pv/none") && status == 2, "{text}");
    let (text, status) = run(&yaml, &["svc/web"]);
    assert!(text.contains("expected pod/NAME") && status == 2, "{text}");
}

#[test]
fn pods_with_other_advice_are_another_group() {
    let pod = |name: &str| {
        let pod = target(&[name], "", "", "").replace("uid: u1", &format!("uid: u-{name}"));
        pod.replace("name: target\n", &format!("name: p-{name}\n"))
    };
    let block = claim("b", "local", 5, "", "  volumeMode: Block");
    let yaml = node("n1", "")
        + &class("local", LOCAL)
        + &claim("a", "local", 10, "", "")
        + &block
        + &claim("c", "local", 10, "", "")
        + &pod("a")
        + &pod("b")
        + &pod("c");
    let (json, status) = run(&yaml, &["-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["waiting"][0]["pods"],
        serde_json::json!(["default/p-a", "default/p-c"])
    );
    assert_eq!(json["waiting"][1]["pods"], serde_json::json!(["default/p-b"]));
    assert_eq!(status, 1);
}

#[test]
fn the_overview_says_that_pods_would_be_evicted() {
    let budget = "---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b, namespace: default}, spec: \
                  {minAvailable: 1, selector: {matchLabels: {app: low}}}}\n";
    let yaml = node("n1", "") + &runs("low", "n1", 4) + budget + &target(&[], "", "  priority: 1000", "");
    let (text, _) = run(&yaml, &[]);
    assert!(text.contains("once pods of lower priority are evicted"), "{text}");
    assert!(
        text.contains("after evicting default/low") && !text.contains("one of them"),
        "{text}"
    );
}

/// Events are evidence for whatever part of the file is asked about.
#[test]
fn events_count_in_a_namespace_and_below_an_overlay() {
    let failed = event(
        "PersistentVolumeClaim",
        "data",
        "ebs.csi.example.com_ctrl-0_1",
        "ProvisioningFailed",
        4,
        "quota exceeded",
    );
    let yaml = node("n1", "")
        + &class("ebs", "ebs.csi.example.com")
        + &claim("data", "ebs", 5, "", "")
        + &target(&["data"], "", "", "")
        + &failed;
    let in_shop = yaml
        .replace("namespace: default", "namespace: shop")
        .replace("  name: data\n", "  name: data\n  namespace: shop\n");
    let (text, status) = run(&in_shop, &["pod/target", "-n", "shop"]);
    assert!(text.contains("quota exceeded") && status == 3, "{status}: {text}");
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top.yaml");
    std::fs::write(&top, node("n2", "")).unwrap();
    let (text, status) = run(&yaml, &["pod/target", "--overlay", &top.display().to_string()]);
    assert!(text.contains("quota exceeded") && status == 3, "{status}: {text}");
}

#[test]
fn nodes_that_do_not_respond_and_volumes_on_their_way_out_are_told() {
    let down = "spec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}";
    let leaving = bound("data", "n1").replace(
        "metadata: {name: data}",
        "metadata: {name: data, deletionTimestamp: \"2026-01-01T00:00:00Z\"}",
    );
    let waited = event(
        "PersistentVolumeClaim",
        "data",
        "c",
        "WaitForFirstConsumer",
        1,
        "waiting for the first consumer",
    );
    let missing = target(&["nope"], "", "", "");
    let yaml = node("n1", down) + &class("local", LOCAL) + &leaving + &waited + &missing;
    let (text, _) = run(&yaml, &["pvc/data"]);
    assert!(
        text.contains("node n1 does not respond") && text.contains("is being deleted"),
        "{text}"
    );
    assert!(!text.contains("WaitForFirstConsumer"), "{text}");
    let (text, _) = run(&yaml, &["pv/data"]);
    assert!(
        text.contains("node n1 does not respond") && text.contains("being deleted"),
        "{text}"
    );
    let (text, _) = run(&yaml, &["node/n1"]);
    assert!(text.contains("does not respond"), "{text}");
    assert_eq!(text.matches("\"nope\" not found").count(), 1, "{text}");
    let (text, status) = run(&yaml, &["node/none"]);
    assert!(
        text.contains("there is no node/none") && !text.contains("namespace") && status == 2,
        "{text}"
    );
}

#[test]
fn a_volume_of_an_earlier_claim_has_no_users() {
    let old = "  claimRef: {namespace: default, name: data, uid: u1}";
    let new = claim("data", "local", 5, "", "").replace("  name: data\n", "  name: data\n  uid: u2\n");
    let yaml = node("n1", "")
        + &class("local", LOCAL)
        + &volume("v1", "n1", 5, "Bound", old)
        + &new
        + &target(&["data"], "", "", "");
    let (text, _) = run(&yaml, &["pv/v1"]);
    assert!(
        text.contains("an earlier claim default/data") && !text.contains("uses it"),
        "{text}"
    );
}

#[test]
fn a_volume_that_is_reserved_for_a_claim_that_does_not_exist() {
    let reserved = "  claimRef: {namespace: default, name: data}";
    let yaml = node("n1", "") + &class("local", LOCAL) + &volume("v1", "n1", 5, "Available", reserved);
    let (text, status) = run(&yaml, &["pv/v1", "-o", "json"]);
    assert!(text.contains("Volume.Reserved"), "{text}");
    assert_eq!(status, 1);
    let (text, status) = run(&(yaml + &claim("data", "local", 5, "", "")), &["pv/v1", "-o", "json"]);
    assert!(!text.contains("Volume.Reserved"), "{text}");
    assert_eq!(status, 0, "its claim exists");
}

#[test]
fn a_claim_for_which_no_node_has_storage_is_of_no_use() {
    let yaml = node("n1", "") + &class("local", LOCAL) + &claim("data", "local", 5, "", "");
    let (text, status) = run(&yaml, &["pvc/data"]);
    assert!(text.contains("no node has storage for it"), "{text}");
    assert_eq!(status, 1);
    let (json, _) = run(&yaml, &["pvc/data", "-o", "json"]);
    assert!(json.contains("\"Claim.NoStorage\""), "{json}");
    let (_, status) = run(&(yaml + &volume("v1", "n1", 5, "Available", "")), &["pvc/data"]);
    assert_eq!(status, 0, "it waits for its first pod");
}
