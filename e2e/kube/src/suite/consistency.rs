//! Invariants: every claim and volume refer to each other, or to nothing.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The node of a volume in the tests: the only value of its only node selector.
pub(crate) fn node_of_volume(volume: &Value) -> &str {
    let selector = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0";
    text(volume, selector)
}

/// All problems of these objects, as text. The volumes' claims are all in one namespace.
pub(crate) fn problems(pods: &[Value], claims: &[Value], volumes: &[Value]) -> Vec<String> {
    let by_name = |objects: &'_ [Value]| -> BTreeMap<String, usize> {
        let names = objects.iter().enumerate();
        names
            .map(|(index, object)| (text(object, "/metadata/name").to_owned(), index))
            .collect()
    };
    let (claim_index, volume_index) = (by_name(claims), by_name(volumes));
    let mut problems = Vec::new();
    let mut taken = BTreeSet::new();
    for claim in claims {
        let (name, volume) = (text(claim, "/metadata/name"), text(claim, "/spec/volumeName"));
        let phase = text(claim, "/status/phase");
        if volume.is_empty() {
            continue;
        }
        if !taken.insert(volume) {
            problems.push(format!("volume {volume} is bound twice, also to claim {name}"));
        }
        if phase != "Bound" {
            problems.push(format!("claim {name} is half bound: to volume {volume}, but {phase}"));
        }
        let uid = volume_index
            .get(volume)
            .map(|&index| text(&volumes[index], "/spec/claimRef/uid"));
        if uid != Some(text(claim, "/metadata/uid")) {
            problems.push(format!(
                "claim {name} is bound to volume {volume}, which is not bound to it"
            ));
        }
    }
    for volume in volumes
        .iter()
        .filter(|volume| volume.pointer("/spec/claimRef").is_some())
    {
        let (name, claim) = (text(volume, "/metadata/name"), text(volume, "/spec/claimRef/name"));
        let bound_to = claim_index
            .get(claim)
            .map(|&index| text(&claims[index], "/spec/volumeName"));
        match bound_to {
            Some(bound_to) if bound_to == name => {}
            Some("") => problems.push(format!("volume {name} is kept for claim {claim}, which is not bound")),
            Some(other) => problems.push(format!(
                "volume {name} is kept for claim {claim}, which is bound to {other}"
            )),
            None => problems.push(format!("volume {name} is kept for claim {claim}, which is gone")),
        }
    }
    for pod in pods {
        let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
        let references = pod.pointer("/spec/volumes").and_then(Value::as_array);
        for claim in references.into_iter().flatten() {
            let claim = text(claim, "/persistentVolumeClaim/claimName");
            if node.is_empty() || claim.is_empty() {
                continue;
            }
            let volume = claim_index
                .get(claim)
                .map(|&index| text(&claims[index], "/spec/volumeName"));
            let place = volume.and_then(|volume| volume_index.get(volume));
            let place = place.map(|&index| node_of_volume(&volumes[index]));
            if place != Some(node) {
                let place = place.unwrap_or("nowhere");
                problems.push(format!(
                    "pod {name} is on {node}, but the volume of its claim {claim} is on {place}"
                ));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_e2e::objects;
    use serde_json::json;
    use std::slice::from_ref;

    fn bound() -> (Value, Value, Value) {
        let pod = objects::pod("x", "p", &["c"]);
        let mut claim = objects::claim("x", "c", "local", "1Gi");
        let mut volume = objects::local_volume("v", "local", "n0", "1Gi");
        claim["metadata"]["uid"] = json!("u");
        claim["spec"]["volumeName"] = json!("v");
        claim["status"] = json!({"phase": "Bound"});
        volume["spec"]["claimRef"] = json!({"name": "c", "uid": "u"});
        let mut placed = pod;
        placed["spec"]["nodeName"] = json!("n0");
        (placed, claim, volume)
    }

    fn check(pod: &Value, claim: &Value, volume: &Value, expected: &[&str]) {
        let found = problems(from_ref(pod), from_ref(claim), from_ref(volume));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_wrong_is_found() {
        let (pod, claim, volume) = bound();
        check(&pod, &claim, &volume, &[]);

        let mut elsewhere = pod.clone();
        elsewhere["spec"]["nodeName"] = json!("n1");
        check(
            &elsewhere,
            &claim,
            &volume,
            &["pod p is on n1, but the volume of its claim c is on n0"],
        );

        let mut pending = claim.clone();
        pending["status"]["phase"] = json!("Pending");
        check(
            &pod,
            &pending,
            &volume,
            &["claim c is half bound: to volume v, but Pending"],
        );

        let mut stranger = volume.clone();
        stranger["spec"]["claimRef"]["uid"] = json!("other");
        check(
            &pod,
            &claim,
            &stranger,
            &["claim c is bound to volume v, which is not bound to it"],
        );

        let mut leaked = volume.clone();
        leaked["metadata"]["name"] = json!("w");
        let found = problems(&[pod], &[claim], &[volume, leaked]);
        assert_eq!(found, ["volume w is kept for claim c, which is bound to v"]);
    }
}
