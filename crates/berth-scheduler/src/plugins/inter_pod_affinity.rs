//! InterPodAffinity: pods that should be near each other, or away from each other.

use crate::cluster::{Cluster, PodClause, PodQuery, QueryId, Scope, TermKind};
use crate::framework::{MAX_NODE_SCORE, PluginName, PreFilter, Refusal};
use crate::pod::{Footprint, Pod, PodTerm, PodTerms};
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use smallvec::SmallVec;

/// The domains near matching pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// For the required affinity terms, one each.
    affinity: Vec<Domains>,
    /// No pod matches all affinity terms in any domain, but the pod itself does: it may be the first.
    may_be_first: bool,
    /// For the required anti-affinity terms, one each.
    anti_affinity: Vec<Domains>,
    /// For the anti-affinity terms of running pods that match this one, one for each key.
    existing: Vec<Domains>,
}

/// Some domains of a topology key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domains {
    topology_key: Symbol,
    /// By number.
    hit: Vec<bool>,
}

impl Domains {
    fn empty(cluster: &mut Cluster, topology_key: Symbol) -> Self {
        cluster.ensure_topology(topology_key);
        Self {
            topology_key,
            hit: vec![false; cluster.topology().column(topology_key).len()],
        }
    }

    fn hit_by<'a>(&mut self, cluster: &Cluster, nodes: impl Iterator<Item = &'a NodeId>) {
        let column = cluster.topology().column(self.topology_key);
        for domain in nodes.filter_map(|node| column.domain(*node)) {
            self.hit[domain] = true;
        }
    }

    fn is_empty(&self) -> bool {
        !self.hit.contains(&true)
    }

    /// Whether a node is in one of the domains; `None` if it lacks the key.
    fn contain(&self, cluster: &Cluster, node: NodeId) -> Option<bool> {
        let column = cluster.topology().column(self.topology_key);
        column.domain(node).map(|domain| self.hit[domain])
    }
}

/// Skips pods without required terms that no running pod's anti-affinity matches.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod) -> PreFilter<State> {
    let existing = existing_anti_affinity(cluster, &pod.footprint);
    let mut state = State {
        affinity: Vec::new(),
        may_be_first: false,
        anti_affinity: Vec::new(),
        existing,
    };
    if let Some(terms) = &pod.footprint.terms {
        add_affinity(&mut state, cluster, &pod.footprint, terms);
        for term in &terms.required_anti {
            let clause = clause(cluster, term);
            state.anti_affinity.push(near(cluster, term.topology_key, [clause]));
        }
    }
    if state.affinity.is_empty() && state.anti_affinity.is_empty() && state.existing.is_empty() {
        return PreFilter::Skip;
    }
    PreFilter::ready(state)
}

fn add_affinity(state: &mut State, cluster: &mut Cluster, pod: &Footprint, terms: &PodTerms) {
    let clauses: Vec<_> = terms.required.iter().map(|term| clause(cluster, term)).collect();
    for term in &terms.required {
        let domains = near(cluster, term.topology_key, clauses.iter().cloned());
        state.affinity.push(domains);
    }
    state.may_be_first =
        state.affinity.iter().all(Domains::is_empty) && clauses.iter().all(|clause| clause.matches(pod));
}

/// The pods that a term of an incoming pod matches. Namespaces are resolved here, because their labels may change.
pub(crate) fn clause(cluster: &Cluster, term: &PodTerm) -> PodClause {
    let scope = if term.covers_all_namespaces() {
        Scope::All
    } else {
        let mut names = term.namespaces.clone();
        let selected = cluster.namespaces();
        names.extend(
            selected
                .filter(|(_, labels)| term.namespace_selector.matches(labels))
                .map(|(name, _)| name),
        );
        names.sort_unstable();
        names.dedup();
        Scope::Names(names)
    };
    PodClause {
        scope,
        selector: term.selector.clone(),
    }
}

/// The domains with pods that match all clauses.
fn near(cluster: &mut Cluster, key: Symbol, clauses: impl IntoIterator<Item = PodClause>) -> Domains {
    let mut domains = Domains::empty(cluster, key);
    let query = ask(cluster, clauses);
    domains.hit_by(cluster, cluster.answer(query).keys());
    domains
}

