//! What would help, and what would not.

use super::*;

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
    assert_told("labels", told);
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
    assert_told("mended_volumes", told);
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
    assert_told("in_the_way", told);
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
    assert_told("suggestions", told);
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

/// A pod of a StatefulSet on two nodes, of which the first is full, with a claim that is bound there, and a free disk on the second.
fn stuck_with_its_claim(claim_created: &str, class_annotations: &str) -> String {
    let set = "---\n{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: default, uid: s1, creationTimestamp: \"2025-12-31T00:00:00Z\"}, spec: {replicas: 0, serviceName: db, \
               selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: \
               x}]}}, volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: local, \
               resources: {requests: {storage: 5Gi}}}}]}}\n";
    let owner = "  labels: {app: db}\n  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: s1, controller: true}]";
    let pod = target(&["data-target"], owner, "", "");
    let by_controller = "pv.kubernetes.io/bound-by-controller: \"yes\"";
    let annotations = format!("pv.kubernetes.io/bind-completed: \"yes\", {by_controller}");
    let bound = claim(
        "data-target",
        "local",
        5,
        &annotations,
        "  volumeName: v1\nstatus: {phase: Bound}",
    );
    let bound = bound.replace("2026-01-01T00:00:00Z", claim_created);
    let bound = bound.replace("name: data-target\n", "name: data-target\n  uid: c1\n");
    let reference = "  claimRef: {namespace: default, name: data-target, uid: c1}";
    let taken = volume("v1", "n1", 5, "Bound", reference);
    let taken = taken.replace("{name: v1}", &format!("{{name: v1, annotations: {{{by_controller}}}}}"));
    let class = class("local", LOCAL).replace(
        "{name: local}",
        &format!("{{name: local, annotations: {{{class_annotations}}}}}"),
    );
    let nodes = node("n1", "") + &runs("hog", "n1", 4) + &node("n2", "") + &volume("v2", "n2", 5, "Available", "");
    nodes + &class + &taken + &bound + set + &pod
}

#[test]
fn a_claim_that_no_pod_can_have_used_is_to_be_deleted_or_rolled_back() {
    let along = "2025-12-31T23:59:59Z";
    let deletes = |yaml: &str| {
        asked(yaml)
            .advice
            .into_iter()
            .find(|way| way.starts_with("delete claim"))
    };
    let yaml = stuck_with_its_claim(along, "");
    assert_eq!(
        deletes(&yaml).as_deref(),
        Some(
            "delete claim data-target, unless an earlier pod has written to its volume: the pod never ran with it, it is created \
             again, and the pod then fits on n2. Berth does this for unused claims if you annotate StorageClass local with \
             binding.berth.dev/rollback=true"
        )
    );
    // It comes before moving data, and after what is easier.
    let advice = asked(&yaml).advice;
    let place = |start: &str| advice.iter().position(|way| way.contains(start)).unwrap();
    assert!(
        place("free cpu") < place("delete claim") && place("delete claim") < place("move the data"),
        "{advice:?}"
    );
    assert_eq!(
        deletes(&stuck_with_its_claim("2025-12-30T00:00:00Z", "")),
        None,
        "an earlier pod may have used it"
    );
    let opted_in = stuck_with_its_claim(along, "binding.berth.dev/rollback: \"true\"");
    assert_eq!(
        deletes(&opted_in),
        None,
        "it opted in and has no mark: a pod has used it"
    );
    let nowhere = yaml.replace("name: v2}", "name: v2, deletionTimestamp: \"2026-01-01T00:00:00Z\"}");
    assert_eq!(deletes(&nowhere), None, "a new claim finds no volume");
    let by_user = yaml.replace(", pv.kubernetes.io/bound-by-controller: \"yes\"", "");
    assert_eq!(deletes(&by_user), None, "a user chose the volume");
}

/// Several nodes that refuse the pod by the same rule, each because of other pods.
#[test]
fn what_several_nodes_have_in_common_is_told() {
    let limit = |name: &str| {
        format!(
            "---\n{{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {{name: {name}}}, spec: {{drivers: [{{name: \
                 d.example.com, nodeID: {name}, allocatable: {{count: 1}}}}]}}}}\n"
        )
    };
    let csi = "spec:\n  csi: {driver: d.example.com, volumeHandle: h}\n  capacity";
    let disk = |name: &str| {
        bound(name, "n1")
            .replace("spec:\n  capacity", &csi.replace("h}", &format!("h-{name}}}")))
            .replace("hostname, operator: In, values: [n1]", "hostname, operator: Exists")
    };
    let user = |name: &str, on: &str| {
        let pod =
            target(&[name], "", &format!("  nodeName: {on}"), "").replace("name: target", &format!("name: p-{name}"));
        pod.replace("uid: u1", &format!("uid: u-{name}"))
            .replace("phase: Pending", "phase: Running")
    };
    let busy = |name: &str, on: &str| node(on, "") + &limit(on) + &disk(name) + &user(name, on);
    let yaml =
        busy("a", "n1") + &busy("b", "n2") + &class("local", LOCAL) + &disk("own") + &target(&["own"], "", "", "");
    assert_eq!(
        asked(&yaml).advice[0],
        "on one of n1, n2: stop pods to detach 1 volume of d.example.com: 1 of at most 1 are attached"
    );
    let zones = in_zone("n1", "a") + &in_zone("n2", "b");
    let report = asked(&(zones + &target(&[], "", "  nodeSelector: {topology.kubernetes.io/zone: c}", "")));
    assert_eq!(
        report.advice,
        [
            "on one of n1, n2: remove topology.kubernetes.io/zone=c from the pod's nodeSelector or node affinity: no node has that value \
          (nodes have a, b)"
        ]
    );
}
