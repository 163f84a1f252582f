//! Advice: ways to get the pod running, derived from the reasons for which nodes refuse it.
//!
//! A node that refuses a pod for two reasons accepts it only when both are resolved. The steps of a node are therefore listed
//! together, nodes with the same steps are listed once, and those with the fewest steps come first. Problems that affect every
//! node, such as a missing claim, are the first steps of each way. Each way was tried on the cluster in memory (`trial`): one that
//! does not lead to a placement is not listed.

mod either;
mod fixes;
pub(super) mod needs;
mod trial;
mod unused;
mod words;

use super::details::Detail;
use super::layout::names;
use super::neighbours::Neighbours;
use super::report::{ClaimReport, ClaimState, Found, NodeReport, Report};
use super::volumes::is_down;
use super::world::World;
use berth_core::api;
use berth_core::names::HOSTNAME;
use berth_scheduler::examine::Examination;
use berth_scheduler::profile::Profile;
use berth_scheduler::reason::Reason;
use needs::{FAR, Need, Needs, is_out_of_reach, may_be_hidden};
use std::cell::OnceCell;
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
        neighbours: OnceCell::new(),
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
    /// The pods near each node, once somebody asks.
    neighbours: OnceCell<Neighbours<'a>>,
}

/// What following a way leads to.
#[derive(Default)]
struct Followed {
    /// The nodes that accept the pod.
    fitting: BTreeSet<String>,
    /// What its first node still refuses the pod for.
    hidden: Vec<Need>,
}

impl Followed {
    fn of(examination: Examination, first: &str) -> Self {
        let mut followed = Self::default();
        for node in examination.nodes {
            if node.fits {
                followed.fitting.insert(node.name);
            } else if node.name == first {
                let reasons = node.refusals.into_iter().flat_map(|refusal| refusal.reasons);
                let hidden = reasons.filter(may_be_hidden).map(Need::Reason);
                followed.hidden = hidden.collect();
            }
        }
        followed
    }
}

impl<'a> Advisor<'a> {
    fn steps(&self) -> Vec<String> {
        if let Some(Daemon { set, node }) = &self.daemon
            && !self.report.nodes.iter().any(|found| found.name == *node)
        {
            return vec![format!(
                "bring node {node} back: DaemonSet {set} created the pod for it, and it does not exist"
            )];
        }
        let everywhere = self.everywhere();
        let alone = self.suffices_alone(&everywhere);
        let ways = self.ways(&everywhere);
        let joined = |steps: &[String]| match steps {
            [step] => step.clone(),
            steps => format!("all of: {}", steps.join("; ")),
        };
        let mut steps: Vec<String> = alone.iter().map(|steps| joined(steps)).collect();
        let first = everywhere.iter().map(|need| match alone {
            Some(_) => words::otherwise(self.report, need),
            None => self.words(need, &Members::default()),
        });
        if ways.iter().any(|way| way.needs.is_empty()) {
            let or = |need: &Need| self.or_for_claim(need, &everywhere);
            let first: Vec<String> = first.zip(&everywhere).map(|(step, need)| step + &or(need)).collect();
            steps.push(joined(&first));
            return steps;
        }
        // Each way is complete.
        let first: String = first.map(|step| format!("{step}; then ")).collect();
        let ways_words = |ways: &[Way<'a>]| -> Vec<String> {
            let words = ways.iter().map(|way| self.way_words(way, &everywhere));
            words.map(|words| format!("{first}{words}")).collect()
        };
        let (near, far) = ways.split_at(ways.partition_point(|way| way.cost() < FAR));
        steps.extend(ways_words(near));
        if everywhere.is_empty() {
            steps.extend(self.delete_unused());
        }
        steps.extend(ways_words(far));
        steps.extend(everywhere.is_empty().then(|| self.another_node(&ways)).flatten());
        steps
    }

    /// Resolves the problems that affect every node. A claim whose data is on a node that does not exist is recreated: if the node
    /// came back, nothing else would be needed.
    fn meet_everywhere(&self, trial: &mut Trial<'_>, everywhere: &[Need]) -> bool {
        everywhere.iter().all(|need| match self.recreated(need) {
            Some(index) => trial.recreate(index, None),
            None => trial.meet(need, ""),
        })
    }

    /// The claim that is recreated to resolve a need.
    fn recreated(&self, need: &Need) -> Option<usize> {
        match need {
            Need::Claim(index) => {
                let claim = self.report.claims.get(*index)?;
                claim.missing_node().map(|_| *index)
            }
            _ => None,
        }
    }

