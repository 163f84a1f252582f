//! Plugin arguments that change a pod's requirements: they are applied to the pod before the decision.
//!
//! kube-scheduler attributes a refusal by added affinity to the scheduler; here it counts as the pod's own.

use super::Profile;
use berth_core::api::{Affinity, ContainerResources, NodeAffinity, NodeSelector, NodeSelectorTerm, Pod, ResourceList};
use std::borrow::Cow;

impl Profile {
    /// The pod as this profile decides about it: with the added affinity, and without ignored resources.
    ///
    /// Only pods without a node are adapted. The usage of a running pod counts for every profile.
    #[must_use]
    pub fn adapt<'p>(&self, pod: &'p Pod) -> Cow<'p, Pod> {
        let ignores = !(self.ignored_resources.is_empty() && self.ignored_resource_groups.is_empty());
        if self.added_affinity.is_none() && !ignores {
            return Cow::Borrowed(pod);
        }
        let mut pod = pod.clone();
        if let Some(added) = &self.added_affinity {
            add_affinity(&mut pod, added);
        }
        if ignores {
            self.ignore_resources(&mut pod);
        }
        Cow::Owned(pod)
    }

    fn ignore_resources(&self, pod: &mut Pod) {
        let spec = &mut pod.spec;
        for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
            self.ignore_in(&mut container.resources);
        }
        if let Some(resources) = &mut spec.resources {
            self.ignore_in(resources);
        }
        self.ignore(&mut spec.overhead);
    }

    fn ignore_in(&self, resources: &mut ContainerResources) {
        self.ignore(&mut resources.requests);
        self.ignore(&mut resources.limits);
    }

    fn ignore(&self, resources: &mut ResourceList) {
        resources.retain(|name, _| {
            let Some((group, _)) = name.split_once('/') else {
                return true;
            };
            !self.ignored_resources.contains(name)
                && !self.ignored_resource_groups.iter().any(|ignored| ignored == group)
        });
    }
}

fn add_affinity(pod: &mut Pod, added: &NodeAffinity) {
    let affinity = pod.spec.affinity.get_or_insert_with(Affinity::default);
    let own = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    own.required = match (own.required.take(), &added.required) {
        (Some(own), Some(added)) => Some(both(&own, added)),
        (own, added) => own.or_else(|| added.clone()),
    };
    if let Some(added) = &added.preferred {
        own.preferred.get_or_insert_default().extend(added.iter().cloned());
    }
}

/// The selector of the nodes that match both selectors: terms are ORed, so each is combined with each.
fn both(one: &NodeSelector, other: &NodeSelector) -> NodeSelector {
    // An empty term matches no node, and would match many if it were combined with another.
    let terms = |selector: &NodeSelector| -> Vec<NodeSelectorTerm> {
        let terms = selector.node_selector_terms.iter();
        let says_something =
            |term: &&NodeSelectorTerm| !(term.match_expressions.is_empty() && term.match_fields.is_empty());
        terms.filter(says_something).cloned().collect()
    };
    let others = terms(other);
    let joined = terms(one).into_iter().flat_map(|term| {
        others.iter().map(move |other| {
            let mut term = term.clone();
            term.match_expressions.extend(other.match_expressions.iter().cloned());
            term.match_fields.extend(other.match_fields.iter().cloned());
            term
        })
    });
    NodeSelector {
        node_selector_terms: joined.collect(),
    }
}
