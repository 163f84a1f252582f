//! Extenders: services that take part in decisions over HTTP, as in kube-scheduler.
//!
//! ```text
//!   filters ──nodes that fit──▶ consultation ──calls──▶ extenders
//!                                                          │
//!        placed ◀── filters again, scores ◀── advice ◀─────┘
//! ```
//!
//! Nothing is sent here. A scheduler returns a [`Consultation`]; its caller makes the calls of a [`Round`] one after the other, and hands
//! the resulting [`Advice`] back. The cluster may have changed by then: the pod is decided again, on the nodes that the extenders left.

mod round;

pub use round::{Answer, Call, Request, Round};

use crate::framework::Refusal;
use crate::scheduler::PodRef;
use berth_core::api;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit of a call if the configuration has none, as in kube-scheduler.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// An extender, as a configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    /// Its address, for example `http://127.0.0.1:8888/scheduler`.
    pub url_prefix: String,
    /// The last part of the path for filtering; empty if it does not filter.
    pub filter_verb: String,
    /// The last part of the path for scoring; empty if it does not score.
    pub prioritize_verb: String,
    /// The last part of the path for binding; empty if it does not bind.
    pub bind_verb: String,
    /// The last part of the path for preemption; empty if it has no say in it.
    pub preempt_verb: String,
    /// The weight of its scores.
    pub weight: i64,
    /// The time limit of a call.
    pub timeout: Duration,
    /// It knows the nodes itself: only their names are sent.
    pub node_cache_capable: bool,
    /// It is asked only about pods that request one of these; about all if empty.
    pub managed_resources: BTreeSet<String>,
    /// If it fails, decisions are made without it.
    pub ignorable: bool,
    /// How it is reached over TLS.
    pub tls: Tls,
}

impl Default for Extender {
    fn default() -> Self {
        Self {
            url_prefix: String::new(),
            filter_verb: String::new(),
            prioritize_verb: String::new(),
            bind_verb: String::new(),
            preempt_verb: String::new(),
            weight: 1,
            timeout: DEFAULT_TIMEOUT,
            node_cache_capable: false,
            managed_resources: BTreeSet::new(),
            ignorable: false,
            tls: Tls::default(),
        }
    }
}

/// How an extender is reached over TLS. Certificates and keys are PEM text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Accept any certificate.
    pub insecure: bool,
    /// The name that its certificate must have, if not that of the address.
    pub server_name: Option<String>,
    /// The certificates of authorities that it is checked with.
    pub authorities: Option<Vec<u8>>,
    /// The certificate to show, and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Extender {
    /// Whether it is concerned with a pod: the pod requests a resource that it manages, or it manages none in particular.
    #[must_use]
    pub fn is_interested(&self, pod: &api::Pod) -> bool {
        let manages = |name: &str| self.managed_resources.contains(name);
        let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        let mut resources = containers.map(|container| &container.resources);
        self.managed_resources.is_empty()
            || resources.any(|resources| {
                let mut names = resources.requests.keys().chain(resources.limits.keys());
                names.any(|name| manages(name))
            })
    }

    /// Whether nodes are chosen with it.
    #[must_use]
    pub fn chooses(&self) -> bool {
        !self.filter_verb.is_empty() || !self.prioritize_verb.is_empty()
    }

    /// Whether it binds pods.
    #[must_use]
    pub fn binds(&self) -> bool {
        !self.bind_verb.is_empty()
    }

    /// Whether victims are chosen with it.
    #[must_use]
    pub fn preempts(&self) -> bool {
        !self.preempt_verb.is_empty()
    }
}

/// The ID of a consultation, to hand the advice back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsultationId(pub u64);

/// What extenders are asked about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consultation {
    /// For the advice.
    pub id: ConsultationId,
    /// The pod.
    pub pod: PodRef,
    /// The extenders to ask, in order, as places in the list of the configuration.
    pub extenders: Vec<usize>,
    /// The question.
    pub matter: Matter,
}

/// What extenders are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matter {
    /// Which of these nodes the pod can have, and how good they are.
    Nodes(Vec<String>),
    /// Which of these nodes can be freed for the pod, by the eviction of which pods.
    Victims(Vec<NodeVictims>),
}

/// The pods to evict from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVictims {
    /// The node.
    pub node: String,
    /// The pods.
    pub pods: Vec<PodRef>,
    /// How many of them violate their disruption budgets.
    pub violations: i64,
}

/// What the extenders say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// About the nodes of a pod.
    Nodes {
        /// The remaining ones, with what is added to their scores.
        left: Vec<(String, i64)>,
        /// Those that were refused with a reason.
        failed: Vec<FailedNode>,
    },
    /// The remaining nodes that can be freed.
    Victims(Vec<NodeVictims>),
    /// An extender that matters failed.
    Failed(String),
}

/// A node that an extender refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedNode {
    /// The node.
    pub node: String,
    /// Why.
    pub message: String,
    /// Whether evicting pods could help.
    pub resolvable: bool,
}

/// Advice about the nodes of a pod, as a decision reads it.
#[derive(Clone, Debug)]
pub(crate) struct NodeAdvice {
    /// The only nodes that count.
    pub(crate) left: NodeMask,
    /// What is added to their scores.
    pub(crate) scores: FxHashMap<NodeId, i64>,
    /// The reasons of the others.
    pub(crate) refused: Vec<(NodeId, Refusal)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_core::api::Object;
    use serde_json::json;

    fn pod(resources: &serde_json::Value) -> api::Pod {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "first", "resources": resources}]}});
        match Object::decode(&object) {
            Ok(Some(Object::Pod(pod))) => *pod,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_extender_is_asked_about_pods_with_its_resources() {
        let any = Extender::default();
        let gpus = Extender {
            managed_resources: ["example.com/gpu".to_owned()].into(),
            ..Extender::default()
        };
        let plain = pod(&json!({"requests": {"cpu": "1"}}));
        assert!(any.is_interested(&plain));
        assert!(!gpus.is_interested(&plain));
        for list in ["requests", "limits"] {
            assert!(
                gpus.is_interested(&pod(&json!({list: {"example.com/gpu": "1"}}))),
                "{list}"
            );
        }
    }
}
