//! Answers of `berth explain` to urgent questions: why a pod that fits waits, why a disk is not used, and advice that works when
//! followed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use anstream::adapter::strip_str;
use berth::cli::{Cli, Command};
use berth::explain::{self, Report, World, explain_pod, render};
use berth::input::{self, NoProgress, Source};
use berth_core::api::{self, Object};
use berth_core::quantity::Quantity;
use berth_scheduler::profile::Profile;
use clap::Parser as _;

/// Explains the pod `default/target` as the command does.
fn asked(yaml: &str) -> Report {
    let Command::Explain(args) = Cli::parse_from(["berth", "explain", "--pod", "target"]).command else {
        panic!()
    };
    let source = Source::Text {
        name: "cluster.yaml".into(),
        bytes: yaml.as_bytes().to_vec(),
    };
    let explained = explain::explain_sources(&args, &[source], &mut std::io::empty(), &mut NoProgress);
    explained.unwrap_or_else(|error| panic!("{error}")).report
}

fn table(report: &Report) -> String {
    strip_str(&render(report, 110)).to_string()
}

/// Checks the text, and returns the code of why the pod waits.
fn check(name: &str, yaml: &str) -> (&'static str, Report) {
    let report = asked(yaml);
    insta::assert_snapshot!(name, table(&report));
    let waiting = report.waiting.as_ref().unwrap();
    (waiting.code.code(), report)
}

fn node(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: {{kubernetes.io/hostname: {name}}}\n\
         status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}\n{more}\n"
    )
}

fn class(name: &str, provisioner: &str) -> String {
    format!(
        "---\n{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {name}}}, provisioner: {provisioner}, \
         volumeBindingMode: WaitForFirstConsumer}}\n"
    )
}

const LOCAL: &str = "kubernetes.io/no-provisioner";

fn claim(name: &str, class: &str, gi: u32, annotations: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: {name}\n  creationTimestamp: \
         2026-01-01T00:00:00Z\n  annotations: {{{annotations}}}\nspec:\n  accessModes: [ReadWriteOnce]\n  storageClassName: \
         {class}\n  resources: {{requests: {{storage: {gi}Gi}}}}\n{spec}\n"
    )
}

fn volume(name: &str, node: &str, gi: u32, phase: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nstatus: {{phase: {phase}}}\nspec:\n  \
         capacity: {{storage: {gi}Gi}}\n  accessModes: [ReadWriteOnce]\n  storageClassName: local\n  nodeAffinity: \
         {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: \
         [{node}]}}]}}]}}}}\n{spec}\n"
    )
}

/// A pod as stored by an API server, with claims.
fn target(claims: &[&str], metadata: &str, spec: &str, status: &str) -> String {
    let mut pod = format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: target\n  namespace: default\n  uid: u1\n  creationTimestamp: \
         2026-01-01T00:00:00Z\n{metadata}\nstatus:\n  phase: Pending\n{status}\nspec:\n  containers: [{{name: main, image: app, \
         resources: {{requests: {{cpu: 1}}}}}}]\n{spec}\n  volumes:\n"
    );
    for claim in claims {
        pod.push_str(&format!(
            "  - {{name: {claim}, persistentVolumeClaim: {{claimName: {claim}}}}}\n"
        ));
    }
    pod
}

fn event(kind: &str, name: &str, by: &str, reason: &str, count: u32, message: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Event\nmetadata: {{name: {kind}-{reason}, namespace: default}}\ninvolvedObject: {{kind: \
         {kind}, namespace: default, name: {name}}}\nreason: {reason}\nmessage: {message:?}\nsource: {{component: {by}}}\n\
         firstTimestamp: 2026-01-01T00:00:10Z\nlastTimestamp: 2026-01-01T00:11:00Z\ncount: {count}\n"
    )
}

fn lease(name: &str, renewed: &str) -> String {
    format!(
        "---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: {name}, namespace: kube-system}}\nspec: \
         {{holderIdentity: m1_x, leaseDurationSeconds: 15, renewTime: \"{renewed}\"}}\n"
    )
}

const NOW: &str = "2026-01-01T00:12:00.000000Z";

