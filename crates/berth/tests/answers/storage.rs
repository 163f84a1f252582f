//! Why a claim has no volume, and why a disk is not used.

use super::*;

#[test]
fn disks_that_do_not_serve_a_claim_are_named_with_what_keeps_them() {
    let gone = "  claimRef: {namespace: default, name: old-data, uid: u9}";
    let reserved = "  claimRef: {namespace: shop, name: web}";
    let deleting = volume("v-deleting", "n1", 50, "Available", "").replace(
        "{name: v-deleting}",
        "{name: v-deleting, deletionTimestamp: \"2026-01-01T00:00:00Z\"}",
    );
    let down = "spec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}";
    let selector = "  selector: {matchLabels: {tier: gold}}";
    let gold = |yaml: String| yaml.replace("metadata: {name: v", "metadata: {labels: {tier: gold}, name: v");
    let yaml = node("n1", "")
        + &node("n2", down)
        + &class("local", LOCAL)
        + &gold(volume("v-released", "n1", 50, "Released", gone))
        + &gold(volume("v-failed", "n1", 50, "Failed", gone))
        + &gold(deleting)
        + &gold(volume("v-reserved", "n1", 50, "Available", reserved))
        + &gold(volume("v-renamed", "n1.example.com", 50, "Available", ""))
        + &gold(volume("v-down", "n2", 50, "Available", ""))
        + &gold(volume("v-modes", "n1", 50, "Available", "")).replace("[ReadWriteOnce]", "[ReadOnlyMany]")
        + &gold(volume("v-block", "n1", 50, "Available", "  volumeMode: Block"))
        + &volume("v-labels", "n1", 50, "Available", "")
        + &gold(volume("v-small", "n1", 5, "Available", ""))
        + &claim("data", "local", 10, "", selector)
        + &target(&["data"], "", "", "");
    let (_, report) = check("disks", &yaml);
    let codes: Vec<&str> = report.claims[0].unfit().iter().map(|unfit| unfit.code.code()).collect();
    let mut expected = [
        "Volume.Released",
        "Volume.Failed",
        "Volume.Deleting",
        "Volume.Reserved",
        "Volume.NodeMissing",
        "Volume.NodeDown",
        "Volume.AccessModes",
        "Volume.VolumeMode",
        "Volume.Labels",
        "Volume.TooSmall",
    ];
    expected.sort_unstable();
    let mut found = codes.clone();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn the_node_of_a_bound_volume_is_gone() {
    let bound = "  volumeName: v1\nstatus: {phase: Bound}";
    let yaml = node("n1", "")
        + &class("local", LOCAL)
        + &volume(
            "v1",
            "st-b1",
            50,
            "Bound",
            "  claimRef: {namespace: default, name: data}",
        )
        + &claim("data", "local", 10, "pv.kubernetes.io/bind-completed: \"yes\"", bound)
        + &target(&["data"], "", "", "");
    let (_, report) = check("node_gone", &yaml);
    assert_eq!(report.claims[0].code.code(), "Claim.NodeMissing");
}

#[test]
fn who_holds_the_claim_and_what_is_attached() {
    let user = |name: &str, claim: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default}}, status: {{phase: Running}}, spec: \
             {{nodeName: n1, containers: [{{name: c}}], volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]}}}}\n"
        )
    };
    let bound = |name: &str| {
        let disk = format!("  csi: {{driver: d.example.com, volumeHandle: {name}}}");
        let reference = format!("  claimRef: {{namespace: default, name: {name}}}\n{disk}");
        let completed = "pv.kubernetes.io/bind-completed: \"yes\"";
        let spec = format!("  volumeName: {name}\nstatus: {{phase: Bound}}");
        volume(name, "n1", 5, "Bound", &reference) + &claim(name, "local", 5, completed, &spec)
    };
    let only = bound("alone").replace("[ReadWriteOnce]", "[ReadWriteOncePod]");
    let cluster = node("n1", "") + &class("local", LOCAL);
    let held = cluster.clone() + &only + &user("owner", "alone") + &target(&["alone"], "", "", "");
    check("held", &held);
    let limit = "---\n{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n1}, spec: {drivers: [{name: \
                 d.example.com, nodeID: n1, allocatable: {count: 2}}]}}\n";
    let full = cluster
        + limit
        + &bound("a")
        + &bound("b")
        + &bound("c")
        + &user("first", "a")
        + &user("second", "b")
        + &target(&["c"], "", "", "");
    check("attached", &full);
}

