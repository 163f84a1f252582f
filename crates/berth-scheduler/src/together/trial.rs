//! Places pods on nodes temporarily: counted like running ones, and removed again.

use super::Candidate;
use crate::cluster::{AssumedPod, Cluster};
use crate::decide::{self, Placement, Scratch};
use crate::plugins::{FilterState, pod_topology_spread};
use berth_core::binder::{Assumption, NodeVolumes};
use berth_core::nodes::NodeId;
use std::cmp::Ordering;

/// Maximum number of nodes compared for a pod; of more, an evenly spaced sample.
pub(super) const MAX_COMPARED: usize = 64;

/// The pods of a look, some of them on nodes.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) scratch: &'a mut Scratch,
    pub(super) candidates: &'a [Candidate<'a>],
    places: Vec<Option<Place>>,
    /// For each pod the number of higher priorities.
    levels: Vec<usize>,
    level_count: usize,
    /// Number of searches for nodes.
    pub(super) tries: usize,
}

/// A pod's place.
#[derive(Debug)]
struct Place {
    option: Placed,
    assumption: Assumption,
    pod: AssumedPod,
}

/// A node for a pod, with the volumes that it would take there.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) node: NodeId,
    pub(super) volumes: NodeVolumes,
    /// The capacity of these volumes beyond what the claims request. New volumes have none.
    pub(super) waste: i64,
}

impl Placed {
    /// Number of claims that would need a new volume.
    pub(super) fn new_volumes(&self) -> usize {
        self.volumes.provisions.len()
    }
}

/// The value of an assignment: first more pods of high priority, then fewer new volumes, because existing ones win over
/// them although new ones waste nothing, then less wasted capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Number of pods placed, highest priority first.
    pub(super) by_level: Vec<usize>,
    /// Number of claims that would need a new volume.
    pub(super) new_volumes: usize,
    /// The capacity of volumes beyond what claims request.
    pub(super) waste: i64,
}

impl Value {
    pub(super) fn placed(&self) -> usize {
        self.by_level.iter().sum()
    }

    /// Whether an assignment is better than the initial one: by more pods, or by fewer new volumes or less waste for
    /// exactly the same pods. No pod has to wait for a later one only because that one wastes less.
    pub(super) fn is_better(&self, nodes: &[Option<NodeId>], start: &Self, start_nodes: &[Option<NodeId>]) -> bool {
        let mut pods = nodes.iter().zip(start_nodes);
        let mut same_pods = || pods.all(|(now, before)| now.is_some() == before.is_some());
        self.by_level > start.by_level || self > start && same_pods()
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_volumes = || (other.new_volumes, other.waste).cmp(&(self.new_volumes, self.waste));
        self.by_level.cmp(&other.by_level).then_with(by_volumes)
    }
}

