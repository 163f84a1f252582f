//! What a node offers to a claim and what is missing, for explanations. Not for the hot path: for a claim with a selector it walks
//! all free volumes that the node can reach.

use super::VolumeBinder;
use super::provision::PoolKeys;
use crate::capacity::Pool;
use crate::free::{FreeVolume, FreeVolumes, Stock};
use crate::model::Claim;
use crate::nodes::NodeId;
use crate::symbols::Symbol;

/// What a node offers to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimSurvey {
    /// Free volumes of the claim's class that the node can reach.
    pub reachable: usize,
    /// The largest of those that the node can reach.
    pub largest_reachable: Option<i64>,
    /// Those that the node can reach and that suit the claim except for their size.
    pub suitable: usize,
    /// The largest of those.
    pub largest_suitable: Option<i64>,
    /// Those that suit the claim and are large enough.
    pub fitting: usize,
    /// Those that the node could reach if their labels did not specify other zones.
    pub elsewhere: usize,
    /// Those that the node could reach if it could attach one more volume of their driver.
    pub full: usize,
    /// Whether a volume could be provisioned for the claim at all.
    pub provisionable: bool,
    /// Whether the class allows provisioning for this node.
    pub topology_allowed: bool,
    /// The pools that the node can reach, if the driver publishes any.
    pub pools: Option<Vec<PoolSurvey>>,
}

/// A pool that a node can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSurvey {
    /// Its name.
    pub name: String,
    /// The largest volume that it can hold in addition to promised ones.
    pub largest: Option<i64>,
}

impl PoolSurvey {
    fn of(pool: &Pool) -> Self {
        Self {
            name: pool.name.to_string(),
            largest: pool.largest_now(),
        }
    }
}

impl VolumeBinder {
    /// Surveys what a node offers to a claim.
    #[must_use]
    pub fn survey(&self, claim: &Claim, node: NodeId) -> ClaimSurvey {
        let class_name = claim.class.unwrap_or(Symbol::EMPTY);
        let mut survey = ClaimSurvey::default();
        if let Some(free) = self.free.get(&class_name) {
            (survey.elsewhere, survey.full) = free.withheld(self.places(), node);
            let reachable = free.stock(self.places(), node, None);
            (survey.reachable, survey.largest_reachable) = (reachable.volumes, reachable.largest);
            let suitable = match claim.shape.selector {
                None => free.stock(self.places(), node, Some(&claim.shape)),
                Some(_) => self.selected(free, claim, node),
            };
            (survey.suitable, survey.largest_suitable) = (suitable.volumes, suitable.largest);
            survey.fitting = suitable.fitting;
        }
        if let Some(class) = self.classes.get(&class_name) {
            survey.provisionable = class.provisions && claim.shape.selector.is_none();
            survey.topology_allowed = self.nodes.matching(class.allowed_topologies).contains(node.0);
            let keys = self.pools_for(class.driver, class_name, claim.shape.request);
            survey.pools = self.survey_pools(keys, node);
        }
        survey
    }

    /// The volumes that suit a claim with a selector. Groups are told apart only by labels that pods in the cluster ask for, so
    /// each volume is looked at.
    fn selected(&self, free: &FreeVolumes, claim: &Claim, node: NodeId) -> Stock {
        let selected = |volume: &&FreeVolume| {
            let known = self.volume(volume.id);
            known.is_some_and(|known| claim.shape.selects(&known.labels))
        };
        let suitable = free.reachable(self.places(), node, Some(&claim.shape));
        suitable.filter(selected).fold(Stock::default(), |stock, volume| Stock {
            volumes: stock.volumes + 1,
            largest: stock.largest.max(Some(volume.capacity)),
            fitting: stock.fitting + usize::from(volume.capacity >= claim.shape.request),
        })
    }

    /// The pools from which a node could serve an inline volume of this size; `None` if the driver publishes none for
    /// inline volumes, so that nothing is checked.
    #[must_use]
    pub fn survey_inline(&self, driver: Symbol, size: i64, node: NodeId) -> Option<Vec<PoolSurvey>> {
        self.survey_pools(self.pools_for_inline(driver, size), node)
    }

    fn survey_pools(&self, keys: PoolKeys, node: NodeId) -> Option<Vec<PoolSurvey>> {
        let pools = self.pools_on(keys, node);
        (!keys.is_empty()).then(|| pools.into_iter().map(PoolSurvey::of).collect())
    }
}
