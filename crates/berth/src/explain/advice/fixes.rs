//! Volumes that would serve a claim except for one obstacle that a person can remove.

use super::needs::{Need, VolumeFix};
use super::trial::selected_labels;
use crate::explain::cause::Cause;
use crate::explain::report::{ClaimReport, Report};
use crate::explain::volumes::{hosts, near};
use crate::explain::world::World;
use berth_core::api::{PersistentVolume, PersistentVolumeClaim};
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use std::collections::HashMap;

/// Maximum number of volumes advised for a claim, each for a different cause. Other ways have to be shown, too.
const FIXES_MAX: usize = 3;

/// How easy a cause is to fix, easiest first. `None` if only another volume helps.
fn rank(cause: Cause) -> Option<usize> {
    let fixable = [
        Cause::VolumeLabels,
        Cause::VolumeReserved,
        Cause::VolumeReleased,
        Cause::VolumeNodeMissing,
        Cause::VolumeAccessModes,
        Cause::VolumeMode,
        Cause::VolumeFailed,
    ];
    fixable.iter().position(|known| *known == cause)
}

/// The volumes to fix, by the node that they would serve.
pub(super) fn by_node(world: &World, report: &Report) -> HashMap<String, Vec<Need>> {
    let mut fixes: HashMap<String, Vec<Need>> = HashMap::new();
    for (index, claim) in report.claims.iter().enumerate() {
        let groups = claim.unfit().iter();
        let mut ranked: Vec<(usize, VolumeFix)> = groups
            .filter_map(|unfit| {
                let rank = rank(unfit.code)?;
                let mut volumes = unfit.volumes.iter();
                let volume = volumes.find(|name| is_mendable(world, claim, name, unfit.code))?;
                let fix = VolumeFix {
                    volume: volume.clone(),
                    cause: unfit.code,
                };
                Some((rank, fix))
            })
            .collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        for (_, fix) in ranked.into_iter().take(FIXES_MAX) {
            for node in nodes_of(world, &fix) {
                fixes.entry(node).or_default().push(Need::Volume(index, fix.clone()));
            }
        }
    }
    fixes
}

fn is_mendable(world: &World, claim: &ClaimReport, volume: &str, cause: Cause) -> bool {
    let Some(object) = world.objects.volumes.get(volume) else {
        return false;
    };
    let model = world.cluster.binder().volume_named(volume);
    let is_large_enough = model.is_some_and(|model| model.capacity >= claim.request_bytes);
    let suits = match cause {
        // A volume that another claim waits for must not be taken from it.
        Cause::VolumeReserved => {
            let reference = object.spec.claim_ref.as_ref();
            reference.is_none_or(|reference| world.objects.claim_of(reference).is_none())
        }
        // A pod that needs to write is not helped by a read-only volume.
        Cause::VolumeAccessModes => object.spec.access_modes.iter().any(|mode| mode != "ReadOnlyMany"),
        _ => true,
    };
    is_large_enough && suits
}

/// The nodes that a volume would serve.
fn nodes_of(world: &World, fix: &VolumeFix) -> Vec<String> {
    if fix.cause == Cause::VolumeNodeMissing {
        let object = world.objects.volumes.get(&fix.volume);
        let node = object.and_then(|object| near(&world.objects, &hosts(object)));
        return node.into_iter().map(str::to_owned).collect();
    }
    let binder = world.cluster.binder();
    let Some(model) = binder.volume_named(&fix.volume) else {
        return Vec::new();
    };
    let nodes = binder.nodes();
    let name = |node: u32| binder.symbols().text(nodes.name(NodeId(node))).to_owned();
    nodes.matching(model.affinity).iter().map(name).collect()
}

/// What to do about a volume, for a claim of the report.
pub(super) fn words(world: &World, report: &Report, claim: usize, fix: &VolumeFix, node: &str) -> String {
    let Some((claim, volume)) = report.claims.get(claim).zip(world.objects.volumes.get(&fix.volume)) else {
        return String::new();
    };
    let size = world.cluster.binder().volume_named(&fix.volume);
    let named = format!(
        "volume {} ({})",
        fix.volume,
        Bytes(size.map_or(0, |volume| volume.capacity))
    );
    let reference = volume.spec.claim_ref.as_ref();
    let other = reference.map_or_else(String::new, |other| format!("{}/{}", other.namespace, other.name));
    match fix.cause {
        Cause::VolumeReserved => {
            format!("remove `spec.claimRef` from {named}: it is reserved for claim {other}, which does not exist")
        }
        Cause::VolumeReleased | Cause::VolumeFailed => format!(
            "remove `spec.claimRef` from {named}, if the data that claim {other} left on it is no longer needed"
        ),
        Cause::VolumeNodeMissing => format!(
            "recreate {named} with node affinity to {node}: it names {}, which does not exist",
            hosts(volume).join(", ")
        ),
        Cause::VolumeAccessModes => format!(
            "recreate claim {} with access mode {}, which {named} has",
            claim.claim,
            volume.spec.access_modes.join(", ")
        ),
        Cause::VolumeMode => {
            let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
            let wants = object(world, report, claim).map(|claim| mode(&claim.spec.volume_mode));
            format!(
                "recreate {named} with `volumeMode: {}`: it is {}",
                wants.unwrap_or_default(),
                mode(&volume.spec.volume_mode)
            )
        }
        _ => {
            let labels = object(world, report, claim).map(|claim| lacking(claim, volume));
            let labels = labels.unwrap_or_default();
            format!("label {named} (kubectl label pv {} {labels} --overwrite)", fix.volume)
        }
    }
}

fn object<'w>(world: &'w World, report: &Report, claim: &ClaimReport) -> Option<&'w PersistentVolumeClaim> {
    let namespace = report.pod.split_once('/').map_or("default", |(namespace, _)| namespace);
    world.objects.claims.get(&format!("{namespace}/{}", claim.claim))
}

/// The labels that a claim's selector requires and a volume lacks: `tier=gold zone=a`.
fn lacking(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> String {
    let labels = selected_labels(claim).into_iter();
    let labels = labels.filter(|(key, value)| volume.metadata.labels.get(key) != Some(value));
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    labels.join(" ")
}
