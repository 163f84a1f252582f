//! What must be resolved on a node before it accepts the pod.

use crate::explain::cause::Cause;
use crate::explain::demands::Demand;
use crate::explain::details::{Detail, Taint, resource_of};
use crate::explain::report::{ClaimReport, ClaimState, Found, NodeReport, Offer, Report};
use crate::explain::world::World;
use berth_core::names;
use berth_core::reason::VolumeReason;
use berth_scheduler::reason::Reason;
use std::collections::HashMap;

/// A volume that would serve a claim except for one obstacle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VolumeFix {
    /// The volume.
    pub(super) volume: String,
    /// The obstacle.
    pub(super) cause: Cause,
}

/// One obstacle for the pod, on a node or anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Need {
    /// A claim of the pod, by its index in the report, must be fixed before any node can be considered.
    Claim(usize),
    /// The pod requests more of a resource than any node has in total.
    TooLarge(String),
    /// Storage for a claim of the pod, by its index in the report.
    Storage(usize),
    /// Space for an inline volume of the pod, by its index in the report.
    Inline(usize),
    /// A pool for an inline volume of the pod: there is none.
    InlinePool(usize),
    /// Storage for all claims together: each alone would find some.
    StorageTogether,
    /// Storage; which claim lacks it on this node was not examined, to save time.
    StorageForSome,
    /// Another node is selected for the claim.
    SelectedElsewhere(usize),
    /// The node can attach fewer volumes of a driver than the pod needs, and none is attached that could be detached.
    AttachLimit,
    /// The data of a bound claim, by its index in the report, must be where the node can reach it.
    Move(usize),
    /// The claim that all pods of a DaemonSet share is bound to a volume elsewhere.
    OwnVolume(usize),
    /// The pod requests more of a resource than the node has in total.
    SmallerPod(String),
    /// A resource of which the node has enough in total, but not free.
    Room(String),
    /// The node is cordoned.
    Cordoned,
    /// The node does not respond, with the taints that show it.
    NodeDown(Vec<Taint>),
    /// The node is in a temporary state, with the taints that show it.
    NodeState(Vec<Taint>),
    /// Taints that the pod does not tolerate.
    Taints(Vec<Taint>),
    /// The pod selects other nodes, with what this one lacks.
    OtherNodes(Vec<Demand>),
    /// A volume that would serve a claim of the pod, by its index in the report, except for one obstacle.
    Volume(usize, VolumeFix),
    /// Another reason.
    Reason(Reason),
}

/// The cost of what hardly anybody does, such as moving data to another node.
pub(super) const FAR: usize = 20;

impl Need {
    /// How hard it is to resolve, compared with others.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Cordoned | Self::NodeState(_) | Self::Volume(..) => 1,
            Self::Claim(_) | Self::TooLarge(_) => 2,
            Self::Storage(_) | Self::Inline(_) | Self::InlinePool(_) | Self::StorageTogether => 2,
            Self::Room(_) | Self::Taints(_) | Self::OtherNodes(_) => 2,
            Self::StorageForSome | Self::NodeDown(_) => 3,
            Self::OwnVolume(_) => 5,
            Self::SelectedElsewhere(_) | Self::SmallerPod(_) | Self::Move(_) | Self::AttachLimit => FAR,
            Self::Reason(Reason::OtherNodeName) => 10,
            Self::Reason(reason) if is_out_of_reach(reason) => FAR,
            Self::Reason(_) => 2,
        }
    }
}

/// Whether a plugin may name another reason first: only when that is resolved, this one shows.
pub(super) fn may_be_hidden(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::PodAffinity
            | Reason::PodAntiAffinity
            | Reason::ExistingPodsAntiAffinity
            | Reason::SpreadLabelMissing
            | Reason::SpreadTooUneven
            | Reason::DiskConflict
            | Reason::ClaimInUse
    )
}

/// Whether a reason means that a bound volume is unreachable.
pub(in crate::explain) fn is_out_of_reach(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Volume(VolumeReason::NodeConflict) | Reason::ZoneConflict
    )
}

/// Taints that mark a node that does not respond. Tolerating them would put the pod where nothing runs.
const DOWN: [&str; 4] = [
    names::TAINT_NOT_READY,
    names::TAINT_UNREACHABLE,
    names::TAINT_OUT_OF_SERVICE,
    names::TAINT_SHUTDOWN,
];

