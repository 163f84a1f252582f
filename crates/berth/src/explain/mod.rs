//! `berth explain`: where a pod can run, with which volumes, how each node scores, and why not elsewhere.
//!
//! `berth-scheduler` makes the decisions; here they are requested and worded.

mod advice;
mod again;
mod because;
pub mod cause;
mod claims;
mod contested;
mod demands;
pub mod details;
mod evidence;
mod held;
mod layout;
mod made;
mod neighbours;
pub mod object;
mod offers;
pub mod pending;
mod played;
mod preemption;
mod question;
pub mod report;
mod table;
mod users;
pub mod volumes;
pub mod waiting;
mod world;

pub use played::Turns;
pub use report::Report;
pub use table::render;
pub use world::{Objects, World};

use crate::cli::ExplainArgs;
use crate::given::GivenError;
use crate::input::{NoProgress, Progress, Source};
use crate::overlay::{self, Gathered};
use again::Unbound;
use berth_cluster::simulation::START;
use berth_core::api;
use berth_core::binder::PodVolumes;
use berth_core::nodes::NodeId;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::examine::{Examination, NodeExamination, examine};
use berth_scheduler::framework::{self, PluginName};
use berth_scheduler::plugins::{FilterState, volume_binding};
use berth_scheduler::pod::Pod;
use berth_scheduler::profile::Profile;
use berth_scheduler::reason::Reason;
use details::Detail;
use jiff::Timestamp;
use made::Made;
use neighbours::Neighbours;
use object::ObjectReport;
use pending::WaitingReport;
use played::{Played, Stage};
use question::{Asked, AskedPod, PodName, Question, Reading, as_if_new};
use report::{Found, NodeReport, NodeVolumes, Refusal, TooSmall};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// A remark about manifests among the pods of an answer.
const AS_IF_APPLIED: &str = "manifests are explained as if they had been applied a moment ago";

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The input is invalid.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// The pod's name is invalid.
    #[error("--pod: found {0:?}, expected NAMESPACE/NAME, or NAME for the namespace default")]
    PodName(String),
    /// The kind of object is not supported.
    #[error(
        "found {0:?}, expected pod/NAME, deploy/NAME, sts/NAME, ds/NAME, rs/NAME, job/NAME, pvc/NAME, pv/NAME or node/NAME; set the namespace with -n"
    )]
    NotExplained(String),
    /// The object does not exist; with a hint, if there is one.
    #[error("there is no {0}")]
    NoObject(String),
    /// The input does not contain the pod.
    #[error("there is no pod {pod} in the input; {hint}")]
    NoPod {
        /// The pod.
        pod: String,
        /// What it contains instead.
        hint: String,
    },
    /// The cluster does not have the pod.
    #[error("there is no pod {pod} on the cluster; {hint}")]
    NoPodOnCluster {
        /// The pod.
        pod: String,
        /// What it has instead.
        hint: String,
    },
}

/// An explanation, and remarks for standard error.
#[derive(Debug)]
pub struct Explanation {
    /// The answer.
    pub report: Report,
    /// Remarks, one line each.
    pub remarks: Vec<String>,
}

/// An answer to any question.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// About a pod.
    Pod(Box<Report>),
    /// About all waiting pods, or those of a workload.
    Waiting(WaitingReport),
    /// About another object.
    Object(Box<ObjectReport>),
}

impl Answer {
    /// The answer as text. It has colours; strip them when writing to anything but a terminal.
    #[must_use]
    pub fn render(&self, width: usize) -> String {
        match self {
            Self::Pod(report) => render(report, width),
            Self::Waiting(report) => pending::render(report, width),
            Self::Object(report) => object::render(report, width),
        }
    }

    /// Whether a pod fits nowhere, or the object is of no use as it is.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Pod(report) => report.is_refused(),
            Self::Waiting(report) => report.is_refused(),
            Self::Object(report) => report.is_refused(),
        }
    }

    /// Whether a pod waits for a reason other than room, or a claim for another component.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        match self {
            Self::Pod(report) => report.waiting.as_ref().is_some_and(waiting::Waiting::is_kept),
            Self::Waiting(report) => report.is_kept(),
            Self::Object(report) => report.is_kept(),
        }
    }
}

