//! Pods whose claims are held for an attempt to get all volumes, or given back.

use super::*;

fn code(yaml: &str) -> &'static str {
    asked(yaml).waiting.unwrap().code.code()
}

#[track_caller]
fn assert_says(yaml: &str, code: &str, words: &[&str]) {
    let waiting = asked(yaml).waiting.unwrap();
    assert_eq!(waiting.code.code(), code);
    let text = [waiting.text].into_iter().chain(waiting.evidence);
    let text = text.collect::<Vec<_>>().join("; ");
    for words in words {
        assert!(text.contains(words), "{text}");
    }
}

/// A node, a claim with an annotation, and a pod that uses it.
fn cluster(annotation: &str, of_claim: &str, of_pod: &str) -> String {
    let claim = claim("data", "ebs", 5, annotation, of_claim).replace("name: data\n", "name: data\n  uid: c1\n");
    node("n1", "") + &class("ebs", "ebs.csi.example.com") + &claim + &target(&["data"], of_pod, "", "")
}

#[test]
fn a_claim_is_held_for_another_pod() {
    let held = cluster("binding.berth.dev/held-for: other/u2/c1/7", "", "");
    let held_for = "waits for claim data, which is held for pod other";
    assert_says(&held, "Pod.VolumesHeld", &[held_for, "pod other does not exist"]);
    let other = |aborted: u32| {
        let annotation = format!("  annotations: {{binding.berth.dev/aborted: \"{aborted}\"}}");
        let other = target(&["data"], &annotation, "", "");
        held.clone()
            + &other
                .replace("name: target", "name: other")
                .replace("uid: u1", "uid: u2")
    };
    assert_says(
        &other(6),
        "Pod.VolumesHeld",
        &[held_for, "not all volumes of pod other exist yet"],
    );
    assert_says(
        &other(7),
        "Pod.VolumesHeld",
        &[held_for, "the volume controller releases the claim"],
    );
}

#[test]
fn a_claim_is_held_for_the_pod_itself() {
    let held = |verdict: &str| {
        let annotations = "binding.berth.dev/held-for: target/u1/c1/7, volume.kubernetes.io/selected-node: n1";
        cluster(annotations, "", verdict)
    };
    assert_eq!(code(&held("")), "Pod.Provisioning", "its volume is missing");
    let reserved = volume(
        "pv1",
        "n1",
        5,
        "Available",
        "  claimRef: {name: data, namespace: default, uid: c1}",
    );
    let made = held("") + &reserved.replace("storageClassName: local", "storageClassName: ebs");
    let words = ["for the scheduler to commit", "claim data holds volume pv1"];
    assert_says(&made, "Pod.VolumesHeld", &words);
    let verdict = |key: &str| held(&format!("  annotations: {{binding.berth.dev/{key}: \"7\"}}"));
    let binds = "waits for the volume controller to bind claims data";
    assert_says(&verdict("committed"), "Pod.VolumesHeld", &[binds]);
    let releases = "waits for the volume controller to release claims data";
    assert_says(&verdict("aborted"), "Pod.VolumesHeld", &[releases]);
}

#[test]
fn a_claim_that_no_pod_has_used_is_given_back() {
    let clean = "pv.kubernetes.io/bind-completed: \"yes\", binding.berth.dev/clean: c1";
    let bound = "  volumeName: pv1\nstatus: {phase: Pending}";
    let reference = "  claimRef: {name: data, namespace: default, uid: c1}";
    let volume = volume("pv1", "gone", 5, "Bound", reference).replace("class: local", "class: ebs");
    let unused = cluster(clean, bound, "") + &volume;
    let words = ["fits on no node with claim data, which no pod has used: the scheduler gives it back"];
    assert_says(&unused, "Pod.Unschedulable", &words);
    let marks = format!("{clean}, binding.berth.dev/rolled-back-for: target/u1/c1");
    let words = ["waits until claim data, which no pod has used, is deleted and recreated"];
    assert_says(&(cluster(&marks, bound, "") + &volume), "Pod.ClaimGivenBack", &words);
}