/// Taints that mark a node in a temporary state.
const STATES: [&str; 5] = [
    names::TAINT_MEMORY_PRESSURE,
    names::TAINT_DISK_PRESSURE,
    names::TAINT_PID_PRESSURE,
    names::TAINT_NETWORK_UNAVAILABLE,
    names::TAINT_UNINITIALIZED,
];

/// Whether a taint marks a node that does not respond.
pub(in crate::explain) fn says_down(key: &str) -> bool {
    DOWN.contains(&key)
}

/// The needs of all nodes.
pub(super) struct Needs<'r> {
    world: &'r World,
    report: &'r Report,
    /// There are steps for claims, which apply to every node.
    claims_tell: bool,
    /// The pod belongs to a DaemonSet, which creates a pod for every node.
    is_daemon: bool,
    /// Missing storage, by node.
    short: HashMap<&'r str, Vec<Need>>,
}

impl<'r> Needs<'r> {
    pub(super) fn new(world: &'r World, report: &'r Report, claims_tell: bool, is_daemon: bool) -> Self {
        let mut short: HashMap<&str, Vec<Need>> = HashMap::new();
        let mut note = |offers: &'r [Offer], need: &dyn Fn(&Offer) -> Need| {
            for offer in offers {
                for node in &offer.nodes {
                    let noted = short.entry(node).or_default();
                    if !offer.suffices {
                        noted.push(need(offer));
                    }
                }
            }
        };
        for (index, claim) in report.claims.iter().enumerate() {
            note(claim.offers(), &|offer| match offer.code {
                Cause::OfferSelectedElsewhere => Need::SelectedElsewhere(index),
                _ => Need::Storage(index),
            });
        }
        for (index, volume) in report.inline_volumes.iter().enumerate() {
            note(&volume.offers, &|offer| match offer.largest_bytes {
                Some(1..) => Need::Inline(index),
                _ => Need::InlinePool(index),
            });
        }
        Self {
            world,
            report,
            claims_tell,
            is_daemon,
            short,
        }
    }

    /// The needs of a node, in the order of the plugins.
    pub(super) fn of(&self, node: &NodeReport) -> Vec<Need> {
        let mut needs = Vec::new();
        for Found { reason, detail } in node.refused.iter().flat_map(|refusal| &refusal.found) {
            match (reason, detail) {
                (Reason::Volume(VolumeReason::BindConflict | VolumeReason::NotEnoughSpace), _) => {
                    needs.extend(self.storage(&node.name));
                }
                (Reason::Unschedulable, _) => needs.push(Need::Cordoned),
                (Reason::TooManyVolumes, Detail::Attached { count: 0, .. }) => needs.push(Need::AttachLimit),
                (Reason::UntoleratedTaint, Detail::Taints(taints)) => needs.extend(of_taints(taints)),
                (Reason::NodeAffinity | Reason::NotAmongNodes { .. }, Detail::Demands(unmet)) => {
                    let demands = unmet.iter().map(|unmet| unmet.demand.clone());
                    needs.push(Need::OtherNodes(demands.collect()));
                }
                (Reason::NodeAffinity | Reason::NotAmongNodes { .. }, _) => needs.push(Need::OtherNodes(Vec::new())),
                (reason, _) if resource_of(reason).is_some() => {
                    let resource = resource_of(reason).unwrap_or_default();
                    let too_small = node.too_small.iter().any(|found| found.resource == resource);
                    needs.push(match too_small {
                        true => Need::SmallerPod(resource.to_owned()),
                        false => Need::Room(resource.to_owned()),
                    });
                }
                (reason, _) if is_out_of_reach(reason) && self.is_daemon && !self.reaches_none() => {
                    needs.extend(self.own_volumes());
                }
                (reason, _) if is_out_of_reach(reason) => needs.extend(self.moves(reason, &node.name)),
                (reason, _) if is_of_claims(reason) && self.claims_tell => {}
                (reason, _) => needs.push(Need::Reason(reason.clone())),
            }
        }
        // A node that no plugin refuses, but that one excludes, is not among those that the pod selects.
        if node.refused.is_empty() && self.report.pre_filter.is_empty() {
            needs.push(Need::OtherNodes(Vec::new()));
        }
        let mut once = Vec::new();
        for need in needs {
            if !once.contains(&need) {
                once.push(need);
            }
        }
        once
    }

    fn storage(&self, node: &str) -> Vec<Need> {
        match self.short.get(node) {
            None => self.of_those_asked(),
            Some(short) if short.is_empty() => vec![Need::StorageTogether],
            Some(short) => short.clone(),
        }
    }

    /// What a node that was not examined lacks: the same as the examined ones, if they agree.
    fn of_those_asked(&self) -> Vec<Need> {
        let mut asked = self.short.values().filter(|short| !short.is_empty());
        match asked.next() {
            Some(first) if asked.all(|short| short == first) => first.clone(),
            // On each of them every claim finds a volume if it is alone.
            None if !self.short.is_empty() => vec![Need::StorageTogether],
            _ => vec![Need::StorageForSome],
        }
    }

    /// The data to move to a node. There is a step for the claims whose volumes no node can reach: the data of a node that does
    /// not exist cannot be moved.
    fn moves(&self, reason: &Reason, node: &str) -> Vec<Need> {
        let claims = self.report.claims.iter().enumerate();
        let far: Vec<(usize, &ClaimReport)> = claims.filter(|(_, claim)| self.is_far(claim, node)).collect();
        if far.is_empty() {
            // Zone labels, which are not node affinity, keep the volumes away.
            return vec![Need::Reason(reason.clone())];
        }
        let reachable = far.iter().filter(|(_, claim)| claim.reaching_nodes() != Some(0));
        reachable.map(|(index, _)| Need::Move(*index)).collect()
    }

    /// Whether a claim is bound to a volume whose node affinity excludes a node.
    fn is_far(&self, claim: &ClaimReport, node: &str) -> bool {
        let ClaimState::Bound { volume, .. } = &claim.state else {
            return false;
        };
        let binder = self.world.cluster.binder();
        let (Some(volume), Some(node)) = (binder.volume_named(volume), binder.node(node)) else {
            return false;
        };
        !binder.nodes().matching(volume.affinity).contains(node.0)
    }

    /// Whether the only bound volumes that some node cannot reach are those that no node can: there is a step for their
    /// claims.
    fn reaches_none(&self) -> bool {
        let held = self
            .report
            .claims
            .iter()
            .filter(|claim| self.report.is_held_by_its_volume(claim));
        let mut held = held.peekable();
        held.peek().is_some() && held.all(|claim| claim.reaching_nodes() == Some(0))
    }

    /// The bound claims of the pod that not every node can reach.
    fn own_volumes(&self) -> impl Iterator<Item = Need> + '_ {
        let claims = self.report.claims.iter().enumerate();
        let held = claims.filter(|(_, claim)| self.report.is_held_by_its_volume(claim));
        held.map(|(index, _)| Need::OwnVolume(index))
    }
}

