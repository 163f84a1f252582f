//! How well the volumes that a pod would use on each node fit.

use super::find::{OpenClaims, PreparedPod};
use super::provision::{Contested, Need, Plan};
use super::{NodeVolumes, VolumeBinder};
use crate::model::ClaimId;
use crate::nodes::NodeId;
use crate::reason::VolumeReason;
use crate::score::{ByClass, Existing, MAX_NODE_SCORE, Shape};
use crate::symbols::Symbol;
use rustc_hash::FxHashMap;

/// Which of the two capacity scores is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoreGate {
    /// None.
    Off,
    /// `VolumeCapacityPriority`: scores the existing volumes that a node offers.
    #[default]
    VolumeCapacityPriority,
    /// `StorageCapacityScoring`: scores those, or else the published capacity.
    StorageCapacityScoring,
    /// Scores the existing volumes as the first does, and the published capacity for new ones as the second does, but below them.
    ExistingAndNew,
}

/// The highest score of a node where all volumes are new, beside nodes with existing ones. A quarter is enough to choose among pools,
/// and leaves existing volumes most of their say among the other plugins.
const MOST_OF_NEW: i64 = MAX_NODE_SCORE / 4;

/// How volumes are scored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityScore {
    /// The shape; `None` for the gate's default.
    pub shape: Option<Shape>,
    /// Weights of classes; they override those set by the classes themselves.
    pub class_weights: FxHashMap<Box<str>, i64>,
}

/// By node: a number that stands for how well the volumes of a pod fit there, with the score for each number.
#[derive(Debug)]
pub struct ScoresByPercent<'a> {
    /// By node: the percentage of their volumes that the claims request. Nodes beyond the end, and those without a score, are not
    /// accepted by their percentage alone: [`VolumeBinder::accepts_unbound`] decides.
    pub percents: &'a [u8],
    /// By percentage.
    pub scores: [Option<i64>; 256],
    /// Whether a node that is not accepted by its percentage can be accepted at all.
    pub others: bool,
}

/// How the claims of a pod are scored if all of them are of one class and find existing volumes.
struct Single<'a> {
    open: &'a OpenClaims,
    optional: usize,
    gate: ScoreGate,
}

impl Single<'_> {
    fn score(&self, shape: &Shape, percent: u8) -> i64 {
        let existing = Existing {
            optional: self.optional,
            chosen: self.optional,
            others: self.open.needs.len() > self.optional,
        };
        lifted(self.gate, shape.score(percent.into()), existing)
    }
}

fn lifted(gate: ScoreGate, fit: i64, existing: Existing) -> i64 {
    match gate {
        ScoreGate::VolumeCapacityPriority => existing.above_new(fit, 0),
        ScoreGate::ExistingAndNew => existing.above_new(fit, MOST_OF_NEW),
        ScoreGate::StorageCapacityScoring | ScoreGate::Off => fit,
    }
}

impl CapacityScore {
    /// The configured shape, or the default of the gate; `None` if nothing is scored.
    fn shape(&self, gate: ScoreGate) -> Option<Shape> {
        let default = match gate {
            ScoreGate::Off => return None,
            ScoreGate::VolumeCapacityPriority | ScoreGate::ExistingAndNew => Shape::closest_fit(),
            ScoreGate::StorageCapacityScoring => Shape::most_room(),
        };
        Some(self.shape.clone().unwrap_or(default))
    }

    /// The configured shape, or most room: what a pool has left is not lost, as the rest of a volume is.
    fn shape_of_new(&self) -> Shape {
        self.shape.clone().unwrap_or_else(Shape::most_room)
    }
}