/// Reads the input and answers the question, with remarks for standard error, one line each.
///
/// # Errors
/// If the input, the configuration or the arguments are invalid, or the object does not exist.
pub fn answer_asked(
    args: &ExplainArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<(Answer, Vec<String>), ExplainError> {
    let asked = match Asked::of(args)? {
        Asked::Pod(_) => {
            let Explanation { report, remarks } = explain(args, standard_input, progress)?;
            return Ok((Answer::Pod(Box::new(report)), remarks));
        }
        asked => asked,
    };
    let gathered = gather(args, standard_input, progress)?;
    let is_live = args.filename.is_empty() || args.cluster.on_cluster;
    let evidence = match is_live {
        true => args.cluster.evidence().map_err(GivenError::from)?,
        false => Vec::new(),
    };
    let given = Given {
        sources: &gathered.sources,
        evidence: &evidence,
        is_compared: false,
    };
    let namespace = &gathered.namespace;
    let (answer, mut remarks) = answer_given(args, &asked, namespace, &given, standard_input, progress)?;
    let told = gathered.summary.to_string();
    if !told.is_empty() {
        remarks.insert(0, told);
    }
    Ok((answer, remarks))
}

/// Answers the question about the cluster in the sources, ignoring the arguments about where to read. Events and leases may
/// be separate. A pod that has a node is explained as if it were placed now, and its volumes were to be chosen again.
///
/// # Errors
/// Like [`answer_asked`].
pub fn answer_sources(
    args: &ExplainArgs,
    sources: &[Source],
    evidence: &[Source],
) -> Result<(Answer, Vec<String>), ExplainError> {
    let namespace = args.cluster.namespace(false).map_err(GivenError::from)?;
    let given = Given {
        sources,
        evidence,
        is_compared: true,
    };
    let (mut nothing, mut progress) = (std::io::empty(), NoProgress);
    match Asked::of(args)? {
        Asked::Pod(pod) => {
            let pod = pod.in_namespace(&namespace);
            let Explanation { report, remarks } = answer(args, &pod, &given, &mut nothing, &mut progress)?;
            Ok((Answer::Pod(Box::new(report)), remarks))
        }
        asked => answer_given(args, &asked, &namespace, &given, &mut nothing, &mut progress),
    }
}

/// Answers a question about anything except a single pod.
fn answer_given(
    args: &ExplainArgs,
    asked: &Asked,
    namespace: &str,
    given: &Given<'_>,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<(Answer, Vec<String>), ExplainError> {
    let all = [given.sources, given.evidence].concat();
    let read = Reading::read(None, &all, standard_input, progress)?;
    let (mut world, summary) = (read.world, read.summary);
    set_clock(&mut world, summary.taken_at);
    let is_about_pods = matches!(asked, Asked::Waiting | Asked::Workload(..));
    let mut acted = false;
    let is_played = read.has_manifests || args.controller.zone_upgrade;
    if is_played || (is_about_pods && world.waiting_pods() > 1) {
        let stage = Stage {
            sources: given.sources,
            configuration: &args.decisions.read().map_err(GivenError::from)?,
            is_configured: args.decisions.config.is_some(),
            controller: args.controller,
        };
        if let Some(mut played) = Played::begin(&stage) {
            world.turns = is_about_pods.then(|| played.turns());
            // Of pods that were never applied, those matter that would still wait a moment later.
            acted = played.lay_over(&mut world, None);
        }
    }
    let told = Some(summary.to_string()).filter(|told| !told.is_empty());
    let applied = (acted && is_about_pods).then(|| AS_IF_APPLIED.to_owned());
    let unasked = args.decisions.read().map_err(GivenError::from)?.files_warning();
    let remarks = told
        .into_iter()
        .chain(summary.gaps.told())
        .chain(applied)
        .chain(unasked)
        .collect();
    let answer = answer_about(args, asked, namespace, &mut world)?;
    Ok((answer, remarks))
}

fn answer_about(args: &ExplainArgs, asked: &Asked, namespace: &str, world: &mut World) -> Result<Answer, ExplainError> {
    let configuration = args.decisions.read().map_err(GivenError::from)?;
    world.cluster.set_gates(configuration.settings().volume_gates());
    let profile_of = |pod: &api::Pod| match &args.decisions.config {
        Some(_) => configuration.profile_for(pod).ok().map(|found| &found.profile),
        // Without a configuration, Berth's defaults apply to any scheduler name.
        None => configuration.profiles.first().map(|first| &first.profile),
    };
    let about = |report: Option<ObjectReport>, name: String| match report {
        Some(report) => Ok(Answer::Object(Box::new(report))),
        None => Err(ExplainError::NoObject(name)),
    };
    match asked {
        Asked::Pod(_) | Asked::Waiting => {
            let only = args.cluster.namespace.as_deref().filter(|_| !args.all_namespaces);
            let of = only.map_or(String::new(), |name| format!("namespace {name}"));
            let which = |pod: &api::Pod| only.is_none_or(|name| pod.metadata.namespace == name);
            Ok(Answer::Waiting(pending::report(world, of, &which, &profile_of)))
        }
        Asked::Workload(kind, name) => {
            let objects = world.objects.pods.values();
            let of_it =
                objects.filter(|pod| pod.metadata.namespace == namespace && world.objects.is_pod_of(pod, kind, name));
            let of_it: BTreeSet<String> = of_it.map(|pod| pod.metadata.name.clone()).collect();
            let which = |pod: &api::Pod| pod.metadata.namespace == namespace && of_it.contains(&pod.metadata.name);
            if of_it.is_empty() {
                return Err(ExplainError::NoObject(format!(
                    "pod of {kind} {namespace}/{name}; set the namespace with -n. To explain a pod that the workload has yet to \
                     create, name the pod: pod/{name}-0"
                )));
            }
            let of = format!("{kind} {namespace}/{name}");
            Ok(Answer::Waiting(pending::report(world, of, &which, &profile_of)))
        }
        Asked::Claim(name) => about(
            object::claim(world, namespace, name),
            format!("pvc/{namespace}/{name}; set the namespace with -n"),
        ),
        Asked::Volume(name) => about(object::volume(world, name), format!("pv/{name}")),
        Asked::Node(name) => about(object::node(world, name, &profile_of), format!("node/{name}")),
    }
}

/// Reads the input and explains the pod.
///
/// # Errors
/// If the input, the configuration or the arguments are invalid, or the pod does not exist.
pub fn explain(
    args: &ExplainArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Explanation, ExplainError> {
    let asked = AskedPod::of(args)?;
    let gathered = gather(args, standard_input, progress)?;
    let pod = asked.in_namespace(&gathered.namespace);
    let is_live = args.filename.is_empty() || args.cluster.on_cluster;
    let evidence = match is_live {
        true => args.cluster.evidence().map_err(GivenError::from)?,
        false => Vec::new(),
    };
    let given = Given {
        sources: &gathered.sources,
        evidence: &evidence,
        is_compared: false,
    };
    let answer = answer(args, &pod, &given, standard_input, progress);
    let mut explanation = answer.map_err(|error| match error {
        ExplainError::NoPod { pod, hint } if args.filename.is_empty() => ExplainError::NoPodOnCluster { pod, hint },
        error => error,
    })?;
    let told = gathered.summary.to_string();
    if !told.is_empty() {
        explanation.remarks.insert(0, told);
    }
    Ok(explanation)
}

/// Explains the pod on the cluster in the sources, ignoring the arguments about where to read.
///
/// # Errors
/// Like [`explain`].
pub fn explain_sources(
    args: &ExplainArgs,
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Explanation, ExplainError> {
    let namespace = args.cluster.namespace(false).map_err(GivenError::from)?;
    let pod = AskedPod::of(args)?.in_namespace(&namespace);
    let given = Given {
        sources,
        evidence: &[],
        is_compared: false,
    };
    answer(args, &pod, &given, standard_input, progress)
}

/// Finds the sources. Standard input is read here: it can be read only once, and a source may be read again.
fn gather(
    args: &ExplainArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Gathered, ExplainError> {
    let gathered = overlay::gather(&args.cluster, &args.filename, &[], standard_input, progress);
    let mut gathered = gathered.map_err(GivenError::from)?;
    for source in &mut gathered.sources {
        let mut bytes = Vec::new();
        // What cannot be read is reported when the source is read again.
        if *source == Source::StandardInput && standard_input.read_to_end(&mut bytes).is_ok() {
            *source = Source::Buffered(bytes);
        }
    }
    Ok(gathered)
}

/// The sources of an answer.
struct Given<'a> {
    /// The cluster.
    sources: &'a [Source],
    /// Events and leases that are not among them.
    evidence: &'a [Source],
    /// Whether the node of a pod is to be compared with others, with volumes to choose from.
    is_compared: bool,
}

fn answer(
    args: &ExplainArgs,
    pod: &PodName,
    given: &Given<'_>,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Explanation, ExplainError> {
    let configuration = args.decisions.read().map_err(GivenError::from)?;
    let stage = Stage {
        sources: given.sources,
        configuration: &configuration,
        is_configured: args.decisions.config.is_some(),
        controller: args.controller,
    };
    let mut remarks: Vec<String> = configuration.files_warning().into_iter().collect();
    let all = [given.sources, given.evidence].concat();
    let mut question = match Question::read(pod, &all, standard_input, progress) {
        // On a cluster, the workloads have already created their pods.
        Err(ExplainError::NoPod { pod: name, hint }) if !args.filename.is_empty() => {
            match made::by_workload(pod, &stage, progress)? {
                Made::Pod(question, remark) => {
                    remarks.push(remark);
                    *question
                }
                Made::Not(more) => {
                    let hint = [hint, more].into_iter().filter(|words| !words.is_empty());
                    let hint = hint.collect::<Vec<_>>().join("; ");
                    return Err(ExplainError::NoPod { pod: name, hint });
                }
            }
        }
        read => read?,
    };
    let summary = question.summary.to_string();
    if !summary.is_empty() {
        remarks.push(summary);
    }
    remarks.extend(question.summary.gaps.told());
    stage.settle(&mut question);
    let has_node = !question.pod.spec.node_name.is_empty();
    remarks.extend(as_if_new(&mut question.pod));
    let profile = match &args.decisions.config {
        Some(_) => configuration.profile_for(&question.pod).map_err(GivenError::from)?,
        // Without a configuration, Berth's defaults apply to any scheduler name.
        None => &configuration.profiles[0],
    };
    set_clock(&mut question.world, question.summary.taken_at);
    question
        .world
        .cluster
        .set_gates(configuration.settings().volume_gates());
    let mut report = match given.is_compared && has_node {
        true => {
            let (report, remark) = compare(&mut question, &profile.profile);
            remarks.extend(remark);
            report
        }
        false => explain_pod(&mut question.world, &question.pod, &profile.profile),
    };
    stage.take_turns(&mut question, &report);
    report.waiting = Some(waiting::why(&question.world, &question.pod, &report));
    Ok(Explanation { report, remarks })
}

/// Explains a pod that has a node as if it had none, and its volumes were to be chosen again.
fn compare(question: &mut Question, profile: &Profile) -> (Report, Option<String>) {
    let mut pod = question.pod.clone();
    pod.spec.node_name.clear();
    let unbound = Unbound::of(&mut question.world, &pod);
    let report = explain_pod(&mut question.world, &pod, profile);
    let remark = unbound.remark();
    unbound.undo(&mut question.world);
    (report, remark)
}

/// Sets the time. Only snapshots contain it: for other files all commands use the same fixed time, and waiting times are derived
/// from the content of the files.
fn set_clock(world: &mut World, taken_at: Option<Timestamp>) {
    world.cluster.set_now(taken_at.unwrap_or(START).as_second());
    world.now = taken_at.or_else(|| world.evidence.latest());
}

/// Explains a pod that is not in the cluster itself.
#[must_use]
pub fn explain_pod(world: &mut World, pod: &api::Pod, profile: &Profile) -> Report {
    let adapted = profile.adapt(pod);
    let cluster = &mut world.cluster;
    let compiled = cluster.compile(&adapted);
    let volumes = PodVolumes::new(cluster.symbols_mut(), &adapted);
    let examination = examine(cluster, &compiled, profile);
    let asker = Asker {
        cluster,
        objects: &world.objects,
        asked: &adapted,
        neighbours: Neighbours::new(&world.objects, &adapted),
        pod: &compiled,
        profile,
        volumes: examination.states.iter().find_map(|state| match state {
            FilterState::VolumeBinding(state) => Some(state),
            _ => None,
        }),
    };
    let mut report = Report {
        pod: pod.metadata.full_name(),
        schedulable: examination.nodes.iter().any(|node| node.fits),
        pre_filter: examination
            .refused
            .iter()
            .map(|found| refusal(found, |_| Detail::Nothing))
            .collect(),
        nodes: examination.nodes.iter().map(|node| asker.node_report(node)).collect(),
        weights: profile
            .scores
            .iter()
            .map(|(plugin, weight)| (plugin.to_string(), *weight))
            .collect(),
        ..Report::default()
    };
    let by_volumes = |refusal: &framework::Refusal| refusal.plugin == PluginName::VolumeBinding;
    let refused = examination
        .nodes
        .iter()
        .filter(|node| node.refusals.iter().any(by_volumes));
    let mut refused: Vec<&NodeExamination> = refused.collect();
    // Missing storage of a node matters most if nothing else is wrong with it.
    refused.sort_by_key(|node| node.refusals.len());
    let refused: Vec<NodeId> = refused.into_iter().map(|node| node.node).collect();
    report.inline_volumes = offers::inline_report(cluster.binder(), &volumes, &refused);
    report.claims = claims::report(world, &volumes, &refused);
    let cluster = &mut world.cluster;
    report.missing = world.gaps.iter().map(str::to_owned).collect();
    if report.schedulable {
        report.message = message(&examination);
    } else {
        let own = cluster.binder().node(&pod.status.nominated_node_name);
        (report.message, report.preemption) = preemption::refusal(cluster, &compiled, profile, own);
    }
    cluster.release(&compiled);
    report.advice = advice::steps(world, pod, profile, &report);
    report
}

fn refusal(refusal: &framework::Refusal, detail: impl Fn(&Reason) -> Detail) -> Refusal {
    let found = refusal.reasons.iter().map(|reason| Found {
        reason: reason.clone(),
        detail: detail(reason),
    });
    let found: Vec<Found> = found.collect();
    Refusal {
        plugin: refusal.plugin.to_string(),
        code: refusal.code.to_string(),
        reasons: found.iter().map(|found| found.reason.to_string()).collect(),
        reason_codes: found.iter().map(|found| found.reason.code().to_owned()).collect(),
        details: found.iter().map(|found| found.detail.to_string()).collect(),
        found,
    }
}

/// Queries each node.
struct Asker<'a> {
    cluster: &'a Cluster,
    objects: &'a Objects,
    asked: &'a api::Pod,
    neighbours: Neighbours<'a>,
    pod: &'a Pod,
    profile: &'a Profile,
    volumes: Option<&'a volume_binding::State>,
}

impl Asker<'_> {
    fn node_report(&self, node: &NodeExamination) -> NodeReport {
        let detail = |reason: &Reason| match reason {
            Reason::ClaimInUse => users::holders(self.objects, self.asked),
            Reason::TooManyVolumes => {
                let pods = self.neighbours.on(&node.name);
                users::attached(self.objects, self.asked, &node.name, pods)
            }
            Reason::NodeAffinity | Reason::NotAmongNodes { .. } => self.unmet_demands(&node.name),
            reason => {
                let near = self.neighbours.detail(reason, &node.name);
                near.unwrap_or_else(|| details::detail(self.cluster, self.pod, self.profile, node.node, reason))
            }
        };
        let mut report = NodeReport {
            name: node.name.clone(),
            fits: node.fits,
            refused: node.refusals.iter().map(|found| refusal(found, detail)).collect(),
            too_small: self.too_small(node),
            ..NodeReport::default()
        };
        if node.fits {
            report.volumes = Some(self.node_volumes(node.node));
            let scores = node.scores.iter().map(|(plugin, score)| (plugin.to_string(), *score));
            report.scores = Some(scores.collect());
            report.total = node.total;
        }
        report
    }

    /// What the pod's node selector and affinity require and the node lacks.
    fn unmet_demands(&self, node: &str) -> Detail {
        let node = self.objects.nodes.get(node);
        let unmet = node.map_or_else(Vec::new, |node| demands::unmet(self.asked, node));
        match unmet.is_empty() {
            true => Detail::Nothing,
            false => Detail::Demands(unmet),
        }
    }

    fn too_small(&self, node: &NodeExamination) -> Vec<TooSmall> {
        let reasons = node.refusals.iter().flat_map(|refusal| &refusal.reasons);
        reasons
            .filter_map(|reason| details::too_small(self.cluster, self.pod, node.node, reason))
            .collect()
    }

    fn node_volumes(&self, node: NodeId) -> NodeVolumes {
        let volumes = self.volumes.and_then(|state| state.on_node(self.cluster, node).ok());
        let (existing, provision) = volumes
            .as_ref()
            .map_or_else(Default::default, |volumes| self.cluster.binder().describe(volumes));
        let existing = existing
            .into_iter()
            .map(|(claim, volume)| (claim.to_owned(), volume.to_owned()));
        NodeVolumes {
            existing: existing.collect(),
            provision: provision.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// One line about a pod that fits, in the format of kube-scheduler's message for one that does not: each refused node
/// counts for the reasons of the first plugin that refuses it.
fn message(examination: &Examination) -> String {
    let all = examination.nodes.len();
    let fitting = examination.nodes.iter().filter(|node| node.fits).count();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for node in examination.nodes.iter().filter(|node| !node.fits) {
        for reason in node.refusals.first().into_iter().flat_map(|refusal| &refusal.reasons) {
            *counts.entry(reason.to_string()).or_default() += 1;
        }
    }
    let mut reasons: Vec<String> = counts
        .into_iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    reasons.sort_unstable();
    match reasons.as_slice() {
        [] => format!("{fitting}/{all} nodes are available."),
        reasons => format!("{fitting}/{all} nodes are available: {}.", reasons.join(", ")),
    }
}
