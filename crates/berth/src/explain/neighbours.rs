//! The pods near a node that affect where another pod can go: those that it avoids, those that avoid it, and those that use
//! its host ports.

use super::details::Detail;
use super::layout::names;
use super::world::Objects;
use berth_core::api::{ContainerPort, LabelSelector, Pod, PodAffinityTerm};
use berth_scheduler::reason::Reason;
use std::collections::{BTreeSet, HashMap};

/// Maximum number of pods named.
const NAMES_SHOWN: usize = 3;

/// A node label and its value: nodes that share both are near each other.
type Domain<'o> = (&'o str, &'o str);

/// The neighbourhood of each node, for one pod.
pub(super) struct Neighbours<'o> {
    asked: &'o Pod,
    objects: &'o Objects,
    on_node: HashMap<&'o str, Vec<&'o Pod>>,
    /// Pods that the pod avoids.
    avoided: HashMap<Domain<'o>, BTreeSet<String>>,
    /// Pods that avoid the pod.
    avoiding: HashMap<Domain<'o>, BTreeSet<String>>,
}

impl<'o> Neighbours<'o> {
    /// Examines every pod once.
    pub(super) fn new(objects: &'o Objects, asked: &'o Pod) -> Self {
        let mut neighbours = Self {
            asked,
            objects,
            on_node: HashMap::new(),
            avoided: HashMap::new(),
            avoiding: HashMap::new(),
        };
        let placed = |pod: &&Pod| !pod.spec.node_name.is_empty() && !pod.is_finished();
        for other in objects.pods.values().filter(placed) {
            neighbours.on_node.entry(&other.spec.node_name).or_default().push(other);
            let Some(node) = objects.nodes.get(&other.spec.node_name) else {
                continue;
            };
            let labels = &node.metadata.labels;
            let mut note = |terms: &'o [PodAffinityTerm], owner: &Pod, target: &Pod, is_avoided: bool| {
                for term in terms.iter().filter(|term| is_meant(term, owner, target)) {
                    if let Some(value) = labels.get(&term.topology_key) {
                        let noted = match is_avoided {
                            true => &mut neighbours.avoided,
                            false => &mut neighbours.avoiding,
                        };
                        let pods = noted.entry((&term.topology_key, value)).or_default();
                        pods.insert(other.metadata.full_name());
                    }
                }
            };
            note(anti_terms(asked), asked, other, true);
            note(anti_terms(other), other, asked, false);
        }
        neighbours
    }

    /// The details of a reason that depends on the pods near a node. `None` for other reasons.
    pub(super) fn detail(&self, reason: &Reason, node: &str) -> Option<Detail> {
        Some(match reason {
            Reason::PortsTaken => self.taken_ports(node),
            Reason::PodAffinity => self.wanted(),
            Reason::PodAntiAffinity => self.avoided(node),
            Reason::ExistingPodsAntiAffinity => self.avoiding(node),
            Reason::SpreadLabelMissing => self.missing_spread_labels(node),
            Reason::SpreadTooUneven => self.spread(),
            _ => return None,
        })
    }

    /// The pods that run on a node.
    pub(super) fn on(&self, node: &str) -> &[&'o Pod] {
        self.on_node.get(node).map_or(&[], Vec::as_slice)
    }

    fn near(&self, pods: &HashMap<Domain<'_>, BTreeSet<String>>, node: &str) -> Vec<String> {
        let labels = self.objects.nodes.get(node).map(|node| &node.metadata.labels);
        let domains = labels.into_iter().flatten();
        let near = domains.filter_map(|(key, value)| pods.get(&(key.as_str(), value.as_str())));
        let near: BTreeSet<String> = near.flatten().cloned().collect();
        near.into_iter().collect()
    }

    /// The labels of the pod's anti-affinity, and the pods near a node that it avoids.
    fn avoided(&self, node: &str) -> Detail {
        let mut keys: Vec<String> = anti_terms(self.asked)
            .iter()
            .map(|term| term.topology_key.clone())
            .collect();
        keys.sort_unstable();
        keys.dedup();
        Detail::ApartBy {
            keys,
            from: self.near(&self.avoided, node),
        }
    }

    /// The pods near a node that avoid the pod.
    fn avoiding(&self, node: &str) -> Detail {
        match self.near(&self.avoiding, node).as_slice() {
            [] => Detail::Nothing,
            pods => Detail::Text(format!("of {}", names(pods, NAMES_SHOWN))),
        }
    }

    /// The host ports of the pod that pods on a node already use.
    fn taken_ports(&self, node: &str) -> Detail {
        let wanted: Vec<&ContainerPort> = host_ports(self.asked).collect();
        let mut taken = BTreeSet::new();
        for other in self.on(node) {
            for port in host_ports(other).filter(|port| wanted.iter().any(|own| is_same_port(own, port))) {
                taken.insert(format!("{} by {}", port.host_port, other.metadata.full_name()));
            }
        }
        let taken: Vec<String> = taken.into_iter().collect();
        match taken.as_slice() {
            [] => Detail::Nothing,
            taken => Detail::Text(format!("taken: {}", names(taken, NAMES_SHOWN))),
        }
    }

    /// The labels that the pod's spread constraints require and a node lacks.
    fn missing_spread_labels(&self, node: &str) -> Detail {
        let node = self.objects.nodes.get(node);
        let keys = self.asked.spec.topology_spread_constraints.iter();
        let keys: BTreeSet<&str> = keys.map(|one| one.topology_key.as_str()).collect();
        let lacks = |key: &&str| node.is_some_and(|node| !node.metadata.labels.contains_key(*key));
        let lacking: Vec<&str> = keys.into_iter().filter(lacks).collect();
        match lacking.as_slice() {
            [] => Detail::Nothing,
            lacking => Detail::Text(format!("lacks label {}", lacking.join(", "))),
        }
    }

    /// The topology domains of the pod's spread constraints.
    fn spread(&self) -> Detail {
        let constraints = self.asked.spec.topology_spread_constraints.iter();
        let hard = constraints.filter(|one| one.when_unsatisfiable != "ScheduleAnyway");
        let words: Vec<String> = hard
            .map(|one| format!("maxSkew {} over {}", one.max_skew, one.topology_key))
            .collect();
        match words.as_slice() {
            [] => Detail::Nothing,
            words => Detail::Text(words.join(", ")),
        }
    }

    /// The pods that the pod must be near.
    fn wanted(&self) -> Detail {
        let affinity = self.asked.spec.affinity.as_ref();
        let terms = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let terms = terms.map_or(&[][..], |affinity| affinity.required.as_slice());
        let words: Vec<String> = terms
            .iter()
            .map(|term| {
                let labels = term.label_selector.as_ref().map_or_else(String::new, selector_words);
                format!("wants pods with {labels} in the same {}", term.topology_key)
            })
            .collect();
        match words.as_slice() {
            [] => Detail::Nothing,
            words => Detail::Text(words.join(", ")),
        }
    }
}

