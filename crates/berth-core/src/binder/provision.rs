//! Provisioning: whether new volumes can be created on a node, each alone and all together.
//!
//! A claim without an existing volume needs a new one. If there are fewer existing volumes than claims, they go first to the claims that
//! are hardest to provision. Within one class that is a simple order: claims that cannot be provisioned at all come first, then the
//! larger ones. If any set of claims could be provisioned, the set that this order leaves can be too: it is no larger, claim by claim. For the
//! same reason it takes the least capacity, existing and new volumes together.
//!
//! Nodes are first checked with the matches that are cached for them, in which smaller claims come first: if those leave nothing
//! that cannot be provisioned, the node is accepted either way.

use super::find::{OpenClaims, PreparedPod};
use super::objects::Driver;
use super::{NodeVolumes, VolumeBinder};
use crate::assign::{MAX_TOGETHER, assign_in_order};
use crate::capacity::{Pool, PoolKey, fit_together};
use crate::matches::{Match, Matches};
use crate::model::{Claim, ClaimId, Volume, VolumeId};
use crate::names;
use crate::nodes::{NodeId, SelectorId};
use crate::reason::VolumeReason;
use crate::symbols::Symbol;
use smallvec::SmallVec;
use std::cmp::Reverse;

/// A claim that needs an existing or a new volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) claim: ClaimId,
    /// Its place among the pod's claims.
    position: usize,
    pub(super) class: Symbol,
    pub(super) request: i64,
    pub(super) provision: Provision,
}

/// Whether and where a volume can be provisioned for a claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Provision {
    /// The class has a provisioner, and the claim does not select labels that a new volume would lack.
    pub(super) possible: bool,
    topologies: SelectorId,
    /// The pools that it must fit into.
    pub(super) pools: PoolKeys,
}

/// Where the capacity for a volume is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolKeys {
    /// Separate objects.
    objects: Option<PoolKey>,
    /// Entries in the status of the driver.
    status: Option<PoolKey>,
}

impl PoolKeys {
    /// Whether the driver publishes nothing, so that there is nothing to check.
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Which claims get existing volumes that more claims could use than there are volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contested {
    /// The smaller ones, as in Kubernetes, unless the others could then not be provisioned.
    Smaller,
    /// The larger ones, so that less has to be provisioned.
    Larger,
}

/// What claims would get on a node.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub(super) bindings: SmallVec<[(&'a Need, VolumeId); 2]>,
    pub(super) to_make: SmallVec<[&'a Need; 2]>,
}

impl<'a> Plan<'a> {
    /// Adds a claim with the volume that was found for it, if one was.
    pub(super) fn add(&mut self, need: &'a Need, found: Option<VolumeId>) {
        match found {
            Some(volume) => self.bindings.push((need, volume)),
            None => self.to_make.push(need),
        }
    }

    /// Sorts the new volumes into the order in which they are checked: the first of several reasons is reported.
    pub(super) fn sort(&mut self, pod: &PreparedPod) {
        let selected = pod.selected.len().min(self.to_make.len());
        self.to_make[selected..].sort_by_key(|need| (need.request, need.position));
    }

    fn replace(&mut self, open: &'a OpenClaims, found: &[Option<VolumeId>]) {
        let is_open = |need: &Need| open.needs.iter().any(|other| other.claim == need.claim);
        self.bindings.retain(|(need, _)| !is_open(need));
        self.to_make.retain(|need| !is_open(need));
        for (index, need) in open.needs.iter().enumerate() {
            self.add(need, found.get(index).copied().flatten());
        }
    }

