//! Advice: ways to get the pod running, derived from the reasons for which nodes refuse it.
//!
//! A node that refuses a pod for two reasons accepts it only when both are resolved. The steps of a node are therefore listed
//! together, nodes with the same steps are listed once, and those with the fewest steps come first. Problems that affect every
//! node, such as a missing claim, are listed before. Each way was tried on the cluster in memory (`trial`): one that does not
//! lead to a placement is not listed.

mod fixes;
pub(super) mod needs;
mod trial;
mod words;

use super::details::Detail;
use super::layout::names;
use super::report::{ClaimReport, Found, NodeReport, Report};
use super::world::World;
use berth_core::api;
use berth_scheduler::profile::Profile;
use needs::{Need, Needs, is_out_of_reach};
use std::collections::{BTreeSet, HashMap};
use trial::Trial;
use words::Members;

/// Maximum number of ways listed. More is a list of everything, not advice.
const WAYS_MAX: usize = 4;
/// Maximum number of ways tried.
const TRIED_MAX: usize = 12;
/// Maximum number of nodes named in a way.
const NAMES_SHOWN: usize = 3;

/// Lists what would help a pod that fits nowhere.
pub(super) fn steps(world: &World, pod: &api::Pod, profile: &Profile, report: &Report) -> Vec<String> {
    if report.schedulable {
        return Vec::new();
    }
    if report.nodes.is_empty() {
        let step = "add Node objects to the input, or apply the files to a cluster with --on-cluster";
        return vec![step.to_owned()];
    }
    let advisor = Advisor {
        world,
        pod,
        profile,
        report,
        daemon: Daemon::of(pod),
    };
    advisor.steps()
}

/// A DaemonSet's pod: it belongs to exactly one node.
struct Daemon {
    set: String,
    node: String,
}

impl Daemon {
    fn of(pod: &api::Pod) -> Option<Self> {
        let mut owners = pod.metadata.owner_references.iter();
        let owner = owners.find(|owner| owner.kind == "DaemonSet")?;
        let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms = &affinity.required.as_ref()?.node_selector_terms;
        let mut fields = terms.iter().flat_map(|term| &term.match_fields);
        let node = fields.find(|field| field.key == "metadata.name")?.values.first()?;
        Some(Self {
            set: owner.name.clone(),
            node: node.clone(),
        })
    }
}

/// Nodes that would accept the pod after the same steps.
struct Way<'r> {
    nodes: Vec<&'r str>,
    needs: Vec<Need>,
}

impl Way<'_> {
    fn cost(&self) -> usize {
        self.needs.iter().map(Need::cost).sum()
    }
}

struct Advisor<'a> {
    world: &'a World,
    pod: &'a api::Pod,
    profile: &'a Profile,
    report: &'a Report,
    daemon: Option<Daemon>,
}

impl<'a> Advisor<'a> {
    fn steps(&self) -> Vec<String> {
        if let Some(Daemon { set, node }) = &self.daemon
            && !self.report.nodes.iter().any(|found| found.name == *node)
        {
            return vec![format!(
                "bring node {node} back: DaemonSet {set} created the pod for it, and it does not exist; or delete the pod"
            )];
        }
        let everywhere = self.everywhere();
        let ways = self.ways(&everywhere);
        let needed: Vec<String> = everywhere
            .iter()
            .map(|need| self.words(need, &Members::default()))
            .collect();
        if ways.iter().any(|way| way.needs.is_empty()) {
            return match needed.as_slice() {
                [step] => vec![step.clone()],
                steps => vec![format!("all of: {}", steps.join("; "))],
            };
        }
        let another = everywhere.is_empty().then(|| self.another_node(&ways)).flatten();
        if ways.is_empty() && another.is_none() {
            return Vec::new();
        }
        let mut steps = Vec::new();
        if !needed.is_empty() {
            steps.push(format!("first: {}", needed.join("; ")));
        }
        let then = if steps.is_empty() { "" } else { "then " };
        steps.extend(
            ways.iter()
                .map(|way| format!("{then}{}", self.way_words(way, &everywhere))),
        );
        steps.extend(another);
        steps
    }