    /// What to do about the problems that affect every node so that nothing else is needed: the node of a bound volume comes back,
    /// or a node is added that is large enough. `None` if there is no such way.
    fn suffices_alone(&self, everywhere: &[Need]) -> Option<Vec<String>> {
        let mut trial = self.trial();
        let is_up = |node: &&NodeReport| !is_down(&self.world.objects, &node.name);
        let like = self.report.nodes.iter().find(is_up).or(self.report.nodes.first())?;
        let mut steps = Vec::new();
        let mut back: Vec<&str> = Vec::new();
        for need in everywhere {
            match need {
                Need::Claim(index) => {
                    let claim = self.report.claims.get(*index)?;
                    let node = claim.missing_node()?;
                    let ClaimState::Bound { volume, .. } = &claim.state else {
                        return None;
                    };
                    if !back.contains(&node) {
                        trial.bring_back(node, &like.name, self.apart_by(), volume)?;
                        back.push(node);
                    }
                    steps.push(words::bring_back(claim, node));
                }
                // A pod of a DaemonSet belongs to its node.
                Need::TooLarge(_) if self.daemon.is_none() => {}
                _ => return None,
            }
        }
        let large = everywhere.iter().filter_map(|need| match need {
            Need::TooLarge(resource) => Some(resource.as_str()),
            _ => None,
        });
        let large: Vec<&str> = large.collect();
        // A node that comes back is as large as it was, which is unknown.
        let fits = match (back.as_slice(), large.as_slice()) {
            ([node], []) => trial.fitting(self.profile).contains(*node),
            ([], [_, ..]) => {
                let name = trial.add_node_like(&like.name, &[])?;
                steps.push(words::larger_node(
                    self.report,
                    &large,
                    &self.placed_by(&like.name, &[]),
                ));
                trial.fitting(self.profile).contains(&name)
            }
            _ => false,
        };
        fits.then_some(steps)
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
            if let Some(way) = self.tried(way, everywhere) {
                let harder = |other: &Way<'_>| other.needs.iter().all(|need| way.needs.contains(need));
                let is_harder = nearest.iter().any(harder);
                nearest.extend(Some(way).filter(|_| !is_harder));
            }
            // Further ones would not be shown.
            if nearest.len() >= WAYS_MAX {
                break;
            }
        }
        nearest.sort_by_key(Way::cost);
        nearest
    }

    /// A way with those of its nodes that accept the pod after its steps; `None` if no node does. Only the nodes that will be
    /// named are tried.
    fn tried(&self, mut way: Way<'a>, everywhere: &[Need]) -> Option<Way<'a>> {
        let named = |way: &Way<'_>| way.nodes.len().min(NAMES_SHOWN + 1);
        let follow = |way: &Way<'_>, extra: &dyn Fn(&mut Trial<'_>, &str)| {
            let mut trial = self.trial();
            let mut done = self.meet_everywhere(&mut trial, everywhere);
            for node in way.nodes.iter().take(named(way)) {
                done = done && way.needs.iter().all(|need| trial.meet(need, node));
                extra(&mut trial, node);
            }
            match done {
                true => Followed::of(trial.examined(self.profile), way.nodes.first().unwrap_or(&"")),
                false => Followed::default(),
            }
        };
        let mut followed = follow(&way, &|_, _| {});
        if followed.fitting.is_empty()
            && way.nodes.len() > 1
            && followed.hidden.iter().any(|need| !way.needs.contains(need))
        {
            // What is done on one node may be what is in the way on another: a label brings pods near both.
            way.nodes.truncate(1);
            followed = follow(&way, &|_, _| {});
        }
        // A plugin names one reason. The one behind it shows once that is resolved.
        while followed.fitting.is_empty() {
            let mut hidden = followed.hidden;
            hidden.retain(|need| !way.needs.contains(need));
            if hidden.is_empty() {
                break;
            }
            way.needs.extend(hidden);
            followed = follow(&way, &|_, _| {});
        }
        let mut fitting = followed.fitting;
        // A step may resolve more than its own reason: a label that a node gets also decides which pods are near it.
        for place in (0..way.needs.len()).rev() {
            let is_entangled = matches!(way.needs.get(place), Some(Need::Reason(reason)) if may_be_hidden(reason));
            if fitting.is_empty() || way.needs.len() < 2 || !is_entangled {
                continue;
            }
            let left_out = way.needs.remove(place);
            let without = follow(&way, &|_, _| {}).fitting;
            let tried = way.nodes.iter().take(named(&way)).copied();
            let (eased, needing): (Vec<&str>, Vec<&str>) = tried
                .filter(|node| fitting.contains(*node))
                .partition(|node| without.contains(*node));
            if eased.is_empty() {
                way.needs.insert(place, left_out);
                continue;
            }
            // The other nodes need more.
            if !needing.is_empty() {
                way.nodes = eased;
                fitting = follow(&way, &|_, _| {}).fitting;
            }
        }
        let own = way.needs.iter().find_map(|need| match need {
            Need::OwnVolume(index) => Some(*index),
            _ => None,
        });
        let recreated = everywhere.iter().find_map(|need| self.recreated(need));
        // A new claim may find no storage.
        let mut provided = None;
        if fitting.is_empty()
            && let Some(index) = own
        {
            let provide = |trial: &mut Trial<'_>, node: &str| {
                trial.provide_own(index, node);
            };
            fitting = follow(&way, &provide).fitting;
            provided = own;
        } else if fitting.is_empty()
            && let Some(index) = recreated
        {
            let provide = |trial: &mut Trial<'_>, node: &str| {
                trial.meet(&Need::Storage(index), node);
            };
            fitting = follow(&way, &provide).fitting;
            provided = recreated;
        }
        way.needs.extend(provided.map(Need::Storage));
        let named = named(&way);
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
            words + &self.or_on_node(way, need, &members, everywhere)
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
        let detail = match need {
            Need::Reason(reason) => self.common_detail(reason, nodes),
            _ => None,
        };
        words::step(self.report, need, nodes, detail.as_ref(), set)
    }

    /// The missing details of a reason on a node.
    fn detail(&self, reason: &Reason, node: &str) -> Option<Detail> {
        let report = self.report.nodes.iter().find(|found| found.name == node)?;
        let mut found = report.refused.iter().flat_map(|refusal| &refusal.found);
        let named = found.find(|found| found.reason == *reason);
        // Another reason of the plugin may have hidden it.
        let hidden = || self.neighbours().detail(reason, node);
        named.map(|found| found.detail.clone()).or_else(hidden)
    }

    /// The missing details of a reason, as far as they are the same on all of these nodes.
    fn common_detail(&self, reason: &Reason, nodes: &Members<'_>) -> Option<Detail> {
        let mut common = self.detail(reason, nodes.first())?;
        for node in nodes.iter() {
            common = common.in_common_with(self.detail(reason, node)?);
        }
        (common != Detail::Nothing).then_some(common)
    }

    fn neighbours(&self) -> &Neighbours<'a> {
        self.neighbours
            .get_or_init(|| Neighbours::new(&self.world.objects, self.pod))
    }

    /// The labels by which the pod is kept apart from other pods.
    fn apart_by(&self) -> &'a [String] {
        let details = self.report.nodes.iter().flat_map(|node| &node.refused);
        let mut details = details.flat_map(|refusal| &refusal.found);
        let apart = details.find_map(|found| match &found.detail {
            Detail::ApartBy { keys, .. } => Some(keys.as_slice()),
            _ => None,
        });
        apart.unwrap_or_default()
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
        let apart = self.apart_by();
        // A new node reaches the bound volumes only if one like it does.
        let reaching = self.report.nodes.iter().filter(|node| !is_apart_from_volumes(node));
        let reaching: Vec<&str> = reaching.map(|node| node.name.as_str()).collect();
        let like = nearest.nodes.iter().find(|node| reaching.contains(node));
        let like = like.or(reaching.first())?;
        let mut trial = self.trial();
        let name = trial.add_node_like(like, apart)?;
        if !trial.fitting(self.profile).contains(&name) {
            return None;
        }
        let needs = ways.iter().flat_map(|way| &way.needs);
        let delayed = self.report.claims.iter().any(ClaimReport::is_delayed);
        let has_storage = delayed || !self.report.inline_volumes.is_empty();
        let beside = self.placed_by(like, apart);
        Some(words::another_node(self.report, needs, apart, &beside, has_storage))
    }

    /// The labels of a node that matter where the pod has to be near other pods, or spread over nodes: `zone=a`. A node is near to
    /// itself alone by its hostname.
    fn placed_by(&self, node: &str, apart: &[String]) -> Vec<String> {
        let affinity = self.pod.spec.affinity.as_ref();
        let near = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let near = near
            .iter()
            .flat_map(|near| &near.required)
            .map(|term| &term.topology_key);
        let constraints = self.pod.spec.topology_spread_constraints.iter();
        let spread = constraints.map(|constraint| &constraint.topology_key);
        let labels = self.world.objects.nodes.get(node).map(|node| &node.metadata.labels);
        let is_free = |key: &&String| key.as_str() != HOSTNAME && !apart.contains(*key);
        let keys: BTreeSet<&String> = near.chain(spread).filter(is_free).collect();
        let value = |key: &String| Some(format!("{key}={}", labels?.get(key)?));
        keys.into_iter().filter_map(value).collect()
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
