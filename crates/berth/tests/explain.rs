//! The output of `berth explain` for small clusters, as snapshots: the wording is the product.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use anstream::adapter::strip_str;
use berth::explain::{Report, World, explain_pod, render};
use berth::input;
use berth_core::api::{Object, Pod};
use berth_scheduler::profile::Profile;

/// Reads a cluster and explains the pod named `target` in it.
fn explained(yaml: &str) -> Report {
    let mut world = World::default();
    let mut target: Option<Pod> = None;
    let read = input::read_text("cluster.yaml", yaml, &mut |object| match object {
        Object::Pod(pod) if pod.metadata.name == "target" => target = Some(*pod),
        object => world.upsert(object),
    });
    read.unwrap_or_else(|error| panic!("{error}"));
    explain_pod(&mut world, &target.expect("a pod named target"), &Profile::default())
}

fn table(report: &Report, width: usize) -> String {
    strip_str(&render(report, width)).to_string()
}

fn check(name: &str, yaml: &str) -> Report {
    let report = explained(yaml);
    insta::assert_snapshot!(name, table(&report, 100));
    report
}

fn node(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{kubernetes.io/hostname: {name}}}\n\
         status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}\n{more}\n"
    )
}

const CLASSES: &str = "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local}, \
     provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}\n---\n\
     {apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: now}, provisioner: disk.example.com, \
     volumeBindingMode: Immediate}\n";

fn volume(name: &str, node: &str, gi: u32, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nstatus: {{phase: Available}}\nspec:\n  \
         capacity: {{storage: {gi}Gi}}\n  accessModes: [ReadWriteOnce]\n  storageClassName: local\n  nodeAffinity: \
         {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: \
         [{node}]}}]}}]}}}}\n{more}\n"
    )
}

fn claim(name: &str, class: &str, gi: u32, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: {name}\n{more}\nspec:\n  accessModes: \
         [ReadWriteOnce]\n  storageClassName: {class}\n  resources: {{requests: {{storage: {gi}Gi}}}}\n"
    )
}

fn target(claims: &[&str], more: &str) -> String {
    let mut pod = format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: target}}\nspec:\n  containers: [{{name: main, resources: {{requests: \
         {{cpu: 1}}}}}}]\n{more}\n  volumes:\n"
    );
    for claim in claims {
        pod.push_str(&format!(
            "  - {{name: {claim}, persistentVolumeClaim: {{claimName: {claim}}}}}\n"
        ));
    }
    pod
}

#[test]
fn a_pod_without_claims_fits_everywhere() {
    let report = check(
        "fits_everywhere",
        &(node("n1", "") + &node("n2", "") + &target(&[], "")),
    );
    assert!(report.schedulable && report.advice.is_empty());
}

#[test]
fn there_are_no_nodes() {
    check("no_nodes", &target(&[], ""));
}

#[test]
fn claims_that_no_node_can_help() {
    let cluster = node("n1", "") + CLASSES;
    check("claim_missing", &(cluster.clone() + &target(&["data"], "")));
    check(
        "claim_unbound_immediate",
        &(cluster.clone() + &claim("data", "now", 5, "") + &target(&["data"], "")),
    );
    let deleting = "  deletionTimestamp: \"2026-01-01T00:00:00Z\"";
    check(
        "claim_deleting",
        &(cluster.clone() + &claim("data", "local", 5, deleting) + &target(&["data"], "")),
    );
    let lost = claim("data", "local", 5, "") + "  volumeName: gone\nstatus: {phase: Lost}\n";
    check("claim_lost", &(cluster.clone() + &lost + &target(&["data"], "")));
    let ephemeral = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: target}\nspec:\n  volumes:\n  - name: scratch\n    ephemeral: {}\n";
    check("claim_ephemeral_missing", &(cluster + ephemeral));
}