/// Nodes that lack the same are one way out of it, however many they are.
#[test]
fn advice_for_thousands_of_nodes_is_one_sentence() {
    let disks = |at: usize| -> String {
        let (node, name) = (format!("n{at}"), |disk: char| format!("pv-{at}-{disk}"));
        [name('a'), name('b')]
            .iter()
            .map(|name| volume(name, &node, 10, "Available", ""))
            .collect()
    };
    let nodes: String = (0..4000).map(|at| node(&format!("n{at}"), "") + &disks(at)).collect();
    let claims = ["a", "b", "c"];
    let wanted: String = claims.iter().map(|name| claim(name, "local", 5, "", "")).collect();
    let report = asked(&(nodes + &class("local", LOCAL) + &wanted + &target(&claims, "", "", "")));
    let table = table(&report);
    assert!(!table.contains("not checked"), "{table}");
    let (_, help) = table.split_once("What would help\n").expect("there is advice");
    assert_eq!(help.matches("  - ").count(), 1, "{help}");
    assert!(help.contains("n0, n1, n10 and 3997 more: add storage"), "{help}");
}

#[test]
fn nobody_serves_the_scheduler_that_the_pod_names() {
    let ghost = target(&[], "", "  schedulerName: ghost", "");
    let cluster = node("n1", "");
    let (code, report) = check(
        "no_scheduler",
        &(cluster.clone() + &lease("kube-scheduler", NOW) + &ghost),
    );
    assert_eq!(code, "Pod.SchedulerAbsent");
    assert!(report.schedulable && report.waiting.unwrap().is_kept());
    let code = |yaml: &str| asked(yaml).waiting.unwrap().code.code();
    assert_ne!(
        code(&(cluster.clone() + &lease("ghost", NOW) + &ghost)),
        "Pod.SchedulerAbsent"
    );
    let said = event("Pod", "other", "ghost", "Scheduled", 1, "assigned");
    let busy = cluster.clone() + &lease("kube-scheduler", NOW) + &said + &ghost;
    assert_ne!(code(&busy), "Pod.SchedulerAbsent", "it has written an event");
    assert_ne!(
        code(&(cluster.clone() + &ghost)),
        "Pod.SchedulerAbsent",
        "without leases there is no telling"
    );
    let dead = lease("kube-scheduler", "2026-01-01T00:02:00.000000Z") + &lease("other", NOW);
    let (code, _) = check("scheduler_gone", &(cluster + &dead + &target(&[], "", "", "")));
    assert_eq!(code, "Pod.SchedulerAbsent");
}

#[test]
fn the_provisioner_does_not_answer_or_fails() {
    let selected = "volume.kubernetes.io/selected-node: n1";
    let cluster = node("n1", "")
        + &class("ebs", "ebs.csi.example.com")
        + &claim("data", "ebs", 5, selected, "")
        + &target(&["data"], "", "", "");
    let waits = event(
        "PersistentVolumeClaim",
        "data",
        "persistentvolume-controller",
        "ExternalProvisioning",
        9,
        "Waiting for a volume to be created",
    );
    let (code, report) = check("provisioner_silent", &(cluster.clone() + &waits + &lease("any", NOW)));
    assert_eq!(code, "Pod.ProvisionerSilent");
    assert!(report.schedulable);
    let failed = event(
        "PersistentVolumeClaim",
        "data",
        "ebs.csi.example.com_ctrl-0_1",
        "ProvisioningFailed",
        4,
        "quota exceeded",
    );
    let (code, _) = check(
        "provisioning_failed",
        &(cluster.clone() + &waits + &failed + &lease("any", NOW)),
    );
    assert_eq!(code, "Pod.ProvisioningFailed");
    let (code, report) = check("provisioning", &cluster);
    assert_eq!(code, "Pod.Provisioning", "without events there is no telling");
    assert!(!report.waiting.unwrap().is_kept());
}

#[test]
fn binding_timed_out() {
    let message = "running PreBind plugin \"VolumeBinding\": binding volumes: timed out waiting for the condition";
    let late = event("Pod", "target", "default-scheduler", "FailedScheduling", 3, message);
    let (code, _) = check("timed_out", &(node("n1", "") + &late + &target(&[], "", "", "")));
    assert_eq!(code, "Pod.BindingTimedOut");
}