fn ask(cluster: &mut Cluster, clauses: impl IntoIterator<Item = PodClause>) -> QueryId {
    let query = PodQuery {
        clauses: clauses.into_iter().collect(),
        without_terminating: false,
    };
    cluster.ask(&query)
}

/// The domains from which running pods exclude this pod.
fn existing_anti_affinity(cluster: &mut Cluster, pod: &Footprint) -> Vec<Domains> {
    let against = |kind| kind == TermKind::RequiredAnti;
    let keys = matching_keys(cluster, pod, against);
    let mut existing: Vec<_> = keys.into_iter().map(|key| Domains::empty(cluster, key)).collect();
    let labels = cluster.namespace_labels(pod.namespace);
    let matching = cluster.running_terms().matching(pod, labels);
    for running in matching.filter(|running| against(running.kind)) {
        let mut domains = existing.iter_mut();
        if let Some(domains) = domains.find(|domains| domains.topology_key == running.term.topology_key) {
            domains.hit_by(cluster, running.by_node.keys());
        }
    }
    existing.retain(|domains| !domains.is_empty());
    existing
}

/// The topology keys of the running pods' terms that match a pod, without duplicates.
fn matching_keys(cluster: &Cluster, pod: &Footprint, wanted: impl Fn(TermKind) -> bool) -> SmallVec<[Symbol; 2]> {
    let labels = cluster.namespace_labels(pod.namespace);
    let matching = cluster.running_terms().matching(pod, labels);
    let matching = matching.filter(|running| wanted(running.kind));
    let mut keys: SmallVec<[Symbol; 2]> = matching.map(|running| running.term.topology_key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let plugin = PluginName::InterPodAffinity;
        if !self.affinity_allows(cluster, node) {
            return Some(Refusal::unresolvable(plugin, Reason::PodAffinity));
        }
        let hit = |domains: &Domains| domains.contain(cluster, node) == Some(true);
        if self.anti_affinity.iter().any(hit) {
            return Some(Refusal::unschedulable(plugin, Reason::PodAntiAffinity));
        }
        if self.existing.iter().any(hit) {
            return Some(Refusal::unschedulable(plugin, Reason::ExistingPodsAntiAffinity));
        }
        None
    }

    fn affinity_allows(&self, cluster: &Cluster, node: NodeId) -> bool {
        self.affinity.iter().all(|domains| {
            domains
                .contain(cluster, node)
                .is_some_and(|hit| hit || self.may_be_first)
        })
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        for domains in &self.affinity {
            let column = cluster.topology().column(domains.topology_key);
            mask.retain(|node| {
                let domain = column.domain(node);
                domain.is_some_and(|domain| domains.hit[domain] || self.may_be_first)
            });
        }
        for domains in self.anti_affinity.iter().chain(&self.existing) {
            if domains.is_empty() {
                continue;
            }
            let column = cluster.topology().column(domains.topology_key);
            mask.retain(|node| column.domain(node).is_none_or(|domain| !domains.hit[domain]));
        }
    }
}

/// What each domain of a key adds to a score.
struct Contributions {
    topology_key: Symbol,
    /// By number of the domain.
    weights: Vec<i64>,
}

/// All contributions, one entry for each key.
#[derive(Default)]
struct Scoring {
    keys: SmallVec<[Contributions; 2]>,
    any: bool,
}

impl Scoring {
    /// Adds weights by node. The key's topology must be registered.
    fn add(&mut self, cluster: &Cluster, key: Symbol, weights: impl Iterator<Item = (NodeId, i64)>) {
        let column = cluster.topology().column(key);
        let at = self.keys.iter().position(|found| found.topology_key == key);
        let at = at.unwrap_or_else(|| {
            self.keys.push(Contributions {
                topology_key: key,
                weights: vec![0; column.len()],
            });
            self.keys.len() - 1
        });
        for (node, weight) in weights {
            if let Some(domain) = column.domain(node) {
                self.keys[at].weights[domain] += weight;
                self.any = true;
            }
        }
    }

