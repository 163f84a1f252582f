//! Why a pod that fits waits.

use super::*;

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
    let young = cluster.clone() + &lease("kube-scheduler", "2026-01-01T00:00:09.000000Z") + &ghost;
    assert_eq!(code(&young), "Pod.NotLookedAt", "no scheduler is that fast");
    let dead = lease("kube-scheduler", "2026-01-01T00:02:00.000000Z") + &lease("other", NOW);
    let (code, _) = check("scheduler_gone", &(cluster + &dead + &target(&[], "", "", "")));
    assert_eq!(code, "Pod.SchedulerAbsent");
}

/// A lease that a scheduler of Berth holds.
fn announced(names: &str, by: &str) -> String {
    lease("berth-scheduler", NOW).replace(
        "namespace: kube-system}",
        &format!(
            "namespace: kube-system, annotations: {{berth.dev/scheduler-capabilities: delayed-binding, \
             berth.dev/announced-by: {by}{names}}}}}"
        ),
    )
}

#[test]
fn a_scheduler_that_lists_its_names_serves_no_other() {
    let ghost = node("n1", "") + &target(&[], "", "  schedulerName: ghost", "");
    let names = |names: &str| format!(", berth.dev/scheduler-names: \"{names}\"");
    let (code, _) = check(
        "no_profile",
        &(ghost.clone() + &announced(&names("default-scheduler,batch"), "m1_x")),
    );
    assert_eq!(code, "Pod.SchedulerAbsent");
    let code = |yaml: String| asked(&yaml).waiting.unwrap().code.code();
    assert_eq!(
        code(ghost.clone() + &announced(&names("batch,ghost"), "m1_x")),
        "Pod.Overlooked"
    );
    assert_eq!(
        code(ghost.clone() + &announced("", "m1_x")),
        "Pod.Overlooked",
        "an older scheduler does not list its names"
    );
    assert_eq!(
        code(ghost + &announced(&names("ghost"), "m2_y")),
        "Pod.SchedulerAbsent",
        "another one took the lease over"
    );
}

#[test]
fn leases_that_were_listed_may_be_none() {
    let yaml = node("n1", "") + &target(&[], "", "", "");
    let head = "# A cluster as `berth snapshot` 1.0.0 saw it.\n# Taken at: 2026-01-01T00:12:00Z\n";
    let code = |listed: &str| asked(&format!("{head}{listed}{yaml}")).waiting.unwrap().code.code();
    assert_eq!(code(""), "Pod.Overlooked");
    assert_eq!(code("# Also listed: events, leases\n"), "Pod.SchedulerAbsent");
}

#[test]
fn a_refused_pod_is_tried_again_after_five_minutes() {
    let refused = event(
        "Pod",
        "target",
        "default-scheduler",
        "FailedScheduling",
        2,
        "0/1 nodes are available: 1 Insufficient cpu.",
    );
    let at = |time: &str| node("n1", "") + &refused + &lease("kube-scheduler", time) + &target(&[], "", "", "");
    let (code, report) = check("refused_a_minute_ago", &at(NOW));
    assert_eq!(code, "Pod.RefusedBefore");
    let waiting = report.waiting.unwrap();
    assert_eq!((waiting.retry_within_seconds, waiting.is_kept()), (Some(240), false));
    let json = serde_json::to_value(&waiting).unwrap();
    assert_eq!(json["retryWithinSeconds"], 240);
    let later = asked(&at("2026-01-01T00:20:00.000000Z")).waiting.unwrap();
    assert_eq!(
        (later.code.code(), later.retry_within_seconds),
        ("Pod.RefusedBefore", None),
        "events of repeated refusals are late"
    );
    let (code, report) = check("refused_long_ago", &at("2026-01-01T01:00:00.000000Z"));
    assert_eq!(code, "Pod.Overlooked");
    assert!(report.waiting.unwrap().is_kept());
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
    let since = |time: &str| cluster.clone() + &lease("kube-scheduler", time) + &target(&[], "", "", "");
    let young = since("2026-01-01T00:00:40.000000Z");
    assert_eq!(check("not_looked_at", &young).0, "Pod.NotLookedAt");
    assert_eq!(run(&young, &["pod/target"]).1, 0);
    assert_eq!(check("overlooked", &since(NOW)).0, "Pod.Overlooked");
    assert_eq!(run(&since(NOW), &["pod/target"]).1, 3);
    assert_eq!(run(&since(NOW), &[]).1, 3);
    let manifest = "---\n{apiVersion: v1, kind: Pod, metadata: {name: target}, spec: {containers: [{name: c}]}}\n";
    let report = asked(&(cluster + manifest));
    assert_eq!(
        report.waiting.unwrap().code.code(),
        "Pod.Fits",
        "of a manifest there is nothing to say"
    );
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
    assert_told("cleared_claim", text);
    assert_eq!(status, 3, "the claim waits for its provisioner");
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
    assert_told("immediate_claim", text);
    assert_eq!(status, 3);
    let (code, report) = check("immediate", &yaml);
    assert_eq!((code, report.schedulable), ("Pod.ProvisionerSilent", false));
}