#[test]
fn pods_that_no_scheduler_places() {
    let cluster = node("n1", "");
    let gated = target(&[], "", "  schedulingGates: [{name: example.com/quota}]", "");
    assert_eq!(check("gated", &(cluster.clone() + &gated)).0, "Pod.Gated");
    let deleting = "  deletionTimestamp: 2026-01-01T00:01:00Z\n  finalizers: [example.com/backup]";
    let clock = lease("any", NOW);
    let deleting = cluster.clone() + &clock + &target(&[], deleting, "", "");
    assert_eq!(check("deleting", &deleting).0, "Pod.Deleting");
    let placed = target(&[], "", "  nodeName: n1", "");
    assert_eq!(
        asked(&(cluster.clone() + &placed)).waiting.unwrap().code.code(),
        "Pod.HasNode"
    );
    let victim = "---\n{apiVersion: v1, kind: Pod, metadata: {name: low, namespace: default, deletionTimestamp: \
                  \"2026-01-01T00:10:00Z\"}, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 4}}}]}}\n";
    let nominated = target(&[], "", "  priority: 1000", "  nominatedNodeName: n1");
    let yaml = cluster.clone() + victim + &clock + &nominated;
    assert_eq!(check("nominated", &yaml).0, "Pod.Nominated");
    let refused = "  conditions: [{type: PodScheduled, status: \"False\", reason: Unschedulable, message: \"0/1 nodes are \
                   available: 1 Insufficient cpu.\"}]";
    let (code, _) = check("refused_before", &(cluster.clone() + &target(&[], "", "", refused)));
    assert_eq!(code, "Pod.RefusedBefore");
    let young = cluster.clone() + &lease("kube-scheduler", NOW) + &target(&[], "", "", "");
    assert_eq!(check("not_looked_at", &young).0, "Pod.NotLookedAt");
    let manifest = "---\n{apiVersion: v1, kind: Pod, metadata: {name: target}, spec: {containers: [{name: c}]}}\n";
    let report = asked(&(cluster + manifest));
    assert_eq!(
        report.waiting.unwrap().code.code(),
        "Pod.Fits",
        "of a manifest there is nothing to say"
    );
}

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

#[test]
fn a_dead_node_is_to_come_back_and_not_to_be_tolerated() {
    let down = "spec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}, {key: \
                node.kubernetes.io/unreachable, effect: NoSchedule}]}";
    let cordoned = "spec: {unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}";
    let (_, report) = check(
        "dead_node",
        &(node("n1", down) + &node("n2", cordoned) + &target(&[], "", "", "")),
    );
    assert!(
        !report.advice.iter().any(|way| way.contains("toleration")),
        "{:?}",
        report.advice
    );
}

