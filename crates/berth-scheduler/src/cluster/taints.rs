//! Distinct lists of taints, and the nodes with each: tolerations are checked once per list, not per node.

use crate::pod::Taint;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashMap;

/// A distinct list of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaintList {
    /// The taints in the node's order.
    pub taints: Box<[Taint]>,
    /// The nodes with exactly these.
    pub nodes: NodeMask,
    count: usize,
}

berth_core::trace!(TaintList { taints; nodes, count });

/// The taints of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taints {
    /// The first one is the empty list.
    lists: Vec<TaintList>,
    ids: FxHashMap<Box<[Taint]>, u32>,
    free: Vec<u32>,
    of_node: Vec<u32>,
}

berth_core::trace!(Taints { lists; ids, free, of_node });

impl Default for Taints {
    fn default() -> Self {
        Self {
            lists: vec![TaintList::default()],
            ids: FxHashMap::default(),
            free: Vec::new(),
            of_node: Vec::new(),
        }
    }
}

impl Taints {
    pub(super) fn grow(&mut self, length: usize) {
        self.of_node.resize(length.max(self.of_node.len()), 0);
    }

    /// Sets the taints of a node.
    pub(super) fn set(&mut self, node: NodeId, taints: Vec<Taint>) {
        let old = self.of_node[node.index()];
        if *self.lists[old as usize].taints == taints[..] {
            return;
        }
        if old != 0 {
            let list = &mut self.lists[old as usize];
            list.nodes.remove(node);
            list.count -= 1;
            if list.count == 0 {
                let dropped = std::mem::take(list);
                self.ids.remove(&dropped.taints);
                self.free.push(old);
            }
        }
        self.of_node[node.index()] = if taints.is_empty() { 0 } else { self.join(node, taints) };
    }

    fn join(&mut self, node: NodeId, taints: Vec<Taint>) -> u32 {
        let taints: Box<[Taint]> = taints.into();
        let id = match self.ids.get(&taints) {
            Some(id) => *id,
            None => {
                let id = self.free.pop().unwrap_or(self.lists.len() as u32);
                if id as usize == self.lists.len() {
                    self.lists.push(TaintList::default());
                }
                self.lists[id as usize].taints.clone_from(&taints);
                self.ids.insert(taints, id);
                id
            }
        };
        let list = &mut self.lists[id as usize];
        list.nodes.grow_to(node);
        list.count += 1;
        id
    }

    /// All distinct lists by number; unused ones are empty.
    #[must_use]
    pub fn lists(&self) -> &[TaintList] {
        &self.lists
    }

    /// The number of a node's list.
    #[must_use]
    pub fn list_of(&self, node: NodeId) -> usize {
        self.of_node[node.index()] as usize
    }
}
