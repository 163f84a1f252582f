//! Where a pod's volumes allow it to run, and with which volumes.

use super::provision::{Contested, Need, Plan};
use super::{PodClaims, VolumeBinder};
use crate::mask::NodeMask;
use crate::matches::{Match, MatchSet, Matches};
use crate::model::{Claim, ClaimId, ClaimShape, Disk, VolumeId};
use crate::nodes::{NodeId, SelectorId};
use crate::places::Places;
use crate::reason::VolumeReason;
use crate::symbols::Symbol;
use roaring::RoaringBitmap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The volumes that a pod would use on a node, in addition to those it is already bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeVolumes {
    /// Claims and the existing volumes that they would use.
    pub bindings: SmallVec<[(ClaimId, VolumeId); 2]>,
    /// Claims that would need a new volume.
    pub provisions: SmallVec<[ClaimId; 2]>,
}

impl NodeVolumes {
    /// Whether nothing has to be bound or provisioned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// A pod's claims, with everything that does not depend on the node already computed.
#[derive(Clone, Debug, Default)]
pub struct PreparedPod {
    bound: BoundClaims,
    /// Claims that wait for a volume to be provisioned for a node selected earlier.
    pub(super) selected: SmallVec<[(Need, Symbol); 1]>,
    /// Claims with reserved volumes: they can use only these.
    pub(super) reserved: SmallVec<[(Need, SmallVec<[VolumeId; 1]>); 1]>,
    /// Claims that accept any free volume of their class, by class.
    pub(super) open: SmallVec<[OpenClaims; 1]>,
    pub(super) inline: SmallVec<[(Symbol, i64); 1]>,
    /// The drivers of the volumes that claims are bound to.
    bound_drivers: SmallVec<[Symbol; 2]>,
    /// Claims that use an existing volume on some nodes and could be provisioned on others.
    pub(super) optional: SmallVec<[ClaimId; 2]>,
}

impl PreparedPod {
    /// Whether bound claims exclude the pod from any node.
    #[must_use]
    pub fn is_bound_to_nodes(&self) -> bool {
        self.bound.missing || self.bound.reachable.is_some() || !self.bound.broken.is_empty()
    }

    /// The driver of each volume that a claim is bound to.
    pub(super) fn bound_drivers(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.bound_drivers.iter().copied()
    }

    /// Whether the pod has claims that need an existing or a new volume.
    #[must_use]
    pub fn has_unbound_claims(&self) -> bool {
        !(self.selected.is_empty() && self.reserved.is_empty() && self.open.is_empty())
    }

