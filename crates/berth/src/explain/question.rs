//! The question: the cluster from the files, and the pod.

use super::evidence::Evidence;
use super::played::{Played, is_manifest};
use super::{ExplainError, World, layout};
use crate::cli::ExplainArgs;
use crate::given::GivenError;
use crate::input::{self, Progress, Source, Summary};
use berth_core::api::{self, Object};
use berth_kinds::admission::{Admission, Lookup};
use berth_kinds::error::Refusal;
use berth_kinds::kinds::{limit_range, pod, priority_class, runtime_class};
use berth_kinds::{Kind, meta};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;

/// Maximum number of similar names listed for a missing pod.
const NEAR_MATCHES: usize = 3;
/// Minimum similarity of names, from 0 to 1.
const NEAR_ENOUGH: f64 = 0.75;

/// The pod in question, as specified in the arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AskedPod {
    namespace: Option<String>,
    name: String,
}

/// Full name of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodName {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The subject of the question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A pod.
    Pod(AskedPod),
    /// All waiting pods; only those of one namespace if specified.
    Waiting,
    /// The pods of a workload, by its kind.
    Workload(&'static str, String),
    /// A claim.
    Claim(String),
    /// A volume.
    Volume(String),
    /// A node.
    Node(String),
}

impl Asked {
    /// Accepts what kubectl accepts: `KIND/NAME`, `KIND NAME`, or the name of a pod. Nothing means all waiting pods.
    pub(super) fn of(args: &ExplainArgs) -> Result<Self, ExplainError> {
        let words: Vec<&str> = args.target.iter().flat_map(|word| word.split('/')).collect();
        if args.pod.is_none() && words.is_empty() {
            return Ok(Self::Waiting);
        }
        let [kind, name] = words.as_slice() else {
            return AskedPod::of(args).map(Self::Pod);
        };
        let name = (*name).to_owned();
        if name.is_empty() {
            return Err(ExplainError::NotExplained(args.target.join(" ")));
        }
        Ok(match *kind {
            "pod" | "pods" | "po" => Self::Pod(AskedPod::of(args)?),
            "deploy" | "deployment" | "deployments" => Self::Workload("Deployment", name),
            "sts" | "statefulset" | "statefulsets" => Self::Workload("StatefulSet", name),
            "ds" | "daemonset" | "daemonsets" => Self::Workload("DaemonSet", name),
            "rs" | "replicaset" | "replicasets" => Self::Workload("ReplicaSet", name),
            "job" | "jobs" => Self::Workload("Job", name),
            "pvc" | "persistentvolumeclaim" | "persistentvolumeclaims" => Self::Claim(name),
            "pv" | "persistentvolume" | "persistentvolumes" => Self::Volume(name),
            "no" | "node" | "nodes" => Self::Node(name),
            _ => return Err(ExplainError::NotExplained(args.target.join(" "))),
        })
    }
}

