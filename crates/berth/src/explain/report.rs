//! The answer of `berth explain` as plain values: what the JSON output is, and what the table is made of.
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
    /// Why it has no node yet, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// One line in kube-scheduler's form.
    pub message: String,
    /// Refusals before any node was looked at.
    pub pre_filter: Vec<Refusal>,
    /// Every node, by name.
    pub nodes: Vec<NodeReport>,
    /// The weights with which scores are added up, by plugin.
    pub weights: BTreeMap<String, i64>,
    /// Every claim of the pod, in the order in which the pod names them.
    pub claims: Vec<ClaimReport>,
    /// The inline volumes of the pod that say how large they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inline_volumes: Vec<InlineReport>,
    /// The pods that the scheduler would evict to make room, if nothing fits and that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionReport>,
    /// What could not be read, so that the answer may be wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What would help, if nothing fits: each a way that suffices, unless it says otherwise; the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// Room that the scheduler would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionReport {
    /// The node that fits once the victims are gone.
    pub node: String,
    /// The pods that have to go, the most important first.
    pub victims: Vec<Victim>,
    /// How many of them are beyond their disruption budgets.
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
    /// The plugin, as kube-scheduler names it.
    pub plugin: String,
    /// `Unschedulable`, `UnschedulableAndUnresolvable` or `Error`.
    pub code: String,
    /// The reasons in kube-scheduler's words.
    pub reasons: Vec<String>,
    /// The stable codes of the reasons.
    pub reason_codes: Vec<String>,
    /// For each reason what its words leave out, such as which taint; empty where there is nothing.
    #[serde(skip_serializing_if = "nothing_to_add")]
    pub details: Vec<String>,
    /// The reasons as values, with what their words leave out.
    #[serde(skip)]
    pub found: Vec<Found>,
}

/// A reason with what its words leave out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The reason.
    pub reason: Reason,
    /// What its words leave out.
    pub detail: Detail,
}

fn nothing_to_add(details: &[String]) -> bool {
    details.iter().all(String::is_empty)
}

/// What was found about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// Whether every plugin accepts it.
    pub fits: bool,
    /// Every refusal, not just the first.
    pub refused: Vec<Refusal>,
    /// The resources of which it has less in all than the pod asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub too_small: Vec<TooSmall>,
    /// The volumes that the pod would get there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<NodeVolumes>,
    /// Normalized scores by plugin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<BTreeMap<String, i64>>,
    /// The scores with their weights, added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// A resource of which an empty node would not have enough.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TooSmall {
    /// Its name.
    pub resource: String,
    /// What the pod asks for.
    pub wants: String,
    /// What the node has in all.
    pub has: String,
    /// What the node has in all as a number, to compare nodes by.
    #[serde(skip)]
    pub amount: i64,
}

/// The volumes that a pod would get on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeVolumes {
    /// Existing volumes, by claim.
    #[serde(rename = "static")]
    pub existing: BTreeMap<String, String>,
    /// Claims for which a volume would be made.
    pub provision: Vec<String>,
}

/// What a claim needs, and what stands against it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReport {
    /// Its name.
    pub claim: String,
    /// Where it stands.
    #[serde(flatten)]
    pub state: ClaimState,
    /// The cause of its state.
    pub code: Cause,
    /// Its class; absent if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The bytes it asks for.
    pub request_bytes: i64,
    /// What it needs, or what is the matter with it, in words.
    pub summary: String,
    /// What it asks for, in words: `50Gi of class local (RWO)`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wants: String,
}

impl ClaimReport {
    /// What nodes have to offer to it.
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

    /// The node that was selected for it, and for which alone a volume is made.
    #[must_use]
    pub fn selected_node(&self) -> Option<&str> {
        match &self.state {
            ClaimState::Delayed { selected_node, .. } | ClaimState::Unbound { selected_node, .. } => {
                selected_node.as_deref()
            }
            _ => None,
        }
    }

    /// Whether it gets its volume when the pod gets its node.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        matches!(self.state, ClaimState::Delayed { .. })
    }

    /// How many nodes can reach the volume that it is bound to.
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

/// What a sized inline volume needs, and what nodes have to offer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InlineReport {
    /// Its driver.
    pub driver: String,
    /// The bytes it asks for.
    pub request_bytes: i64,
    /// What nodes have to offer to it, nodes with the same offer together.
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
        /// How many nodes can reach it; absent if it is not there.
        #[serde(skip_serializing_if = "Option::is_none")]
        reaching_nodes: Option<usize>,
        /// The node that has it, if that node does not exist.
        #[serde(skip_serializing_if = "Option::is_none")]
        missing_node: Option<String>,
    },
    /// Gets its volume when the pod gets its node.
    Delayed {
        /// The node that was selected for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        selected_node: Option<String>,
        /// What nodes have to offer to it, nodes with the same offer together.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        offers: Vec<Offer>,
        /// The volumes of its class that do not serve it, by cause, if it finds no storage on some node.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<UnfitVolumes>,
        /// How many of the nodes that refuse the pod for its volumes were not asked for an offer, to save time.
        #[serde(skip_serializing_if = "is_zero")]
        nodes_not_asked: usize,
    },
    /// Should have a volume by now and has none.
    Unbound {
        /// The volume that it names.
        #[serde(skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
        /// The node that was selected for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        selected_node: Option<String>,
        /// The volumes of its class that do not serve it, by cause, if it waits for one of them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        volumes: Vec<UnfitVolumes>,
    },
    /// Not there.
    Missing,
    /// Not among what could be read, which is without claims.
    Unknown,
    /// Its volume is gone.
    Lost {
        /// The volume that it had.
        volume: String,
    },
    /// Being deleted.
    Deleting,
    /// Belongs to something other than the pod that it should have been made for.
    NotOwned,
}

/// What some nodes have to offer to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// Whether it would do for this claim alone.
    pub suffices: bool,
    /// Why it does not, or that it does.
    pub code: Cause,
    /// In words.
    pub text: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The largest volume that the claim could get there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_bytes: Option<i64>,
}

impl Report {
    /// How many nodes fit.
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
