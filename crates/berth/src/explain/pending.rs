//! All waiting pods, by cause.
//!
//! Each pod is decided once; only the first of a group is examined on every node and gets advice.

use super::cause::Cause;
use super::layout::{count, names};
use super::report::Report;
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
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of groups examined: a person reads a few, and each requires examining every node.
const MAX_EXAMINED: usize = 20;
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
    /// The cause as text, for the first pod.
    pub text: String,
    /// The pods, by name.
    pub pods: Vec<String>,
    /// The evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// What would help the first pod.
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
    let mut groups: BTreeMap<(Cause, String), Vec<api::Pod>> = BTreeMap::new();
    let mut report = WaitingReport {
        of,
        pods: chosen.len(),
        waiting: Vec::new(),
    };
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
            brief.message
        };
        groups.entry((code, message)).or_default().push(pod);
    }
    let mut groups: Vec<((Cause, String), Vec<api::Pod>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
    for (index, ((code, message), pods)) in groups.into_iter().enumerate() {
        let mut group = WaitingPods {
            code,
            text: message,
            pods: pods.iter().map(|pod| pod.metadata.full_name()).collect(),
            evidence: Vec::new(),
            advice: Vec::new(),
        };
        let first = pods.first().filter(|_| index < MAX_EXAMINED);
        if let Some((pod, profile)) = first.and_then(|pod| Some((pod, profile_of(pod)?))) {
            let full = explain_pod(world, pod, profile);
            let Waiting { text, evidence, .. } = waiting::why(world, pod, &full);
            if !text.is_empty() {
                group.text = text;
            }
            group.evidence = evidence;
            group.advice = full.advice;
        }
        report.waiting.push(group);
    }
    report
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