#[test]
fn a_bound_volume_is_out_of_reach() {
    let bound = claim(
        "data",
        "local",
        5,
        "  annotations: {pv.kubernetes.io/bind-completed: \"yes\"}",
    ) + "  volumeName: pv1\n";
    let taken = volume("pv1", "n3", 5, "  claimRef: {namespace: default, name: data}").replace("Available", "Bound");
    let cordoned = "spec: {unschedulable: true}";
    let cluster = node("n1", "") + &node("n2", "") + &node("n3", cordoned) + CLASSES;
    check(
        "bound_out_of_reach",
        &(cluster.clone() + &taken + &bound + &target(&["data"], "")),
    );
    check("bound_to_nothing", &(cluster + &bound + &target(&["data"], "")));
}

#[test]
fn claims_compete_for_one_volume() {
    let yaml = node("n1", "")
        + CLASSES
        + &volume("pv1", "n1", 10, "")
        + &claim("data", "local", 5, "")
        + &claim("logs", "local", 5, "")
        + &target(&["data", "logs"], "");
    let report = check("claims_compete", &yaml);
    assert!(
        report.claims.iter().all(|claim| claim.offers()[0].suffices),
        "each alone would find its place"
    );
}

#[test]
fn volumes_that_are_large_enough_but_do_not_suit() {
    let selector = claim("data", "local", 5, "") + "  selector: {matchLabels: {tier: gold}}\n";
    let yaml = node("n1", "") + CLASSES + &volume("pv1", "n1", 10, "") + &selector + &target(&["data"], "");
    check("does_not_suit", &yaml);
}

#[test]
fn a_large_cluster_is_grouped() {
    let mut yaml = CLASSES.to_owned() + &claim("data", "local", 100, "") + &target(&["data"], "");
    for index in 0..40 {
        let name = format!("node-{index:02}");
        let more = match index % 4 {
            0 => "spec: {taints: [{key: gpu, effect: NoSchedule}]}",
            1 => "spec: {unschedulable: true}",
            _ => "",
        };
        yaml += &node(&name, more);
        yaml += &volume(&format!("{name}-disk"), &name, 10 + index % 3, "");
    }
    let report = check("large_cluster", &yaml);
    insta::assert_snapshot!("large_cluster_narrow", table(&report, 50));
}

#[test]
fn general_reasons_come_with_details() {
    let full = "---\n{apiVersion: v1, kind: Pod, metadata: {name: busy}, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 3500m, memory: 7Gi}}}]}}\n";
    let wants = "  nodeSelector: {disk: ssd}\n  tolerations: [{key: gpu, operator: Exists}]";
    let yaml = node("n1", "")
        + &node(
            "n2",
            "spec: {taints: [{key: gpu, value: a100, effect: NoSchedule}, {key: old, effect: NoExecute}]}",
        )
        + full
        + &target(&[], wants);
    check("details", &yaml);
}

fn running(name: &str, node: &str, cpu: &str, more: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{nodeName: {node}, \
         containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]{more}}}}}\n"
    )
}

#[test]
fn evicting_lesser_pods_would_make_room() {
    let lesser = node("n1", "") + &running("low", "n1", "3500m", "");
    let report = check(
        "preemption",
        &(lesser.clone() + &running("small", "n1", "100m", "") + &target(&[], "  priority: 1000")),
    );
    let room = report.preemption.expect("room can be made");
    assert!(!report.schedulable, "it does not fit as it is");
    let victims: Vec<_> = room
        .victims
        .iter()
        .map(|victim| (victim.pod.as_str(), victim.priority))
        .collect();
    assert_eq!((room.node.as_str(), victims), ("n1", vec![("default/low", 0)]));
    let report = explained(&(lesser.clone() + &target(&[], "")));
    assert_eq!(report.preemption, None, "nobody is of lower priority");
    let report = explained(&(lesser + &target(&[], "  priority: 1000\n  preemptionPolicy: Never")));
    assert_eq!(report.preemption, None);
    assert!(
        report.message.ends_with("preemptionPolicy=Never."),
        "{}",
        report.message
    );
}