#[test]
fn a_pod_of_a_daemon_set_is_advised_for_its_own_node() {
    let owner = "  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: ds, uid: d1, controller: true}]";
    let pinned = |node: &str| {
        format!(
            "  affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: \
             [{{matchFields: [{{key: metadata.name, operator: In, values: [{node}]}}]}}]}}}}}}"
        )
    };
    let bound = "  volumeName: v1\nstatus: {phase: Bound}";
    let cluster = node("n1", "")
        + &node("n2", "")
        + &node("n3", "")
        + &class("local", LOCAL)
        + &volume("v1", "n1", 5, "Bound", "  claimRef: {namespace: default, name: c}")
        + &volume("v2", "n2", 5, "Available", "")
        + &claim("c", "local", 5, "pv.kubernetes.io/bind-completed: \"yes\"", bound);
    check(
        "daemon_with_disk",
        &(cluster.clone() + &target(&["c"], owner, &pinned("n2"), "")),
    );
    check(
        "daemon_without_disk",
        &(cluster.clone() + &target(&["c"], owner, &pinned("n3"), "")),
    );
    let report = asked(&(cluster + &target(&["c"], owner, &pinned("n9"), "")));
    assert!(
        report.advice[0].starts_with("bring node n9 back"),
        "{:?}",
        report.advice
    );
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

/// The part about refused nodes, claims and advice, without the verdict.
fn reasons(yaml: &str) -> String {
    let text = table(&asked(yaml));
    let start = text.find("Refused").or_else(|| text.find("Claims")).unwrap_or(0);
    text.get(start..).unwrap().to_owned()
}

#[test]
fn labels_that_differ_are_named() {
    let labelled = |name: &str, labels: &str| node(name, "").replace("labels: {", &format!("labels: {{{labels}, "));
    let cluster = labelled("n1", "disk: hdd, topology.kubernetes.io/zone: a") + &labelled("n2", "disk: hdd");
    let affinity = |terms: &str| {
        format!(
            "  affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}}}}}"
        )
    };
    let mut told = String::new();
    for (name, spec) in [
        ("a label", "  nodeSelector: {disk: ssd, gpu: a100}".to_owned()),
        ("a zone", "  nodeSelector: {topology.kubernetes.io/zone: b}".to_owned()),
        (
            "a node that does not exist",
            "  nodeSelector: {kubernetes.io/hostname: n9}".to_owned(),
        ),
        (
            "the nearest term",
            affinity(
                "{matchExpressions: [{key: disk, operator: In, values: [ssd, nvme]}, {key: gpu, operator: Exists}]}, \
                 {matchExpressions: [{key: disk, operator: NotIn, values: [hdd]}]}",
            ),
        ),
        (
            "a name",
            affinity("{matchFields: [{key: metadata.name, operator: In, values: [n9]}]}"),
        ),
    ] {
        told += &format!(
            "# {name}\n{}\n",
            reasons(&(cluster.clone() + &target(&[], "", &spec, "")))
        );
    }
    insta::assert_snapshot!("labels", told);
}

#[test]
fn a_volume_that_a_hand_could_mend_is_advised_before_new_storage() {
    let cluster = node("n1", "") + &node("n2", "") + &class("local", LOCAL);
    let plain = claim("data", "local", 10, "", "");
    let gold = claim("data", "local", 10, "", "  selector: {matchLabels: {tier: gold}}");
    let silver = volume("v1", "n1", 50, "Available", "").replace("{name: v1}", "{name: v1, labels: {tier: silver}}");
    let many = plain.replace("ReadWriteOnce", "ReadWriteMany");
    let old = "  claimRef: {namespace: default, name: old, uid: u9}";
    let mut told = String::new();
    for (name, claim, volume) in [
        ("Released", &plain, volume("v1", "n1", 50, "Released", old)),
        ("Failed", &plain, volume("v1", "n1", 50, "Failed", old)),
        (
            "reserved for a claim that does not exist",
            &plain,
            volume("v1", "n1", 50, "Available", "  claimRef: {namespace: shop, name: web}"),
        ),
        (
            "another name of the node",
            &plain,
            volume("v1", "n1.example.com", 50, "Available", ""),
        ),
        ("labels", &gold, silver),
        ("access modes", &many, volume("v1", "n1", 50, "Available", "")),
        (
            "volume mode",
            &plain,
            volume("v1", "n1", 50, "Available", "  volumeMode: Block"),
        ),
        ("too small besides", &plain, volume("v1", "n1", 5, "Released", old)),
        (
            "being deleted",
            &plain,
            volume("v1", "n1", 50, "Available", "")
                .replace("{name: v1}", "{name: v1, deletionTimestamp: \"2026-01-01T00:00:00Z\"}"),
        ),
    ] {
        let report = asked(&(cluster.clone() + claim + &volume + &target(&["data"], "", "", "")));
        let advice: Vec<String> = report.advice.iter().map(|way| format!("- {way}\n")).collect();
        told += &format!("# {name}\n{}\n", advice.concat());
    }
    insta::assert_snapshot!("mended_volumes", told);
}

#[test]
fn the_pods_that_are_in_the_way_are_named() {
    let cluster = node("n1", "");
    let runs = |name: &str, more: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: {name}}}}}, \
             status: {{phase: Running}}, spec: {{nodeName: n1, containers: [{{name: c, ports: [{{containerPort: 80, hostPort: \
             80}}]}}]{more}}}}}\n"
        )
    };
    let terms = |kind: &str, app: &str| {
        format!(
            "{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: kubernetes.io/hostname, labelSelector: \
             {{matchLabels: {{app: {app}}}}}}}]}}"
        )
    };
    let anti = |app: &str| terms("podAntiAffinity", app);
    let spread = |key: &str| {
        format!(
            "  topologySpreadConstraints: [{{maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: DoNotSchedule, labelSelector: \
             {{matchLabels: {{app: web}}}}}}]"
        )
    };
    let with_label = "  labels: {app: web}";
    let avoids = format!(", affinity: {{{}}}", anti("web"));
    let port = target(&[], "", "", "").replace("image: app", "image: app, ports: [{containerPort: 80, hostPort: 80}]");
    let other_node = node("n2", "spec: {unschedulable: true}");
    let mut told = String::new();
    for (name, yaml) in [
        ("host port", runs("web", "") + &port),
        (
            "anti-affinity",
            runs("web", "") + &target(&[], "", &format!("  affinity: {{{}}}", anti("web")), ""),
        ),
        (
            "anti-affinity of others",
            runs("first", &avoids) + &target(&[], with_label, "", ""),
        ),
        (
            "affinity",
            target(
                &[],
                "",
                &format!("  affinity: {{{}}}", terms("podAffinity", "cache")),
                "",
            ),
        ),
        (
            "spread",
            runs("web", "") + &other_node + &target(&[], with_label, &spread("kubernetes.io/hostname"), ""),
        ),
        ("spread without a label", target(&[], with_label, &spread("rack"), "")),
    ] {
        told += &format!("# {name}\n{}\n", reasons(&(cluster.clone() + &yaml)));
    }
    insta::assert_snapshot!("in_the_way", told);
}

