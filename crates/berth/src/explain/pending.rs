//! All waiting pods, by cause.
//!
//! Each pod is decided once. Pods that ask for the same are one kind; the first of each kind is examined on every node and gets
//! advice. Kinds with the same message and the same advice have the same cause and are listed together.

use super::cause::Cause;
use super::layout::{count, names};
use super::report::Report;
use super::table::with_room;
use super::waiting::{self, Waiting};
use super::world::World;
use super::{claims, explain_pod};
use crate::terminal::wrapped;
use anstyle::{AnsiColor, Style};
use berth_core::api;
use berth_core::binder::PodVolumes;
use berth_scheduler::decide::{Decision, Scratch, decide};
use berth_scheduler::profile::Profile;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// Maximum number of kinds of pods examined: a person reads a few groups, and each kind requires examining every node. The pods
/// of further kinds are grouped by their message and get no advice.
const MAX_EXAMINED: usize = 40;
/// Maximum number of pods named in a group.
const NAMES_SHOWN: usize = 4;
/// Maximum number of ways listed for a group; explaining one of its pods lists more.
const WAYS_SHOWN: usize = 2;

const CAUSE: Style = AnsiColor::Yellow.on_default().bold();

/// Pods that wait for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingPods {
    /// The cause.
    pub code: Cause,
    /// The cause as text, for one of the pods.
    pub text: String,
    /// The pods, by name.
    pub pods: Vec<String>,
    /// The evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What would help each of the pods, worded for one of them. Empty if they were not examined, to save time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// All waiting pods, or those of one namespace or workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitingReport {
    /// Which pods were examined, if not all: `namespace shop`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// Number of pods examined, including those with a node.
    pub pods: usize,
    /// The waiting ones, by cause: the most frequent cause first.
    pub waiting: Vec<WaitingPods>,
}

impl WaitingReport {
    /// Whether some pod fits nowhere.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let mut codes = self.waiting.iter().map(|group| group.code);
        codes.any(|code| matches!(code, Cause::PodUnschedulable | Cause::PodNeedsEviction))
    }

    /// Whether some pod waits for a reason other than room.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.waiting.iter().any(|group| group.code.keeps_pods())
    }
}

/// Examines all pods of the world that `which` lists, and reports why those without a node have none.
pub(super) fn report<'p>(
    world: &mut World,
    of: String,
    which: &dyn Fn(&api::Pod) -> bool,
    profile_of: &dyn Fn(&api::Pod) -> Option<&'p Profile>,
) -> WaitingReport {
    let chosen: Vec<api::Pod> = world.objects.pods.values().filter(|pod| which(pod)).cloned().collect();
    let mut kinds: BTreeMap<Likeness, Vec<api::Pod>> = BTreeMap::new();
    let pods = chosen.len();
    let waits = |pod: &api::Pod| pod.spec.node_name.is_empty() && !pod.is_finished();
    for pod in chosen.into_iter().filter(waits) {
        let profile = profile_of(&pod);
        let brief = profile.map_or_else(Report::default, |profile| brief(world, &pod, profile));
        let code = match profile {
            Some(_) => waiting::why(world, &pod, &brief).code,
            None => Cause::PodSchedulerAbsent,
        };
        let message = if brief.schedulable {
            String::new()
        } else {
            brief.message.clone()
        };
        let likeness = Likeness {
            code,
            message,
            asks: asks(world, &pod, &brief),
        };
        kinds.entry(likeness).or_default().push(pod);
    }
    let mut kinds: Vec<(Likeness, Vec<api::Pod>)> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
    let mut waiting: Vec<WaitingPods> = Vec::new();
    let mut places: HashMap<SharedCause, usize> = HashMap::new();
    for (index, (likeness, pods)) in kinds.into_iter().enumerate() {
        let first = pods.first().filter(|_| index < MAX_EXAMINED);
        let examined = first.and_then(|pod| Some((pod, profile_of(pod)?)));
        let (mut group, shared) = match examined {
            Some((pod, profile)) => examine(world, pod, profile, likeness),
            None => unexamined(likeness),
        };
        let names = pods.iter().map(|pod| pod.metadata.full_name());
        let place = *places.entry(shared).or_insert(waiting.len());
        match waiting.get_mut(place) {
            Some(known) => known.pods.extend(names),
            None => {
                group.pods = names.collect();
                waiting.push(group);
            }
        }
    }
    waiting.iter_mut().for_each(|group| group.pods.sort_unstable());
    waiting.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
    WaitingReport { of, pods, waiting }
}

/// Pods that are equal in this are one kind.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    code: Cause,
    /// The scheduler's message; empty if it fits.
    message: String,
    asks: String,
}

/// Kinds of pods that are equal in this have the same cause.
#[derive(PartialEq, Eq, Hash)]
struct SharedCause {
    code: Cause,
    message: String,
    /// What the pods wait for, if the text names it.
    subject: String,
    /// The advice without the names of claims; `None` if it is unknown.
    advice: Option<Vec<String>>,
}

/// Examines a pod on every node, for all pods of its kind.
fn examine(world: &mut World, pod: &api::Pod, profile: &Profile, likeness: Likeness) -> (WaitingPods, SharedCause) {
    let full = explain_pod(world, pod, profile);
    // Only here it is known whether pods would be evicted.
    let Waiting {
        code, text, evidence, ..
    } = waiting::why(world, pod, &full);
    let room = full.preemption.as_ref().filter(|_| code == Cause::PodNeedsEviction);
    let shared = SharedCause {
        code,
        message: likeness.message.clone(),
        subject: subject(code, pod, &full),
        advice: Some(without_claim_names(&full)),
    };
    let group = WaitingPods {
        code,
        text: if text.is_empty() { likeness.message } else { text },
        pods: Vec::new(),
        evidence: evidence.into_iter().chain(room.map(with_room)).collect(),
        advice: full.advice,
    };
    (group, shared)
}

