//! What a kubelet checks before it mounts the volumes of a pod.

use crate::field;
use crate::objects::View;
use berth_core::api;
use berth_core::label::Labels;
use berth_core::names;
use berth_core::node_selector::NodeSelector;
use berth_core::symbols::Symbols;
use serde_json::Value;

/// Why a volume of a pod cannot be mounted yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountProblem {
    /// The claim does not exist.
    #[error("persistentvolumeclaim {0:?} not found")]
    NoClaim(String),
    /// The claim was created for another pod's ephemeral volume, or by a user.
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner {
        /// Namespace of both.
        namespace: String,
        /// The claim.
        claim: String,
        /// The pod.
        pod: String,
    },
    /// The claim has no volume yet.
    #[error("error processing PVC {0}: PVC is not bound")]
    NotBound(String),
    /// The claim is on its way out.
    #[error("error processing PVC {0}: PVC is being deleted")]
    Deleting(String),
    /// The volume of the claim does not exist.
    #[error(
        "error processing PVC {claim}: failed to fetch PV {volume} from API server: persistentvolumes {volume:?} not found"
    )]
    NoVolume {
        /// The claim with its namespace.
        claim: String,
        /// The volume.
        volume: String,
    },
    /// The volume belongs to another claim.
    #[error("error processing PVC {claim}: PV {volume} spec.claimRef.uid {found} does not match pvc.UID {expected}")]
    OtherClaim {
        /// The claim with its namespace.
        claim: String,
        /// The volume.
        volume: String,
        /// The UID in the volume's claim reference.
        found: String,
        /// The uid of the claim.
        expected: String,
    },
    /// The volume cannot be reached from the node.
    #[error("MountVolume.NodeAffinity check failed for volume {0:?} : no matching NodeSelectorTerms")]
    NodeAffinity(String),
}

/// Checks every volume of a pod and returns the first problem.
///
/// A claim without a maintained status (a scheduler and a file, without a controller) counts as bound when its binding
/// is marked complete.
pub(super) fn check(view: &dyn View, pod: &Value, node: &Value) -> Result<(), MountProblem> {
    volumes_of(view, pod)?.into_iter().try_for_each(|volume| {
        if is_reachable(volume, node) {
            return Ok(());
        }
        Err(MountProblem::NodeAffinity(field::name(volume).to_owned()))
    })
}

/// The persistent volumes that a pod uses, which a node's CSI driver must publish.
///
/// # Errors
/// If one of its claims has no volume.
pub fn volumes_of<'a>(view: &'a dyn View, pod: &Value) -> Result<Vec<&'a Value>, MountProblem> {
    field::items(pod, "/spec/volumes")
        .iter()
        .filter_map(|source| volume_of_source(view, pod, source).transpose())
        .collect()
}

/// The persistent volume behind a volume of a pod, if it uses a claim.
pub(super) fn volume_of_source<'a>(
    view: &'a dyn View,
    pod: &Value,
    source: &Value,
) -> Result<Option<&'a Value>, MountProblem> {
    let named = field::at(source, "/persistentVolumeClaim/claimName").and_then(Value::as_str);
    match named {
        Some(claim) => volume_of(view, pod, claim, false).map(Some),
        None if source["ephemeral"].is_object() => {
            let claim = format!("{}-{}", field::name(pod), field::text(source, "/name"));
            volume_of(view, pod, &claim, true).map(Some)
        }
        None => Ok(None),
    }
}

fn volume_of<'a>(view: &'a dyn View, pod: &Value, name: &str, is_ephemeral: bool) -> Result<&'a Value, MountProblem> {
    let namespace = field::namespace(pod);
    let claim = view
        .get("PersistentVolumeClaim", namespace, name)
        .ok_or_else(|| MountProblem::NoClaim(name.to_owned()))?;
    if is_ephemeral && !field::is_controlled_by(claim, pod) {
        return Err(MountProblem::NotOwner {
            namespace: namespace.to_owned(),
            claim: name.to_owned(),
            pod: field::name(pod).to_owned(),
        });
    }
    let full_name = || format!("{namespace}/{name}");
    let volume_name = field::text(claim, "/spec/volumeName");
    if field::is_deleting(claim) {
        return Err(MountProblem::Deleting(full_name()));
    }
    let completed = |mark| field::annotation(claim, mark).is_some_and(|mark| !mark.is_empty());
    // A controller that knows of clean claims keeps their status.
    let is_bound = field::text(claim, "/status/phase") == "Bound"
        || completed(names::BIND_COMPLETED) && field::annotation(claim, names::CLEAN).is_none();
    if volume_name.is_empty() || !is_bound {
        return Err(MountProblem::NotBound(full_name()));
    }
    let volume = view
        .get("PersistentVolume", "", volume_name)
        .ok_or_else(|| MountProblem::NoVolume {
            claim: full_name(),
            volume: volume_name.to_owned(),
        })?;
    let claimed_by = field::text(volume, "/spec/claimRef/uid");
    if claimed_by != field::uid(claim) {
        return Err(MountProblem::OtherClaim {
            claim: full_name(),
            volume: volume_name.to_owned(),
            found: claimed_by.to_owned(),
            expected: field::uid(claim).to_owned(),
        });
    }
    Ok(volume)
}

/// Whether a volume's node affinity admits a node. One without affinity admits every node.
pub fn is_reachable(volume: &Value, node: &Value) -> bool {
    let required = "/spec/nodeAffinity/required";
    if field::at(volume, required).is_none_or(Value::is_null) {
        return true;
    }
    // An unreadable affinity must not allow a pod to use the volume.
    let Some(selector) = field::typed::<api::NodeSelector>(volume, required) else {
        return false;
    };
    let mut symbols = Symbols::default();
    let selector = NodeSelector::new(&mut symbols, &selector);
    let labels = Labels::new(&mut symbols, &field::labels(node));
    let name = symbols.intern(field::name(node));
    selector.matches(&symbols, name, &labels)
}
