//! A scenario as it is played in a simulation, moment by moment, so that any moment of it can be shown again.

use crate::entry::KINDS;
use crate::history::History;
use crate::model::Model;
use berth_cluster::simulation::Simulation;
use berth_core::effect::ObjectKey;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;

/// Every moment of a scenario, and which of its steps they belong to.
#[derive(Clone, Debug, Serialize)]
pub struct Recording {
    /// When the scenario starts, in milliseconds since 1970.
    start: i64,
    #[serde(flatten)]
    history: History,
    steps: Vec<RecordedStep>,
    #[serde(skip)]
    model: Model,
}

/// A step of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedStep {
    /// Its name.
    pub name: String,
    /// Its time from the start, in readable form.
    pub at: String,
    /// The number of its last tick: that of the step before if nothing changed.
    pub last: u64,
}

impl Recording {
    /// Begins with the objects that a simulation was loaded with.
    #[must_use]
    pub fn of(simulation: &Simulation) -> Self {
        let now = simulation.now().as_millisecond();
        let mut model = Model::default();
        for kind in KINDS {
            for object in simulation.objects().of_kind(kind) {
                model.apply(object, now);
            }
        }
        // What is loaded is where the history begins, and no news.
        model.tick(now);
        model.go_live_seeing_everything();
        Self {
            start: now,
            history: History::new(model.state().clone(), now),
            steps: Vec::new(),
            model,
        }
    }

    /// Takes in the objects that changed at a moment.
    pub fn moment(&mut self, simulation: &Simulation, touched: &BTreeSet<ObjectKey>) {
        let now = simulation.now().as_millisecond();
        for key in touched {
            match simulation.objects().get(&key.kind, &key.namespace, &key.name) {
                Some(object) => self.model.apply(object, now),
                None => {
                    let metadata = json!({"namespace": key.namespace, "name": key.name});
                    self.model.remove(&json!({"kind": key.kind, "metadata": metadata}), now);
                }
            }
        }
        if let Some(tick) = self.model.tick(now) {
            self.history.push(tick);
        }
    }

    /// A step of the scenario is over.
    pub fn step(&mut self, simulation: &Simulation) {
        if let Some(step) = simulation.steps().last() {
            self.steps.push(RecordedStep {
                name: step.name.clone(),
                at: step.at.clone(),
                last: self.model.number(),
            });
        }
    }

    /// Every moment.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The steps of the scenario; the first is its start.
    #[must_use]
    pub fn steps(&self) -> &[RecordedStep] {
        &self.steps
    }
}
