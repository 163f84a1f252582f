//! The resources of nodes and their usage, one column for each resource.
//!
//! Usage is updated incrementally when a pod is added or removed; nothing is recomputed for a decision.

use crate::pod::{Footprint, is_scalar};
use berth_core::api;
use berth_core::nodes::NodeId;
use berth_core::symbols::{Symbol, Symbols};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The amounts of one node, in the order of the columns.
pub(crate) type Row = SmallVec<[i64; 10]>;

/// One resource on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Allocatable by pods.
    pub allocatable: Vec<i64>,
    /// Requested by running pods.
    pub requested: Vec<i64>,
}

berth_core::trace!(Column { ; allocatable, requested });

impl Column {
    /// Whether no node offers it and no pod requests it.
    fn is_zero(&self) -> bool {
        self.allocatable
            .iter()
            .chain(&self.requested)
            .all(|amount| *amount == 0)
    }

    fn grow(&mut self, length: usize) {
        self.allocatable.resize(length, 0);
        self.requested.resize(length, 0);
    }

    /// The free amount on a node.
    #[must_use]
    pub fn free(&self, node: NodeId) -> i64 {
        self.allocatable[node.index()].saturating_sub(self.requested[node.index()])
    }

    fn change(&mut self, node: NodeId, amount: i64, sign: i64) {
        change(&mut self.requested, node, amount, sign);
    }
}

/// The sums wrap, so that every addition can be undone exactly, even beyond any realistic amount.
fn change(column: &mut [i64], node: NodeId, amount: i64, sign: i64) {
    let used = &mut column[node.index()];
    *used = used.wrapping_add(amount.wrapping_mul(sign));
}

/// All resources on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// CPU in millicores.
    pub cpu: Column,
    /// Memory in bytes.
    pub memory: Column,
    /// Local disk in bytes.
    pub ephemeral: Column,
    /// Number of pods.
    pub pods: Column,
    /// Everything else, by name.
    pub scalars: FxHashMap<Symbol, Column>,
    /// CPU that scoring assumes running pods to use.
    pub scoring_cpu: Vec<i64>,
    /// Memory that scoring assumes running pods to use.
    pub scoring_memory: Vec<i64>,
    length: usize,
}

berth_core::trace!(Resources {
    scalars;
    cpu, memory, ephemeral, pods, scoring_cpu, scoring_memory, length
});

impl Resources {
    /// Drops the columns of resources that no node offers and no pod requests, and returns whether there were any.
    pub(super) fn tidy(&mut self) -> bool {
        let before = self.scalars.len();
        self.scalars.retain(|_, column| !column.is_zero());
        self.scalars.len() < before
    }

    /// Grows the columns.
    pub(crate) fn grow(&mut self, length: usize) {
        if length <= self.length {
            return;
        }
        self.length = length;
        let fixed = [&mut self.cpu, &mut self.memory, &mut self.ephemeral, &mut self.pods];
        for column in fixed.into_iter().chain(self.scalars.values_mut()) {
            column.grow(length);
        }
        self.scoring_cpu.resize(length, 0);
        self.scoring_memory.resize(length, 0);
    }

    /// Sets the allocatable resources of a node.
    pub(super) fn set_allocatable(&mut self, symbols: &mut Symbols, node: NodeId, allocatable: &api::ResourceList) {
        self.clear_allocatable(node);
        for (name, amount) in allocatable {
            match name.as_str() {
                "cpu" => self.cpu.allocatable[node.index()] = amount.milli_value(),
                "memory" => self.memory.allocatable[node.index()] = amount.value(),
                "ephemeral-storage" => self.ephemeral.allocatable[node.index()] = amount.value(),
                "pods" => self.pods.allocatable[node.index()] = amount.value(),
                name if is_scalar(name) => {
                    self.scalar_mut(symbols.intern(name)).allocatable[node.index()] = amount.value();
                }
                _ => {}
            }
        }
    }

    pub(super) fn clear_allocatable(&mut self, node: NodeId) {
        let fixed = [&mut self.cpu, &mut self.memory, &mut self.ephemeral, &mut self.pods];
        for column in fixed.into_iter().chain(self.scalars.values_mut()) {
            column.allocatable[node.index()] = 0;
        }
    }

    fn scalar_mut(&mut self, name: Symbol) -> &mut Column {
        let column = self.scalars.entry(name).or_default();
        column.grow(self.length);
        column
    }

    /// Counts a pod on a node (`sign` 1), or stops counting it (`sign` -1).
    pub(super) fn count(&mut self, node: NodeId, pod: &Footprint, sign: i64) {
        self.cpu.change(node, pod.requests.cpu_milli, sign);
        self.memory.change(node, pod.requests.memory_bytes, sign);
        self.ephemeral.change(node, pod.requests.ephemeral_bytes, sign);
        self.pods.change(node, 1, sign);
        change(&mut self.scoring_cpu, node, pod.scoring.cpu_milli, sign);
        change(&mut self.scoring_memory, node, pod.scoring.memory_bytes, sign);
        for (name, amount) in pod.requests.scalars.iter().filter(|(_, amount)| *amount != 0) {
            self.scalar_mut(*name).change(node, *amount, sign);
        }
    }

    /// The amounts of a node. The resources beyond the fixed ones are in the given order.
    pub(crate) fn row(&self, scalars: &[Symbol], node: NodeId) -> Row {
        let at = node.index();
        let mut row = Row::new();
        for column in [&self.cpu, &self.memory, &self.ephemeral, &self.pods] {
            row.extend([column.allocatable[at], column.requested[at]]);
        }
        row.extend([self.scoring_cpu[at], self.scoring_memory[at]]);
        for name in scalars {
            let column = self.scalars.get(name);
            row.extend(column.map_or([0, 0], |column| [column.allocatable[at], column.requested[at]]));
        }
        row
    }

    /// Sets the amounts of a node to those of a [row](Self::row).
    pub(crate) fn set_row(&mut self, scalars: &[Symbol], node: NodeId, row: &[i64]) {
        let at = node.index();
        let mut amounts = row.iter().copied();
        let mut next = || amounts.next().unwrap_or(0);
        for column in [&mut self.cpu, &mut self.memory, &mut self.ephemeral, &mut self.pods] {
            (column.allocatable[at], column.requested[at]) = (next(), next());
        }
        (self.scoring_cpu[at], self.scoring_memory[at]) = (next(), next());
        for name in scalars {
            let column = self.scalar_mut(*name);
            (column.allocatable[at], column.requested[at]) = (next(), next());
        }
    }

    /// The free and the allocatable amount of a resource other than the fixed ones.
    #[must_use]
    pub fn scalar(&self, name: Symbol, node: NodeId) -> (i64, i64) {
        self.scalars
            .get(&name)
            .map_or((0, 0), |column| (column.free(node), column.allocatable[node.index()]))
    }
}
