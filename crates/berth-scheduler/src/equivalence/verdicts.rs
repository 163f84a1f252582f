//! The cached verdicts of one equivalence class: which nodes fit, and their cached scores.
//!
//! Nodes are grouped in blocks of 64, one word of a mask each. The best total of every block and the number of nodes
//! with it are kept too, so that the best of a hundred thousand nodes is found by scanning some fifteen hundred
//! numbers.

use super::Stand;
use super::loads::{Loads, reads_resources_alone};
use super::traits::KeptTraits;
use crate::cluster::Cluster;
use crate::framework::PluginName;
use crate::plugins::{self, FilterState, ScoreContext, volume_binding};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::stopwatch::{ExtensionPoint, Stopwatch};
use berth_core::binder::{ReadUpTo, ScoresByPercent};
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;

/// Nodes in a block.
const BLOCK: usize = 64;

/// The kept verdicts of one equivalence class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdicts {
    pub(super) traits: KeptTraits,
    pub(super) hash: u64,
    pub(super) used: u64,
    /// The size of the traits.
    pub(super) traits_bytes: usize,
    /// What they depend on in addition to single nodes; `None` until they are computed.
    pub(super) stand: Option<Stand>,
    /// Position up to which changes of nodes are read.
    pub(super) nodes_read: u64,
    /// Position up to which changes of volumes are read.
    pub(super) volumes_read: ReadUpTo,
    fits: NodeMask,
    fitting: usize,
    /// By node: the weighted cached scores, or less than [`LEAST`] if the node does not fit.
    totals: Vec<i64>,
    blocks: Vec<Block>,
    /// The highest total, and the number of nodes with it.
    best: (i64, u64),
}

/// The best nodes of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Block {
    best: i64,
    /// Number of nodes with it, or [`UNCOUNTED`]; 0 if none fits.
    count: u32,
}

/// The nodes of a block need not be counted before its best is the best of all.
const UNCOUNTED: u32 = u32::MAX;

/// Instead of a total: the node does not fit. The sum of some of these is still far below every total, and does not overflow.
pub(super) const REFUSED: i64 = i64::MIN / 8;
/// Totals are above this.
const LEAST: i64 = REFUSED / 2;

/// A pod of the class, for computing verdicts.
pub(super) struct Asked<'a> {
    pub(super) pod: &'a Pod,
    pub(super) profile: &'a Profile,
    pub(super) states: &'a [FilterState],
    pub(super) only_nodes: &'a [(PluginName, Box<[Symbol]>)],
    /// Whether its open claims are part of the class.
    pub(super) claims_kept: bool,
}

impl Asked<'_> {
    /// The pod's open claims, if the verdicts about them are cached.
    pub(super) fn open_claims(&self) -> Option<&volume_binding::State> {
        FilterState::volume_binding(self.states).filter(|_| self.claims_kept)
    }

    pub(super) fn kept_states(&self) -> impl Iterator<Item = &FilterState> {
        self.states
            .iter()
            .filter(|state| super::keeps_verdicts(state.plugin(), self.claims_kept))
    }

    pub(super) fn kept_scores(&self) -> impl Iterator<Item = (PluginName, i64)> {
        let scores = self.profile.scores.iter().copied();
        scores.filter(|(plugin, _)| super::keeps_scores(*plugin, self.claims_kept))
    }

    /// The weight of a plugin's cached scores; 0 if it has none.
    fn weight(&self, plugin: PluginName) -> i64 {
        let weight = self.kept_scores().find(|(found, _)| *found == plugin);
        weight.map_or(0, |(_, weight)| weight)
    }

    /// The nodes that fit, out of some.
    fn fitting(&self, cluster: &Cluster, stale: &[NodeId], watch: &mut impl Stopwatch) -> Vec<NodeId> {
        let mut fitting = stale.to_vec();
        fitting.retain(|node| {
            let name = cluster.nodes().name(*node);
            cluster.all_nodes().contains(*node) && self.only_nodes.iter().all(|(_, names)| names.contains(&name))
        });
        for state in self.kept_states() {
            fitting.retain(|node| match state {
                FilterState::VolumeBinding(state) => state.accepts_unbound(cluster, *node),
                FilterState::NodeResourcesFit(state) => state.accepts(cluster, *node),
                other => other.filter(cluster, *node).is_none(),
            });
            watch.lap(state.plugin(), ExtensionPoint::Filter);
        }
        fitting
    }
}