    /// Whether open claims are all that has to be found: no other unbound claim, and no inline volume.
    pub(super) fn has_only_open_claims(&self) -> bool {
        self.selected.is_empty() && self.reserved.is_empty() && self.inline.is_empty()
    }
}

/// Which nodes can reach the bound volumes.
#[derive(Clone, Debug, Default)]
struct BoundClaims {
    /// `None` means all.
    reachable: Option<RoaringBitmap>,
    /// A bound volume does not exist.
    missing: bool,
    /// Nodes on which a volume would have to be translated to CSI and cannot be.
    broken: Vec<(RoaringBitmap, VolumeReason)>,
}

/// The claims of one class that accept any free volume of it.
#[derive(Clone, Debug)]
pub(super) struct OpenClaims {
    pub(super) matches: Arc<MatchSet>,
    /// In the order of the set's shapes, smallest request first.
    pub(super) needs: SmallVec<[Need; 2]>,
    pub(super) shapes: Vec<ClaimShape>,
}

impl VolumeBinder {
    /// Computes what does not depend on the node. Claims that were seen before are cheap.
    pub fn prepare(&mut self, claims: &PodClaims) -> PreparedPod {
        self.house_promises();
        let mut prepared = PreparedPod {
            bound: self.bound_claims(&claims.bound),
            inline: claims.inline.clone(),
            bound_drivers: self.drivers_of_bound(&claims.bound),
            ..PreparedPod::default()
        };
        let mut open: SmallVec<[(Need, ClaimShape); 2]> = SmallVec::new();
        for (position, id) in claims.delayed.iter().enumerate() {
            let Some(claim) = self.claim(*id) else {
                continue;
            };
            let need = self.need(*id, claim, position);
            if !claim.selected_node.is_empty() {
                prepared.selected.push((need, claim.selected_node));
                continue;
            }
            let reserved = self.reserved_for(claim, need.class);
            if reserved.is_empty() {
                open.push((need, claim.shape.clone()));
            } else {
                if need.provision.possible {
                    prepared.optional.push(need.claim);
                }
                prepared.reserved.push((need, reserved));
            }
        }
        open.sort_by(|(a, a_shape), (b, b_shape)| (a.class, a_shape).cmp(&(b.class, b_shape)));
        for of_class in open.chunk_by(|(a, _), (b, _)| a.class == b.class) {
            let shapes: Vec<ClaimShape> = of_class.iter().map(|(_, shape)| shape.clone()).collect();
            let free = self.free.entry(of_class[0].0.class).or_default();
            let volume = |id: VolumeId| self.volumes.get(id.0).map(|volume| &volume.effective);
            let places = Places {
                nodes: &self.nodes,
                full: &self.full,
            };
            let matches = free.prepare(places, &shapes, volume);
            let needs: SmallVec<[Need; 2]> = of_class.iter().map(|(need, _)| *need).collect();
            if !free.is_empty() {
                let makeable = needs.iter().filter(|need| need.provision.possible);
                prepared.optional.extend(makeable.map(|need| need.claim));
            }
            prepared.open.push(OpenClaims { matches, needs, shapes });
        }
        self.note_asked_by(&prepared);
        prepared
    }

    fn drivers_of_bound(&self, claims: &[ClaimId]) -> SmallVec<[Symbol; 2]> {
        let volumes = claims
            .iter()
            .filter_map(|id| self.volume_named(&self.claim(*id)?.volume_name));
        let drivers = volumes.map(|volume| volume.driver);
        drivers.filter(|driver| !driver.is_empty()).collect()
    }

    fn bound_claims(&self, claims: &[ClaimId]) -> BoundClaims {
        let mut bound = BoundClaims::default();
        for claim in claims.iter().filter_map(|id| self.claim(*id)) {
            let Some(volume) = self.volume_named(&claim.volume_name) else {
                // Claims after a missing volume are not checked: one reason is enough.
                bound.missing = true;
                break;
            };
            let mut reachable = self.nodes.matching(volume.affinity).clone();
            if let Some(Disk::InTree {
                plugin,
                handle,
                migrated_affinity,
            }) = volume.disk.as_deref()
            {
                let migrated = &self.migrated[*plugin as usize];
                reachable = (reachable - migrated) | (self.nodes.matching(*migrated_affinity) & migrated);
                if let Err(problem) = handle {
                    let reason = VolumeReason::NotTranslatable {
                        volume: (*volume.name).into(),
                        problem: problem.to_string().into(),
                    };
                    // A node that cannot reach an earlier volume is already rejected for that reason.
                    let asked = match &bound.reachable {
                        Some(before) => before & migrated,
                        None => migrated.clone(),
                    };
                    bound.broken.push((asked, reason));
                }
            } else if volume.affinity == SelectorId::ALL {
                continue;
            }
            bound.reachable = Some(match bound.reachable {
                Some(before) => before & reachable,
                None => reachable,
            });
        }
        bound
    }

    /// Volumes of the claim's class that are reserved for it and large enough, smallest first.
    fn reserved_for(&self, claim: &Claim, class: Symbol) -> SmallVec<[VolumeId; 1]> {
        let by_name = self.reserved.get(&claim.namespace);
        let mut suitable: SmallVec<[(i64, &str, VolumeId); 1]> = by_name
            .and_then(|by_name| by_name.get(&claim.name))
            .into_iter()
            .flatten()
            .filter_map(|id| self.volume(*id).map(|volume| (*id, volume)))
            .filter(|(_, volume)| {
                volume.is_for(claim)
                    && volume.class == class
                    && !volume.deleting
                    && volume.capacity >= claim.shape.request
                    && volume.volume_mode == claim.shape.volume_mode
                    && volume.attributes_class == claim.shape.attributes_class
            })
            .map(|(id, volume)| (volume.capacity, &*volume.name, id))
            .collect();
        suitable.sort_unstable();
        suitable.into_iter().map(|(.., id)| id).collect()
    }

