//! Pod affinity and anti-affinity terms, compiled.

use berth_core::api;
use berth_core::label::{LabelSelector, Labels};
use berth_core::symbols::{Symbol, Symbols};
use smallvec::SmallVec;
use std::sync::Arc;

/// Selects pods and defines which nodes count as near.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodTerm {
    /// Nodes with the same value of this label are near each other.
    pub topology_key: Symbol,
    /// Namespaces by name, sorted and without duplicates.
    pub namespaces: SmallVec<[Symbol; 1]>,
    /// Namespaces by label.
    pub namespace_selector: LabelSelector,
    /// The pods.
    pub selector: LabelSelector,
}

berth_core::trace!(PodTerm {
    topology_key,
    namespaces,
    namespace_selector,
    selector
});

/// A term with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedPodTerm {
    /// Weight.
    pub weight: i64,
    /// Term.
    pub term: Arc<PodTerm>,
}

berth_core::trace!(WeightedPodTerm { term; weight });

/// All pod affinity terms of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTerms {
    /// Must be near such pods.
    pub required: Box<[Arc<PodTerm>]>,
    /// Must not be near such pods.
    pub required_anti: Box<[Arc<PodTerm>]>,
    /// Should be near such pods.
    pub preferred: Box<[WeightedPodTerm]>,
    /// Should not be near such pods.
    pub preferred_anti: Box<[WeightedPodTerm]>,
}

berth_core::trace!(PodTerms {
    required,
    required_anti,
    preferred,
    preferred_anti
});

impl PodTerm {
    fn new(symbols: &mut Symbols, own_namespace: Symbol, term: &api::PodAffinityTerm) -> Arc<Self> {
        let mut namespaces: SmallVec<[Symbol; 1]> = term.namespaces.iter().map(|name| symbols.intern(name)).collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(own_namespace);
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        Arc::new(Self {
            topology_key: symbols.intern(&term.topology_key),
            namespaces,
            namespace_selector: LabelSelector::new(symbols, term.namespace_selector.as_ref()),
            selector: LabelSelector::new(symbols, term.label_selector.as_ref()),
        })
    }

    /// Whether the term matches pods of a namespace with these labels.
    #[must_use]
    pub fn covers_namespace(&self, namespace: Symbol, labels: &Labels) -> bool {
        self.namespaces.contains(&namespace) || self.namespace_selector.matches(labels)
    }

    /// Whether the term matches pods of every namespace.
    #[must_use]
    pub fn covers_all_namespaces(&self) -> bool {
        self.namespace_selector == LabelSelector::everything()
    }
}

impl PodTerms {
    /// Compiles the terms of a pod; `None` if it has none.
    #[must_use]
    pub fn new(symbols: &mut Symbols, own_namespace: Symbol, affinity: Option<&api::Affinity>) -> Option<Self> {
        let affinity = affinity?;
        let (near, away) = (&affinity.pod_affinity, &affinity.pod_anti_affinity);
        if near.is_none() && away.is_none() {
            return None;
        }
        let mut required = |side: &Option<api::PodAffinity>| -> Box<[_]> {
            let terms = side.iter().flat_map(|side| &side.required);
            terms.map(|term| PodTerm::new(symbols, own_namespace, term)).collect()
        };
        let (required, required_anti) = (required(near), required(away));
        let mut preferred = |side: &Option<api::PodAffinity>| -> Box<[_]> {
            let terms = side.iter().flat_map(|side| &side.preferred);
            terms
                .map(|weighted| WeightedPodTerm {
                    weight: weighted.weight.into(),
                    term: PodTerm::new(symbols, own_namespace, &weighted.pod_affinity_term),
                })
                .collect()
        };
        let (preferred, preferred_anti) = (preferred(near), preferred(away));
        let terms = Self {
            required,
            required_anti,
            preferred,
            preferred_anti,
        };
        (terms != Self::default()).then_some(terms)
    }
}
