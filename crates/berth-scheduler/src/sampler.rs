//! Which nodes are scored if the profile does not ask for all: the first ones that fit, from where the last pod
//! stopped.
//!
//! As in kube-scheduler: a percentage of the nodes, at least a hundred, and each pod starts where the previous one
//! ended, so that every node has its turn.

use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use std::num::NonZero;

/// Minimum number of nodes scored.
const MIN_NODES: usize = 100;

/// Remembers where to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sampler {
    /// The first node that was not considered for the last pod, by ID.
    next: u32,
}

impl Sampler {
    /// Takes a percentage of all nodes from those that fit.
    pub(crate) fn take(
        &mut self,
        all: &NodeMask,
        fitting: &NodeMask,
        percentage: NonZero<u8>,
        sample: &mut Vec<NodeId>,
    ) {
        let wanted = (all.len() * usize::from(percentage.get()) / 100).max(MIN_NODES);
        let from = NodeId(self.next);
        let (before, after): (Vec<_>, Vec<_>) = fitting.iter().partition(|node| *node < from);
        sample.extend(after.into_iter().chain(before).take(wanted));
        if sample.len() == wanted
            && let Some(last) = sample.last()
        {
            self.next = last.0 + 1;
        }
        // Ties are broken by the order of nodes, wherever the sample started.
        sample.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sampler: &mut Sampler, fitting: &[u32], percentage: u8) -> Vec<u32> {
        let (mut all, mut mask) = (NodeMask::default(), NodeMask::default());
        (0..1000).for_each(|node| all.grow_to(NodeId(node)));
        fitting.iter().for_each(|node| mask.grow_to(NodeId(*node)));
        let mut sample = Vec::new();
        sampler.take(&all, &mask, NonZero::new(percentage).unwrap(), &mut sample);
        sample.iter().map(|node| node.0).collect()
    }

    #[test]
    fn every_node_has_its_turn() {
        let mut sampler = Sampler::default();
        let all: Vec<u32> = (0..1000).collect();
        assert_eq!(sample(&mut sampler, &all, 40), (0..400).collect::<Vec<_>>());
        assert_eq!(sample(&mut sampler, &all, 40), (400..800).collect::<Vec<_>>());
        let around: Vec<u32> = (0..200).chain(800..1000).collect();
        assert_eq!(sample(&mut sampler, &all, 40), around);
        assert_eq!(sample(&mut sampler, &all, 1).len(), MIN_NODES, "not fewer");
    }

    #[test]
    fn few_that_fit_are_all_taken() {
        let mut sampler = Sampler::default();
        assert_eq!(sample(&mut sampler, &[3, 700], 50), [3, 700]);
        assert_eq!(
            sampler,
            Sampler::default(),
            "all nodes were looked at: the next begins where this one did"
        );
    }
}