fn anti_terms(pod: &Pod) -> &[PodAffinityTerm] {
    let affinity = pod.spec.affinity.as_ref();
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    anti.map_or(&[], |anti| anti.required.as_slice())
}

/// Whether an affinity term of a pod matches another pod. A namespace selector without labels matches all namespaces.
fn is_meant(term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let namespace = &other.metadata.namespace;
    let in_namespace = match &term.namespace_selector {
        Some(selector) if selector.match_labels.is_empty() && selector.match_expressions.is_empty() => true,
        None if term.namespaces.is_empty() => *namespace == owner.metadata.namespace,
        _ => term.namespaces.contains(namespace),
    };
    let shares = |key: &String| owner.metadata.labels.get(key) == other.metadata.labels.get(key);
    let selector = term.label_selector.as_ref();
    in_namespace
        && selector.is_some_and(|selector| selector.matches(&other.metadata.labels))
        && term.match_label_keys.iter().all(shares)
        && !term.mismatch_label_keys.iter().any(shares)
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let containers = pod.spec.containers.iter();
    let ports = containers.flat_map(|container| &container.ports);
    ports.filter(|port| port.host_port > 0)
}

/// Whether two pods cannot share a node, because they use the same host port.
pub(super) fn share_a_port(own: &Pod, other: &Pod) -> bool {
    host_ports(own).any(|own| host_ports(other).any(|port| is_same_port(own, port)))
}

fn is_same_port(own: &ContainerPort, other: &ContainerPort) -> bool {
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let is_any = |address: &str| matches!(address, "" | "0.0.0.0");
    let same_address = own.host_ip == other.host_ip || is_any(&own.host_ip) || is_any(&other.host_ip);
    own.host_port == other.host_port && protocol(own) == protocol(other) && same_address
}

/// A selector in kubectl's format: `app=web`.
fn selector_words(selector: &LabelSelector) -> String {
    let exact = selector
        .match_labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let others = selector
        .match_expressions
        .iter()
        .map(|one| format!("{} {} ({})", one.key, one.operator, one.values.join(", ")));
    exact.chain(others).collect::<Vec<_>>().join(", ")
}