    /// The claims with existing volumes, and those with new ones.
    pub(super) fn into_volumes(self) -> NodeVolumes {
        let bindings = self.bindings.iter().map(|(need, volume)| (need.claim, *volume));
        NodeVolumes {
            bindings: bindings.collect(),
            provisions: self.to_make.iter().map(|need| need.claim).collect(),
        }
    }
}

impl VolumeBinder {
    pub(super) fn need(&self, id: ClaimId, claim: &Claim, position: usize) -> Need {
        let class_name = claim.class.unwrap_or(Symbol::EMPTY);
        let provision = match self.classes.get(&class_name) {
            Some(class) => Provision {
                possible: class.provisions && claim.shape.selector.is_none(),
                topologies: class.allowed_topologies,
                pools: self.pools_for(class.driver, class_name, claim.shape.request),
            },
            None => Provision {
                possible: false,
                topologies: SelectorId::ALL,
                pools: PoolKeys::default(),
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

    /// The pools that a volume of a class must fit into.
    pub(super) fn pools_for(&self, driver: Symbol, class: Symbol, request: i64) -> PoolKeys {
        let Some(known) = self.publisher(driver).filter(|_| request > 0) else {
            return PoolKeys::default();
        };
        // A driver that lists neither the class nor a fallback has no room for the class.
        let class_entry = || PoolKey::DriverClass { driver, class };
        let in_status = || self.status_entry(driver, Some(class)).unwrap_or_else(class_entry);
        PoolKeys {
            objects: known.publishes_objects.then_some(PoolKey::Class(class)),
            status: known.publishes_status.then(in_status),
        }
    }

    /// The pools that an inline volume of a driver must fit into. A driver that lists neither inline volumes nor a
    /// fallback does not limit them.
    pub(super) fn pools_for_inline(&self, driver: Symbol, request: i64) -> PoolKeys {
        let known = self.publisher(driver).filter(|_| request > 0);
        let in_status = known.filter(|known| known.publishes_status).and_then(|_| {
            let ephemeral = self.symbols.get(names::EPHEMERAL_CLASS);
            self.status_entry(driver, ephemeral)
        });
        PoolKeys {
            objects: None,
            status: in_status,
        }
    }

    /// The driver, if its published capacity counts.
    fn publisher(&self, driver: Symbol) -> Option<&Driver> {
        self.drivers.get(&driver).filter(|_| self.gates.csi_storage_capacity)
    }

    /// The entry of a driver's status for a class: its own, even without pools, or the fallback.
    fn status_entry(&self, driver: Symbol, class: Option<Symbol>) -> Option<PoolKey> {
        let known = self.drivers.get(&driver)?;
        let fallback = self.symbols.get(names::FALLBACK_CLASS);
        let mut names = class.into_iter().chain(fallback);
        let class = names.find(|name| known.entries.contains(name))?;
        Some(PoolKey::DriverClass { driver, class })
    }

    /// The pools that a node can reach. A pool may be published in both forms and must not count twice: if there are objects,
    /// which say more, only they count.
    pub(super) fn pools_on(&self, keys: PoolKeys, node: NodeId) -> SmallVec<[&Pool; 4]> {
        let reachable = |key| self.pools.reachable(&self.nodes, key, node, self.now);
        let objects: SmallVec<[&Pool; 4]> = keys.objects.into_iter().flat_map(reachable).collect();
        if objects.is_empty() {
            return keys.status.into_iter().flat_map(reachable).collect();
        }
        objects
    }

    /// Whether volumes can be provisioned on a node, each alone and all together.
    pub(super) fn check_provisions(
        &self,
        needs: &[&Need],
        inline: &[(Symbol, i64)],
        node: NodeId,
    ) -> Result<(), VolumeReason> {
        if needs.is_empty() && inline.is_empty() {
            return Ok(());
        }
        let mut requests: SmallVec<[(PoolKeys, i64); 4]> = SmallVec::new();
        // Capacity promised to these same claims is available to them.
        let own = self.promised_to(needs.iter().map(|need| need.claim));
        for need in needs {
            if !need.provision.possible || !self.is_allowed(need, node) {
                return Err(VolumeReason::BindConflict);
            }
            let pools = need.provision.pools;
            if !pools.is_empty() {
                requests.push((pools, need.request));
                if !self.fit(pools, &[need.request], node, &own) {
                    return Err(VolumeReason::NotEnoughSpace);
                }
            }
        }
        for (driver, size) in inline {
            let pools = self.pools_for_inline(*driver, *size);
            if !pools.is_empty() {
                requests.push((pools, *size));
            }
        }
        let order = |key: Option<PoolKey>| key.map(PoolKey::order);
        requests.sort_unstable_by_key(|(pools, _)| (order(pools.objects), order(pools.status)));
        for together in requests.chunk_by(|(a, _), (b, _)| a == b) {
            let sizes: SmallVec<[i64; 4]> = together.iter().map(|(_, size)| *size).collect();
            if !self.fit(together[0].0, &sizes, node, &own) {
                return Err(VolumeReason::NotEnoughSpace);
            }
        }
        Ok(())
    }

    /// Whether the class of a claim allows provisioning for a node.
    fn is_allowed(&self, need: &Need, node: NodeId) -> bool {
        self.nodes.matching(need.provision.topologies).contains(node.0)
    }

    /// Whether sizes fit into the pools that a node can reach, not counting these promises.
    fn fit(&self, keys: PoolKeys, sizes: &[i64], node: NodeId, own: &[(&str, i64)]) -> bool {
        let pools = self.pools_on(keys, node);
        if own.is_empty() {
            return fit_together(sizes, &pools);
        }
        let without_own = |pool: &&Pool| {
            let own = own.iter().filter(|(name, _)| **name == *pool.name);
            let bytes: i64 = own.map(|(_, bytes)| bytes).sum();
            Pool {
                promised: pool.promised - bytes,
                ..(*pool).clone()
            }
        };
        let pools: SmallVec<[Pool; 4]> = pools.iter().map(without_own).collect();
        fit_together(sizes, &pools.iter().collect::<SmallVec<[&Pool; 4]>>())
    }

    /// Records how much a pod requests from pools.
    pub(super) fn note_asked_by(&mut self, pod: &PreparedPod) {
        let open = pod.open.iter().flat_map(|open| &open.needs);
        let selected = pod.selected.iter().map(|(need, _)| need);
        let reserved = pod.reserved.iter().map(|(need, _)| need);
        let mut sums: SmallVec<[(PoolKey, i64); 2]> = SmallVec::new();
        for need in open.chain(selected).chain(reserved) {
            let Some(key) = need.provision.pools.objects else {
                continue;
            };
            match sums.iter_mut().find(|(found, _)| *found == key) {
                Some((_, sum)) => *sum = sum.saturating_add(need.request),
                None => sums.push((key, need.request)),
            }
        }
        for (key, sum) in sums {
            self.note_asked(key, sum);
        }
    }

    /// For each class that cannot provision all remaining claims, gives existing volumes to the claims that are hardest to
    /// provision. Returns whether anything changed.
    pub(super) fn rearrange<'a>(&'a self, pod: &'a PreparedPod, node: NodeId, plan: &mut Plan<'a>) -> bool {
        let mut changed = false;
        for (open, matches) in self.contested(pod, node) {
            let class = open.needs[0].class;
            let of_class = plan.to_make.iter().filter(|need| need.class == class);
            let of_class: SmallVec<[&Need; 2]> = of_class.copied().collect();
            if self.check_provisions(&of_class, &[], node).is_err() {
                plan.replace(open, &self.neediest_first(open, &matches));
                changed = true;
            }
        }
        changed
    }

    /// Gives existing volumes to larger claims where smaller ones have them and could be provisioned instead.
    pub(super) fn provision_smaller<'a>(&'a self, pod: &'a PreparedPod, node: NodeId, plan: &mut Plan<'a>) {
        let mut changed = false;
        for (open, matches) in self.contested(pod, node) {
            let smallest_served = open.needs.iter().zip(&matches).find(|(_, found)| found.is_some());
            let largest_left = open.needs.iter().zip(&matches).rfind(|(_, found)| found.is_none());
            // Claims are sorted by size.
            let is_worth_it = smallest_served
                .zip(largest_left)
                .is_some_and(|((served, _), (left, _))| served.request < left.request);
            if is_worth_it {
                plan.replace(open, &self.neediest_first(open, &matches));
                changed = true;
            }
        }
        if changed {
            plan.sort(pod);
        }
    }

    /// The classes of which some claims find volumes on a node and others would have to be provisioned, with the volumes that were found.
    fn contested<'a>(&'a self, pod: &'a PreparedPod, node: NodeId) -> impl Iterator<Item = (&'a OpenClaims, Matches)> {
        let open = pod.open.iter().map(move |open| (open, self.matches_on(open, node)));
        open.filter(move |(open, matches)| {
            let found = matches.iter().flatten().count();
            let makeable = |need: &Need| need.provision.possible && self.is_allowed(need, node);
            let among_many = open.needs.len() > MAX_TOGETHER;
            found > 0 && found < open.needs.len() && !among_many && open.needs.iter().any(makeable)
        })
    }