impl Verdicts {
    /// Not computed yet.
    pub(super) fn new(traits: KeptTraits, traits_bytes: usize, hash: u64, used: u64) -> Self {
        Self {
            traits,
            traits_bytes,
            hash,
            used,
            ..Self::default()
        }
    }

    /// The nodes that fit according to the cached plugins.
    pub(crate) fn fits(&self) -> &NodeMask {
        &self.fits
    }

    /// Whether the verdicts of VolumeBinding on open claims are included.
    pub(crate) fn keep_claims(&self) -> bool {
        self.traits.keep_claims()
    }

    /// Number of nodes that fit.
    pub(crate) fn fitting(&self) -> usize {
        self.fitting
    }

    /// The weighted cached scores of a node that fits.
    pub(crate) fn total(&self, node: NodeId) -> i64 {
        self.totals[node.index()]
    }

    /// Their approximate size without the traits.
    pub(super) fn bytes(length: usize) -> usize {
        512 + length * size_of::<i64>() + length.div_ceil(BLOCK) * (size_of::<Block>() + size_of::<u64>())
    }

    /// The highest total, and the number of nodes with it.
    pub(crate) fn best(&self) -> (i64, u64) {
        self.best
    }

    /// Finds the highest total.
    fn settle(&mut self) {
        let fitting = self.blocks.iter().filter(|block| block.count > 0);
        let best = fitting.map(|block| block.best).max().unwrap_or(0);
        let mut equals = 0;
        for (block, totals) in self.blocks.iter_mut().zip(self.totals.chunks(BLOCK)) {
            if block.count > 0 && block.best == best {
                if block.count == UNCOUNTED {
                    block.count = count(totals, best);
                }
                equals += u64::from(block.count);
            }
        }
        self.best = (best, equals);
    }

    /// The node at an index among those with the highest total.
    pub(crate) fn nth_best(&self, best: i64, mut place: u64) -> Option<NodeId> {
        for (index, block) in self.blocks.iter().enumerate() {
            if block.count == 0 || block.best != best {
                continue;
            }
            if place >= u64::from(block.count) {
                place -= u64::from(block.count);
                continue;
            }
            let mut nodes = self.fits.in_word(index).filter(|node| self.total(*node) == best);
            return nodes.nth(usize::try_from(place).ok()?);
        }
        None
    }

    /// Computes everything.
    pub(super) fn build(
        &mut self,
        cluster: &mut Cluster,
        asked: &Asked<'_>,
        loads: &Loads,
        watch: &mut impl Stopwatch,
    ) {
        self.fits.copy_from(cluster.all_nodes());
        for (_, names) in asked.only_nodes {
            cluster.keep_named(names, &mut self.fits);
        }
        let volumes = asked.open_claims();
        let volumes = volumes.and_then(|state| state.scores_by_percent(cluster, asked.profile));
        for state in asked.kept_states() {
            match state {
                FilterState::NodeResourcesFit(_) => continue,
                FilterState::VolumeBinding(_) if volumes.is_some() => continue,
                FilterState::VolumeBinding(state) => state.narrow_by_unbound(cluster, &mut self.fits),
                other => other.narrow(cluster, &mut self.fits),
            }
            watch.lap(state.plugin(), ExtensionPoint::Filter);
        }
        let by_load = loads.totals(cluster, asked, watch);
        let left = match &volumes {
            Some(volumes) if volumes.others => self.not_in(volumes),
            _ => Vec::new(),
        };
        let weight = asked.weight(PluginName::VolumeBinding);
        let by_percent = volumes.as_ref().map(|volumes| {
            let scores = volumes
                .scores
                .map(|score| score.map_or(REFUSED, |score| weight * score));
            (volumes.percents, scores)
        });
        match &by_percent {
            Some((percents, scores)) => self.fill(loads.of_nodes(), &by_load, percents, scores),
            None => self.fill(loads.of_nodes(), &by_load, &vec![0; loads.of_nodes().len()], &[0; 256]),
        }
        self.fitting = self.fits.len();
        let is_done = |plugin| match plugin {
            PluginName::VolumeBinding => volumes.is_some(),
            plugin => reads_resources_alone(plugin),
        };
        if asked
            .kept_scores()
            .any(|(plugin, _)| !is_done(plugin) && self.scores(asked, plugin))
        {
            let nodes: Vec<NodeId> = self.fits.iter().collect();
            self.score(cluster, asked, &nodes, is_done, watch);
            for index in 0..self.blocks.len() {
                self.blocks[index] = self.block(index);
            }
        }
        self.mend(cluster, asked, &left, watch);
        self.settle();
    }