impl AskedPod {
    /// Accepts `--pod [NAMESPACE/]NAME`, or what kubectl accepts: `pod/NAME`, `pod NAME` or `NAME`.
    pub(super) fn of(args: &ExplainArgs) -> Result<Self, ExplainError> {
        if let Some(pod) = &args.pod {
            let (namespace, name) = match pod.split_once('/') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, pod.as_str()),
            };
            return Self::new(namespace, name).ok_or_else(|| ExplainError::PodName(pod.clone()));
        }
        let words: Vec<&str> = args.target.iter().flat_map(|word| word.split('/')).collect();
        let named = match words.as_slice() {
            [name] => Self::new(None, name),
            ["pod" | "pods" | "po", name] => Self::new(None, name),
            _ => None,
        };
        named.ok_or_else(|| ExplainError::NotExplained(args.target.join(" ")))
    }

    fn new(namespace: Option<&str>, name: &str) -> Option<Self> {
        let good = |word: &str| !word.is_empty() && !word.contains('/');
        (good(name) && namespace.is_none_or(good)).then(|| Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// The pod's full name, in this namespace unless it specifies one.
    pub(super) fn in_namespace(self, namespace: &str) -> PodName {
        PodName {
            namespace: self.namespace.unwrap_or_else(|| namespace.to_owned()),
            name: self.name,
        }
    }
}

/// A cluster that was read, and the pod in question.
pub(super) struct Question {
    pub(super) world: World,
    pub(super) pod: api::Pod,
    pub(super) summary: Summary,
    /// Some of it is not stored in any API server.
    pub(super) has_manifests: bool,
    /// The cluster in memory, if the pod was taken from there.
    pub(super) played: Option<Played>,
}

impl Question {
    /// Reads the input, and separates the pod from the rest.
    pub(super) fn read(
        pod: &PodName,
        sources: &[Source],
        standard_input: &mut dyn Read,
        progress: &mut dyn Progress,
    ) -> Result<Self, ExplainError> {
        let PodName { namespace, name } = pod;
        let Reading {
            world,
            found,
            surroundings,
            summary,
            has_manifests,
        } = Reading::read(Some(pod), sources, standard_input, progress)?;
        match found {
            Some(pod) => {
                let (kind, name) = ("Pod".to_owned(), pod.metadata.full_name());
                let admitted = surroundings.admit(&pod).map_err(|why| match why {
                    Refusal::UnknownPriorityClass { .. } | Refusal::OtherPriority { .. } => {
                        GivenError::Priority { kind, name, why }
                    }
                    why => GivenError::Refused { kind, name, why },
                })?;
                let pod = admitted.unwrap_or(pod);
                Ok(Self {
                    world,
                    pod,
                    summary,
                    has_manifests,
                    played: None,
                })
            }
            None => Err(ExplainError::NoPod {
                hint: near_matches(namespace, name, &world.objects.pods.keys().cloned().collect::<Vec<_>>()),
                pod: format!("{namespace}/{name}"),
            }),
        }
    }
}

/// An input that was read.
pub(super) struct Reading {
    /// Everything except the separated pod.
    pub(super) world: World,
    /// That pod.
    found: Option<api::Pod>,
    surroundings: Surroundings,
    pub(super) summary: Summary,
    /// Some of it is not stored in any API server.
    pub(super) has_manifests: bool,
}

impl Reading {
    /// Reads the input, and separates a pod from the rest, if specified.
    pub(super) fn read(
        apart: Option<&PodName>,
        sources: &[Source],
        standard_input: &mut dyn Read,
        progress: &mut dyn Progress,
    ) -> Result<Self, ExplainError> {
        let mut world = World::default();
        let mut found = None;
        let mut unranked = Vec::new();
        let mut classes = Classes::default();
        let mut others = Others::default();
        let mut evidence = Evidence::default();
        let mut has_manifests = false;
        let is_apart = |pod: &api::Pod| {
            apart.is_some_and(|apart| pod.metadata.name == apart.name && pod.metadata.namespace == apart.namespace)
        };
        let mut sink = |object| match object {
            Object::Pod(pod) if is_apart(&pod) => {
                classes.learn(&pod);
                found = Some(*pod);
            }
            Object::Pod(pod) => {
                classes.learn(&pod);
                // Its priority class may follow later.
                if pod.spec.priority.is_none() {
                    unranked.push(pod);
                } else {
                    world.upsert(Object::Pod(pod));
                }
            }
            object => {
                if let Object::PriorityClass(class) = &object {
                    classes.add(class);
                }
                world.upsert(object);
            }
        };
        let read = input::read_with(sources, standard_input, progress, &mut sink, &mut |other| {
            has_manifests |= is_manifest(other);
            evidence.take(other) || others.take(other)
        });
        let summary = read.map_err(GivenError::from)?;
        evidence.listed = summary.listed.clone();
        world.evidence = evidence;
        let surroundings = Surroundings { classes, others };
        for pod in unranked {
            // The question is not about a pod that an API server would refuse; it gets the lowest priority.
            let admitted = surroundings.admit(&pod).ok().flatten();
            world.upsert(Object::Pod(admitted.map_or(pod, Box::new)));
        }
        world.gaps = summary.gaps.clone();
        Ok(Self {
            world,
            found,
            surroundings,
            summary,
            has_manifests,
        })
    }
}

/// What an API server reads when it admits a pod.
struct Surroundings {
    classes: Classes,
    others: Others,
}

impl Surroundings {
    /// The pod as an API server would store it: with the priority of its class, the defaults of its namespace and the overhead of
    /// its runtime. `None` if it was admitted before, which shows in that it has a priority.
    fn admit(&self, pod: &api::Pod) -> Result<Option<api::Pod>, Refusal> {
        let Some(written) = self.others.pods.get(&pod.metadata.full_name()) else {
            return Ok(None);
        };
        let mut object = written.clone();
        let admission = Admission {
            restores: true,
            ..Admission::new(self, Timestamp::UNIX_EPOCH)
        };
        pod::provide(&admission, &mut object)?;
        Ok(match Object::decode(&object) {
            Ok(Some(Object::Pod(admitted))) => Some(*admitted),
            // Admission fills in nothing that cannot be decoded.
            _ => None,
        })
    }
}

impl Lookup for Surroundings {
    fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Cow<'_, Value>> {
        if kind.name == priority_class::KIND.name {
            return self.classes.get(name);
        }
        let mut found = self.others.of(kind.name);
        let is_it = |object: &&Value| meta::name(object) == name && meta::namespace(object) == namespace;
        found.find(is_it).map(Cow::Borrowed)
    }

    fn all<'a>(&'a self, kind: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        if kind.name == priority_class::KIND.name {
            return Box::new(self.classes.by_name.values().map(Cow::Borrowed));
        }
        Box::new(self.others.of(kind.name).map(Cow::Borrowed))
    }
}