impl<'a> Trial<'a> {
    pub(super) fn new(cluster: &'a mut Cluster, scratch: &'a mut Scratch, candidates: &'a [Candidate<'a>]) -> Self {
        let mut priorities: Vec<_> = candidates.iter().map(Candidate::priority).collect();
        priorities.sort_unstable_by(|a, b| b.cmp(a));
        priorities.dedup();
        let level = |candidate: &Candidate<'_>| priorities.partition_point(|known| *known > candidate.priority());
        Self {
            levels: candidates.iter().map(level).collect(),
            level_count: priorities.len(),
            places: candidates.iter().map(|_| None).collect(),
            cluster,
            scratch,
            candidates,
            tries: 0,
        }
    }

    pub(super) fn level(&self, index: usize) -> usize {
        self.levels[index]
    }

    /// For each pod the number of higher priorities.
    pub(super) fn levels(&self) -> &[usize] {
        &self.levels
    }

    pub(super) fn level_count(&self) -> usize {
        self.level_count
    }

    pub(super) fn place(&self, index: usize) -> Option<&Placed> {
        self.places[index].as_ref().map(|place| &place.option)
    }

    pub(super) fn node(&self, index: usize) -> Option<NodeId> {
        self.place(index).map(|place| place.node)
    }

    pub(super) fn nodes(&self) -> Vec<Option<NodeId>> {
        (0..self.places.len()).map(|index| self.node(index)).collect()
    }

    pub(super) fn value(&self) -> Value {
        let mut value = Value {
            by_level: vec![0; self.level_count],
            new_volumes: 0,
            waste: 0,
        };
        for (place, level) in self.places.iter().zip(&self.levels) {
            if let Some(place) = place {
                value.by_level[*level] += 1;
                value.new_volumes += place.option.new_volumes();
                value.waste = value.waste.saturating_add(place.option.waste);
            }
        }
        value
    }

    /// Places a pod on a node. Returns `false` if that is not possible after all.
    pub(super) fn put(&mut self, index: usize, option: Placed) -> bool {
        let Ok(assumption) = self.cluster.assume_volumes(option.node, &option.volumes) else {
            return false;
        };
        let pod = self.cluster.assume_pod(self.candidates[index].pod, option.node);
        self.places[index] = Some(Place {
            option,
            assumption,
            pod,
        });
        true
    }

    /// Removes a pod from its node.
    pub(super) fn lift(&mut self, index: usize) -> Option<Placed> {
        let place = self.places[index].take()?;
        self.cluster.forget(place.pod);
        self.cluster.revert_volumes(place.assumption);
        Some(place.option)
    }

    /// Removes all pods from their nodes.
    pub(super) fn lift_all(&mut self) {
        for index in (0..self.places.len()).rev() {
            self.lift(index);
        }
    }

    /// Places a pod as a decision would: on its preferred node, or the best one.
    fn decide(&mut self, index: usize, wish: Option<NodeId>) -> bool {
        self.tries += 1;
        let candidate = &self.candidates[index];
        let mut nominated = candidate.nominated.clone();
        nominated.own = nominated.own.or(wish);
        let found = decide::find(self.cluster, candidate.pod, candidate.profile, self.scratch, &nominated);
        let Some(Placement { node, volumes, .. }) = found else {
            return false;
        };
        let waste = self.waste(&volumes);
        self.put(index, Placed { node, volumes, waste })
    }

    /// Decides about all pods again, as the scheduler would with these preferences. Pods without one have their turn after those of their
    /// priority with one. Returns the order.
    pub(super) fn replay(&mut self, wishes: &[Option<NodeId>]) -> Vec<usize> {
        self.lift_all();
        let priority = |index: &usize| self.candidates[*index].priority();
        let mut order: Vec<usize> = (0..wishes.len()).collect();
        for turns in order.chunk_by_mut(|a, b| priority(a) == priority(b)) {
            turns.sort_by_key(|index| wishes[*index].is_none());
        }
        for index in &order {
            self.decide(*index, wishes[*index]);
        }
        // A pod with affinity to another one, or spread constraints, may fit now: it is woken when they are placed.
        let mut wakes = true;
        while wakes {
            wakes = false;
            for index in &order {
                if self.places[*index].is_none() && self.depends_on_others(*index) {
                    wakes |= self.decide(*index, None);
                }
            }
        }
        order
    }

    /// Whether a pod may fit because another one is placed.
    pub(super) fn depends_on_others(&self, index: usize) -> bool {
        let Candidate { pod, profile, .. } = &self.candidates[index];
        let action = pod_topology_spread::Action::DoNotSchedule;
        pod.footprint.terms.is_some() || pod_topology_spread::has_constraints(self.cluster, pod, profile, action)
    }

    /// The nodes that currently fit a pod.
    pub(super) fn fitting(&mut self, index: usize) -> Vec<NodeId> {
        self.tries += 1;
        let Candidate {
            pod,
            profile,
            nominated,
        } = &self.candidates[index];
        let fitting = decide::fitting_nodes(self.cluster, pod, profile, self.scratch, nominated);
        let step = fitting.len().div_ceil(MAX_COMPARED).max(1);
        fitting.iter().copied().step_by(step).collect()
    }

    /// The nodes that currently fit a pod, with its volumes there.
    pub(super) fn options(&mut self, index: usize) -> Vec<Placed> {
        let nodes = self.fitting(index);
        let volumes = |node: NodeId| {
            let state = FilterState::volume_binding(&self.scratch.states);
            let volumes = state.map_or(Ok(NodeVolumes::default()), |state| state.volumes_on(self.cluster, node));
            let volumes = volumes.ok()?;
            Some(Placed {
                node,
                waste: self.waste(&volumes),
                volumes,
            })
        };
        nodes.into_iter().filter_map(volumes).collect()
    }

    fn waste(&self, volumes: &NodeVolumes) -> i64 {
        let binder = self.cluster.binder();
        let waste = |(claim, volume)| {
            let asked = binder.claim(claim)?.shape.request;
            Some(binder.volume(volume)?.capacity.saturating_sub(asked))
        };
        let bindings = volumes.bindings.iter().copied();
        bindings.filter_map(waste).fold(0, i64::saturating_add)
    }
}