    /// The volumes that a pod would use on a node.
    ///
    /// # Errors
    /// All reasons why the pod's volumes exclude it from that node, in the order of kube-scheduler.
    pub fn on_node(&self, pod: &PreparedPod, node: NodeId) -> Result<NodeVolumes, Vec<VolumeReason>> {
        let broken = pod.bound.broken.iter().find(|(nodes, _)| nodes.contains(node.0));
        if let Some((_, reason)) = broken {
            return Err(vec![reason.clone()]);
        }
        let reachable = self.reaches_bound(pod, node);
        let unbound = self.unbound_on_node(pod, node);
        let mut reasons = Vec::new();
        if !reachable {
            reasons.push(VolumeReason::NodeConflict);
        }
        if let Err(reason) = &unbound {
            reasons.push(reason.clone());
        }
        if pod.bound.missing && reachable {
            reasons.push(VolumeReason::VolumeNotFound);
        }
        match unbound {
            Ok(volumes) if reasons.is_empty() => Ok(volumes),
            _ => Err(reasons),
        }
    }

    fn reaches_bound(&self, pod: &PreparedPod, node: NodeId) -> bool {
        pod.bound.reachable.as_ref().is_none_or(|nodes| nodes.contains(node.0))
    }

    /// The volumes for the unbound claims on a node: feasible, as many existing ones as possible, and with the least capacity taken, existing
    /// and new together.
    pub(super) fn unbound_on_node(&self, pod: &PreparedPod, node: NodeId) -> Result<NodeVolumes, VolumeReason> {
        if let Some(volumes) = self.all_matched(pod, node) {
            return Ok(volumes);
        }
        self.plan_on_node(pod, node, Contested::Larger).map(Plan::into_volumes)
    }

