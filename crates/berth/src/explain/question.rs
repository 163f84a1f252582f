//! What is asked: the cluster as the files have it, and the pod.

use super::{ExplainError, layout};
use crate::cli::ExplainArgs;
use crate::input::{self, Progress, Source, Summary};
use berth_core::api::{self, Object};
use berth_scheduler::cluster::Cluster;
use std::collections::BTreeMap;
use std::io::Read;

/// How many near matches are named for a pod that is not there.
const NEAR_MATCHES: usize = 3;
/// How alike names must be to be named, from 0 to 1.
const NEAR_ENOUGH: f64 = 0.75;

/// The pod that is asked about, as the arguments name it.
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

impl AskedPod {
    /// Takes `--pod [NAMESPACE/]NAME`, or what kubectl takes: `pod/NAME`, `pod NAME` or `NAME`.
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
        named.ok_or_else(|| ExplainError::NotPod(args.target.join(" ")))
    }

    fn new(namespace: Option<&str>, name: &str) -> Option<Self> {
        let good = |word: &str| !word.is_empty() && !word.contains('/');
        (good(name) && namespace.is_none_or(good)).then(|| Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// The pod's full name, in this namespace unless it names one itself.
    pub(super) fn in_namespace(self, namespace: &str) -> PodName {
        PodName {
            namespace: self.namespace.unwrap_or_else(|| namespace.to_owned()),
            name: self.name,
        }
    }
}

/// A cluster as it was read, and the pod that is asked about.
pub(super) struct Question {
    pub(super) cluster: Cluster,
    pub(super) pod: api::Pod,
    pub(super) summary: Summary,
}

impl Question {
    /// Reads the input, and sets the pod apart from the rest.
    pub(super) fn read(
        pod: &PodName,
        sources: &[Source],
        standard_input: &mut dyn Read,
        progress: &mut dyn Progress,
    ) -> Result<Self, ExplainError> {
        let PodName { namespace, name } = pod;
        let mut cluster = Cluster::default();
        let mut found = None;
        let mut others = Vec::new();
        let mut priorities = Priorities::default();
        let summary = input::read(sources, standard_input, progress, &mut |object| match object {
            Object::Pod(pod) if pod.metadata.name == *name && pod.metadata.namespace == *namespace => {
                found = Some(*pod);
            }
            object => {
                match &object {
                    Object::Pod(pod) => others.push(pod.metadata.full_name()),
                    Object::PriorityClass(class) => priorities.add(class),
                    _ => {}
                }
                cluster.upsert(&object);
            }
        })?;
        match found {
            Some(mut pod) => {
                priorities.resolve(&mut pod);
                Ok(Self { cluster, pod, summary })
            }
            None => Err(ExplainError::NoPod {
                hint: near_matches(namespace, name, &others),
                pod: format!("{namespace}/{name}"),
            }),
        }
    }
}

/// The priority classes. A pod from an API server has its priority; one from a manifest only names the class.
#[derive(Default)]
struct Priorities {
    by_name: BTreeMap<String, api::PriorityClass>,
    default: Option<String>,
}

impl Priorities {
    fn add(&mut self, class: &api::PriorityClass) {
        let name = &class.metadata.name;
        if class.global_default {
            self.default = Some(name.clone());
        }
        self.by_name.insert(name.clone(), class.clone());
    }

    fn resolve(&self, pod: &mut api::Pod) {
        let spec = &mut pod.spec;
        let named = Some(&spec.priority_class_name).filter(|name| !name.is_empty());
        let class = named.or(self.default.as_ref()).and_then(|name| self.by_name.get(name));
        if let (None, Some(class)) = (spec.priority, class) {
            spec.priority = Some(class.value);
            spec.preemption_policy = spec
                .preemption_policy
                .take()
                .or_else(|| class.preemption_policy.clone());
        }
    }
}

/// Pods whose names are like the one that is not there.
fn near_matches(namespace: &str, name: &str, pods: &[String]) -> String {
    if pods.is_empty() {
        return "there is no pod in it at all".to_owned();
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
            "it holds {}, none with a name like that",
            layout::count(pods.len(), "other pod", "other pods")
        ),
        near => format!("did you mean {}?", near.join(" or ")),
    }
}

/// A pod that runs is explained as if it were to be placed anew.
pub(super) fn as_if_new(pod: &mut api::Pod) -> Option<String> {
    let runs = !matches!(pod.status.phase.as_str(), "" | "Pending");
    if !runs || pod.spec.node_name.is_empty() {
        return None;
    }
    let node = std::mem::take(&mut pod.spec.node_name);
    let name = pod.metadata.full_name();
    Some(format!(
        "pod {name} has node {node}; it is explained as if it were to be placed anew"
    ))
}

/// A pod with scheduling gates waits for them to be taken away before anything is decided.
pub(super) fn held_back(pod: &api::Pod) -> Option<String> {
    let gates: Vec<&str> = pod
        .spec
        .scheduling_gates
        .iter()
        .map(|gate| gate.name.as_str())
        .collect();
    if gates.is_empty() {
        return None;
    }
    let name = pod.metadata.full_name();
    let gates = gates.join(", ");
    Some(format!(
        "pod {name} is held back by its scheduling gates ({gates}); it is explained as if they were gone"
    ))
}