#[test]
fn names_that_are_almost_right_are_suggested() {
    let cluster = node("n1", "") + &class("local", LOCAL);
    let elsewhere = claim("data", "local", 5, "", "").replace("name: data", "name: data\n  namespace: shop");
    let zonal = "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: z}, provisioner: d.example.com, \
                 volumeBindingMode: WaitForFirstConsumer, allowedTopologies: [{matchLabelExpressions: [{key: \
                 topology.kubernetes.io/zone, values: [a, b]}]}]}\n";
    let mut told = String::new();
    for (name, yaml) in [
        ("claim of another namespace", elsewhere),
        ("claim of another name", claim("data-0", "local", 5, "", "")),
        ("class", claim("data", "locla", 5, "", "")),
        ("zone", zonal.to_owned() + &claim("data", "z", 5, "", "")),
    ] {
        told += &format!(
            "# {name}\n{}\n",
            reasons(&(cluster.clone() + &yaml + &target(&["data"], "", "", "")))
        );
    }
    insta::assert_snapshot!("suggestions", told);
}

/// The provisioner clears the selected node when it fails, and the scheduler reports only that.
#[test]
fn a_claim_whose_selected_node_was_cleared_is_told_with_the_reason_of_its_provisioner() {
    let message = "binding volumes: selected-node of claim \"data\" was cleared";
    let cleared = event("Pod", "target", "default-scheduler", "FailedScheduling", 4, message);
    let failed = event(
        "PersistentVolumeClaim",
        "data",
        "lvm.example.com_ctrl-0_1",
        "ProvisioningFailed",
        4,
        "not enough room for 5Gi on n1",
    );
    let cluster = node("n1", "") + &class("lvm", "lvm.example.com") + &claim("data", "lvm", 5, "", "") + &failed;
    let (code, report) = check(
        "cleared",
        &(cluster.clone() + &cleared + &target(&["data"], "", "", "")),
    );
    assert_eq!(code, "Pod.ProvisioningFailed");
    assert!(report.schedulable && report.waiting.unwrap().is_kept());
    let (text, status) = run(&cluster, &["pvc/data"]);
    insta::assert_snapshot!("cleared_claim", text);
    assert_eq!(status, 1, "the claim is not as it should be");
}

#[test]
fn a_claim_that_binds_immediately_is_told_with_its_provisioner() {
    let fast = class("fast", "ebs.csi.example.com").replace("WaitForFirstConsumer", "Immediate");
    let waits = event(
        "PersistentVolumeClaim",
        "data",
        "persistentvolume-controller",
        "ExternalProvisioning",
        9,
        "Waiting for a volume to be created",
    );
    let yaml = node("n1", "") + &fast + &claim("data", "fast", 5, "", "") + &waits + &target(&["data"], "", "", "");
    let (text, status) = run(&yaml, &["pvc/data"]);
    insta::assert_snapshot!("immediate_claim", text);
    assert_eq!(status, 1);
    let (code, report) = check("immediate", &yaml);
    assert_eq!((code, report.schedulable), ("Pod.ProvisionerSilent", false));
}