    /// The preferences of the pod itself.
    fn add_preferred(&mut self, cluster: &mut Cluster, terms: &PodTerms) {
        let near = terms.preferred.iter().map(|weighted| (weighted, 1));
        let away = terms.preferred_anti.iter().map(|weighted| (weighted, -1));
        for (weighted, sign) in near.chain(away) {
            let clause = clause(cluster, &weighted.term);
            let query = ask(cluster, [clause]);
            let key = weighted.term.topology_key;
            cluster.ensure_topology(key);
            let counts = cluster.answer(query).iter();
            let weights = counts.map(|(node, pods)| (*node, sign * weighted.weight * i64::from(*pods)));
            self.add(cluster, key, weights);
        }
    }

    /// The preferences of running pods about the pod.
    fn add_running(&mut self, cluster: &mut Cluster, pod: &Footprint, hard_weight: i64) {
        let counts = |kind| is_scored(kind, hard_weight);
        for key in matching_keys(cluster, pod, counts) {
            cluster.ensure_topology(key);
        }
        let labels = cluster.namespace_labels(pod.namespace);
        let matching = cluster.running_terms().matching(pod, labels);
        for running in matching.filter(|running| counts(running.kind)) {
            let weights = running.by_node.iter().map(|(node, presence)| {
                let weight = match running.kind {
                    TermKind::Required => hard_weight * i64::from(presence.count),
                    TermKind::PreferredAnti => -presence.weight,
                    TermKind::Preferred | TermKind::RequiredAnti => presence.weight,
                };
                (*node, weight)
            });
            self.add(cluster, running.term.topology_key, weights);
        }
    }
}

/// Whether terms of this kind of running pods are scored.
fn is_scored(kind: TermKind, hard_weight: i64) -> bool {
    match kind {
        TermKind::Required => hard_weight > 0,
        TermKind::RequiredAnti => false,
        TermKind::Preferred | TermKind::PreferredAnti => true,
    }
}

/// Whether a pod has affinity preferences, or running pods have some about it.
#[must_use]
pub fn has_preferences(cluster: &Cluster, pod: &Pod, profile: &Profile) -> bool {
    let terms = pod.footprint.terms.as_deref();
    if terms.is_some_and(|terms| !terms.preferred.is_empty() || !terms.preferred_anti.is_empty()) {
        return true;
    }
    let labels = cluster.namespace_labels(pod.footprint.namespace);
    let mut matching = cluster.running_terms().matching(&pod.footprint, labels);
    !profile.ignore_preferred_terms_of_existing_pods
        && matching.any(|running| is_scored(running.kind, profile.hard_pod_affinity_weight))
}

/// Scores nodes by the weights of the pods near them; skips pods without preferences.
pub fn score(cluster: &mut Cluster, pod: &Pod, profile: &Profile, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let mut scoring = Scoring::default();
    let terms = pod.footprint.terms.as_deref();
    let prefers = terms.is_some_and(|terms| !terms.preferred.is_empty() || !terms.preferred_anti.is_empty());
    if let Some(terms) = terms {
        scoring.add_preferred(cluster, terms);
    }
    if prefers || !profile.ignore_preferred_terms_of_existing_pods {
        scoring.add_running(cluster, &pod.footprint, profile.hard_pod_affinity_weight);
    }
    if !scoring.any {
        return false;
    }
    out.resize(nodes.len(), 0);
    for contributions in &scoring.keys {
        let column = cluster.topology().column(contributions.topology_key);
        for (score, node) in out.iter_mut().zip(nodes) {
            if let Some(domain) = column.domain(*node) {
                *score += contributions.weights[domain];
            }
        }
    }
    normalize(out);
    true
}

fn normalize(scores: &mut [i64]) {
    let min = scores.iter().copied().min().unwrap_or(0);
    let max = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = if max == min {
            0
        } else {
            // Divided first, then scaled: truncates like kube-scheduler.
            (MAX_NODE_SCORE as f64 * ((*score - min) as f64 / (max - min) as f64)) as i64
        };
    }
}
