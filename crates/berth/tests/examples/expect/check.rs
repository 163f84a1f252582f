//! Compares expectations with the final objects.

use super::{Outcome, Pattern, Place, Reach, Spread};
use berth_cluster::simulation::zone_of as zone_label;
use berth_cluster::{View, agent, field, status};
use serde_json::Value;
use std::collections::BTreeSet;

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// Compares one expectation with the objects.
///
/// # Errors
/// Returns what was found instead, as a sentence.
pub(crate) fn check(outcome: &Outcome, view: &dyn View, events: &[Happened]) -> Result<(), String> {
    match outcome {
        Outcome::PodOn(pods, places) => every(view, "Pod", pods, |pod| pod_on(view, pod, places)),
        Outcome::PodPending(pods, reason) => every(view, "Pod", pods, |pod| pod_pending(pod, reason)),
        Outcome::PodWaiting(pods, reason) => every(view, "Pod", pods, |pod| pod_waiting(pod, reason)),
        Outcome::PodGone(pods) => match matching(view, "Pod", pods).next() {
            Some(pod) => Err(format!("pod {} is still there", field::name(pod))),
            None => Ok(()),
        },
        Outcome::PodsOn(count, pods, spread) => pods_on(view, *count, pods, *spread),
        Outcome::ClaimBound(claims, volumes) => every(view, "PersistentVolumeClaim", claims, |claim| {
            claim_bound(claim, volumes)
        }),
        Outcome::ClaimPending(claims) => every(view, "PersistentVolumeClaim", claims, |claim| {
            match volume_name(claim) {
                "" => Ok(()),
                volume => Err(format!("claim {} is bound to {volume}", field::name(claim))),
            }
        }),
        Outcome::ClaimReachable(claims, reach) => every(view, "PersistentVolumeClaim", claims, |claim| {
            claim_reachable(view, claim, reach)
        }),
        Outcome::VolumeAvailable(volume) => match claim_of(view, volume)? {
            "" => Ok(()),
            claim => Err(format!("volume {volume} is bound to {claim}")),
        },
        Outcome::VolumeBound(volume) => match claim_of(view, volume)? {
            "" => Err(format!("volume {volume} is available")),
            _ => Ok(()),
        },
        Outcome::Event(kind, objects, reason, message) => {
            let mut about = events.iter().filter(|event| {
                event.kind == *kind && event.namespace == objects.namespace && objects.is_name(&event.name)
            });
            match about
                .clone()
                .any(|event| event.reason == *reason && event.message.contains(message))
            {
                true => Ok(()),
                false => Err(about.next_back().map_or_else(
                    || "nothing was told about it".to_owned(),
                    |last| format!("last was told: {}: {}", last.reason, last.message),
                )),
            }
        }
    }
}

impl Pattern {
    fn is_name(&self, name: &str) -> bool {
        if self.any_ending {
            name.starts_with(&self.name)
        } else {
            name == self.name
        }
    }
}

fn matching<'a>(view: &'a dyn View, kind: &str, pattern: &'a Pattern) -> impl Iterator<Item = &'a Value> {
    view.of_kind(kind)
        .filter(|object| field::namespace(object) == pattern.namespace && pattern.is_name(field::name(object)))
}

fn every(
    view: &dyn View,
    kind: &str,
    pattern: &Pattern,
    holds: impl Fn(&Value) -> Result<(), String>,
) -> Result<(), String> {
    let mut objects = matching(view, kind, pattern).peekable();
    if objects.peek().is_none() {
        return Err(format!("there is no {kind} of this name"));
    }
    objects.try_for_each(holds)
}

fn node_of(pod: &Value) -> &str {
    field::text(pod, "/spec/nodeName")
}

fn zone_of(view: &dyn View, node: &str) -> String {
    let node = view.get("Node", "", node);
    node.map(|node| zone_label(node).to_owned()).unwrap_or_default()
}

/// Why a pod has no node, as worded by the scheduler.
fn reason_of(pod: &Value) -> &str {
    status::find(pod, "PodScheduled").map_or("", |condition| field::text(condition, "/message"))
}

