//! PodDisruptionBudgets: how many pods may be evicted.

use crate::pod::Footprint;
use berth_core::api;
use berth_core::label::LabelSelector;
use berth_core::symbols::{Symbol, Symbols};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Budget {
    selector: LabelSelector,
    allowed: i32,
    /// Pods whose eviction was already granted: they do not count again.
    disrupted: FxHashSet<Box<str>>,
}

berth_core::trace!(Budget { selector; allowed, disrupted });

/// The budgets of all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    by_namespace: FxHashMap<Symbol, BTreeMap<Box<str>, Budget>>,
}

berth_core::trace!(Budgets { by_namespace });

impl Budgets {
    pub(super) fn upsert(&mut self, symbols: &mut Symbols, budget: &api::PodDisruptionBudget) {
        let namespace = symbols.intern(&budget.metadata.namespace);
        let new = Budget {
            selector: LabelSelector::new(symbols, budget.spec.selector.as_ref()),
            allowed: budget.status.disruptions_allowed,
            disrupted: budget
                .status
                .disrupted_pods
                .keys()
                .map(|pod| pod.as_str().into())
                .collect(),
        };
        let budgets = self.by_namespace.entry(namespace).or_default();
        budgets.insert(budget.metadata.name.as_str().into(), new);
    }

    pub(super) fn remove(&mut self, symbols: &Symbols, namespace: &str, name: &str) {
        let Some(namespace) = symbols.get(namespace) else {
            return;
        };
        if let Some(budgets) = self.by_namespace.get_mut(&namespace) {
            budgets.remove(name);
            if budgets.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
    }

    /// For each pod, whether evicting it after the previous ones violates a budget.
    pub fn violations<'a>(&self, pods: impl Iterator<Item = &'a Footprint>) -> Vec<bool> {
        let mut spent = FxHashMap::<(Symbol, &str), i32>::default();
        pods.map(|pod| {
            let mut violates = false;
            for (name, budget) in self.by_namespace.get(&pod.namespace).into_iter().flatten() {
                if !budget.covers(pod) {
                    continue;
                }
                let spent = spent.entry((pod.namespace, name)).or_default();
                *spent += 1;
                violates |= *spent > budget.allowed;
            }
            violates
        })
        .collect()
    }
}

impl Budget {
    /// An empty selector selects nothing here, and a pod without labels is never selected, as in Kubernetes.
    fn covers(&self, pod: &Footprint) -> bool {
        let anything = self.selector == LabelSelector::everything();
        !anything && !pod.labels.is_empty() && self.selector.matches(&pod.labels) && !self.disrupted.contains(&pod.name)
    }
}
