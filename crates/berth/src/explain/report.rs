//! The answer of `berth explain` as plain values: the JSON output, and the source of the table.
//!
//! The field names are a contract with users' scripts.

use super::cause::Cause;
use super::details::Detail;
use super::volumes::UnfitVolumes;
use super::waiting::Waiting;
use berth_scheduler::reason::Reason;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where a pod can run, and why not elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `namespace/name`.
    pub pod: String,
    /// Whether some node fits.
    pub schedulable: bool,
    /// Why it has no node yet, as far as known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// One line in kube-scheduler's form.
    pub message: String,
    /// Refusals before any node was examined.
    pub pre_filter: Vec<Refusal>,
    /// Every node, by name.
    pub nodes: Vec<NodeReport>,
    /// The weights of the scores, by plugin.
    pub weights: BTreeMap<String, i64>,
    /// Every claim of the pod, in the order of the pod's volumes.
    pub claims: Vec<ClaimReport>,
    /// The inline volumes of the pod that specify a size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inline_volumes: Vec<InlineReport>,
    /// The pods that the scheduler would evict to make room, if nothing fits and that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionReport>,
    /// What could not be read, so that the answer may be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What would help if nothing fits: each is a sufficient way, unless it says otherwise; nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// The preemption that the scheduler would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionReport {
    /// The node that fits without the victims.
    pub node: String,
    /// The pods to evict, most important first.
    pub victims: Vec<Victim>,
    /// How many of them violate their disruption budgets.
    pub budget_violations: usize,
}

/// A pod that would be evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// `namespace/name`.
    pub pod: String,
    /// Its priority.
    pub priority: i32,
}

/// A plugin's refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The plugin, as named in kube-scheduler.
    pub plugin: String,
    /// `Unschedulable`, `UnschedulableAndUnresolvable` or `Error`.
    pub code: String,
    /// The reasons as worded by kube-scheduler.
    pub reasons: Vec<String>,
    /// The stable codes of the reasons.
    pub reason_codes: Vec<String>,
    /// For each reason the missing details, such as which taint; empty if there are none.
    #[serde(skip_serializing_if = "nothing_to_add")]
    pub details: Vec<String>,
    /// The reasons as values, with the missing details.
    #[serde(skip)]
    pub found: Vec<Found>,
}

/// A reason with its missing details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The reason.
    pub reason: Reason,
    /// The missing details.
    pub detail: Detail,
}

fn nothing_to_add(details: &[String]) -> bool {
    details.iter().all(String::is_empty)
}

/// The result for a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Whether every plugin accepts it.
    pub fits: bool,
    /// All refusals, not only the first.
    pub refused: Vec<Refusal>,
    /// The resources of which it has less in total than the pod requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub too_small: Vec<TooSmall>,
    /// The volumes that the pod would get there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<NodeVolumes>,
    /// Normalized scores by plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<BTreeMap<String, i64>>,
    /// The weighted sum of the scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// A resource of which an empty node would not have enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooSmall {
    /// Its name.
    pub resource: String,
    /// The request of the pod.
    pub wants: String,
    /// The total of the node.
    pub has: String,
    /// The total of the node as a number, to compare nodes.
    #[serde(skip)]
    pub amount: i64,
}

/// The volumes that a pod would get on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeVolumes {
    /// Existing volumes, by claim.
    #[serde(rename = "static")]
    pub existing: BTreeMap<String, String>,
    /// Claims that would need a new volume.
    pub provision: Vec<String>,
}

/// What a claim needs, and what prevents it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReport {
    /// Its name.
    pub claim: String,
    /// Its state.
    #[serde(flatten)]
    pub state: ClaimState,
    /// The cause of its state.
    pub code: Cause,
    /// Its class; absent if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The requested bytes.
    pub request_bytes: i64,
    /// What it needs, or what is wrong with it, as text.
    pub summary: String,
    /// What is wrong with it, without its request; empty if nothing is.
    #[serde(skip)]
    pub problem: String,
    /// Its request as text: `50Gi of class local (RWO)`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wants: String,
}