#[test]
fn steps_that_are_needed_together_stand_together() {
    let apart = "  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: \
                 kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}]}}";
    let taint = "spec: {taints: [{key: gpu, effect: NoSchedule}]}";
    let yaml = node("n1", "")
        + &node("n2", taint)
        + &node("n3", "spec: {unschedulable: true}")
        + CLASSES
        + &volume("pv3", "n3", 5, "")
        + &running("db", "n1", "1", "").replace("name: db,", "name: db-0,")
        + &running("db", "n2", "1", "").replace("name: db,", "name: db-1,")
        + &running("db", "n3", "1", "").replace("name: db,", "name: db-2,")
        + &claim("data", "local", 50, "")
        + &target(&["data"], apart);
    check("steps_together", &yaml);
    let with_storage = yaml.clone() + &volume("pv1", "n1", 50, "");
    assert!(!explained(&with_storage).schedulable, "one step alone is not enough");
    assert!(!explained(&yaml.replace(apart, "")).schedulable);
    assert!(explained(&with_storage.replace(apart, "")).schedulable);
}

#[test]
fn a_pod_that_is_larger_than_any_node() {
    let large = target(&[], "").replace("cpu: 1", "cpu: 9");
    let report = check("too_large", &(node("n1", "") + &node("n2", "") + &large));
    assert!(
        report.advice[0].starts_with("add a larger node: the pod requests 9 cpu"),
        "{:?}",
        report.advice
    );
    let on_one =
        node("n1", "") + &node("n2", "").replace("cpu: 4", "cpu: 16") + &running("busy", "n2", "12", "") + &large;
    let report = explained(&on_one);
    assert_eq!(
        report.advice,
        [
            "on n2: free cpu, or reduce the pod's request",
            "on n1: reduce the pod's cpu request: the node has only 4",
            "add a node with room for the pod"
        ]
    );
    let gpu = target(&[], "").replace("cpu: 1", "example.com/gpu: 1");
    let report = explained(&(node("n1", "") + &gpu));
    assert_eq!(
        report.advice,
        [
            "add a larger node: the pod requests 1 example.com/gpu, which no node has",
            "remove the pod's example.com/gpu request: no node has it"
        ]
    );
}

#[test]
fn a_class_that_does_not_exist_is_to_be_made() {
    let report = check(
        "class_missing",
        &(node("n1", "") + CLASSES + &claim("data", "nope", 5, "") + &target(&["data"], "")),
    );
    assert!(
        report.advice[0].starts_with("create StorageClass nope"),
        "{:?}",
        report.advice
    );
}

#[test]
fn an_inline_volume_is_too_large_for_the_pools() {
    let yaml =
        include_str!("../../../examples/pmem-ephemeral-volume.yaml").replace("name: redis-large", "name: target");
    check("inline_volume", &yaml);
}

#[test]
fn claims_of_one_class_are_not_both_promised_the_same_volume() {
    let yaml = node("n1", "")
        + CLASSES
        + &volume("pv1", "n1", 10, "")
        + &claim("data", "local", 50, "")
        + &claim("logs", "local", 50, "");
    let one = explained(&(yaml.clone() + &target(&["data"], "")));
    assert!(
        one.advice[0].ends_with("or reduce claim data to 10Gi, which n1 has"),
        "{:?}",
        one.advice
    );
    let both = explained(&(yaml + &target(&["data", "logs"], "")));
    assert_eq!(
        both.advice,
        [
            "on n1, all of: provide storage for claim data: 50Gi of class local (RWO); provide storage for claim logs: 50Gi of \
          class local (RWO)"
        ]
    );
}

#[test]
fn a_volume_that_is_being_made_for_another_node() {
    let chosen = "  annotations: {volume.kubernetes.io/selected-node: n2}";
    let made = CLASSES.replace(
        "volumeBindingMode: Immediate",
        "volumeBindingMode: WaitForFirstConsumer",
    );
    let yaml = node("n1", "")
        + &node("n2", "spec: {unschedulable: true}")
        + &made
        + &claim("data", "now", 5, chosen)
        + &target(&["data"], "");
    assert_eq!(
        explained(&yaml).advice,
        [
            "on n2: uncordon it (kubectl uncordon n2)",
            "on n1: node n2 is selected for claim data, and only the provisioner may change that: it clears the selection \
             when it cannot create the volume there. If the provisioner is not running, remove the annotation \
             volume.kubernetes.io/selected-node from the claim"
        ]
    );
}