/// Limit ranges and runtime classes of the input, and the pods that no API server has admitted, unmodified.
#[derive(Default)]
struct Others {
    objects: Vec<Value>,
    pods: BTreeMap<String, Value>,
}

impl Others {
    /// Adds an object. Returns `false` if decisions read it too.
    fn take(&mut self, object: &Value) -> bool {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind == pod::KIND.name {
            if object["spec"]["priority"].is_null() {
                let pod = input::in_some_namespace(object);
                self.pods
                    .insert(meta::key(meta::namespace(&pod), meta::name(&pod)), pod);
            }
            return false;
        }
        let is_other = [limit_range::KIND, runtime_class::KIND]
            .iter()
            .any(|other| other.name == kind);
        if is_other {
            self.objects.push(input::in_some_namespace(object));
        }
        is_other
    }

    fn of(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }
}

/// The priority classes of the input. A pod from an API server has its priority; one from a manifest only refers to the
/// class.
#[derive(Default)]
struct Classes {
    by_name: BTreeMap<String, Value>,
    /// Classes that are not in the input, inferred from pods.
    learned: BTreeMap<String, Value>,
}

impl Classes {
    fn add(&mut self, class: &api::PriorityClass) {
        let name = &class.metadata.name;
        let object = json!({"metadata": {"name": name}, "value": class.value, "globalDefault": class.global_default,
            "preemptionPolicy": class.preemption_policy});
        self.by_name.insert(name.clone(), object);
    }

    fn learn(&mut self, pod: &api::Pod) {
        let name = &pod.spec.priority_class_name;
        if let Some(value) = pod.spec.priority.filter(|_| !name.is_empty()) {
            let learned = json!({"metadata": {"name": name}, "value": value,
                "preemptionPolicy": pod.spec.preemption_policy});
            self.learned.entry(name.clone()).or_insert(learned);
        }
    }

    fn get(&self, name: &str) -> Option<Cow<'_, Value>> {
        let found = self.by_name.get(name).or_else(|| self.learned.get(name));
        found.map(Cow::Borrowed)
    }
}

/// Pods with names similar to the missing one.
fn near_matches(namespace: &str, name: &str, pods: &[String]) -> String {
    if pods.is_empty() {
        return "it contains no pods".to_owned();
    }
    let wanted = format!("{namespace}/{name}");
    let mut near: Vec<(f64, &String)> = pods
        .iter()
        .map(|pod| {
            let own_name = pod.split_once('/').map_or("", |(_, name)| name);
            let alike = if own_name == name {
                1.0
            } else {
                strsim::jaro_winkler(&wanted, pod)
            };
            (alike, pod)
        })
        .filter(|(alike, _)| *alike >= NEAR_ENOUGH)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let near: Vec<&str> = near
        .into_iter()
        .take(NEAR_MATCHES)
        .map(|(_, pod)| pod.as_str())
        .collect();
    match near.as_slice() {
        [] => format!(
            "it contains {}, none with a similar name",
            layout::count(pods.len(), "other pod", "other pods")
        ),
        near => format!("did you mean {}?", near.join(" or ")),
    }
}

/// A running pod is explained as if it were to be scheduled again.
pub(super) fn as_if_new(pod: &mut api::Pod) -> Option<String> {
    let runs = !matches!(pod.status.phase.as_str(), "" | "Pending");
    if !runs || pod.spec.node_name.is_empty() {
        return None;
    }
    let node = std::mem::take(&mut pod.spec.node_name);
    let name = pod.metadata.full_name();
    Some(format!(
        "pod {name} runs on node {node}; explained as if it were to be scheduled again"
    ))
}
