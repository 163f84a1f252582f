//! Disks that running pods refer to directly, by disk, and the claims that running pods use, by claim.

use crate::pod::{DiskKey, Footprint, SharedDisk};
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;

/// How pods of one node use a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Users {
    readers: u32,
    writers: u32,
}

/// Disks and claims in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    disks: FxHashMap<DiskKey, FxHashMap<NodeId, Users>>,
    /// Number of pods that use a claim, without ephemeral ones.
    claims: FxHashMap<(Symbol, Box<str>), u32>,
}

berth_core::trace!(Disks { claims; disks });

impl Disks {
    pub(super) fn add(&mut self, pod: &Footprint, node: NodeId) {
        for disk in &pod.disks {
            let nodes = self.disks.entry(disk.key.clone()).or_default();
            let users = nodes.entry(node).or_default();
            *if disk.read_only {
                &mut users.readers
            } else {
                &mut users.writers
            } += 1;
        }
        for name in pod.named_claims() {
            *self.claims.entry((pod.namespace, name.into())).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, pod: &Footprint, node: NodeId) {
        for disk in &pod.disks {
            let Some(nodes) = self.disks.get_mut(&disk.key) else {
                continue;
            };
            if let Some(users) = nodes.get_mut(&node) {
                *if disk.read_only {
                    &mut users.readers
                } else {
                    &mut users.writers
                } -= 1;
                if *users == Users::default() {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.disks.remove(&disk.key);
            }
        }
        for name in pod.named_claims() {
            let key = (pod.namespace, name.into());
            if let Some(count) = self.claims.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.claims.remove(&key);
                }
            }
        }
    }

    /// Whether a node's pods prevent another one from using a disk.
    #[must_use]
    pub fn conflicts(&self, node: NodeId, wanted: &SharedDisk) -> bool {
        let users = self.disks.get(&wanted.key).and_then(|nodes| nodes.get(&node));
        users.is_some_and(|users| conflict(users, wanted))
    }

    /// The nodes whose pods prevent another one from using a disk.
    pub fn conflicting<'a>(&'a self, wanted: &'a SharedDisk) -> impl Iterator<Item = NodeId> + 'a {
        let nodes = self.disks.get(&wanted.key).into_iter().flatten();
        nodes
            .filter(|(_, users)| conflict(users, wanted))
            .map(|(node, _)| *node)
    }

    /// Whether a running pod uses a claim.
    #[must_use]
    pub fn is_claim_used(&self, namespace: Symbol, name: &str) -> bool {
        self.claims.contains_key(&(namespace, name.into()))
    }
}

fn conflict(users: &Users, wanted: &SharedDisk) -> bool {
    !wanted.read_only || users.writers > 0
}
