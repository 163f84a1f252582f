//! Reads scenarios: actions on a simulated cluster, and their times.
//!
//! ```yaml
//! apiVersion: berth.dev/v1alpha1
//! kind: Scenario
//! metadata: {name: zone-loss}
//! steps:
//! - at: 10m
//!   name: zone-a goes dark
//!   do:
//!   - stopNodes: {zone: zone-a}
//! ```
//!
//! `at` counts from the start of the simulation, and steps are in chronological order. Between two steps the cluster runs
//! on its own. This module reads and validates; `berth_cluster` performs the actions.

mod shape;

use crate::input::{self, NoProgress, ReadError, Source};
use berth_cluster::check::PODS_MAX;
use berth_cluster::simulation::scenario::{Action, Apply, Nodes, Scenario, Step};
use berth_core::quantity::Quantity;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The `apiVersion` of a scenario.
pub const API_VERSION: &str = "berth.dev/v1alpha1";
/// The `kind` of a scenario.
pub const KIND: &str = "Scenario";
/// The JSON schema of scenarios, for editors and pipelines.
pub const SCHEMA: &str = include_str!("schema.json");

/// Maximum number of nodes that one action adds: more than clusters have, so that a typo does not fill the memory.
const MAX_ADDED_NODES: u32 = 100_000;