    /// Problems that affect every node.
    fn everywhere(&self) -> Vec<Need> {
        let claims = self.report.claims.iter().enumerate();
        let broken = claims.filter(|(_, claim)| words::is_broken(claim));
        let mut needs: Vec<Need> = broken.map(|(index, _)| Need::Claim(index)).collect();
        let first = self
            .report
            .nodes
            .first()
            .map_or(&[][..], |node| node.too_small.as_slice());
        for small in first {
            let lacks = |node: &NodeReport| {
                let mut lacking = node.too_small.iter();
                lacking.any(|found| found.resource == small.resource)
            };
            if self.report.nodes.iter().all(lacks) {
                needs.push(Need::TooLarge(small.resource.clone()));
            }
        }
        if needs.is_empty() {
            let early = self.report.pre_filter.iter().flat_map(|refusal| &refusal.found);
            for Found { reason, .. } in early {
                let need = Need::Reason(reason.clone());
                if !needs.contains(&need) {
                    needs.push(need);
                }
            }
        }
        needs
    }

    /// The ways that lead to a placement, nearest first. A way that requires everything that another one does, and more, is
    /// omitted.
    fn ways(&self, everywhere: &[Need]) -> Vec<Way<'a>> {
        let mut ways: Vec<Way<'a>> = Vec::new();
        let mut places = HashMap::new();
        let needs = Needs::new(self.world, self.report, !everywhere.is_empty(), self.daemon.is_some());
        let is_everywhere = |need: &Need| match need {
            Need::SmallerPod(resource) => everywhere.contains(&Need::TooLarge(resource.clone())),
            need => everywhere.contains(need),
        };
        let own = self.daemon.as_ref().map(|daemon| daemon.node.as_str());
        let fixes = fixes::by_node(self.world, self.report);
        let nodes = self.report.nodes.iter();
        for node in nodes.filter(|node| own.is_none_or(|own| own == node.name)) {
            let mut needed = needs.of(node);
            needed.retain(|need| !is_everywhere(need));
            let fixes = fixes.get(&node.name).map_or(&[][..], Vec::as_slice);
            for needed in with_fixes(&needed, fixes).into_iter().chain([needed]) {
                let place = *places.entry(needed.clone()).or_insert(ways.len());
                match ways.get_mut(place) {
                    Some(way) => way.nodes.push(&node.name),
                    None => ways.push(Way {
                        nodes: vec![&node.name],
                        needs: needed,
                    }),
                }
            }
        }
        ways.sort_by_key(|way| (way.cost(), std::cmp::Reverse(way.nodes.len())));
        let mut nearest: Vec<Way<'a>> = Vec::new();
        for way in ways.into_iter().take(TRIED_MAX) {
            let harder = |other: &Way<'_>| other.needs.iter().all(|need| way.needs.contains(need));
            if nearest.iter().any(harder) {
                continue;
            }
            nearest.extend(self.tried(way, everywhere));
            // Further ones would not be shown.
            if nearest.len() >= WAYS_MAX {
                break;
            }
        }
        nearest
    }

    /// A way with those of its nodes that accept the pod after its steps; `None` if no node does. Only the nodes that will be
    /// named are tried.
    fn tried(&self, mut way: Way<'a>, everywhere: &[Need]) -> Option<Way<'a>> {
        let named = way.nodes.len().min(NAMES_SHOWN + 1);
        let follow = |extra: &dyn Fn(&mut Trial<'_>, &str)| {
            let mut trial = self.trial();
            let mut done = everywhere.iter().all(|need| trial.meet(need, ""));
            for node in way.nodes.iter().take(named) {
                done = done && way.needs.iter().all(|need| trial.meet(need, node));
                extra(&mut trial, node);
            }
            match done {
                true => trial.fitting(self.profile),
                false => BTreeSet::new(),
            }
        };
        let mut fitting = follow(&|_, _| {});
        if fitting.is_empty()
            && let Some(Need::OwnVolume(index)) = way.needs.iter().find(|need| matches!(need, Need::OwnVolume(_)))
        {
            let index = *index;
            fitting = follow(&|trial, node| {
                trial.provide_own(index, node);
            });
            way.needs.push(Need::Storage(index));
        }
        let mut place = 0;
        way.nodes.retain(|node| {
            place += 1;
            place > named || fitting.contains(*node)
        });
        // Nodes that were not tried alone prove nothing.
        (!fitting.is_empty() && !way.nodes.is_empty()).then_some(way)
    }

    fn trial(&self) -> Trial<'a> {
        Trial::new(self.world, self.pod, self.report)
    }

    fn way_words(&self, way: &Way<'_>, everywhere: &[Need]) -> String {
        let nodes = names(&way.nodes, NAMES_SHOWN);
        let on = if way.nodes.len() == 1 {
            format!("on {nodes}")
        } else {
            format!("on one of {nodes}")
        };
        let members = Members::new(&way.nodes);
        let steps = way.needs.iter().map(|need| {
            let words = self.words(need, &members);
            words + &self.or_less(way, need, &members, everywhere)
        });
        let steps: Vec<String> = steps.collect();
        match steps.as_slice() {
            [step] => format!("{on}: {step}"),
            steps => format!("{on}, all of: {}", steps.join("; ")),
        }
    }

    fn words(&self, need: &Need, nodes: &Members<'_>) -> String {
        if let Need::Volume(claim, fix) = need {
            return fixes::words(self.world, self.report, *claim, fix, nodes.first());
        }
        let set = self.daemon.as_ref().map(|daemon| daemon.set.as_str());
        words::step(self.report, need, nodes, set)
    }

    /// Suggests a smaller request for a claim, if the pod would then fit.
    fn or_less(&self, way: &Way<'_>, need: &Need, nodes: &Members<'_>, everywhere: &[Need]) -> String {
        let Need::Storage(index) = need else {
            return String::new();
        };
        // Another claim of the class may be about to take what one claim could have.
        let class = |index: usize| self.report.claims.get(index).map(|claim| &claim.class);
        let rival =
            |other: &Need| matches!(other, Need::Storage(other) if other != index && class(*other) == class(*index));
        if way.needs.iter().any(rival) {
            return String::new();
        }
        let Some((claim, node, bytes)) = words::smaller_claim(self.report, *index, nodes) else {
            return String::new();
        };
        let mut trial = self.trial();
        let others = way.needs.iter().filter(|other| *other != need);
        let done = everywhere.iter().chain(others).all(|need| trial.meet(need, node)) && trial.shrink(*index, bytes);
        if !done || !trial.fitting(self.profile).contains(node) {
            return String::new();
        }
        words::ask_for_less(claim, node, bytes)
    }

    /// Suggests another node, if the existing ones are too full or too close to other pods.
    fn another_node(&self, ways: &[Way<'_>]) -> Option<String> {
        if self.daemon.is_some() {
            return None;
        }
        // If nothing helps on the existing nodes, a new node may.
        let untried;
        let ways = if ways.is_empty() {
            let node = self.report.nodes.first()?;
            untried = [Way {
                nodes: vec![&node.name],
                needs: Needs::new(self.world, self.report, false, false).of(node),
            }];
            &untried[..]
        } else {
            ways
        };
        let nearest = ways.first()?;
        let is_full = |need: &Need| words::calls_for_a_node(need);
        if !nearest.needs.iter().any(is_full) {
            return None;
        }
        let details = self.report.nodes.iter().flat_map(|node| &node.refused);
        let mut details = details.flat_map(|refusal| &refusal.found);
        let apart = details.find_map(|found| match &found.detail {
            Detail::ApartBy { keys, .. } => Some(keys.as_slice()),
            _ => None,
        });
        // A new node reaches the bound volumes only if one like it does.
        let reaching = self.report.nodes.iter().filter(|node| !is_apart_from_volumes(node));
        let reaching: Vec<&str> = reaching.map(|node| node.name.as_str()).collect();
        let like = nearest.nodes.iter().find(|node| reaching.contains(node));
        let mut trial = self.trial();
        let name = trial.add_node_like(like.or(reaching.first())?, apart.unwrap_or_default())?;
        if !trial.fitting(self.profile).contains(&name) {
            return None;
        }
        let needs = ways.iter().flat_map(|way| &way.needs);
        let delayed = self.report.claims.iter().any(ClaimReport::is_delayed);
        let has_storage = delayed || !self.report.inline_volumes.is_empty();
        Some(words::another_node(
            self.report,
            needs,
            apart.unwrap_or_default(),
            has_storage,
        ))
    }
}

/// Whether a node cannot reach a bound volume of the pod.
fn is_apart_from_volumes(node: &NodeReport) -> bool {
    let mut found = node.refused.iter().flat_map(|refusal| &refusal.found);
    found.any(|found| is_out_of_reach(&found.reason))
}

/// For each volume that can be fixed: what a node needs if it replaces new storage for its claim.
fn with_fixes(needed: &[Need], fixes: &[Need]) -> Vec<Vec<Need>> {
    let ways = fixes.iter().filter_map(|fix| {
        let Need::Volume(claim, _) = fix else { return None };
        let place = needed.iter().position(|need| *need == Need::Storage(*claim))?;
        let mut needed = needed.to_vec();
        *needed.get_mut(place)? = fix.clone();
        Some(needed)
    });
    ways.collect()
}
