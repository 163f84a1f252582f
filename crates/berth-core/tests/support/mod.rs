//! A binder, and its verdicts about pods.

#![allow(dead_code, reason = "every test file uses some of it")]
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot be told is a failed test"
)]

use berth_core::api;
use berth_core::binder::{CapacityScore, NodeVolumes, PodVolumes, PreparedPod, ScoreGate, VolumeBinder};
use berth_core::reason::VolumeReason;
use berth_testing::Manifest;
use serde_json::Value;

/// The pod `pod` with claims.
pub fn mk_pod(claims: &[&str]) -> api::Pod {
    berth_testing::pod("pod", claims).uid("uid-pod").read()
}

/// A binder that has seen these objects.
pub fn binder_of(objects: &[Value]) -> VolumeBinder {
    let mut binder = VolumeBinder::default();
    for object in objects {
        binder.upsert(&object.decoded());
    }
    binder
}

pub fn prepare(binder: &mut VolumeBinder, pod: &api::Pod) -> Result<PreparedPod, VolumeReason> {
    let pod = PodVolumes::new(binder.symbols_mut(), pod);
    let claims = binder.claims(&pod)?;
    Ok(binder.prepare(&claims))
}

pub fn on_node(binder: &mut VolumeBinder, pod: &api::Pod, node: &str) -> Result<NodeVolumes, Vec<VolumeReason>> {
    let prepared = prepare(binder, pod).map_err(|reason| vec![reason])?;
    binder.on_node(&prepared, binder.node(node).expect("the node is there"))
}

/// `claim=volume` for each binding and `claim=new` for each claim to provision, or the reasons.
pub fn outcome(binder: &mut VolumeBinder, pod: &api::Pod, node: &str) -> Vec<String> {
    match on_node(binder, pod, node) {
        Ok(volumes) => {
            let (bindings, provisions) = binder.describe(&volumes);
            let bound = bindings.iter().map(|(claim, volume)| format!("{claim}={volume}"));
            bound
                .chain(provisions.iter().map(|claim| format!("{claim}=new")))
                .collect()
        }
        Err(reasons) => reasons
            .iter()
            .map(|reason| reason.code().trim_start_matches("VolumeBinding.").to_owned())
            .collect(),
    }
}

/// The score of one node.
pub fn score(binder: &VolumeBinder, pod: &PreparedPod, node: &str, gate: ScoreGate, score: &CapacityScore) -> i64 {
    let mut scores = Vec::new();
    let node = binder.node(node).expect("the node is there");
    binder.score(pod, &[node], gate, score, &mut scores);
    scores[0]
}
