//! Answers questions about the cluster in memory: why a pod is where it is, or nowhere, and what would come of a change.

use super::invocation::Invocation;
use super::owner::{Asker, Question};
use super::what_if::{self, WhatIf};
use crate::cli::{ExplainArgs, Output};
use crate::cluster::{ClusterArgs, Connection, evidence_of};
use crate::explain::{self, ExplainError};
use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Questions that are worked on at a time: each takes a processor and a copy of the cluster.
const AT_A_TIME: usize = 2;
/// How long a simulation may take: nobody looks at a page for longer, and others wait for their answers.
const WHAT_IF_MAX: Duration = Duration::from_secs(60);

/// Works answers out.
#[derive(Clone)]
pub(super) struct Answers {
    connection: Connection,
    invocation: Arc<Invocation>,
    free: Arc<Semaphore>,
    /// For the past, which takes a moment: whoever wants to see it does not wait for questions.
    past: Arc<Semaphore>,
}

/// An object that somebody asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    /// As `berth explain` takes it: `pod`, `node`.
    pub(super) kind: String,
    /// Empty if it has none.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl About {
    /// As pages ask: `kind=pod&namespace=shop&name=db-0`.
    fn asked(query: &str) -> Self {
        let value = |key: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(name, _)| *name == key).map(|(_, value)| value);
            values.next().unwrap_or_default().to_owned()
        };
        Self {
            kind: value("kind"),
            namespace: value("namespace"),
            name: value("name"),
        }
    }
}

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("expected kind, namespace and name of an object")]
    NoName,
    #[error(transparent)]
    Explain(#[from] ExplainError),
    #[error("the explanation failed: {0}")]
    Failed(JoinError),
}

impl Unanswered {
    fn status(&self) -> StatusCode {
        match self {
            Self::NoName => StatusCode::BAD_REQUEST,
            Self::Explain(ExplainError::NoPod { .. } | ExplainError::NoObject(_)) => StatusCode::NOT_FOUND,
            Self::Explain(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A status and JSON.
pub(super) type Answer = (StatusCode, Bytes);

impl Answers {
    pub(super) fn new(connection: Connection, invocation: Invocation) -> Self {
        Self {
            connection,
            invocation: Arc::new(invocation),
            free: Arc::new(Semaphore::new(AT_A_TIME)),
            past: Arc::new(Semaphore::new(1)),
        }
    }

    /// The past as JSON; `null` before it begins. It is written here and not by the owner, which has others to serve. Nothing if the owner has
    /// ended.
    pub(super) async fn history(&self, asker: &Asker) -> Option<Bytes> {
        let _permit = self.past.acquire().await.ok()?;
        let history = asker.ask(Question::History).await?;
        let written = tokio::task::spawn_blocking(move || serde_json::to_vec(&history)).await;
        written.ok()?.ok().map(Bytes::from)
    }

    /// What `berth explain -o json` says about an object. Nothing if the owner has ended.
    pub(super) async fn explain(&self, asker: &Asker, query: &str) -> Option<Answer> {
        Some(match self.explained(asker, &About::asked(query)).await? {
            Ok((answer, remarks)) => {
                let body = serde_json::to_vec(&json!({"answer": answer, "remarks": remarks}));
                (StatusCode::OK, body.unwrap_or_default().into())
            }
            Err(unanswered) => refused(unanswered.status(), &unanswered.to_string()),
        })
    }

    /// What `berth explain` says about an object, with remarks. Nothing if the owner has ended.
    pub(super) async fn explained(
        &self,
        asker: &Asker,
        about: &About,
    ) -> Option<Result<(explain::Answer, Vec<String>), Unanswered>> {
        let args = match self.args(about) {
            Ok(args) => args,
            Err(unanswered) => return Some(Err(unanswered)),
        };
        let _permit = self.free.acquire().await.ok()?;
        let sources = asker.ask(Question::Sources).await?;
        // Without events and leases the answer is the same, but for who else keeps the pod waiting.
        let evidence = evidence_of(&self.connection).await.unwrap_or_default();
        let work = tokio::task::spawn_blocking(move || explain::answer_sources(&args, &sources, &evidence));
        Some(match work.await {
            Ok(answer) => answer.map_err(Unanswered::from),
            Err(error) => Err(Unanswered::Failed(error)),
        })
    }

    /// What would come of a change. Nothing if the owner has ended.
    pub(super) async fn what_if(&self, asker: &Asker, body: &[u8]) -> Option<Answer> {
        let asked: WhatIf = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => return Some(refused(StatusCode::BAD_REQUEST, &error.to_string())),
        };
        let _permit = self.free.acquire().await.ok()?;
        let sources = asker.ask(Question::Sources).await?;
        let invocation = Arc::clone(&self.invocation);
        let work = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            what_if::play(&asked, &invocation, &sources, &mut || begun.elapsed() > WHAT_IF_MAX)
        });
        Some(match work.await {
            Ok(Ok(answer)) => (StatusCode::OK, answer.to_string().into()),
            // The question was understood, and this is the answer.
            Ok(Err(problem)) => refused(StatusCode::OK, &problem),
            Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        })
    }

    /// What is asked, as `berth explain` would be asked.
    fn args(&self, about: &About) -> Result<ExplainArgs, Unanswered> {
        let About { kind, namespace, name } = about;
        // Names of Kubernetes need no escapes.
        let is_name = |text: &String| {
            text.chars()
                .all(|letter| letter.is_ascii_alphanumeric() || "-._:".contains(letter))
        };
        if name.is_empty() || ![kind, namespace, name].into_iter().all(is_name) {
            return Err(Unanswered::NoName);
        }
        Ok(ExplainArgs {
            filename: Vec::new(),
            cluster: ClusterArgs::in_namespace(namespace),
            target: vec![format!("{kind}/{name}")],
            pending: false,
            all_namespaces: false,
            pod: None,
            output: Output::Json,
            decisions: self.invocation.decisions.clone(),
            controller: self.invocation.controller,
        })
    }
}

fn refused(status: StatusCode, problem: &str) -> Answer {
    (status, json!({"error": problem}).to_string().into())
}