fn of_taints(taints: &[Taint]) -> Vec<Need> {
    let among = |keys: &[&str]| -> Vec<Taint> {
        let found = taints.iter().filter(|taint| keys.contains(&taint.key.as_str()));
        found.cloned().collect()
    };
    let known = |key: &str| DOWN.contains(&key) || STATES.contains(&key) || key == names::TAINT_UNSCHEDULABLE;
    let others: Vec<Taint> = taints.iter().filter(|taint| !known(&taint.key)).cloned().collect();
    let mut needs = Vec::new();
    // `kubectl cordon` sets a taint in addition to the field.
    if taints.iter().any(|taint| taint.key == names::TAINT_UNSCHEDULABLE) {
        needs.push(Need::Cordoned);
    }
    let (down, states) = (among(&DOWN), among(&STATES));
    if !down.is_empty() {
        needs.push(Need::NodeDown(down));
    }
    if !states.is_empty() {
        needs.push(Need::NodeState(states));
    }
    if !others.is_empty() {
        needs.push(Need::Taints(others));
    }
    needs
}

/// Whether a node's reason results from a claim, on whichever node.
pub(super) fn is_of_claims(reason: &Reason) -> bool {
    match reason {
        Reason::Volume(reason) => matches!(
            reason,
            VolumeReason::ClaimNotFound { .. } | VolumeReason::ClaimNotOwned { .. } | VolumeReason::VolumeNotFound
        ),
        Reason::RestrictedClaimNotFound { .. }
        | Reason::CountedClaimNotFound { .. }
        | Reason::CountedClaimNotOwned { .. }
        | Reason::ZonedClaimNotFound { .. }
        | Reason::ZonedClassNotFound { .. }
        | Reason::VolumeNotNamed
        | Reason::ZonedVolumeNotFound { .. } => true,
        _ => false,
    }
}