fn pod_on(view: &dyn View, pod: &Value, places: &[Place]) -> Result<(), String> {
    let node = node_of(pod);
    if node.is_empty() {
        return Err(format!("pod {} has no node: {}", field::name(pod), reason_of(pod)));
    }
    let is_there = |place: &Place| match place {
        Place::Node(name) => node == name,
        Place::Zone(zone) => zone_of(view, node) == *zone,
        Place::Label(key, value) => {
            let found = view.get("Node", "", node);
            found.is_some_and(|found| field::label(found, key) == value)
        }
        Place::Any => true,
    };
    if places.iter().any(is_there) {
        return Ok(());
    }
    Err(format!("pod {} is on {node}", field::name(pod)))
}

fn pod_pending(pod: &Value, reason: &str) -> Result<(), String> {
    match node_of(pod) {
        "" if reason_of(pod).contains(reason) => Ok(()),
        "" => Err(format!(
            "pod {} has no node for another reason: {}",
            field::name(pod),
            reason_of(pod)
        )),
        node => Err(format!("pod {} is on {node}", field::name(pod))),
    }
}

fn pod_waiting(pod: &Value, reason: &str) -> Result<(), String> {
    let name = field::name(pod);
    let phase = field::text(pod, "/status/phase");
    if node_of(pod).is_empty() || !matches!(phase, "" | "Pending") {
        return Err(format!("pod {name} is {phase} on node {:?}", node_of(pod)));
    }
    let found = agent::reported_problem(pod);
    if found.contains(reason) {
        return Ok(());
    }
    Err(format!("pod {name} waits for another reason: {found}"))
}

fn pods_on(view: &dyn View, count: usize, pattern: &Pattern, spread: Spread) -> Result<(), String> {
    let pods: Vec<_> = matching(view, "Pod", pattern).collect();
    if pods.len() != count {
        return Err(format!("there are {} pods", pods.len()));
    }
    if let Some(pod) = pods.iter().find(|pod| node_of(pod).is_empty()) {
        return Err(format!("pod {} has no node: {}", field::name(pod), reason_of(pod)));
    }
    let places: Vec<String> = pods
        .iter()
        .map(|pod| match spread {
            Spread::DistinctNodes | Spread::OneNode => node_of(pod).to_owned(),
            Spread::DistinctZones | Spread::OneZone => zone_of(view, node_of(pod)),
        })
        .collect();
    let distinct = places.iter().collect::<BTreeSet<_>>().len();
    let holds = match spread {
        Spread::DistinctNodes | Spread::DistinctZones => distinct == count,
        Spread::OneNode | Spread::OneZone => distinct <= 1,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("they are on {}", places.join(", ")))
    }
}

fn volume_name(claim: &Value) -> &str {
    field::text(claim, "/spec/volumeName")
}

fn claim_bound(claim: &Value, volumes: &[String]) -> Result<(), String> {
    let volume = volume_name(claim);
    if volume.is_empty() {
        return Err(format!("claim {} is not bound", field::name(claim)));
    }
    if volumes.is_empty() || volumes.iter().any(|expected| expected == volume) {
        return Ok(());
    }
    Err(format!("claim {} is bound to {volume}", field::name(claim)))
}

fn claim_of<'a>(view: &'a dyn View, volume: &str) -> Result<&'a str, String> {
    let found = view.get("PersistentVolume", "", volume);
    let found = found.ok_or_else(|| "there is no volume of this name".to_owned())?;
    Ok(field::text(found, "/spec/claimRef/name"))
}

