//! The running pods, indexed by name, node, namespace and label.

use super::anchors::anchor;
use super::pod_counts::{PodQuery, Scope};
use crate::pod::Footprint;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The index of a running pod in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// A pod that has a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningPod {
    /// Its resource usage and constraints.
    pub footprint: Arc<Footprint>,
    /// The name of its node.
    pub node_name: Symbol,
    /// Its node, if it exists.
    pub node: Option<NodeId>,
    /// Set while only this scheduler knows that it runs there.
    pub assumed: Option<u64>,
}

berth_core::trace!(RunningPod { footprint, node_name; node, assumed });

/// All pods that have a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods {
    entries: Vec<Option<RunningPod>>,
    free: Vec<u32>,
    by_name: FxHashMap<(Symbol, Box<str>), PodId>,
    by_node_name: FxHashMap<Symbol, Vec<PodId>>,
    by_label: FxHashMap<(Symbol, Symbol), RoaringBitmap>,
    by_namespace: FxHashMap<Symbol, RoaringBitmap>,
    /// Number of pods by priority.
    priorities: BTreeMap<i32, u32>,
}

// The indexes contain only symbols of pods.
berth_core::trace!(Pods { entries; free, by_name, by_node_name, by_label, by_namespace, priorities });

impl Pods {
    pub(super) fn insert(&mut self, pod: RunningPod) -> PodId {
        let id = self.free.pop().unwrap_or(self.entries.len() as u32);
        if id as usize == self.entries.len() {
            self.entries.push(None);
        }
        let footprint = &pod.footprint;
        self.by_name
            .insert((footprint.namespace, footprint.name.clone()), PodId(id));
        self.by_node_name.entry(pod.node_name).or_default().push(PodId(id));
        for pair in footprint.labels.iter() {
            self.by_label.entry(pair).or_default().insert(id);
        }
        self.by_namespace.entry(footprint.namespace).or_default().insert(id);
        *self.priorities.entry(footprint.priority).or_default() += 1;
        self.entries[id as usize] = Some(pod);
        PodId(id)
    }

    pub(super) fn remove(&mut self, id: PodId) -> Option<RunningPod> {
        let pod = self.entries.get_mut(id.0 as usize)?.take()?;
        let footprint = &pod.footprint;
        self.by_name.remove(&(footprint.namespace, footprint.name.clone()));
        if let Some(pods) = self.by_node_name.get_mut(&pod.node_name) {
            // From the end: the pod that is removed is usually the most recent one.
            if let Some(position) = pods.iter().rposition(|found| *found == id) {
                pods.remove(position);
            }
            if pods.is_empty() {
                self.by_node_name.remove(&pod.node_name);
            }
        }
        for pair in footprint.labels.iter() {
            unpost(&mut self.by_label, pair, id);
        }
        unpost(&mut self.by_namespace, footprint.namespace, id);
        if let Some(count) = self.priorities.get_mut(&footprint.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&footprint.priority);
            }
        }
        self.free_place(id);
        Some(pod)
    }

    /// The last slot is always in use, so that adding and removing a pod leaves no trace.
    fn free_place(&mut self, id: PodId) {
        if id.0 as usize + 1 < self.entries.len() {
            self.free.push(id.0);
            return;
        }
        self.entries.pop();
        if let Some(None) = self.entries.last() {
            let taken = self
                .entries
                .iter()
                .rposition(Option::is_some)
                .map_or(0, |last| last + 1);
            self.entries.truncate(taken);
            self.free.retain(|free| (*free as usize) < taken);
        }
    }

    pub(super) fn get_mut(&mut self, id: PodId) -> Option<&mut RunningPod> {
        self.entries.get_mut(id.0 as usize)?.as_mut()
    }

    /// A pod by its index.
    #[must_use]
    pub fn get(&self, id: PodId) -> Option<&RunningPod> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    /// A pod by its name.
    #[must_use]
    pub fn find(&self, namespace: Symbol, name: &str) -> Option<PodId> {
        self.by_name.get(&(namespace, name.into())).copied()
    }

    /// The pods on a node, by node name.
    #[must_use]
    pub fn on_node(&self, node_name: Symbol) -> &[PodId] {
        self.by_node_name.get(&node_name).map_or(&[], Vec::as_slice)
    }

    /// The pods on a node with their data, by node name.
    pub fn of_node(&self, node_name: Symbol) -> impl Iterator<Item = (PodId, &RunningPod)> {
        let pods = self.on_node(node_name).iter();
        pods.filter_map(|pod| Some((*pod, self.get(*pod)?)))
    }

    /// The lowest priority of any pod that has a node.
    #[must_use]
    pub fn lowest_priority(&self) -> Option<i32> {
        self.priorities.first_key_value().map(|(priority, _)| *priority)
    }

    /// Number of pods with a node.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether no pod has a node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Visits pods with a known node, including all that match a query.
    pub(super) fn for_each_candidate(&self, query: &PodQuery, mut visit: impl FnMut(&Footprint, NodeId)) {
        let mut narrowed: Option<RoaringBitmap> = None;
        let mut narrow = |found: RoaringBitmap| {
            narrowed = Some(match narrowed.take() {
                Some(before) => before & found,
                None => found,
            });
        };
        for clause in &query.clauses {
            if let Some((key, values)) = anchor(&clause.selector) {
                narrow(union(&self.by_label, values.iter().map(|value| (key, *value))));
            }
            if let Scope::Names(names) = &clause.scope {
                narrow(union(&self.by_namespace, names.iter().copied()));
            }
        }
        let mut visit_one = |entry: Option<&RunningPod>| {
            if let Some(pod) = entry
                && let Some(node) = pod.node
            {
                visit(&pod.footprint, node);
            }
        };
        match narrowed {
            Some(ids) => ids.iter().for_each(|id| visit_one(self.get(PodId(id)))),
            None => self.entries.iter().for_each(|entry| visit_one(entry.as_ref())),
        }
    }
}

fn union<K: std::hash::Hash + Eq>(
    postings: &FxHashMap<K, RoaringBitmap>,
    keys: impl Iterator<Item = K>,
) -> RoaringBitmap {
    let mut found = RoaringBitmap::new();
    for posting in keys.filter_map(|key| postings.get(&key)) {
        found |= posting;
    }
    found
}

fn unpost<K: std::hash::Hash + Eq>(postings: &mut FxHashMap<K, RoaringBitmap>, key: K, id: PodId) {
    if let Some(ids) = postings.get_mut(&key) {
        ids.remove(id.0);
        if ids.is_empty() {
            postings.remove(&key);
        }
    }
}
