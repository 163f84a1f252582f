//! Where a pod's volumes allow it to run, with which volumes, and how well they fit.

use super::{PodClaims, VolumeBinder};
use crate::capacity::{PoolKey, fit_together};
use crate::mask::NodeMask;
use crate::matches::MatchSet;
use crate::model::{Claim, ClaimId, ClaimShape, Disk, VolumeId};
use crate::names;
use crate::nodes::{NodeId, SelectorId};
use crate::reason::VolumeReason;
use crate::score::{ByClass, Shape, utilization};
use crate::symbols::Symbol;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// The volumes that a pod would use on a node, beyond those it is bound to already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeVolumes {
    /// Claims and the existing volumes that they would take.
    pub bindings: SmallVec<[(ClaimId, VolumeId); 2]>,
    /// Claims for which a volume would be made.
    pub provisions: SmallVec<[ClaimId; 2]>,
}

impl NodeVolumes {
    /// Whether nothing has to be bound or made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.provisions.is_empty()
    }
}

/// A pod's claims with everything worked out that does not depend on the node.
#[derive(Clone, Debug, Default)]
pub struct PreparedPod {
    bound: BoundClaims,
    /// Claims that wait for a volume to be made for a node that was chosen before.
    pub(super) selected: SmallVec<[(Need, Symbol); 1]>,
    /// Claims for which volumes are reserved: these volumes, or none.
    pub(super) reserved: SmallVec<[(Need, SmallVec<[VolumeId; 1]>); 1]>,
    /// Claims that take any free volume of their class, by class.
    pub(super) open: SmallVec<[OpenClaims; 1]>,
    pub(super) inline: SmallVec<[(Symbol, i64); 1]>,
}

impl PreparedPod {
    /// Whether claims that are bound already keep the pod off any node.
    #[must_use]
    pub fn is_bound_to_nodes(&self) -> bool {
        self.bound.missing || self.bound.reachable.is_some() || !self.bound.broken.is_empty()
    }

    /// Whether the pod has claims for which a volume must be found or made.
    #[must_use]
    pub fn has_unbound_claims(&self) -> bool {
        !(self.selected.is_empty() && self.reserved.is_empty() && self.open.is_empty())
    }
}

/// Which nodes can reach the volumes that are bound already.
#[derive(Clone, Debug, Default)]
struct BoundClaims {
    /// `None` means all.
    reachable: Option<RoaringBitmap>,
    /// A bound volume is not there.
    missing: bool,
    /// Nodes on which a volume would have to be translated and cannot be.
    broken: Vec<(RoaringBitmap, VolumeReason)>,
}

/// A claim for which a volume must be found or made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    claim: ClaimId,
    /// Its place among the pod's claims.
    position: usize,
    pub(super) class: Symbol,
    request: i64,
    provision: Provision,
}

/// Whether and where a volume can be made for a claim.
#[derive(Clone, Copy, Debug)]
struct Provision {
    possible: bool,
    topologies: SelectorId,
    /// The pools that it must fit into, of either form. None: the driver does not say.
    pools: [Option<PoolKey>; 2],
}

/// The claims of one class that take any free volume of it.
#[derive(Clone, Debug)]
pub(super) struct OpenClaims {
    pub(super) matches: Arc<MatchSet>,
    /// In the order of the set's shapes: the smallest request first.
    pub(super) needs: SmallVec<[Need; 2]>,
}

impl OpenClaims {
    /// What the claims ask for and what their volumes hold on a node where all of them find one.
    fn capacity_on(&self, node: NodeId) -> Option<(i64, i64)> {
        let matches = self.matches.on_node(node);
        let mut sums = (0_i64, 0_i64);
        for (index, need) in self.needs.iter().enumerate() {
            let found = matches.get(index).copied().flatten()?;
            sums.0 = sums.0.saturating_add(need.request);
            sums.1 = sums.1.saturating_add(found.capacity);
        }
        Some(sums)
    }
}

/// Which of the two capacity scores is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoreGate {
    /// None.
    Off,
    /// `VolumeCapacityPriority`: the existing volumes that a node offers.
    #[default]
    VolumeCapacityPriority,
    /// `StorageCapacityScoring`: those, or else the published capacity.
    StorageCapacityScoring,
}

/// How volumes are scored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityScore {
    /// The shape; `None` for the gate's own.
    pub shape: Option<Shape>,
    /// Weights of classes, over those that the classes say themselves.
    pub class_weights: FxHashMap<Box<str>, i64>,
}