#[test]
fn there_is_no_default_class() {
    let none = claim("data", "local", 5, "", "").replace("  storageClassName: local\n", "");
    let yaml = node("n1", "") + &class("local", LOCAL) + &none + &target(&["data"], "", "", "");
    let (_, report) = check("no_default_class", &yaml);
    assert_eq!(report.claims[0].code.code(), "Claim.NoDefaultClass");
}

/// The corner of a claim whose selected node is cordoned.
#[test]
fn the_selected_node_is_named_and_is_the_provisioners_to_clear() {
    let selected = "volume.kubernetes.io/selected-node: n1";
    let yaml = node("n1", "spec: {unschedulable: true}")
        + &node("n2", "")
        + &class("x", "berth.dev/zonal")
        + &claim("cx", "x", 10, selected, "")
        + &target(&["cx"], "", "", "");
    check("selected_node", &yaml);
}

#[test]
fn a_selected_node_that_does_not_exist_is_said_so() {
    let selected = "volume.kubernetes.io/selected-node: gone";
    let yaml = node("n1", "")
        + &class("x", "d.example.com")
        + &claim("data", "x", 5, selected, "")
        + &target(&["data"], "", "", "");
    let report = asked(&yaml);
    assert!(report.claims[0].offers()[0].text.contains("does not exist"));
    assert!(
        report.advice[0].contains("it selects node gone, which does not exist"),
        "{:?}",
        report.advice
    );
}

#[test]
fn classes_that_may_not_be_listed_are_to_be_asked_for() {
    let Command::Explain(args) = Cli::parse_from(["berth", "explain", "--pod", "target"]).command else {
        panic!()
    };
    let yaml = node("n1", "") + &claim("data", "local", 5, "", "") + &target(&["data"], "", "", "");
    let sources = [
        Source::Gap("storageclasses: no permission to list them".into()),
        Source::Text {
            name: "cluster.yaml".into(),
            bytes: yaml.into_bytes(),
        },
    ];
    let explained = explain::explain_sources(&args, &sources, &mut std::io::empty(), &mut NoProgress).unwrap();
    let advice = explained.report.advice;
    assert!(advice[0].contains("list permission for storageclasses"), "{advice:?}");
}

#[test]
fn the_zones_of_a_class_are_named_wherever_it_sets_them() {
    let waits = "volumeBindingMode: WaitForFirstConsumer";
    let ebs = |more: &str| {
        format!(
            "---\n{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: z}}, provisioner: \
             kubernetes.io/aws-ebs, {waits}, {more}}}\n"
        )
    };
    let cluster = in_zone("n1", "c") + &claim("data", "z", 5, "", "") + &target(&["data"], "", "", "");
    let offer = |class: &str| asked(&(cluster.clone() + class)).claims[0].offers()[0].text.clone();
    assert!(offer(&ebs("parameters: {zones: \"a, b\"}")).ends_with("only in zone a or b"));
    let terms = "allowedTopologies: [{}, {matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [a]}]}]";
    assert!(offer(&ebs(terms)).ends_with("only where topology.kubernetes.io/zone is a"));
}

#[test]
fn a_reserved_volume_is_named_where_another_one_would_fit() {
    let yaml = node("n1", "")
        + &node("n2", "spec: {unschedulable: true}")
        + &class("local", LOCAL)
        + &volume("free", "n1", 5, "Available", "")
        + &volume(
            "mine",
            "n2",
            5,
            "Available",
            "  claimRef: {namespace: default, name: data}",
        )
        + &claim("data", "local", 5, "", "")
        + &target(&["data"], "", "", "");
    let report = asked(&yaml);
    let offer = &report.claims[0].offers()[0];
    assert!(
        offer.text.contains("volume mine is reserved for the claim"),
        "{offer:?}"
    );
}

#[test]
fn a_claim_that_nobody_provisions_for_needs_a_volume() {
    let immediate = class("local", LOCAL).replace("WaitForFirstConsumer", "Immediate");
    let yaml = node("n1", "") + &immediate + &claim("data", "local", 5, "", "") + &target(&["data"], "", "", "");
    let advice = asked(&yaml).advice;
    assert!(
        advice[0].starts_with("provide a volume for claim data: 5Gi of class local (RWO)"),
        "{advice:?}"
    );
}
