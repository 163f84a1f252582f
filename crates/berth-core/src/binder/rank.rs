//! How well the volumes that a pod would use on each node fit.

use super::find::PreparedPod;
use super::{NodeVolumes, VolumeBinder};
use crate::model::ClaimId;
use crate::nodes::NodeId;
use crate::score::{ByClass, Existing, Shape};
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
}

/// How volumes are scored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapacityScore {
    /// The shape; `None` for the gate's default.
    pub shape: Option<Shape>,
    /// Weights of classes; they override those set by the classes themselves.
    pub class_weights: FxHashMap<Box<str>, i64>,
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
        let default_shape = match gate {
            ScoreGate::Off => {
                out.extend(nodes.iter().map(|_| 0));
                return;
            }
            ScoreGate::VolumeCapacityPriority => Shape::closest_fit(),
            ScoreGate::StorageCapacityScoring => Shape::most_room(),
        };
        let shape = score.shape.as_ref().unwrap_or(&default_shape);
        let weight = |class: Symbol| {
            let configured = score.class_weights.get(self.symbols.text(class)).copied();
            configured.or_else(|| self.classes.get(&class)?.weight).unwrap_or(1)
        };
        // Most pods have claims of one class, all of which find a volume. The weight then matters only if it is zero.
        let single = match pod.open.as_slice() {
            [open] if pod.selected.is_empty() && pod.reserved.is_empty() && pod.inline.is_empty() => Some(open),
            _ => None,
        };
        let single = single.filter(|open| open.needs.iter().all(|need| weight(need.class) > 0));
        let optional = pod.optional.len();
        let lifted = |fit: i64, existing: Existing| match gate {
            ScoreGate::VolumeCapacityPriority => existing.above_new(fit),
            ScoreGate::StorageCapacityScoring | ScoreGate::Off => fit,
        };
        // Thousands of nodes share a hundred percentages.
        let mut by_percent = [None; 101];
        out.extend(nodes.iter().map(|node| {
            let percent = single.and_then(|open| Some((open, open.matches.percent_on(*node)?)));
            if let Some((open, percent)) = percent {
                let existing = Existing {
                    optional,
                    chosen: optional,
                    others: open.needs.len() > optional,
                };
                let known = &mut by_percent[usize::from(percent)];
                return *known.get_or_insert_with(|| lifted(shape.score(percent.into()), existing));
            }
            let Ok(volumes) = self.unbound_on_node(pod, *node) else {
                return 0;
            };
            let bound = |claim: &&ClaimId| volumes.bindings.iter().any(|(bound, _)| bound == *claim);
            let chosen = pod.optional.iter().filter(bound).count();
            let existing = Existing {
                optional,
                chosen,
                others: volumes.bindings.len() > chosen,
            };
            lifted(self.sizes_on_node(&volumes, *node, gate).score(shape, weight), existing)
        }));
    }

    fn sizes_on_node(&self, volumes: &NodeVolumes, node: NodeId, gate: ScoreGate) -> ByClass {
        let mut by_class = ByClass::default();
        for (claim, volume) in &volumes.bindings {
            if let (Some(claim), Some(volume)) = (self.claim(*claim), self.volume(*volume)) {
                by_class.add_volume(volume.class, claim.shape.request, volume.capacity);
            }
        }
        if by_class.is_empty() && gate == ScoreGate::StorageCapacityScoring {
            for (id, claim) in volumes.provisions.iter().filter_map(|id| Some((*id, self.claim(*id)?))) {
                let need = self.need(id, claim, 0);
                let pools = self.pools_on(need.provision.pools, node);
                let mut pools = pools.into_iter();
                let pool = pools.find(|pool| pool.largest().is_some_and(|largest| largest >= need.request));
                if let Some(capacity) = pool.and_then(|pool| pool.capacity.or(pool.maximum_volume_size)) {
                    by_class.add_provisioned(need.class, need.request, capacity);
                }
            }
        }
        by_class
    }
}
