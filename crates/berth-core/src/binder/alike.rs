//! Which pods have equivalent claims, so that one pod's answers apply to another, and where cached answers have become
//! stale.
//!
//! Claims are equivalent if they have the same classes and shapes and accept any free volume. Their names do not
//! matter: the pods of a StatefulSet share their answers. Changes that affect an answer are reported by node; see
//! [`VolumeBinder::stale_nodes`].

use super::{PreparedPod, VolumeBinder};
use crate::nodes::NodeId;
use crate::symbols::Symbol;
use smallvec::SmallVec;

/// The properties of a pod's open claims that answers depend on. When the cached answers for them are dropped, the value
/// is never equal to a later one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlikeClaims {
    classes: SmallVec<[(Symbol, u64, u64); 1]>,
}

crate::trace!(AlikeClaims { classes });

/// Position up to which a reader has seen the changes that affect a pod's open claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadUpTo {
    pools: u64,
    classes: SmallVec<[u64; 1]>,
}

impl VolumeBinder {
    /// The claims that are equivalent in pods with the same answers. `None` if the answers apply to this pod only:
    /// volumes are reserved for its claims, a node was selected for them before, or the pod has inline volumes.
    #[must_use]
    pub fn alike(&self, pod: &PreparedPod) -> Option<AlikeClaims> {
        if !(pod.selected.is_empty() && pod.reserved.is_empty() && pod.inline.is_empty()) {
            return None;
        }
        let classes = pod.open.iter().map(|open| {
            let class = open.needs.first().map_or(Symbol::EMPTY, |need| need.class);
            let number = self.classes.get(&class).map_or(0, |class| class.number);
            (class, number, open.matches.number())
        });
        Some(AlikeClaims {
            classes: classes.collect(),
        })
    }

    /// Position up to which answers about a pod's open claims are valid if they are computed now.
    #[must_use]
    pub fn read_up_to(&self, pod: &PreparedPod) -> ReadUpTo {
        let classes = pod.open.iter().map(|open| open.matches.mended().next());
        ReadUpTo {
            pools: self.pool_changes.next(),
            classes: classes.collect(),
        }
    }

    /// Adds the nodes on which an answer about the pod's open claims may have changed. Returns false if the changes are
    /// no longer recorded, or everything changed.
    #[must_use]
    pub fn stale_nodes(&self, pod: &PreparedPod, read: &ReadUpTo, stale: &mut Vec<NodeId>) -> bool {
        if pod.open.is_empty() {
            return true;
        }
        let Some(pools) = self.pool_changes.since(read.pools) else {
            return false;
        };
        stale.extend_from_slice(pools);
        pod.open.len() == read.classes.len()
            && pod.open.iter().zip(&read.classes).all(|(open, read)| {
                let mended = open.matches.mended().since(*read);
                stale.extend_from_slice(mended.unwrap_or(&[]));
                mended.is_some()
            })
    }
}
