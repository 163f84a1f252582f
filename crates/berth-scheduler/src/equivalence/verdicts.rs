//! The cached verdicts of one equivalence class: which nodes fit, and their cached scores.
//!
//! Nodes are grouped in blocks of 64, one word of a mask each. The best total of every block and the number of nodes
//! with it are kept too, so that the best of a hundred thousand nodes is found by scanning some fifteen hundred
//! numbers.

use super::Stand;
use super::traits::KeptTraits;
use crate::cluster::Cluster;
use crate::framework::PluginName;
use crate::plugins::{self, FilterState, ScoreContext, Totals, volume_binding};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::stopwatch::{ExtensionPoint, Stopwatch};
use berth_core::binder::ReadUpTo;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use std::cell::OnceCell;

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
    /// By node: the weighted cached scores, if the node fits.
    totals: Vec<i64>,
    blocks: Vec<Block>,
}

/// The best nodes of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Block {
    best: i64,
    /// Number of nodes with it; 0 if none fits.
    count: u32,
}

/// The nodes to score.
#[derive(Clone, Copy)]
enum Scored<'a> {
    /// All that fit: many at a time if a plugin supports it.
    All(&'a NodeMask),
    /// Some, one by one.
    Some(&'a [NodeId]),
}

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

    fn kept_states(&self) -> impl Iterator<Item = &FilterState> {
        self.states
            .iter()
            .filter(|state| super::keeps_verdicts(state.plugin(), self.claims_kept))
    }

    fn kept_scores(&self) -> impl Iterator<Item = (PluginName, i64)> {
        let scores = self.profile.scores.iter().copied();
        scores.filter(|(plugin, _)| super::keeps_scores(*plugin, self.claims_kept))
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
        let fitting = self.blocks.iter().filter(|block| block.count > 0);
        let best = fitting.clone().map(|block| block.best).max().unwrap_or(0);
        let with_best = fitting.filter(|block| block.best == best);
        (best, with_best.map(|block| u64::from(block.count)).sum())
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
    pub(super) fn build(&mut self, cluster: &mut Cluster, asked: &Asked<'_>, watch: &mut impl Stopwatch) {
        self.fits.copy_from(cluster.all_nodes());
        for (_, names) in asked.only_nodes {
            cluster.keep_named(names, &mut self.fits);
        }
        for state in asked.kept_states() {
            match state {
                FilterState::VolumeBinding(state) => state.narrow_by_unbound(cluster, &mut self.fits),
                other => other.narrow(cluster, &mut self.fits),
            }
            watch.lap(state.plugin(), ExtensionPoint::Filter);
        }
        let length = cluster.nodes().column_length();
        self.totals.clear();
        self.totals.resize(length, 0);
        let fits = std::mem::take(&mut self.fits);
        self.score(cluster, asked, Scored::All(&fits), watch);
        self.fitting = fits.len();
        self.fits = fits;
        self.blocks.clear();
        self.blocks.resize(length.div_ceil(BLOCK), Block::default());
        for index in 0..self.blocks.len() {
            self.blocks[index] = self.block(index);
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
        let length = cluster.nodes().column_length();
        self.totals.resize(length, 0);
        self.blocks.resize(length.div_ceil(BLOCK), Block::default());
        for node in stale {
            self.fitting -= usize::from(self.fits.contains(*node));
            self.fits.remove(*node);
        }
        let fitting = asked.fitting(cluster, stale, watch);
        for node in &fitting {
            self.fits.grow_to(*node);
            self.totals[node.index()] = 0;
        }
        self.fitting += fitting.len();
        self.score(cluster, asked, Scored::Some(&fitting), watch);
        for nodes in stale.chunk_by(|first, second| first.index() / BLOCK == second.index() / BLOCK) {
            let index = nodes[0].index() / BLOCK;
            if index < self.blocks.len() {
                self.blocks[index] = self.block(index);
            }
        }
    }

    /// Adds up the scores of nodes whose totals are 0.
    fn score(&mut self, cluster: &mut Cluster, asked: &Asked<'_>, scored: Scored<'_>, watch: &mut impl Stopwatch) {
        let mut scores = Vec::new();
        let all = OnceCell::new();
        for (plugin, weight) in asked.kept_scores() {
            if plugin == PluginName::ImageLocality && !self.traits.has_images() {
                continue;
            }
            let mut context = ScoreContext {
                cluster: &mut *cluster,
                pod: asked.pod,
                profile: asked.profile,
                states: asked.states,
                nodes: &[],
            };
            let left: Vec<NodeId>;
            let one_by_one = match scored {
                Scored::All(nodes) => {
                    let totals = Totals {
                        nodes,
                        weight,
                        totals: &mut self.totals,
                    };
                    match plugins::add_scores(plugin, &context, totals) {
                        Some(others) => {
                            left = others;
                            &left
                        }
                        None => all.get_or_init(|| nodes.iter().collect()),
                    }
                }
                Scored::Some(nodes) => nodes,
            };
            context.nodes = one_by_one;
            if one_by_one.is_empty() || plugins::score(plugin, &mut context, &mut scores) {
                for (node, score) in one_by_one.iter().zip(&scores) {
                    self.totals[node.index()] += weight * score;
                }
                watch.lap(plugin, ExtensionPoint::Score);
            }
        }
    }

    fn block(&self, index: usize) -> Block {
        let mut block = Block::default();
        for node in self.fits.in_word(index) {
            let total = self.totals[node.index()];
            if block.count == 0 || total > block.best {
                block = Block { best: total, count: 1 };
            } else if total == block.best {
                block.count += 1;
            }
        }
        block
    }
}