impl ClaimReport {
    /// What nodes offer it.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        match &self.state {
            ClaimState::Delayed { offers, .. } => offers,
            _ => &[],
        }
    }

    /// The volumes of its class that do not serve it.
    #[must_use]
    pub fn unfit(&self) -> &[UnfitVolumes] {
        match &self.state {
            ClaimState::Delayed { volumes, .. } | ClaimState::Unbound { volumes, .. } => volumes,
            _ => &[],
        }
    }

    /// The selected node, for which its volume must be provisioned.
    #[must_use]
    pub fn selected_node(&self) -> Option<&str> {
        match &self.state {
            ClaimState::Delayed { selected_node, .. } | ClaimState::Unbound { selected_node, .. } => {
                selected_node.as_deref()
            }
            _ => None,
        }
    }

    /// Whether it gets its volume when the pod is scheduled.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        matches!(self.state, ClaimState::Delayed { .. })
    }

    /// The node of its bound volume, if that node does not exist.
    #[must_use]
    pub fn missing_node(&self) -> Option<&str> {
        match &self.state {
            ClaimState::Bound { missing_node, .. } => missing_node.as_deref(),
            _ => None,
        }
    }

    /// How many nodes can reach its bound volume.
    #[must_use]
    pub fn reaching_nodes(&self) -> Option<usize> {
        match self.state {
            ClaimState::Bound { reaching_nodes, .. } => reaching_nodes,
            _ => None,
        }
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What a sized inline volume needs, and what nodes offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InlineReport {
    /// Its driver.
    pub driver: String,
    /// The requested bytes.
    pub request_bytes: i64,
    /// What nodes offer it, grouped by offer.
    pub offers: Vec<Offer>,
}

/// The state of a claim, with details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all_fields = "camelCase")]
pub enum ClaimState {
    /// Bound to a volume.
    Bound {
        /// That volume.
        volume: String,
        /// How many nodes can reach it; absent if it does not exist.
        #[serde(skip_serializing_if = "Option::is_none")]
        reaching_nodes: Option<usize>,
        /// The node of the volume, if that node does not exist.
        #[serde(skip_serializing_if = "Option::is_none")]
        missing_node: Option<String>,
    },
    /// Gets its volume when the pod is scheduled.
    Delayed {
        /// The selected node.
        #[serde(skip_serializing_if = "Option::is_none")]
        selected_node: Option<String>,
        /// What nodes offer it, grouped by offer.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        offers: Vec<Offer>,
        /// The volumes of its class that do not serve it, by cause, if it finds no storage on some node.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<UnfitVolumes>,
        /// How many of the nodes that refuse the pod because of its volumes were not examined, to save time.
        #[serde(skip_serializing_if = "is_zero")]
        nodes_not_asked: usize,
    },
    /// Should already have a volume and has none.
    Unbound {
        /// The volume that it requests.
        #[serde(skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
        /// The selected node.
        #[serde(skip_serializing_if = "Option::is_none")]
        selected_node: Option<String>,
        /// The volumes of its class that do not serve it, by cause, if it waits for one of them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<UnfitVolumes>,
    },
    /// Does not exist.
    Missing,
    /// Unknown, because claims could not be read.
    Unknown,
    /// Its volume has been lost.
    Lost {
        /// Its former volume.
        volume: String,
    },
    /// Being deleted.
    Deleting,
    /// Belongs to an object other than the pod that it should have been created for.
    NotOwned,
}

/// What some nodes offer to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// Whether it would be sufficient for this claim alone.
    pub suffices: bool,
    /// Why it is not, or that it is.
    pub code: Cause,
    /// As text.
    pub text: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The largest volume that the claim could get there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_bytes: Option<i64>,
    /// The other claims of the pod that need the same storage, if it does not suffice for all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<String>,
}

impl Report {
    /// Whether no node fits, for a reason that is not temporary by what is known of the pod.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let code = self.waiting.as_ref().map(|waiting| waiting.code);
        !self.schedulable && !code.is_some_and(Cause::explains_refusal)
    }

    /// Whether it can change when other pods get a node: the pod fits, or it has to be near others.
    #[must_use]
    pub fn depends_on_others(&self) -> bool {
        let found = self.nodes.iter().flat_map(|node| &node.refused);
        let mut found = found.flat_map(|refusal| &refusal.found);
        let is_near = |found: &Found| matches!(found.reason, Reason::PodAffinity | Reason::SpreadTooUneven);
        self.schedulable || found.any(is_near)
    }

    /// Number of nodes that fit.
    #[must_use]
    pub fn fitting(&self) -> usize {
        self.nodes.iter().filter(|node| node.fits).count()
    }

    /// The fitting nodes, best first.
    #[must_use]
    pub fn ranking(&self) -> Vec<&NodeReport> {
        let mut fitting: Vec<_> = self.nodes.iter().filter(|node| node.fits).collect();
        fitting.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.name.cmp(&b.name)));
        fitting
    }

    /// Whether a claim is bound to a volume that some node cannot reach.
    #[must_use]
    pub fn is_held_by_its_volume(&self, claim: &ClaimReport) -> bool {
        claim
            .reaching_nodes()
            .is_some_and(|reaching| reaching < self.nodes.len())
    }

    /// The nodes that are as good as the best one, without it.
    #[must_use]
    pub fn tied(&self) -> Vec<&str> {
        let ranking = self.ranking();
        let Some((best, others)) = ranking.split_first() else {
            return Vec::new();
        };
        let tied = others.iter().take_while(|node| node.total == best.total);
        tied.map(|node| node.name.as_str()).collect()
    }
}
