//! Which pods' claims are alike, so that one's answers are another's, and where such answers have to be mended.
//!
//! Claims are alike if they are of the same classes and shapes and wait for any free volume. Their names do not
//! matter: the pods of a StatefulSet share their answers. What can change an answer is told by node; see
//! [`VolumeBinder::stale_nodes`].

use super::{PreparedPod, VolumeBinder};
use crate::nodes::NodeId;
use crate::symbols::Symbol;
use smallvec::SmallVec;

/// The open claims of a pod, as far as answers depend on them. It stands for other claims once what is kept of these was
/// dropped: then it is never equal to another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AlikeClaims {
    classes: SmallVec<[(Symbol, u64, u64); 1]>,
}

crate::trace!(AlikeClaims { classes });

/// Up to where somebody has read the changes that concern a pod's open claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadUpTo {
    pools: u64,
    classes: SmallVec<[u64; 1]>,
}

impl VolumeBinder {
    /// The claims that are alike in pods which get the same answers. None if the pod's claims are its own: volumes are
    /// reserved for them, a node was chosen for them before, or the pod has inline volumes.
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

    /// Up to where answers about a pod's open claims are true that are worked out now.
    #[must_use]
    pub fn read_up_to(&self, pod: &PreparedPod) -> ReadUpTo {
        let classes = pod.open.iter().map(|open| open.matches.mended().next());
        ReadUpTo {
            pools: self.pool_changes.next(),
            classes: classes.collect(),
        }
    }

    /// Adds the nodes on which an answer about the pod's open claims may have changed. False if that is too long ago
    /// to tell, or everything changed.
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