/// Why a scenario is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("{file}: {error}; check the path and its permissions")]
    Unreadable {
        /// The file.
        file: Arc<str>,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file is not YAML.
    #[error(transparent)]
    Syntax(#[from] Box<input::Problem>),
    /// It is another kind of file.
    #[error("{file}: found apiVersion {api_version:?} and kind {kind:?}, expected {API_VERSION:?} and {KIND:?}")]
    OtherKind {
        /// The file.
        file: Arc<str>,
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// A field is invalid.
    #[error("{file}: {field}: {problem}")]
    Field {
        /// The file.
        file: Arc<str>,
        /// The path of the field.
        field: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// Objects to apply are invalid.
    #[error("{file}: {field}: {error}")]
    Objects {
        /// The file.
        file: Arc<str>,
        /// The path of the field.
        field: String,
        /// What is wrong with them.
        error: ReadError,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[allow(dead_code, reason = "read so that it is a known field; checked before")]
    api_version: String,
    #[allow(dead_code, reason = "read so that it is a known field; checked before")]
    kind: String,
    #[allow(dead_code, reason = "read so that it is a known field")]
    metadata: Option<Value>,
    steps: Vec<StepFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepFile {
    at: Value,
    name: Option<String>,
    #[serde(rename = "do")]
    actions: Vec<Value>,
}

/// Reads a scenario from a file, with the manifests that it refers to.
///
/// # Errors
/// If it cannot be read or is invalid: the error includes file, step and field.
pub fn read_file(path: &Path) -> Result<Scenario, ScenarioError> {
    let file: Arc<str> = path.display().to_string().into();
    let text = std::fs::read_to_string(path).map_err(|error| ScenarioError::Unreadable {
        file: Arc::clone(&file),
        error,
    })?;
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    read_text(&file, &text, folder)
}

/// Reads a scenario from a text; its manifests are relative to a directory.
///
/// # Errors
/// Like [`read_file`].
pub fn read_text(file: &Arc<str>, text: &str, folder: &Path) -> Result<Scenario, ScenarioError> {
    let value = input::value_of(file, text)?;
    let said = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    if said("apiVersion") != API_VERSION || said("kind") != KIND {
        return Err(ScenarioError::OtherKind {
            file: Arc::clone(file),
            api_version: said("apiVersion"),
            kind: said("kind"),
        });
    }
    let read: File = shape::decode(value).map_err(|(field, problem)| ScenarioError::Field {
        file: Arc::clone(file),
        field: if field.is_empty() { KIND.to_owned() } else { field },
        problem,
    })?;
    let mut reader = Reader { file, folder };
    let mut steps: Vec<Step> = Vec::new();
    for (index, step) in read.steps.into_iter().enumerate() {
        let earliest = steps.last().map(|step| step.at).unwrap_or_default();
        steps.push(reader.step(index, step, earliest)?);
    }
    if steps.is_empty() {
        return Err(reader.broken(
            "steps".to_owned(),
            "there is none; expected at least one step".to_owned(),
        ));
    }
    Ok(Scenario {
        file: Arc::clone(file),
        steps,
    })
}

struct Reader<'a> {
    file: &'a Arc<str>,
    folder: &'a Path,
}

impl Reader<'_> {
    fn broken(&self, field: String, problem: String) -> ScenarioError {
        ScenarioError::Field {
            file: Arc::clone(self.file),
            field,
            problem,
        }
    }

    fn step(&mut self, index: usize, step: StepFile, earliest: SignedDuration) -> Result<Step, ScenarioError> {
        let field = |name: &str| format!("steps[{index}].{name}");
        let at = self.time(&step.at, &field("at"))?;
        if at < earliest {
            let problem = format!("{at:#} is before the step above, at {earliest:#}; write steps in the order of time");
            return Err(self.broken(field("at"), problem));
        }
        if step.actions.is_empty() {
            return Err(self.broken(
                field("do"),
                "there is nothing to do; expected at least one action".to_owned(),
            ));
        }
        let mut actions = Vec::new();
        for (number, action) in step.actions.into_iter().enumerate() {
            let at = field(&format!("do[{number}]"));
            let mut action = shape::action(action).map_err(|(below, problem)| {
                let field = if below.is_empty() {
                    at.clone()
                } else {
                    format!("{at}.{below}")
                };
                self.broken(field, problem)
            })?;
            self.check(&mut action, &at)?;
            actions.push(action);
        }
        let words: Vec<&str> = actions.iter().map(Action::verb).collect();
        Ok(Step {
            at,
            name: step.name.unwrap_or_else(|| words.join(", ")),
            actions,
        })
    }

    fn time(&self, at: &Value, field: &str) -> Result<SignedDuration, ScenarioError> {
        let problem = match at {
            Value::String(text) => match text.parse() {
                Ok(time) => return Ok(time),
                Err(_) => {
                    format!("found {text:?}, expected a time from the start, such as 90s, 10m or 1h30m")
                }
            },
            Value::Number(number) => {
                format!("found {number} without a unit, expected a time from the start; write {number}s or {number}m")
            }
            other => format!(
                "found {}, expected a time from the start, such as 90s, 10m or 1h30m",
                shape::short(other)
            ),
        };
        Err(self.broken(field.to_owned(), problem))
    }

    /// Validates what the structure of an action does not cover, and reads its manifests.
    fn check(&self, action: &mut Action, at: &str) -> Result<(), ScenarioError> {
        let verb = action.verb();
        let field = |name: &str| format!("{at}.{verb}.{name}");
        match action {
            Action::DeleteNodes(nodes)
            | Action::Cordon(nodes)
            | Action::Uncordon(nodes)
            | Action::StopNodes(nodes)
            | Action::StartNodes(nodes)
            | Action::RefusePods(nodes) => self.check_nodes(nodes, &format!("{at}.{verb}")),
            Action::Drain(drain) => self.check_nodes(&drain.nodes(), &format!("{at}.{verb}")),
            Action::AddNodes(add) => {
                if add.like.is_some() == add.template.is_some() {
                    let problem = "expected either `like`, the name of a node to copy, or `template`";
                    return Err(self.broken(format!("{at}.{verb}"), problem.to_owned()));
                }
                if !(1..=MAX_ADDED_NODES).contains(&add.count) {
                    let problem = format!("found {}, expected 1 to {MAX_ADDED_NODES}", add.count);
                    return Err(self.broken(field("count"), problem));
                }
                Ok(())
            }
            Action::Scale(scale) => {
                let known = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"];
                if !known.contains(&scale.kind.as_str()) {
                    let problem = format!("found {:?}, expected {}", scale.kind, known.join(", "));
                    return Err(self.broken(field("kind"), problem));
                }
                if scale.replicas > PODS_MAX {
                    let problem = format!("found {}, expected 0 to {PODS_MAX}", scale.replicas);
                    return Err(self.broken(field("replicas"), problem));
                }
                Ok(())
            }
            Action::Delete(_) => Ok(()),
            Action::Apply(apply) => self.read_objects(apply, &format!("{at}.{verb}")),
            Action::SetCapacity(set) => match set.capacity.parse::<Quantity>() {
                Ok(_) => Ok(()),
                Err(error) => Err(self.broken(field("capacity"), error.to_string())),
            },
        }
    }

    fn check_nodes(&self, nodes: &Nodes, at: &str) -> Result<(), ScenarioError> {
        if *nodes == Nodes::default() {
            let problem = "it selects no nodes; expected `nodes`, `zone` or `nodeSelector`";
            return Err(self.broken(at.to_owned(), problem.to_owned()));
        }
        Ok(())
    }

    fn read_objects(&self, apply: &mut Apply, at: &str) -> Result<(), ScenarioError> {
        let mut sources = Vec::new();
        if let Some(name) = &apply.filename {
            sources.push(Source::Path(self.folder.join(name)));
        }
        if !apply.objects.is_empty() {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": apply.objects});
            sources.push(Source::Text {
                name: "objects".into(),
                bytes: list.to_string().into_bytes(),
            });
        }
        if sources.is_empty() {
            let problem = "expected `filename` or `objects`";
            return Err(self.broken(at.to_owned(), problem.to_owned()));
        }
        let mut objects = Vec::new();
        let read = input::read_parts_in(
            "default",
            &sources,
            &mut std::io::empty(),
            &mut NoProgress,
            &mut |object| objects.push(object),
        );
        let summary = read.map_err(|error| ScenarioError::Objects {
            file: Arc::clone(self.file),
            field: at.to_owned(),
            error,
        })?;
        if objects.is_empty() {
            let skipped = summary.to_string();
            return Err(self.broken(at.to_owned(), format!("there is no object to apply; {skipped}")));
        }
        apply.objects = objects;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