fn unexamined(likeness: Likeness) -> (WaitingPods, SharedCause) {
    let Likeness { code, message, .. } = likeness;
    let group = WaitingPods {
        code,
        text: message.clone(),
        pods: Vec::new(),
        evidence: Vec::new(),
        advice: Vec::new(),
    };
    let shared = SharedCause {
        code,
        message,
        subject: String::new(),
        advice: None,
    };
    (group, shared)
}

/// Everything about a pod that advice depends on, as text to compare. The names of its claims and volumes are not: pods of a
/// StatefulSet differ in them. Nor is the node of a DaemonSet's pod.
fn asks(world: &World, pod: &api::Pod, brief: &Report) -> String {
    let mut spec = pod.spec.clone();
    for volume in &mut spec.volumes {
        volume.name.clear();
        if let Some(source) = &mut volume.persistent_volume_claim {
            source.claim_name.clear();
        }
    }
    let namespace = &pod.metadata.namespace;
    let claims = brief.claims.iter().map(|claim| {
        let object = world.objects.claims.get(&format!("{namespace}/{}", claim.claim));
        (claim.code, claim.selected_node(), object.map(|object| &object.spec))
    });
    let claims: Vec<_> = claims.collect();
    let mut owners = pod.metadata.owner_references.iter();
    let owner = owners.find(|owner| owner.controller == Some(true));
    if let Some(affinity) = spec
        .affinity
        .as_mut()
        .filter(|_| owner.is_some_and(|owner| owner.kind == "DaemonSet"))
    {
        affinity.node_affinity = None;
    }
    // Pods of a controller have the same labels, except for those that number them.
    let kin = match owner {
        Some(owner) => format!("{} {}", owner.kind, owner.name),
        None => format!("{:?}", pod.metadata.labels),
    };
    format!("{namespace} {kin} {spec:?} {claims:?}")
}

/// What a pod waits for, if the text about it names that.
fn subject(code: Cause, pod: &api::Pod, report: &Report) -> String {
    match code {
        Cause::PodSchedulerAbsent => pod.spec.scheduler_name.clone().unwrap_or_default(),
        Cause::PodGated => {
            let gates = pod.spec.scheduling_gates.iter().map(|gate| gate.name.as_str());
            gates.collect::<Vec<_>>().join(", ")
        }
        Cause::PodProvisioning | Cause::PodProvisionerSilent | Cause::PodProvisioningFailed => {
            let classes = report.claims.iter().filter_map(|claim| claim.class.as_deref());
            classes.collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    }
}

/// The advice for a pod, to compare it with that for others.
fn without_claim_names(report: &Report) -> Vec<String> {
    let namespace = report.pod.split_once('/').map_or("default", |(namespace, _)| namespace);
    let strip = |step: &String| {
        report.claims.iter().fold(step.clone(), |step, claim| {
            let full = format!("claim {namespace}/{}", claim.claim);
            step.replace(&full, "claim")
                .replace(&format!("claim {}", claim.claim), "claim")
        })
    };
    report.advice.iter().map(strip).collect()
}

/// What can be said about a pod without examining every node.
fn brief(world: &mut World, pod: &api::Pod, profile: &Profile) -> Report {
    let adapted = profile.adapt(pod);
    let cluster = &mut world.cluster;
    let compiled = cluster.compile(&adapted);
    let volumes = PodVolumes::new(cluster.symbols_mut(), &adapted);
    // The seed does not affect whether a pod fits.
    let mut scratch = Scratch::new(0);
    let decision = decide(cluster, &compiled, profile, &mut scratch);
    cluster.release(&compiled);
    let mut report = Report {
        pod: pod.metadata.full_name(),
        ..Report::default()
    };
    match decision {
        Decision::Place(_) => report.schedulable = true,
        Decision::Refuse(diagnosis) => report.message = diagnosis.message(),
    }
    report.claims = claims::report(world, &volumes, &[]);
    report
}

/// Renders the report.
pub(super) fn render(report: &WaitingReport, width: usize) -> String {
    let mut out = String::new();
    let of = match report.of.as_str() {
        "" => String::new(),
        of => format!(" of {of}"),
    };
    let waiting: usize = report.waiting.iter().map(|group| group.pods.len()).sum();
    // Writing to a string cannot fail.
    let _ = match (waiting, report.pods) {
        (0, 0) => writeln!(out, "there are no pods{of}"),
        (0, all) => writeln!(
            out,
            "no pending pods{of}: {} a node",
            count(all, "pod has", "pods have")
        ),
        (some, all) => {
            let are = if some == 1 { "is" } else { "are" };
            writeln!(out, "{some} of {}{of} {are} pending", count(all, "pod", "pods"))
        }
    };
    for group in &report.waiting {
        let pods = names(&group.pods, NAMES_SHOWN);
        let head = match group.pods.len() {
            1 => pods,
            many => format!("{many} pods: {pods}"),
        };
        let _ = writeln!(out, "\n{CAUSE}{}{CAUSE:#}", group.code.heading());
        for text in [&head, &group.text].into_iter().filter(|text| !text.is_empty()) {
            for line in wrapped(text, width.saturating_sub(2).max(20)) {
                let _ = writeln!(out, "  {line}");
            }
        }
        let ways = group.advice.iter().take(WAYS_SHOWN);
        for text in group.evidence.iter().chain(ways) {
            let lines = wrapped(text, width.saturating_sub(6).max(20));
            let _ = writeln!(out, "    - {}", lines.join("\n      "));
        }
    }
    out
}