#[test]
fn a_pod_on_a_node_that_does_not_exist_is_told_first() {
    let (code, report) = check("node_named", &(node("n1", "") + &target(&[], "", "  nodeName: n9", "")));
    assert_eq!(code, "Pod.HasNode");
    assert!(report.waiting.unwrap().text.contains("which does not exist"));
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

/// A pending pod like the one in question, with another name.
fn rival(name: &str, claims: &[&str], metadata: &str, spec: &str) -> String {
    target(claims, metadata, spec, "")
        .replace("name: target", &format!("name: {name}"))
        .replace("uid: u1", &format!("uid: {name}"))
}

#[test]
fn other_pending_pods_need_the_place() {
    let disks = node("n1", "")
        + &class("local", LOCAL)
        + &volume("disk-a", "n1", 10, "Available", "")
        + &volume("disk-b", "n1", 10, "Available", "");
    let claims: String = ["data", "log", "first", "second"]
        .map(|name| claim(name, "local", 5, "", ""))
        .concat();
    let cluster = disks + &claims + &target(&["data", "log"], "", "", "");
    // Both disks serve two other pods, or this one.
    let others = rival("first", &["first"], "", "") + &rival("second", &["second"], "", "");
    let (code, report) = check("others_first", &(cluster.clone() + &others));
    assert_eq!(code, "Pod.OthersFirst");
    assert!(report.schedulable && report.waiting.unwrap().is_kept());
    let alone = asked(&cluster).waiting.unwrap();
    assert_ne!(alone.code.code(), "Pod.OthersFirst");
    // One other pod does not place more than this one, but is more important.
    let urgent = rival("urgent", &["first"], "", "  priority: 1000");
    let (code, _) = check("others_first_by_priority", &(cluster.clone() + &urgent));
    assert_eq!(code, "Pod.OthersFirst");
    let equal = rival("urgent", &["first"], "", "");
    assert_ne!(
        asked(&(cluster + &equal)).waiting.unwrap().code.code(),
        "Pod.OthersFirst"
    );
}

#[test]
fn other_pending_pods_have_to_be_there_first() {
    let near = "  affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: \
                kubernetes.io/hostname, labelSelector: {matchLabels: {app: leader}}}]}}";
    let cluster = node("n1", "") + &target(&[], "", near, "");
    let leader = rival("leader", &[], "  labels: {app: leader}", "");
    let (code, report) = check("after_others", &(cluster.clone() + &leader));
    assert_eq!(code, "Pod.AfterOthers");
    assert!(!report.schedulable && !report.waiting.unwrap().is_kept());
    assert_eq!(asked(&cluster).waiting.unwrap().code.code(), "Pod.Unschedulable");
}