impl VolumeBinder {
    /// Works out what does not depend on the node. Claims that were seen before cost little.
    pub fn prepare(&mut self, claims: &PodClaims) -> PreparedPod {
        let mut prepared = PreparedPod {
            bound: self.bound_claims(&claims.bound),
            inline: claims.inline.clone(),
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
                prepared.reserved.push((need, reserved));
            }
        }
        open.sort_by(|(a, a_shape), (b, b_shape)| (a.class, a_shape).cmp(&(b.class, b_shape)));
        for of_class in open.chunk_by(|(a, _), (b, _)| a.class == b.class) {
            let shapes: Vec<ClaimShape> = of_class.iter().map(|(_, shape)| shape.clone()).collect();
            let free = self.free.entry(of_class[0].0.class).or_default();
            let volume = |id: VolumeId| self.volumes.get(id.0).map(|volume| &volume.effective);
            prepared.open.push(OpenClaims {
                matches: free.prepare(&self.nodes, &shapes, volume),
                needs: of_class.iter().map(|(need, _)| *need).collect(),
            });
        }
        prepared
    }

    fn bound_claims(&self, claims: &[ClaimId]) -> BoundClaims {
        let mut bound = BoundClaims::default();
        for claim in claims.iter().filter_map(|id| self.claim(*id)) {
            let Some(volume) = self.volume_named(&claim.volume_name) else {
                // Claims after a missing volume are not looked at: one reason is enough.
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
                    // A node that cannot reach an earlier volume is refused for that.
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

    fn need(&self, id: ClaimId, claim: &Claim, position: usize) -> Need {
        let class_name = claim.class.unwrap_or(Symbol::EMPTY);
        let provision = match self.classes.get(&class_name) {
            Some(class) => Provision {
                possible: class.provisions,
                topologies: class.allowed_topologies,
                pools: self.pools_for(class.driver, class_name, claim.shape.request),
            },
            None => Provision {
                possible: false,
                topologies: SelectorId::ALL,
                pools: [None; 2],
            },
        };
        Need {
            claim: id,
            position,
            class: class_name,
            request: claim.shape.request,
            provision,
        }
    }

    /// The pools that a volume of a class must fit into: by driver, then class, then fallback.
    pub(super) fn pools_for(&self, driver: Symbol, class: Symbol, request: i64) -> [Option<PoolKey>; 2] {
        let Some(known) = self.drivers.get(&driver).filter(|_| request > 0) else {
            return [None; 2];
        };
        let of_driver = PoolKey::DriverClass { driver, class };
        let fallback = self
            .symbols
            .get(names::FALLBACK_CLASS)
            .map(|class| PoolKey::DriverClass { driver, class });
        let in_status = if self.pools.serves(of_driver) {
            of_driver
        } else {
            fallback.unwrap_or(of_driver)
        };
        [
            known.publishes_objects.then_some(PoolKey::Class(class)),
            known.publishes_status.then_some(in_status),
        ]
    }

    /// Volumes of the claim's class that are reserved for it and large enough, the smallest first.
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
    /// All reasons why its volumes keep it off that node, in the order of kube-scheduler.
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

    pub(super) fn unbound_on_node(&self, pod: &PreparedPod, node: NodeId) -> Result<NodeVolumes, VolumeReason> {
        let mut volumes = NodeVolumes::default();
        let mut to_provision: SmallVec<[&Need; 4]> = SmallVec::new();
        for (need, selected) in &pod.selected {
            if *selected != self.nodes.name(node) {
                return Err(VolumeReason::BindConflict);
            }
            to_provision.push(need);
        }
        for (need, reserved) in &pod.reserved {
            let reachable = reserved.iter().find(|id| {
                self.volume(**id)
                    .is_some_and(|volume| self.nodes.matching(volume.affinity).contains(node.0))
            });
            match reachable {
                Some(volume) => volumes.bindings.push((need.claim, *volume)),
                None => to_provision.push(need),
            }
        }
        for open in &pod.open {
            let matches = open.matches.on_node(node);
            for (index, need) in open.needs.iter().enumerate() {
                match matches.get(index).copied().flatten() {
                    Some(found) => volumes.bindings.push((need.claim, found.volume())),
                    None => to_provision.push(need),
                }
            }
        }
        if !to_provision.is_empty() || !pod.inline.is_empty() {
            to_provision[pod.selected.len()..].sort_by_key(|need| (need.request, need.position));
            self.check_provisions(&to_provision, &pod.inline, node)?;
            volumes.provisions = to_provision.iter().map(|need| need.claim).collect();
        }
        Ok(volumes)
    }

    /// Whether volumes can be made on a node, each alone and all together.
    fn check_provisions(&self, needs: &[&Need], inline: &[(Symbol, i64)], node: NodeId) -> Result<(), VolumeReason> {
        let mut requests: SmallVec<[([Option<PoolKey>; 2], i64); 4]> = SmallVec::new();
        for need in needs {
            let Provision {
                possible,
                topologies,
                pools,
            } = need.provision;
            if !possible || !self.nodes.matching(topologies).contains(node.0) {
                return Err(VolumeReason::BindConflict);
            }
            if pools != [None; 2] {
                requests.push((pools, need.request));
                if !self.fit(pools, &[need.request], node) {
                    return Err(VolumeReason::NotEnoughSpace);
                }
            }
        }
        for (driver, size) in inline {
            if let Some(ephemeral) = self.symbols.get(names::EPHEMERAL_CLASS) {
                let [_, pools] = self.pools_for(*driver, ephemeral, *size);
                if pools.is_some() {
                    requests.push(([None, pools], *size));
                }
            }
        }
        requests.sort_unstable_by_key(|(pools, _)| pools.map(|pool| pool.map(PoolKey::order)));
        for together in requests.chunk_by(|(a, _), (b, _)| a == b) {
            let sizes: SmallVec<[i64; 4]> = together.iter().map(|(_, size)| *size).collect();
            if !self.fit(together[0].0, &sizes, node) {
                return Err(VolumeReason::NotEnoughSpace);
            }
        }
        Ok(())
    }

    fn fit(&self, keys: [Option<PoolKey>; 2], sizes: &[i64], node: NodeId) -> bool {
        let pools: SmallVec<[_; 4]> = keys
            .into_iter()
            .flatten()
            .flat_map(|key| self.pools.reachable(&self.nodes, key, node, self.now))
            .collect();
        fit_together(sizes, &pools)
    }

    /// Keeps the nodes that [`Self::on_node`] would accept, without the words.
    pub fn narrow(&self, pod: &PreparedPod, nodes: &mut NodeMask) {
        self.narrow_by_bound(pod, nodes);
        self.narrow_by_unbound(pod, nodes);
    }

    /// The same for the claims that are bound already alone.
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

    /// The same for the claims that are not bound, and for inline volumes.
    pub fn narrow_by_unbound(&self, pod: &PreparedPod, nodes: &mut NodeMask) {
        if !pod.has_unbound_claims() && pod.inline.is_empty() {
            return;
        }
        nodes.retain(|node| {
            let all_matched = pod.selected.is_empty()
                && pod.reserved.is_empty()
                && pod.inline.is_empty()
                && pod
                    .open
                    .iter()
                    .all(|open| open.matches.on_node(node).iter().all(Option::is_some));
            all_matched || self.unbound_on_node(pod, node).is_ok()
        });
    }

    /// How well the volumes fit that a pod would use on each of these nodes, 0 to 100.
    pub fn score(
        &self,
        pod: &PreparedPod,
        nodes: &[NodeId],
        gate: ScoreGate,
        score: &CapacityScore,
        out: &mut Vec<i64>,
    ) {
        let default_shape = match gate {
            ScoreGate::Off => {
                out.extend(nodes.iter().map(|_| 0));
                return;
            }
            ScoreGate::VolumeCapacityPriority => Shape::closest_fit(),
            ScoreGate::StorageCapacityScoring => Shape::most_room(),
        };
        let shape = score.shape.as_ref().unwrap_or(&default_shape);
        let weight = |class: Symbol| {
            let configured = score.class_weights.get(self.symbols.text(class)).copied();
            configured.or_else(|| self.classes.get(&class)?.weight).unwrap_or(1)
        };
        // By far the most pods have claims of one class, all of which find a volume. Their weight is of
        // no consequence unless it is nothing at all.
        let single = match pod.open.as_slice() {
            [open] if pod.selected.is_empty() && pod.reserved.is_empty() && pod.inline.is_empty() => Some(open),
            _ => None,
        };
        let single = single.filter(|open| open.needs.iter().all(|need| weight(need.class) > 0));
        out.extend(nodes.iter().map(|node| {
            let capacity = single.and_then(|open| open.capacity_on(*node));
            if let Some((requested, capacity)) = capacity {
                return shape.score(utilization(requested, capacity));
            }
            self.sizes_on_node(pod, *node, gate).score(shape, weight)
        }));
    }

    fn sizes_on_node(&self, pod: &PreparedPod, node: NodeId, gate: ScoreGate) -> ByClass {
        let mut by_class = ByClass::default();
        let Ok(volumes) = self.unbound_on_node(pod, node) else {
            return by_class;
        };
        for (claim, volume) in &volumes.bindings {
            if let (Some(claim), Some(volume)) = (self.claim(*claim), self.volume(*volume)) {
                by_class.add_volume(volume.class, claim.shape.request, volume.capacity);
            }
        }
        if by_class.is_empty() && gate == ScoreGate::StorageCapacityScoring {
            for (id, claim) in volumes.provisions.iter().filter_map(|id| Some((*id, self.claim(*id)?))) {
                let need = self.need(id, claim, 0);
                let mut pools = need
                    .provision
                    .pools
                    .into_iter()
                    .flatten()
                    .flat_map(|key| self.pools.reachable(&self.nodes, key, node, self.now));
                let pool = pools.find(|pool| pool.largest().is_some_and(|largest| largest >= need.request));
                if let Some(capacity) = pool.and_then(|pool| pool.capacity.or(pool.maximum_volume_size)) {
                    by_class.add_provisioned(need.class, need.request, capacity);
                }
            }
        }
        by_class
    }

    /// A decision by names: claims with their volumes, and claims to provision for. Both by claim name.
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