    /// The volumes found on a node, assigned first to the claims that are hardest to provision.
    fn neediest_first(&self, open: &OpenClaims, matches: &[Option<Match>]) -> Vec<Option<VolumeId>> {
        let ids = matches.iter().flatten().map(|found| found.volume());
        let mut volumes: SmallVec<[(VolumeId, &Volume); 2]> =
            ids.filter_map(|id| Some((id, self.volume(id)?))).collect();
        volumes.sort_unstable_by_key(|(_, volume)| (volume.capacity, &*volume.name));
        let suiting = |shape: &crate::model::ClaimShape| {
            let suits = |at: &usize| volumes.get(*at).is_some_and(|(_, volume)| shape.is_met_by(volume));
            (0..volumes.len()).filter(suits).collect()
        };
        let candidates: Vec<Vec<usize>> = open.shapes.iter().map(suiting).collect();
        let mut order: SmallVec<[usize; 4]> = (0..open.shapes.len()).collect();
        order.sort_by_key(|at| {
            let shape = &open.shapes[*at];
            Reverse((shape.selector.is_some(), shape.request))
        });
        let assigned = assign_in_order(volumes.len(), &candidates, order);
        let id = |at: usize| volumes.get(at).map(|(id, _)| *id);
        assigned.into_iter().map(|at| at.and_then(id)).collect()
    }
}