fn claim_reachable(view: &dyn View, claim: &Value, reach: &Reach) -> Result<(), String> {
    claim_bound(claim, &[])?;
    let volume = view.get("PersistentVolume", "", volume_name(claim));
    let volume = volume.ok_or_else(|| format!("there is no volume {}", volume_name(claim)))?;
    let nodes = view.of_kind("Node").filter(|node| agent::is_reachable(volume, node));
    let zones: BTreeSet<String> = nodes.map(|node| zone_of(view, field::name(node))).collect();
    let holds = match reach {
        Reach::Zones(count) => zones.len() == *count,
        Reach::Exactly(expected) => zones == expected.iter().cloned().collect(),
    };
    if holds {
        return Ok(());
    }
    let zones: Vec<_> = zones.into_iter().collect();
    Err(format!(
        "volume {} can be reached from {}",
        field::name(volume),
        zones.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use berth_cluster::Objects;
    use berth_core::names::ZONE;
    use serde_json::json;

    fn cluster() -> Objects {
        let node = |name: &str, zone: &str| json!({"kind": "Node", "metadata": {"name": name, "labels": {ZONE: zone, "disk": "ssd"}}});
        let pod = |name: &str, node: &str| json!({"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node}});
        let mut pending = pod("stuck", "");
        field::set(
            &mut pending,
            &["status", "conditions"],
            json!([{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available: 2 Insufficient cpu."}]),
        );
        let mut waiting = pod("waits", "n1");
        field::set(
            &mut waiting,
            &["status"],
            json!({"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "False", "message": "PVC is not bound"}]}),
        );
        let claim = |name: &str, volume: &str| json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": {"volumeName": volume}});
        let volume = json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"claimRef": {"name": "bound"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-a"]}]}]}}}});
        let objects = [
            node("n1", "zone-a"),
            node("n2", "zone-b"),
            pod("web-0", "n1"),
            pod("web-1", "n2"),
            pending,
            waiting,
            claim("bound", "pv"),
            claim("open", ""),
            volume,
            json!({"kind": "PersistentVolume", "metadata": {"name": "free"}}),
        ];
        objects.into_iter().collect()
    }

    fn outcome(text: &str) -> Result<(), String> {
        let events = [Happened {
            kind: "Pod".into(),
            namespace: "default".into(),
            name: "stuck".into(),
            reason: "FailedScheduling".into(),
            message: "2 Insufficient cpu".into(),
        }];
        let expectation = parse(&format!("# expect: {text}")).unwrap().remove(0);
        check(&expectation.outcome, &cluster(), &events)
    }

    #[test]
    fn what_holds_passes() {
        for text in [
            "pod default/web-0 on n1",
            "pod default/web-0 on n7 | node in zone-a",
            "pod default/web-* on node with disk=ssd",
            "pod default/stuck pending",
            "pod default/stuck pending: 2 Insufficient cpu",
            "pod default/waits waiting: not bound",
            "pod default/never gone",
            "2 pods default/web-* on distinct zones",
            "claim default/bound bound to other | pv",
            "claim default/open pending",
            "claim default/bound reachable from zone-a",
            "claim default/bound reachable from 1 zones",
            "volume pv bound",
            "volume free available",
            "event Pod default/stuck FailedScheduling: Insufficient",
        ] {
            assert_eq!(outcome(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_does_not_hold_is_said() {
        for (text, found) in [
            ("pod default/web-0 on n2", "pod web-0 is on n1"),
            (
                "pod default/stuck on any node",
                "pod stuck has no node: 0/2 nodes are available: 2 Insufficient cpu.",
            ),
            (
                "pod default/stuck pending: memory",
                "pod stuck has no node for another reason: 0/2 nodes are available: 2 Insufficient cpu.",
            ),
            ("pod default/web-0 pending", "pod web-0 is on n1"),
            ("pod other/web-0 on n1", "there is no Pod of this name"),
            ("pod default/web-0 gone", "pod web-0 is still there"),
            ("3 pods default/web-* on one node", "there are 2 pods"),
            ("2 pods default/web-* on one zone", "they are on zone-a, zone-b"),
            ("claim default/open bound", "claim open is not bound"),
            (
                "claim default/bound reachable from zone-a & zone-b",
                "volume pv can be reached from zone-a",
            ),
            ("volume free bound", "volume free is available"),
            ("volume none bound", "there is no volume of this name"),
            (
                "event Pod default/stuck Scheduled",
                "last was told: FailedScheduling: 2 Insufficient cpu",
            ),
            ("event Pod default/web-0 Scheduled", "nothing was told about it"),
        ] {
            assert_eq!(outcome(text), Err(found.to_owned()), "{text}");
        }
    }
}