#[test]
fn a_pod_on_a_node_that_does_not_exist_is_told_first() {
    let (code, report) = check("node_named", &(node("n1", "") + &target(&[], "", "  nodeName: n9", "")));
    assert_eq!(code, "Pod.HasNode");
    assert!(report.waiting.unwrap().text.contains("which does not exist"));
}

/// Runs the command on a file, and returns its output and exit status.
fn run(yaml: &str, arguments: &[&str]) -> (String, i32) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.yaml");
    std::fs::write(&path, yaml).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_berth"))
        .arg("explain")
        .args(arguments)
        .arg("-f")
        .arg(&path)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "110")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (text, output.status.code().unwrap())
}

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
    insta::assert_snapshot!("all_waiting", text);
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
        insta::assert_snapshot!(name, text);
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

/// A claim that is bound to a volume, which has the claim's name.
fn bound(name: &str, on: &str) -> String {
    let completed = "pv.kubernetes.io/bind-completed: \"yes\"";
    let spec = format!("  volumeName: {name}\nstatus: {{phase: Bound}}");
    let reference = format!("  claimRef: {{namespace: default, name: {name}}}");
    volume(name, on, 5, "Bound", &reference) + &claim(name, "local", 5, completed, &spec)
}

/// A running pod on a node.
fn runs(name: &str, on: &str, cpu: u32) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, labels: {{app: {name}}}}}, status: \
         {{phase: Running}}, spec: {{nodeName: {on}, containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}}}\n"
    )
}

/// A volume of a zone instead of a node.
fn zonal(yaml: &str) -> String {
    yaml.replace(
        "key: kubernetes.io/hostname, operator",
        "key: topology.kubernetes.io/zone, operator",
    )
}

fn in_zone(name: &str, zone: &str) -> String {
    node(name, "").replace("labels: {", &format!("labels: {{topology.kubernetes.io/zone: {zone}, "))
}

#[test]
fn a_new_node_reaches_zonal_volumes_and_no_local_ones() {
    let full = in_zone("n1", "a") + &runs("hog", "n1", 4) + &class("local", LOCAL) + &target(&["data"], "", "", "");
    let adds = |yaml: &str| asked(yaml).advice.iter().any(|way| way.starts_with("add a node"));
    assert!(!adds(&(full.clone() + &bound("data", "n1"))), "its disk is in n1");
    assert!(adds(&(full + &zonal(&bound("data", "a")))), "a node of zone a helps");
}

#[test]
fn the_data_of_a_node_that_is_gone_is_not_to_be_moved() {
    let pod = target(&["data", "log"], "", "", "");
    let cluster = in_zone("n1", "a") + &in_zone("n2", "b") + &class("local", LOCAL) + &zonal(&bound("log", "a")) + &pod;
    let report = asked(&(cluster.clone() + &bound("data", "gone")));
    let [step] = report.advice.as_slice() else {
        panic!("{:?}", report.advice)
    };
    assert!(step.starts_with("bring gone back"), "{step}");
    let report = asked(&(cluster + &bound("data", "n1") + &runs("hog", "n1", 4) + &in_zone("n3", "a")));
    let moves: Vec<&String> = report
        .advice
        .iter()
        .filter(|way| way.contains("move the data"))
        .collect();
    let [way] = moves.as_slice() else { panic!("{moves:?}") };
    assert!(way.starts_with("on n3: ") && !way.contains("claim log"), "{way}");
}