impl VolumeBinder {
    /// How well the volumes that a pod would use on each of these nodes fit, 0 to 100.
    pub fn score(
        &self,
        pod: &PreparedPod,
        nodes: &[NodeId],
        gate: ScoreGate,
        score: &CapacityScore,
        out: &mut Vec<i64>,
    ) {
        let Some(shape) = score.shape(gate) else {
            out.extend(nodes.iter().map(|_| 0));
            return;
        };
        let has_volumes = |open: &OpenClaims| {
            let class = open.needs.first().map(|need| need.class);
            class
                .and_then(|class| self.free.get(&class))
                .is_some_and(|free| !free.is_empty())
        };
        if gate == ScoreGate::VolumeCapacityPriority && pod.reserved.is_empty() && !pod.open.iter().any(has_volumes) {
            // Only existing volumes are scored, and there are none.
            out.extend(nodes.iter().map(|_| 0));
            return;
        }
        let shape_of_new = score.shape_of_new();
        let single = self.single(pod, gate, score);
        // Thousands of nodes share a hundred percentages.
        let mut by_percent = [None; 101];
        out.extend(nodes.iter().map(|node| {
            let percent = single
                .as_ref()
                .and_then(|single| Some((single, single.open.matches.percent_on(*node)?)));
            if let Some((single, percent)) = percent {
                let known = &mut by_percent[usize::from(percent)];
                return *known.get_or_insert_with(|| single.score(&shape, percent));
            }
            let Ok(volumes) = self.scored_on_node(pod, *node, gate) else {
                return 0;
            };
            let bound = |claim: &&ClaimId| volumes.bindings.iter().any(|(bound, _)| bound == *claim);
            let chosen = pod.optional.iter().filter(bound).count();
            let existing = Existing {
                optional: pod.optional.len(),
                chosen,
                others: volumes.bindings.len() > chosen,
            };
            let weight = |class| self.class_weight(score, class);
            let fit = match self.sizes_on_node(&volumes) {
                none if none.is_empty() && gate != ScoreGate::VolumeCapacityPriority => {
                    self.sizes_of_new(&volumes, *node).score(&shape_of_new, weight)
                }
                sizes => sizes.score(&shape, weight),
            };
            lifted(gate, fit, existing)
        }));
    }

    /// The volumes by which a node is scored: those that the pod would use. `StorageCapacityScoring` has the scores of Kubernetes, where
    /// smaller claims get contested volumes.
    fn scored_on_node(&self, pod: &PreparedPod, node: NodeId, gate: ScoreGate) -> Result<NodeVolumes, VolumeReason> {
        match gate {
            ScoreGate::StorageCapacityScoring => {
                let plan = self.plan_on_node(pod, node, Contested::Smaller);
                plan.map(Plan::into_volumes)
            }
            ScoreGate::VolumeCapacityPriority | ScoreGate::ExistingAndNew | ScoreGate::Off => {
                self.unbound_on_node(pod, node)
            }
        }
    }

    /// The result of [`Self::score`] for all nodes on which a percentage is known; `None` if no percentage is enough.
    #[must_use]
    pub fn scores_by_percent<'a>(
        &self,
        pod: &'a PreparedPod,
        gate: ScoreGate,
        score: &CapacityScore,
    ) -> Option<ScoresByPercent<'a>> {
        let single = self.single(pod, gate, score)?;
        let shape = score.shape(gate);
        let mut scores = [None; 256];
        for (percent, score) in (0..=100).zip(&mut scores) {
            *score = Some(shape.as_ref().map_or(0, |shape| single.score(shape, percent)));
        }
        Some(ScoresByPercent {
            percents: single.open.matches.percents(),
            scores,
            others: single.open.needs.iter().any(|need| need.provision.possible),
        })
    }

    /// Most pods have claims of one class, all of which find a volume. The weight of the class then matters only if it is zero.
    fn single<'a>(&self, pod: &'a PreparedPod, gate: ScoreGate, score: &CapacityScore) -> Option<Single<'a>> {
        let open = match pod.open.as_slice() {
            [open] if pod.has_only_open_claims() => open,
            _ => return None,
        };
        let weighs = |need: &Need| self.class_weight(score, need.class) > 0;
        open.needs.iter().all(weighs).then_some(Single {
            open,
            optional: pod.optional.len(),
            gate,
        })
    }

    fn class_weight(&self, score: &CapacityScore, class: Symbol) -> i64 {
        let configured = score.class_weights.get(self.symbols.text(class)).copied();
        configured.or_else(|| self.classes.get(&class)?.weight).unwrap_or(1)
    }

    /// The existing volumes, with what is requested of them.
    fn sizes_on_node(&self, volumes: &NodeVolumes) -> ByClass {
        let mut by_class = ByClass::default();
        for (claim, volume) in &volumes.bindings {
            if let (Some(claim), Some(volume)) = (self.claim(*claim), self.volume(*volume)) {
                by_class.add_volume(volume.class, claim.shape.request, volume.capacity);
            }
        }
        by_class
    }

    /// The pools of new volumes, with what is requested of them.
    fn sizes_of_new(&self, volumes: &NodeVolumes, node: NodeId) -> ByClass {
        let mut by_class = ByClass::default();
        for (id, claim) in volumes.provisions.iter().filter_map(|id| Some((*id, self.claim(*id)?))) {
            let need = self.need(id, claim, 0);
            let pools = self.pools_on(need.provision.pools, node);
            let mut pools = pools.into_iter();
            let pool = pools.find(|pool| pool.largest().is_some_and(|largest| largest >= need.request));
            if let Some(capacity) = pool.and_then(|pool| pool.capacity.or(pool.maximum_volume_size)) {
                by_class.add_provisioned(need.class, need.request, capacity);
            }
        }
        by_class
    }
}
