//! Topology spread constraints, compiled.

use berth_core::api;
use berth_core::label::{LabelRequirement, LabelSelector, Labels};
use berth_core::symbols::{Symbol, Symbols};

/// How pods are spread over the values of a node label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadConstraint {
    /// The node label.
    pub topology_key: Symbol,
    /// The maximum difference in pods between a domain and the emptiest one.
    pub max_skew: i64,
    /// The minimum number of domains to count.
    pub min_domains: i64,
    /// The pods that count, with the keys that they share with the pod.
    pub selector: LabelSelector,
    /// Whether the pod itself counts.
    pub matches_self: bool,
    /// Only nodes that match the pod's node affinity count.
    pub honor_affinity: bool,
    /// Only nodes whose taints the pod tolerates count.
    pub honor_taints: bool,
}

berth_core::trace!(SpreadConstraint {
    topology_key, selector;
    max_skew, min_domains, matches_self, honor_affinity, honor_taints
});

impl SpreadConstraint {
    /// Compiles a constraint of a pod with these labels.
    #[must_use]
    pub fn new(symbols: &mut Symbols, labels: &Labels, constraint: &api::TopologySpreadConstraint) -> Self {
        let own = LabelSelector::new(symbols, constraint.label_selector.as_ref());
        let selector = match own {
            LabelSelector::Nothing => LabelSelector::Nothing,
            LabelSelector::All(requirements) => {
                let mut requirements = requirements.into_vec();
                for key in &constraint.match_label_keys {
                    let key = symbols.intern(key);
                    if let Some(value) = labels.get(key) {
                        requirements.push(LabelRequirement::In(key, [value].into()));
                    }
                }
                LabelSelector::of(requirements)
            }
        };
        Self {
            topology_key: symbols.intern(&constraint.topology_key),
            max_skew: constraint.max_skew.into(),
            min_domains: constraint.min_domains.unwrap_or(1).into(),
            matches_self: selector.matches(labels),
            selector,
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Whether it counts pods at all: one that selects everything counts none, as in kube-scheduler.
    #[must_use]
    pub fn counts_pods(&self) -> bool {
        !self.selector.requirements().is_empty()
    }
}
