//! The tables that a page shows, and changes to them.

use crate::rows::{ClaimRow, ClassRow, NodeRow, PodRow, PoolRow, VolumeRow, WorkloadRow};
use crate::shared::Shared;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows by name.
pub type Table<R> = BTreeMap<String, Shared<R>>;

/// Rows that changed, by name; nothing where a row is gone.
pub type Changes<R> = BTreeMap<String, Option<Shared<R>>>;

macro_rules! tables {
    ($($(#[doc = $doc:literal])* $name:ident: $row:ty,)*) => {
        /// All rows, by name.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct State {
            $($(#[doc = $doc])* pub $name: Table<$row>,)*
        }

        /// Rows that changed, by name; nothing where a row is gone. Tables without a change are left out of the JSON.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct Update {
            $(
                $(#[doc = $doc])*
                #[serde(skip_serializing_if = "BTreeMap::is_empty")]
                pub $name: Changes<$row>,
            )*
        }

        impl State {
            /// Makes the state what it was changed to.
            pub fn apply(&mut self, update: &Update) {
                $(apply(&mut self.$name, &update.$name);)*
            }
        }

        impl Update {
            /// How many rows it changes.
            #[must_use]
            pub fn len(&self) -> usize {
                0 $(+ self.$name.len())*
            }

            /// Whether it changes nothing.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }
    };
}

tables! {
    /// Nodes.
    nodes: NodeRow,
    /// Pods, by `namespace/name`.
    pods: PodRow,
    /// Claims, by `namespace/name`.
    claims: ClaimRow,
    /// Volumes.
    volumes: VolumeRow,
    /// Pools of storage from which volumes are made.
    pools: PoolRow,
    /// Storage classes.
    classes: ClassRow,
    /// Workloads that can be scaled, by `Kind/namespace/name`.
    workloads: WorkloadRow,
}

fn apply<R>(rows: &mut Table<R>, changed: &Changes<R>) {
    for (name, row) in changed {
        match row {
            Some(row) => rows.insert(name.clone(), row.clone()),
            None => rows.remove(name),
        };
    }
}
