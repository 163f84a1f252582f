//! Calls extenders over HTTP. What is asked and what follows from the answers is decided by [`berth_scheduler::extender`].
//!
//! Extenders get whole objects, which the scheduler does not keep: they are read from the API server for each consultation.

pub mod wire;

use crate::api::Api;
use crate::connect;
use crate::resource::Resource;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use berth_core::api::Kind;
use berth_scheduler::extender::{
    Advice, Answer, Call, Consultation, ConsultationId, Extender, Matter, Request, Round, Tls,
};
use berth_scheduler::scheduler::{PodRef, WriteOutcome};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// Maximum size of an answer: more than all nodes of the largest clusters.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The extenders of a scheduler.
#[derive(Clone)]
pub(super) struct Extenders {
    list: Arc<[Extender]>,
    /// A client for each, or why there is none.
    clients: Arc<[Result<kube::Client, String>]>,
    api: Api,
}

/// Why a call failed.
struct Failure {
    problem: String,
    /// The answer was lost: what was asked may have been done.
    in_doubt: bool,
}

impl Failure {
    fn lost(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            in_doubt: true,
        }
    }
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Self {
            problem,
            in_doubt: false,
        }
    }
}

/// The objects of a consultation, read when an extender needs them.
struct Objects {
    pod: Value,
    nodes: Option<FxHashMap<String, Value>>,
}

impl Extenders {
    pub(super) fn new(list: &Arc<[Extender]>, api: Api) -> Self {
        let clients = list.iter().map(|extender| {
            let client = client(extender);
            if let Err(problem) = &client {
                tracing::error!(extender = extender.url_prefix, problem, "an extender cannot be called");
            }
            client
        });
        Self {
            clients: clients.collect(),
            list: Arc::clone(list),
            api,
        }
    }

    /// Asks the extenders.
    pub(super) async fn consult(self, consultation: Consultation) -> (ConsultationId, Advice) {
        let mut round = Round::new(&self.list, &consultation);
        let mut objects = match self.pod(&consultation.pod).await {
            Ok(pod) => Objects { pod, nodes: None },
            Err(problem) => return (consultation.id, Advice::Failed(problem)),
        };
        while let Some(call) = round.next_call() {
            let answer = self.make(call, &round, &mut objects).await;
            if let Some(problem) = round.answered(answer) {
                tracing::warn!(pod = &*consultation.pod.key, problem, "decided without an extender");
            }
        }
        let advice = round.advice();
        if let (Matter::Victims(_), Advice::Failed(problem)) = (&consultation.matter, &advice) {
            tracing::warn!(pod = &*consultation.pod.key, problem, "no room was made");
        }
        (consultation.id, advice)
    }

    async fn make(&self, call: Call, round: &Round, objects: &mut Objects) -> Result<Answer, String> {
        let extender = self.list.get(call.extender).ok_or("unknown")?;
        let capable = extender.node_cache_capable;
        let (verb, body) = match call.request {
            Request::Filter => (&extender.filter_verb, self.args(round, capable, objects).await?),
            Request::Prioritize => (&extender.prioritize_verb, self.args(round, capable, objects).await?),
            Request::Preempt if capable => (
                &extender.preempt_verb,
                wire::meta_victims(&objects.pod, round.victims()),
            ),
            Request::Preempt => (&extender.preempt_verb, self.victims(round, &objects.pod).await?),
        };
        let answer = self.send(call.extender, verb, &body).await;
        let answer = answer.map_err(|failure| failure.problem)?;
        match call.request {
            Request::Filter => wire::filtered(&answer, capable),
            Request::Prioritize => wire::scores(&answer),
            Request::Preempt => wire::victims(&answer, round.victims()),
        }
    }

    /// Has an extender bind a pod. `None` if it failed and can be ignored: then the pod is bound without it.
    pub(super) async fn bind(&self, place: usize, pod: &PodRef, node: &str) -> Option<WriteOutcome> {
        let extender = self.list.get(place)?;
        if !self.api.may_write() {
            let problem = "not sent, because the lease has run out and another replica may lead".to_owned();
            return Some(WriteOutcome::Failed { problem });
        }
        let body = wire::binding(pod, node);
        let answer = self.send(place, &extender.bind_verb, &body).await;
        let result = answer.and_then(|answer| wire::bound(&answer).map_err(Failure::from));
        let Err(Failure { problem, in_doubt }) = result else {
            return Some(WriteOutcome::Done { version: 0 });
        };
        if extender.ignorable {
            tracing::warn!(
                pod = &*pod.key,
                extender = extender.url_prefix,
                problem,
                "bound without an extender"
            );
            return None;
        }
        let problem = format!("extender {:?}: {problem}", extender.url_prefix);
        Some(match in_doubt {
            true => WriteOutcome::Unknown { problem },
            false => WriteOutcome::Failed { problem },
        })
    }

