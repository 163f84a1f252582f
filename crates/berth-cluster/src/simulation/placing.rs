//! The scheduler's part of a simulation.

use super::{Simulation, seam};
use berth_core::effect::Effect;
use berth_scheduler::scheduler::{Effect as Scheduling, WriteOutcome};

impl Simulation {
    /// Carries out what the scheduler wants, and has it decide about the pods whose turn it is.
    pub(super) fn run_scheduler(&mut self) -> bool {
        let mut moved = false;
        loop {
            for effect in self.scheduler.take_effects() {
                moved = true;
                self.carry_out_scheduling(effect);
            }
            // What the writes changed is shown to the scheduler before it decides again.
            if self.take_changes() {
                continue;
            }
            let now = self.since_start();
            if !self.scheduler.step(now) {
                return moved;
            }
            moved = true;
        }
    }

    fn carry_out_scheduling(&mut self, effect: Scheduling) {
        let (id, effect) = match effect {
            Scheduling::Write { id, write } => (Some(id), seam::write(&write)),
            Scheduling::Condition { pod, reason, message } => (None, seam::condition(&pod, reason, &message)),
            Scheduling::Nominate { pod, node } => (None, seam::nominate(&pod, &node)),
            Scheduling::Event {
                pod,
                warning,
                reason,
                message,
            } => (None, seam::event(&pod, warning, reason, message)),
        };
        let outcome = self.write(effect);
        if let Some(id) = id {
            let now = self.since_start();
            self.scheduler.written(id, &outcome, now);
        }
    }

    fn write(&mut self, effect: Effect) -> WriteOutcome {
        let carried = self.carry_out(&[effect]);
        match carried.refused {
            Some(refusal) => WriteOutcome::Failed {
                problem: refusal.to_string(),
            },
            None => {
                let version = carried.versions.values().next();
                WriteOutcome::Done {
                    version: version.and_then(|version| version.parse().ok()).unwrap_or(0),
                }
            }
        }
    }
}