#[test]
fn only_the_provisioner_of_the_class_tells_that_provisioning_fails() {
    let failed = |by: &str| {
        event(
            "PersistentVolumeClaim",
            "data",
            by,
            "ProvisioningFailed",
            1,
            "no such class",
        )
    };
    let cluster =
        |class: &str| node("n1", "") + class + &claim("data", "local", 5, "", "") + &target(&["data"], "", "", "");
    let code = |yaml: &str| asked(yaml).waiting.unwrap().code.code();
    let ebs = class("local", "ebs.csi.example.com");
    let own = failed("ebs.csi.example.com_ctrl-0_1");
    assert_eq!(code(&(cluster(&ebs) + &own)), "Pod.ProvisioningFailed");
    assert_ne!(
        code(&(cluster(&ebs) + &failed("persistentvolume-controller"))),
        "Pod.ProvisioningFailed"
    );
    assert_ne!(
        code(&(cluster(&class("local", LOCAL)) + &failed("persistentvolume-controller"))),
        "Pod.ProvisioningFailed"
    );
    let young = ebs.replace(
        "{name: local}",
        "{name: local, creationTimestamp: \"2026-01-01T00:11:30Z\"}",
    );
    assert_ne!(code(&(cluster(&young) + &own)), "Pod.ProvisioningFailed");
    let of_another = own.replace("name: data}", "name: data, uid: u8}");
    let known = cluster(&ebs).replace("  name: data\n", "  name: data\n  uid: u9\n");
    assert_ne!(code(&(known.clone() + &of_another)), "Pod.ProvisioningFailed");
    assert_eq!(code(&(known + &own)), "Pod.ProvisioningFailed");
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
fn an_attach_limit_is_no_reason_to_detach_nothing() {
    let limit = "---\n{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n1}, spec: {drivers: [{name: \
                 d.example.com, nodeID: n1, allocatable: {count: 0}}]}}\n";
    let disk = bound("data", "n1").replace(
        "spec:\n  capacity",
        "spec:\n  csi: {driver: d.example.com, volumeHandle: h}\n  capacity",
    );
    let yaml = node("n1", "") + &class("local", LOCAL) + limit + &disk + &target(&["data"], "", "", "");
    let report = asked(&yaml);
    assert!(!report.schedulable);
    assert!(
        !report.advice.iter().any(|way| way.contains("detach")),
        "{:?}",
        report.advice
    );
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
fn a_claim_that_nobody_provisions_for_needs_a_volume() {
    let immediate = class("local", LOCAL).replace("WaitForFirstConsumer", "Immediate");
    let yaml = node("n1", "") + &immediate + &claim("data", "local", 5, "", "") + &target(&["data"], "", "", "");
    let advice = asked(&yaml).advice;
    assert!(
        advice[0].starts_with("provide a volume for claim data: 5Gi of class local (RWO)"),
        "{advice:?}"
    );
}

/// Follows a step of advice as a person would, by its wording. Returns `false` for an unknown wording.
fn follow(step: &str, on: &str, world: &mut Vec<Object>, pod: &mut api::Pod) -> bool {
    let of_node = |world: &mut Vec<Object>, change: &dyn Fn(&mut api::Node)| {
        for object in world.iter_mut() {
            if let Object::Node(node) = object
                && node.metadata.name == on
            {
                change(node);
            }
        }
    };
    if step.starts_with("uncordon it") {
        of_node(world, &|node| {
            node.spec.unschedulable = false;
            node.spec
                .taints
                .retain(|taint| taint.key != "node.kubernetes.io/unschedulable");
        });
    } else if step.starts_with("bring it back") || step.starts_with("wait until it recovers") {
        of_node(world, &|node| {
            node.spec.taints.retain(|taint| !step.contains(&taint.key));
        });
    } else if let Some((_, rest)) = step
        .split_once("toleration for ")
        .or_else(|| step.split_once("tolerations for "))
    {
        let taints = rest.split(" to the pod, or remove").next().unwrap();
        for taint in taints.split(", ") {
            let (key, effect) = taint.rsplit_once(':').unwrap();
            pod.spec.tolerations.push(api::Toleration {
                key: key.split('=').next().unwrap().to_owned(),
                operator: "Exists".to_owned(),
                effect: effect.to_owned(),
                ..api::Toleration::default()
            });
        }
    } else if step.starts_with("label it as the pod asks") {
        let (_, command) = step.split_once("kubectl label node ").unwrap();
        let labels = command.split(" --overwrite").next().unwrap().split(' ').skip(1);
        let labels: Vec<(&str, &str)> = labels.map(|label| label.split_once('=').unwrap()).collect();
        of_node(world, &|node| {
            for (key, value) in &labels {
                node.metadata.labels.insert((*key).to_owned(), (*value).to_owned());
            }
        });
    } else if let Some(rest) = step.strip_prefix("remove `spec.claimRef` from volume ") {
        let freed = rest.split(' ').next().unwrap();
        for object in world.iter_mut() {
            if let Object::PersistentVolume(volume) = object
                && volume.metadata.name == freed
            {
                volume.spec.claim_ref = None;
                volume.status.phase = "Available".to_owned();
            }
        }
    } else if step.starts_with("free cpu") {
        for container in &mut pod.spec.containers {
            container
                .resources
                .requests
                .insert("cpu".to_owned(), Quantity::from_milli(1));
        }
    } else if let Some(rest) = step.strip_prefix("provide storage for claim ") {
        let size = rest
            .split(": ")
            .nth(1)
            .unwrap()
            .split("Gi")
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let text = volume(&format!("more-{on}-{}", world.len()), on, size, "Available", "");
        input::read_text("v", &text, &mut |object| world.push(object)).unwrap();
    } else {
        return false;
    }
    true
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(150))]

    /// Following a way gets the pod running on the named node.
    #[test]
    fn advice_that_is_followed_leads_to_a_placement(
        obstacles in proptest::collection::vec((0..128_u8, 0..3_u32), 1..5),
        wants in 1..3_u32,
    ) {
        let gold = "  nodeSelector: {tier: gold}";
        let mut yaml = class("local", LOCAL) + &claim("data", "local", 10, "", "") + &target(&["data"], "", gold, "");
        yaml = yaml.replace("cpu: 1", &format!("cpu: {wants}"));
        for (index, (bits, disks)) in obstacles.iter().enumerate() {
            let name = format!("n{index}");
            let mut taints = Vec::new();
            if bits & 1 > 0 {
                taints.push("{key: gpu, value: a, effect: NoSchedule}");
            }
            if bits & 2 > 0 {
                taints.push("{key: node.kubernetes.io/not-ready, effect: NoExecute}");
            }
            if bits & 4 > 0 {
                taints.push("{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}");
            }
            let more = format!("spec: {{unschedulable: {}, taints: [{}]}}", bits & 8 > 0, taints.join(", "));
            let tier = if bits & 32 > 0 { "silver" } else { "gold" };
            yaml += &node(&name, &more).replace("labels: {", &format!("labels: {{tier: {tier}, "));
            if bits & 64 > 0 {
                let old = "  claimRef: {namespace: default, name: old, uid: u9}";
                yaml += &volume(&format!("released-{index}"), &name, 10, "Released", old);
            }
            if bits & 16 > 0 {
                yaml += &format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: busy-{index}}}, spec: {{nodeName: {name}, \
                                  containers: [{{name: c, resources: {{requests: {{cpu: 3500m}}}}}}]}}}}\n");
            }
            for disk in 0..*disks {
                yaml += &volume(&format!("v{index}-{disk}"), &name, 5, "Available", "");
            }
        }
        let report = asked(&yaml);
        let mut objects = Vec::new();
        input::read_text("cluster.yaml", &yaml, &mut |object| objects.push(object)).unwrap();
        let at = objects.iter().position(|object| matches!(object, Object::Pod(pod) if pod.metadata.name == "target")).unwrap();
        let Object::Pod(pod) = objects.remove(at) else { panic!() };
        proptest::prop_assert!(report.schedulable || !report.advice.is_empty());
        for way in report.advice.iter().filter(|way| way.starts_with("on ")) {
            let (on, steps) = way.split_once(": ").unwrap();
            let steps: Vec<&str> = match on.strip_suffix(", all of") {
                Some(_) => steps.split("; ").collect(),
                None => vec![steps],
            };
            let on = on.trim_end_matches(", all of").trim_start_matches("on one of ").trim_start_matches("on ");
            for name in on.split(", ") {
                let name = name.split(" and ").next().unwrap();
                let (mut objects, mut pod) = (objects.clone(), pod.clone());
                for step in &steps {
                    proptest::prop_assert!(follow(step, name, &mut objects, &mut pod), "{}", step);
                }
                let mut world = World::default();
                objects.into_iter().for_each(|object| world.upsert(object));
                let after = explain_pod(&mut world, &pod, &Profile::default());
                let fits = after.nodes.iter().any(|node| node.name == name && node.fits);
                proptest::prop_assert!(fits, "{way}\n{}", table(&after));
            }
        }
    }
}
