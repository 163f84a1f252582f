//! Reads the cluster of a simulation from files or from a cluster.

use super::scenario::{self, ScenarioError};
use crate::cli::SimulateArgs;
use crate::cluster::WORKLOADS;
use crate::config::{ConfigArgs, EmbeddedControllerArgs};
use crate::given::GivenError;
use crate::input::{self, Progress, Source, Summary};
use crate::overlay;
use berth_cluster::agent::Mode;
use berth_cluster::field;
use berth_cluster::names::AGENT_MODE;
use berth_cluster::simulation::scenario::Scenario;
use berth_cluster::simulation::{Options, START, Simulation};
use berth_cluster::workloads::KINDS;
use berth_kinds::Kind;
use berth_kinds::admission::Lookup;
use berth_kinds::kinds::priority_class;
use berth_scheduler::profile::Profile;
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// Why there is nothing to simulate.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The input is invalid.
    #[error(transparent)]
    Given(#[from] GivenError),
    /// The input contains nothing to simulate.
    #[error(
        "there is nothing to simulate: no object was read that a simulation uses{skipped}; expected nodes, storage, pods, \
         or workloads that make pods"
    )]
    Nothing {
        /// What it contains instead.
        skipped: String,
    },
    /// There is only one cluster.
    #[error("--diff has nothing to compare; add --overlay FILE, or -f FILE --on-cluster")]
    NothingToCompare,
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A simulation that is ready to run.
#[derive(Debug)]
pub struct Loaded {
    /// The cluster.
    pub simulation: Simulation,
    /// The cluster without the files on top of it, if both are to be compared.
    pub before: Option<Simulation>,
    /// The scenario to play.
    pub scenario: Option<Scenario>,
    /// A summary of the input.
    pub summary: Summary,
}

/// Reads the objects and creates a simulation of them.
///
/// # Errors
/// If the input, the configuration or the arguments are invalid.
pub fn load(
    args: &SimulateArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Loaded, LoadError> {
    let scenario = args.scenario.as_deref().map(scenario::read_file).transpose()?;
    let read = overlay::gather(&args.cluster, &args.filename, &WORKLOADS, standard_input, progress);
    let read = read.map_err(GivenError::from)?;
    let before = match (args.diff, &read.below) {
        (false, _) => None,
        (true, None) => return Err(LoadError::NothingToCompare),
        (true, Some(below)) => Some(set_up(args, None, below, standard_input, progress)?.simulation),
    };
    let mut loaded = set_up(args, scenario, &read.sources, standard_input, progress)?;
    loaded.summary.add(read.summary);
    loaded.before = before;
    Ok(loaded)
}

/// Creates a simulation of the objects in sources.
fn set_up(
    args: &SimulateArgs,
    scenario: Option<Scenario>,
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Loaded, LoadError> {
    let how = How {
        seed: args.seed,
        decisions: &args.decisions,
        controller: &args.controller,
    };
    let applied: Vec<&Value> = scenario.iter().flat_map(Scenario::objects).collect();
    let prepared = prepare(&how, &applied, sources, standard_input, progress)?;
    let mut simulation = Simulation::new(prepared.options);
    let loaded = simulation.load(prepared.objects);
    loaded.map_err(GivenError::from)?;
    Ok(Loaded {
        simulation,
        before: None,
        scenario,
        summary: prepared.summary,
    })
}

/// The settings of simulations.
pub(crate) struct How<'a> {
    /// Random seed for ties and pod names.
    pub(crate) seed: u64,
    /// The configuration of decisions.
    pub(crate) decisions: &'a ConfigArgs,
    /// The settings of the volume controller.
    pub(crate) controller: &'a EmbeddedControllerArgs,
}

/// The input of simulations.
pub(crate) struct Prepared {
    /// The objects, and priority classes inferred from pods.
    pub(crate) objects: Vec<Value>,
    /// The options.
    pub(crate) options: Options,
    /// A summary of the input.
    pub(crate) summary: Summary,
}

/// Reads the objects of sources and the simulation settings. Pods that are added later, for example by a scenario, may have
/// scheduler names too.
pub(crate) fn prepare(
    how: &How<'_>,
    later: &[&Value],
    sources: &[Source],
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Prepared, LoadError> {
    let configuration = how.decisions.read().map_err(GivenError::from)?;
    let mut settings = configuration.settings();
    let mut objects = Vec::new();
    let mut summary = input::read_values(sources, standard_input, progress, &mut |value| {
        objects.push(value);
    })
    .map_err(GivenError::from)?;
    summary.warnings.extend(configuration.files_warning());
    summary.warnings.extend(odd_agents(&objects));
    if objects.is_empty() {
        let skipped = match summary.to_string() {
            skipped if skipped.is_empty() => skipped,
            skipped => format!(" ({skipped})"),
        };
        return Err(LoadError::Nothing { skipped });
    }
    objects.extend(learned_classes(&objects)?);
    if how.decisions.config.is_none() {
        let all = objects.iter().chain(later.iter().copied());
        summary.warnings.extend(serve_all(&mut settings.profiles, all));
    }
    let options = Options {
        seed: how.seed,
        settings,
        controller: how.controller.settings(),
        start: summary.taken_at.unwrap_or(START),
    };
    Ok(Prepared {
        objects,
        options,
        summary,
    })
}

/// The pod spec of a pod or workload.
fn pod_spec(object: &Value) -> Option<&Value> {
    match field::kind(object) {
        "Pod" => object.get("spec"),
        kind if KINDS.contains(&kind) => object.pointer("/spec/template/spec"),
        _ => None,
    }
}

/// Nodes whose annotation requests an unknown agent mode.
fn odd_agents(objects: &[Value]) -> impl Iterator<Item = String> + '_ {
    let nodes = objects.iter().filter(|object| field::kind(object) == "Node");
    nodes.filter(|node| Mode::of_node(node).is_none()).map(|node| {
        format!(
            "warning: Node {:?}: annotation {AGENT_MODE}: found {:?}, expected run, cordon, refuse or stop; its agent runs as usual",
            field::name(node),
            field::annotation(node, AGENT_MODE).unwrap_or_default()
        )
    })
}

/// Without a configuration, Berth's defaults apply to any scheduler name. Reports it, if pods use another one.
pub(crate) fn serve_all<'a>(
    profiles: &mut BTreeMap<String, Profile>,
    objects: impl Iterator<Item = &'a Value>,
) -> Option<String> {
    let profile = profiles.get(DEFAULT_SCHEDULER_NAME)?.clone();
    let specs = objects.filter_map(pod_spec);
    let wanted: BTreeSet<&str> = specs.map(|spec| field::text(spec, "/schedulerName")).collect();
    let others = wanted
        .into_iter()
        .filter(|name| !matches!(*name, "" | DEFAULT_SCHEDULER_NAME));
    let others: Vec<&str> = others.collect();
    if others.is_empty() {
        return None;
    }
    profiles.extend(others.iter().map(|name| ((*name).to_owned(), profile.clone())));
    Some(format!(
        "pods of scheduler {} are placed with Berth's defaults; use --config to set their profiles",
        others.join(", ")
    ))
}