    /// Whether a plugin scores any node.
    fn scores(&self, asked: &Asked<'_>, plugin: PluginName) -> bool {
        match plugin {
            PluginName::ImageLocality => self.traits.has_images(),
            PluginName::VolumeBinding => asked
                .open_claims()
                .is_some_and(|state| state.prepared().has_unbound_claims()),
            _ => true,
        }
    }

    /// The nodes without a score by percentage.
    fn not_in(&self, volumes: &ScoresByPercent<'_>) -> Vec<NodeId> {
        let unknown = |node: &NodeId| {
            let percent = volumes.percents.get(node.index());
            percent.is_none_or(|percent| volumes.scores[usize::from(*percent)].is_none())
        };
        self.fits.iter().filter(unknown).collect()
    }

    /// Sets the totals of the nodes that fit, and removes those that do not: by load, and by how well volumes fit.
    fn fill(&mut self, loads: &[u32], by_load: &[i64], percents: &[u8], by_percent: &[i64; 256]) {
        self.totals.clear();
        self.totals.resize(loads.len(), REFUSED);
        self.blocks.clear();
        self.blocks.resize(loads.len() / BLOCK, Block::default());
        let (totals, _) = self.totals.as_chunks_mut();
        let (loads, _) = loads.as_chunks();
        let rows = totals.iter_mut().zip(loads).zip(&mut self.blocks);
        for (index, (((totals, loads), block), word)) in rows.zip(self.fits.words_mut()).enumerate() {
            if *word == 0 {
                continue;
            }
            // Nodes beyond the end have no volumes.
            let mut last = [u8::MAX; BLOCK];
            let rest = percents.get(index * BLOCK..).unwrap_or(&[]);
            let percents = match rest.first_chunk() {
                Some(row) => row,
                None => {
                    last[..rest.len()].copy_from_slice(rest);
                    &last
                }
            };
            let (fitting, best) = fill_row(totals, loads, by_load, percents, by_percent);
            block.best = best;
            if fitting & !*word != 0 {
                let excluded = totals.iter_mut().enumerate().filter(|(lane, _)| *word >> lane & 1 == 0);
                excluded.for_each(|(_, total)| *total = REFUSED);
                block.best = totals.iter().copied().fold(REFUSED, i64::max);
            }
            *word &= fitting;
            block.count = if *word == 0 { 0 } else { UNCOUNTED };
        }
    }

    /// Recomputes some nodes. They must be sorted, without duplicates.
    pub(super) fn mend(
        &mut self,
        cluster: &mut Cluster,
        asked: &Asked<'_>,
        stale: &[NodeId],
        watch: &mut impl Stopwatch,
    ) {
        if stale.is_empty() {
            return;
        }
        let length = cluster.nodes().column_length().next_multiple_of(BLOCK);
        self.totals.resize(length, REFUSED);
        self.blocks.resize(length / BLOCK, Block::default());
        for node in stale {
            self.fitting -= usize::from(self.fits.contains(*node));
            self.fits.remove(*node);
            self.totals[node.index()] = REFUSED;
        }
        let fitting = asked.fitting(cluster, stale, watch);
        for node in &fitting {
            self.fits.grow_to(*node);
            self.totals[node.index()] = 0;
        }
        self.fitting += fitting.len();
        self.score(cluster, asked, &fitting, |_| false, watch);
        for nodes in stale.chunk_by(|first, second| first.index() / BLOCK == second.index() / BLOCK) {
            let index = nodes[0].index() / BLOCK;
            if index < self.blocks.len() {
                self.blocks[index] = self.block(index);
            }
        }
        self.settle();
    }