#[test]
fn equally_good_nodes_are_tied() {
    let report = check(
        "tied",
        &(node("n1", "") + &node("n2", "") + &node("n3", "") + &running("busy", "n2", "1", "") + &target(&[], "")),
    );
    assert_eq!(report.tied(), ["n3"]);
}

#[test]
fn the_report_as_json() {
    let yaml = node("n1", "")
        + &node("n2", "")
        + CLASSES
        + &volume("pv1", "n1", 10, "")
        + &claim("data", "local", 5, "")
        + &target(&["data"], "");
    insta::assert_json_snapshot!("report", explained(&yaml));
}

/// Values that are wrong, extreme or of another type in most places.
const NASTY: &[&str] = &[
    "-1",
    "0",
    "1",
    "9223372036854775807",
    "18446744073709551616",
    "-9223372036854775808",
    "1e30",
    "100Ei",
    "0.0001",
    "~",
    "[]",
    "{}",
    "''",
    "x",
    "yes",
    "a__b",
    "n1",
    "n2",
    "local",
    "lvm",
    "shop",
    "Bound",
    "NoExecute",
    "Exists",
    "DoesNotExist",
    "Gt",
    "ReadWriteOncePod",
    "Immediate",
    "Block",
    "../..",
    "\"\\u0000\"",
];

/// A text with some of its values replaced, and some of its lines removed.
fn mutated(text: &str, edits: &[(proptest::sample::Index, proptest::sample::Index)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (line, value) in edits {
        let at = line.index(lines.len());
        let value = NASTY[value.index(NASTY.len())];
        let line = lines[at].clone();
        lines[at] = match (line.find(": "), line.find('{')) {
            // Within a map in braces: the value of one of its keys.
            (_, Some(brace)) if line[brace..].contains(": ") => {
                let start = brace + line[brace..].find(": ").unwrap() + 2;
                let end = line[start..].find([',', '}']).map_or(line.len(), |end| start + end);
                format!("{}{value}{}", &line[..start], &line[end..])
            }
            (Some(colon), _) => format!("{}: {value}", &line[..colon]),
            (None, _) => String::new(),
        };
    }
    lines.join("\n")
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Whatever the files contain, there is an error or an answer, and the answer can be rendered.
    #[test]
    fn any_cluster_is_explained_or_refused(
        which in 0..2_usize,
        edits in proptest::collection::vec(proptest::prelude::any::<(proptest::sample::Index, proptest::sample::Index)>(), 0..6),
        width in 0..200_usize,
    ) {
        let text = [
            include_str!("../../../examples/explain/local-volumes.yaml"),
            include_str!("../../../examples/explain/storage-capacity.yaml"),
        ][which];
        let mut objects = Vec::new();
        let read = input::read_text("cluster.yaml", &mutated(text, &edits), &mut |object| objects.push(object));
        if read.is_err() {
            return Ok(());
        }
        let pods: Vec<usize> = (0..objects.len()).filter(|at| matches!(objects[*at], Object::Pod(_))).collect();
        for at in pods {
            let mut world = World::default();
            let others = objects.iter().enumerate().filter(|(other, _)| *other != at);
            others.for_each(|(_, object)| world.upsert(object.clone()));
            let Object::Pod(pod) = &objects[at] else {
                continue;
            };
            let report = explain_pod(&mut world, pod, &Profile::default());
            proptest::prop_assert_eq!(report.schedulable, report.fitting() > 0);
            proptest::prop_assert!(!render(&report, width).is_empty());
            serde_json::to_string(&report).unwrap();
        }
    }
}