    async fn pod(&self, pod: &PodRef) -> Result<Value, String> {
        let (namespace, name) = pod.key.split_once('/').unwrap_or(("", &pod.key));
        let read = self.api.get(Resource::of(Kind::Pod), namespace, name).await;
        let bytes = read.map_err(|error| error.to_string())?;
        let bytes = bytes.ok_or_else(|| format!("pod {} does not exist", pod.key))?;
        let found: Value = serde_json::from_slice(&bytes).map_err(|error| format!("pod {}: {error}", pod.key))?;
        match found["metadata"]["uid"].as_str() {
            Some(uid) if uid == pod.uid => Ok(without_managed_fields(found)),
            _ => Err(format!("pod {} was replaced by another one", pod.key)),
        }
    }

    /// The nodes that remain, as the extender wants them.
    async fn args(&self, round: &Round, capable: bool, objects: &mut Objects) -> Result<Value, String> {
        if capable {
            return Ok(wire::named_nodes(&objects.pod, round.nodes()));
        }
        let all = match &mut objects.nodes {
            Some(all) => all,
            none => none.insert(self.all_nodes().await?),
        };
        let nodes = round.nodes().iter().filter_map(|name| all.get(name));
        Ok(wire::whole_nodes(&objects.pod, nodes))
    }

    async fn all_nodes(&self) -> Result<FxHashMap<String, Value>, String> {
        // The server's cache will do: the scheduler's own nodes come from it too.
        let path = format!("{}?resourceVersion=0", Resource::of(Kind::Node).collection(None));
        let bytes = self.api.get_path(&path).await.map_err(|error| error.to_string())?;
        let mut list: Value = serde_json::from_slice(&bytes).map_err(|error| format!("{path}: {error}"))?;
        let Value::Array(items) = list["items"].take() else {
            return Err(format!("{path}: the answer is no list"));
        };
        let named = items.into_iter().filter_map(|node| {
            let name = node["metadata"]["name"].as_str()?.to_owned();
            Some((name, without_managed_fields(node)))
        });
        Ok(named.collect())
    }

    /// The victims with all of their fields. Those that are gone are left out.
    async fn victims(&self, round: &Round, pod: &Value) -> Result<Value, String> {
        let mut nodes = Vec::new();
        for found in round.victims() {
            let mut pods = Vec::new();
            for victim in &found.pods {
                pods.extend(self.pod(victim).await.ok());
            }
            nodes.push((found.node.as_str(), pods, found.violations));
        }
        Ok(wire::whole_victims(pod, nodes))
    }

    async fn send(&self, place: usize, verb: &str, body: &Value) -> Result<Value, Failure> {
        let (Some(extender), Some(client)) = (self.list.get(place), self.clients.get(place)) else {
            return Err("unknown".to_owned().into());
        };
        let client = client.as_ref().map_err(|problem| Failure::from(problem.clone()))?;
        let url = format!("{}/{verb}", extender.url_prefix.trim_end_matches('/'));
        let call = async {
            let request = http::Request::builder()
                .method(Method::POST)
                .uri(format!("/{verb}"))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .body(Body::from(body.to_string().into_bytes()))
                .map_err(|error| Failure::from(format!("{url}: {error}")))?;
            let sent = client.send(request).await;
            let response = sent.map_err(|error| Failure::lost(format!("{url}: {error}")))?;
            let status = response.status();
            if status != StatusCode::OK {
                let code = status.as_u16();
                return Err(Failure::from(format!(
                    "failed {verb} with extender at URL {url}, code {code}"
                )));
            }
            let whole = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            let whole = whole.map_err(|error| Failure::lost(format!("{url}: {error}")))?;
            let bytes: Bytes = whole.to_bytes();
            serde_json::from_slice(&bytes).map_err(|error| Failure::lost(format!("{url}: not JSON: {error}")))
        };
        let late = |_| Failure::lost(format!("{url}: no answer within {:?}", extender.timeout));
        timeout(extender.timeout, call).await.map_err(late)?
    }
}

fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// A client for the address of an extender.
fn client(extender: &Extender) -> Result<kube::Client, String> {
    let problem = |what: &dyn std::fmt::Display| format!("cannot be called: {what}");
    let url = extender
        .url_prefix
        .parse()
        .map_err(|error: http::uri::InvalidUri| problem(&error))?;
    let mut config = kube::Config::new(url);
    let Tls {
        insecure,
        server_name,
        authorities,
        identity,
    } = &extender.tls;
    config.accept_invalid_certs = *insecure;
    config.tls_server_name.clone_from(server_name);
    if let Some(pem) = authorities {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let read = read.map_err(|error| problem(&error))?;
        config.root_cert = Some(read.iter().map(|certificate| certificate.to_vec()).collect());
    }
    if let Some((certificate, key)) = identity {
        let user = json!({"client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key)});
        config.auth_info = serde_json::from_value(user).map_err(|error| problem(&error))?;
    }
    connect::client(config).map_err(|error| problem(&error))
}
