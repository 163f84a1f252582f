//! Reads the input of a plan: the cluster, and what can be added to it.

use super::{PlanArgs, candidates};
use crate::cluster::{ClusterError, WORKLOADS};
use crate::given::GivenError;
use crate::input::{self, Gaps, Progress, ReadError, Source, Summary};
use crate::overlay;
use crate::simulate::scenario::ScenarioError;
use crate::simulate::{How, LoadError, prepare};
use berth_cluster::simulation::Options;
use berth_cluster::simulation::scenario::PerformError;
use berth_cluster::{Objects, key_for};
use berth_core::effect::ObjectKey;
use berth_plan::{Halt, Offers, Subject, SubjectError, candidates_of_cluster};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The input is invalid.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It is unclear what to replicate.
    #[error("--fit {given}: {why}")]
    Subject {
        /// The argument.
        given: String,
        /// What is wrong with it.
        why: SubjectError,
    },
    /// The list of candidates cannot be read.
    #[error(transparent)]
    CandidatesFile(#[from] ScenarioError),
    /// The list of candidates is invalid.
    #[error("{file}: {field}: {problem}")]
    Candidates {
        /// The file.
        file: Arc<str>,
        /// The path of the field.
        field: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// The question has no answer of this form.
    #[error("-o yaml is only for additions; use table, json or html")]
    NoManifests,
    /// An object cannot be created.
    #[error(transparent)]
    Refused(#[from] berth_core::effect::Refusal),
    /// An action on the cluster cannot be performed.
    #[error(transparent)]
    Impossible(Box<PerformError>),
    /// The search ended without an answer.
    #[error("--time-limit: time ran out; set a longer limit")]
    TimeUp,
}

impl From<Halt> for PlanError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::TimeUp => Self::TimeUp,
            Halt::Refused(refusal) => Self::Refused(refusal),
            Halt::Impossible(error) => Self::Impossible(error),
        }
    }
}

/// The input of a plan.
pub(super) struct Given {
    /// The objects of the cluster.
    pub(super) objects: Vec<Value>,
    /// The options of its simulations.
    pub(super) options: Options,
    /// What to replicate.
    pub(super) subject: Option<Subject>,
    /// A summary of the input.
    pub(super) summary: Summary,
}

impl Given {
    /// What can be added to the cluster.
    pub(super) fn offers(&self, args: &PlanArgs) -> Result<Offers, PlanError> {
        if let Some(file) = &args.candidates {
            return candidates::read(file, &self.objects);
        }
        let view: Objects = self.objects.iter().cloned().collect();
        Ok(Offers {
            nodes: candidates_of_cluster(&view),
            disks: None,
            capacity: true,
        })
    }

    /// Remarks about the input, one line each.
    pub(super) fn told(&self) -> Vec<String> {
        let remark = self.summary.to_string();
        let remark = (!remark.is_empty()).then_some(remark);
        remark.into_iter().chain(self.summary.gaps.told()).collect()
    }

    /// What could not be read.
    pub(super) fn gaps(&self) -> &Gaps {
        &self.summary.gaps
    }
}

/// Reads everything that the arguments specify.
pub(super) fn read(
    args: &PlanArgs,
    standard_input: &mut dyn Read,
    progress: &mut dyn Progress,
) -> Result<Given, PlanError> {
    let gathered = overlay::gather(&args.cluster, &args.filename, &WORKLOADS, standard_input, progress);
    let gathered = gathered.map_err(|error| LoadError::from(GivenError::from(error)))?;
    let mut from_file = Vec::new();
    let mut read_file = |file: &OsStr| -> Result<Summary, ReadError> {
        let sources = [Source::from(file)];
        let mut keep = |value| from_file.push(value);
        input::read_values_in(
            &gathered.namespace,
            &sources,
            &mut *standard_input,
            &mut *progress,
            &mut keep,
        )
    };
    let asked = args.fit.as_deref();
    let of_cluster = asked.and_then(|asked| workload(asked, &gathered.namespace));
    let file_summary = match asked {
        Some(file) if of_cluster.is_none() => {
            let read =
                read_file(file).map_err(|error| LoadError::from(GivenError::from(ClusterError::Input(error))))?;
            Some(read)
        }
        _ => None,
    };
    let how = How {
        seed: args.seed,
        decisions: &args.decisions,
        controller: &args.controller,
    };
    let later: Vec<&Value> = from_file.iter().collect();
    let mut prepared = prepare(&how, &later, &gathered.sources, standard_input, progress)?;
    prepared.summary.add(gathered.summary);
    if let Some(read) = file_summary {
        prepared.summary.add(read);
    }
    let subject = match (asked, of_cluster) {
        (None, _) => None,
        (Some(_), Some(key)) => Some(Subject::of_cluster(&prepared.objects, &key)),
        (Some(_), None) => Some(Subject::of_file(from_file, &mut prepared.objects)),
    };
    let given = asked.unwrap_or_default().to_string_lossy().into_owned();
    let subject = subject.transpose().map_err(|why| PlanError::Subject { given, why })?;
    Ok(Given {
        objects: prepared.objects,
        options: prepared.options,
        subject,
        summary: prepared.summary,
    })
}

/// The workload specified as `KIND/NAME`. An existing file of that name takes precedence.
fn workload(given: &OsStr, namespace: &str) -> Option<ObjectKey> {
    let (kind, name) = given.to_str()?.split_once('/')?;
    if name.is_empty() || name.contains('/') || Path::new(given).exists() {
        return None;
    }
    let kind = match kind {
        "sts" | "statefulset" | "statefulsets" => "StatefulSet",
        "deploy" | "deployment" | "deployments" => "Deployment",
        "rs" | "replicaset" | "replicasets" => "ReplicaSet",
        "rc" | "replicationcontroller" | "replicationcontrollers" => "ReplicationController",
        _ => return None,
    };
    Some(key_for(kind, namespace, name))
}