    /// Adds the scores of all plugins that are not done to the totals of nodes that fit.
    fn score(
        &mut self,
        cluster: &mut Cluster,
        asked: &Asked<'_>,
        nodes: &[NodeId],
        is_done: impl Fn(PluginName) -> bool,
        watch: &mut impl Stopwatch,
    ) {
        let mut scores = Vec::new();
        for (plugin, weight) in asked.kept_scores() {
            if is_done(plugin) || !self.scores(asked, plugin) {
                continue;
            }
            let mut context = ScoreContext {
                cluster: &mut *cluster,
                pod: asked.pod,
                profile: asked.profile,
                states: asked.states,
                nodes,
            };
            if plugins::score(plugin, &mut context, &mut scores) {
                for (node, score) in nodes.iter().zip(&scores) {
                    self.totals[node.index()] += weight * score;
                }
                watch.lap(plugin, ExtensionPoint::Score);
            }
        }
    }

    fn block(&self, index: usize) -> Block {
        let totals = &self.totals[index * BLOCK..][..BLOCK];
        let best = totals.iter().copied().fold(REFUSED, i64::max);
        if best <= LEAST {
            return Block::default();
        }
        Block {
            best,
            count: count(totals, best),
        }
    }
}

/// How many nodes have a total.
fn count(totals: &[i64], best: i64) -> u32 {
    totals.iter().map(|total| u32::from(*total == best)).sum()
}

/// Sets the totals of a block. Returns which nodes fit, and the highest total. There are no branches and few instructions per
/// node: this is most of what a pod costs that is like no other.
fn fill_row(
    totals: &mut [i64; BLOCK],
    loads: &[u32; BLOCK],
    by_load: &[i64],
    percents: &[u8; BLOCK],
    by_percent: &[i64; 256],
) -> (u64, i64) {
    let mut best = i64::MIN;
    let mut fitting = [0_u8; BLOCK];
    for lane in 0..BLOCK {
        let total = by_load[loads[lane] as usize] + by_percent[usize::from(percents[lane])];
        totals[lane] = total;
        fitting[lane] = u8::from(total > LEAST);
        best = best.max(total);
    }
    let mut bits = 0;
    for (index, lanes) in fitting.as_chunks().0.iter().enumerate() {
        // Each factor moves one byte to its bit in the highest byte.
        let packed = u64::from_le_bytes(*lanes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= packed << (8 * index);
    }
    (bits, best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_are_filled_node_by_node(
            loads in proptest::collection::vec(0..5_u32, BLOCK),
            percents in proptest::collection::vec(prop_oneof![0..3_u8, Just(u8::MAX)], BLOCK),
            by_load in proptest::collection::vec(prop_oneof![-5..500_i64, Just(REFUSED)], 5),
        ) {
            let mut by_percent = [REFUSED; 256];
            by_percent[..3].copy_from_slice(&[0, 7, 30]);
            let mut totals = [0; BLOCK];
            let (fitting, best) = fill_row(
                &mut totals, loads[..].try_into().unwrap(), &by_load, percents[..].try_into().unwrap(), &by_percent);
            for lane in 0..BLOCK {
                let (load, percent) = (by_load[loads[lane] as usize], by_percent[usize::from(percents[lane])]);
                let fits = load != REFUSED && percent != REFUSED;
                prop_assert_eq!(fitting >> lane & 1 == 1, fits);
                prop_assert!(!fits || totals[lane] == load + percent);
            }
            prop_assert_eq!(Some(best), totals.iter().copied().max());
        }
    }
}