    /// A plan for the unbound claims on a node.
    pub(super) fn plan_on_node<'a>(
        &'a self,
        pod: &'a PreparedPod,
        node: NodeId,
        contested: Contested,
    ) -> Result<Plan<'a>, VolumeReason> {
        let mut plan = self.plan(pod, node)?;
        if let Err(reason) = self.check_provisions(&plan.to_make, &pod.inline, node) {
            // Existing volumes may have to go to other claims, so that the rest can be provisioned.
            if !self.rearrange(pod, node, &mut plan) {
                return Err(reason);
            }
            plan.sort(pod);
            self.check_provisions(&plan.to_make, &pod.inline, node)?;
        }
        if contested == Contested::Larger {
            self.provision_smaller(pod, node, &mut plan);
        }
        Ok(self.attachable(pod, node, &plan).unwrap_or(plan))
    }

    /// Fast path of [`Self::plan`] if every claim gets an existing volume and nothing else affects the result: the usual case of
    /// local volumes, evaluated for every node.
    fn all_matched(&self, pod: &PreparedPod, node: NodeId) -> Option<NodeVolumes> {
        if !pod.selected.is_empty() || !pod.reserved.is_empty() || !pod.inline.is_empty() || self.full.is_limited(node)
        {
            return None;
        }
        let mut volumes = NodeVolumes::default();
        for open in &pod.open {
            let matches = self.matches_on(open, node);
            for (index, need) in open.needs.iter().enumerate() {
                let found = matches.get(index).copied().flatten()?;
                volumes.bindings.push((need.claim, found.volume()));
            }
        }
        Some(volumes)
    }

    /// The existing volumes that the open claims of a class would get on a node.
    pub(super) fn matches_on(&self, open: &OpenClaims, node: NodeId) -> Matches {
        let class = open.needs.first().map_or(Symbol::EMPTY, |need| need.class);
        let Some(free) = self.free.get(&class) else {
            return Matches::new();
        };
        let places = Places {
            nodes: &self.nodes,
            full: &self.full,
        };
        open.matches.on_node(free, places, node, &open.shapes)
    }

    /// The volumes that claims would get on a node, as many as possible and the smallest ones, and what would have to
    /// be provisioned.
    fn plan<'a>(&self, pod: &'a PreparedPod, node: NodeId) -> Result<Plan<'a>, VolumeReason> {
        let mut plan = Plan::default();
        for (need, selected) in &pod.selected {
            if *selected != self.nodes.name(node) {
                return Err(VolumeReason::BindConflict);
            }
            plan.to_make.push(need);
        }
        for (need, reserved) in &pod.reserved {
            let reachable = reserved.iter().copied().find(|id| {
                self.volume(*id).is_some_and(|volume| {
                    let is_in = |selector| self.nodes.matching(selector).contains(node.0);
                    is_in(volume.affinity) && is_in(volume.zones)
                })
            });
            plan.add(need, reachable);
        }
        for open in &pod.open {
            let matches = self.matches_on(open, node);
            for (index, need) in open.needs.iter().enumerate() {
                let found = matches.get(index).copied().flatten();
                plan.add(need, found.map(Match::volume));
            }
        }
        plan.sort(pod);
        Ok(plan)
    }

    /// Keeps the nodes that [`Self::on_node`] would accept, without building reasons.
    pub fn narrow(&self, pod: &PreparedPod, nodes: &mut NodeMask) {
        self.narrow_by_bound(pod, nodes);
        self.narrow_by_unbound(pod, nodes);
    }

    /// [`Self::narrow`] for bound claims only.
    pub fn narrow_by_bound(&self, pod: &PreparedPod, nodes: &mut NodeMask) {
        if pod.bound.missing {
            nodes.words_mut().fill(0);
            return;
        }
        for (broken, _) in &pod.bound.broken {
            nodes.subtract(broken);
        }
        if let Some(reachable) = &pod.bound.reachable {
            nodes.intersect(&NodeMask::of(&self.nodes, reachable));
        }
    }

    /// [`Self::narrow`] for unbound claims and inline volumes.
    pub fn narrow_by_unbound(&self, pod: &PreparedPod, nodes: &mut NodeMask) {
        if !pod.has_unbound_claims() && pod.inline.is_empty() {
            return;
        }
        if let ([open], true) = (pod.open.as_slice(), pod.has_only_open_claims()) {
            nodes.retain(|node| open.matches.percent_on(node).is_some() || self.accepts_plan(pod, node));
        } else {
            nodes.retain(|node| self.accepts_unbound(pod, node));
        }
    }

    /// Whether the unbound claims would find volumes on a node or could be provisioned there: `unbound_on_node` without the
    /// volumes and reasons.
    #[must_use]
    pub fn accepts_unbound(&self, pod: &PreparedPod, node: NodeId) -> bool {
        let all_found =
            pod.has_only_open_claims() && pod.open.iter().all(|open| open.matches.percent_on(node).is_some());
        all_found || self.accepts_plan(pod, node)
    }

    /// Which claims get contested volumes makes no difference to whether there is a plan.
    fn accepts_plan(&self, pod: &PreparedPod, node: NodeId) -> bool {
        self.all_matched(pod, node).is_some() || self.plan_on_node(pod, node, Contested::Smaller).is_ok()
    }

    /// A decision by name: claims with their volumes, and claims to provision, both sorted by claim name.
    #[must_use]
    pub fn describe(&self, volumes: &NodeVolumes) -> (Vec<(&str, &str)>, Vec<&str>) {
        let claim = |id: ClaimId| self.claim(id).map_or("", |claim| &*claim.name);
        let volume = |id: VolumeId| self.volume(id).map_or("", |volume| &*volume.name);
        let mut bindings: Vec<_> = volumes.bindings.iter().map(|(c, v)| (claim(*c), volume(*v))).collect();
        bindings.sort_unstable();
        let mut provisions: Vec<_> = volumes.provisions.iter().map(|id| claim(*id)).collect();
        provisions.sort_unstable();
        (bindings, provisions)
    }
}