/// The missing priority classes that can be inferred from pods of a running cluster: workloads only refer to them.
///
/// # Errors
/// If a pod or workload refers to an unknown class.
pub(crate) fn learned_classes(objects: &[Value]) -> Result<Vec<Value>, GivenError> {
    let mut known = Learned::default();
    let kinds = |kind: &'static str| objects.iter().filter(move |object| field::kind(object) == kind);
    for class in kinds("PriorityClass") {
        known.classes.insert(field::name(class).to_owned());
    }
    for pod in kinds("Pod") {
        known.learn(pod);
    }
    for object in objects {
        let Some(spec) = pod_spec(object).filter(|spec| spec["priority"].is_null()) else {
            continue;
        };
        let name = field::text(spec, "/priorityClassName");
        if !known.classes.contains(name) {
            priority_class::priority(&known, name).map_err(|why| GivenError::Priority {
                kind: field::kind(object).to_owned(),
                name: format!("{}/{}", field::namespace(object), field::name(object)),
                why,
            })?;
        }
    }
    Ok(known.objects.into_values().collect())
}

/// Classes inferred from pods.
#[derive(Default)]
struct Learned {
    classes: BTreeSet<String>,
    objects: BTreeMap<String, Value>,
}

impl Learned {
    fn learn(&mut self, pod: &Value) {
        let (name, value) = (field::text(pod, "/spec/priorityClassName"), &pod["spec"]["priority"]);
        if name.is_empty() || value.is_null() || self.classes.contains(name) {
            return;
        }
        self.objects.entry(name.to_owned()).or_insert_with(|| {
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "preemptionPolicy": pod["spec"]["preemptionPolicy"]})
        });
    }
}

impl Lookup for Learned {
    fn get(&self, _: &Kind, _: &str, name: &str) -> Option<Cow<'_, Value>> {
        self.objects.get(name).map(Cow::Borrowed)
    }

    fn all<'a>(&'a self, _: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        Box::new(std::iter::empty())
    }
}
