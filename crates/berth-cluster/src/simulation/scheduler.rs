//! Runs the scheduler in a simulation.

use super::Simulation;
use berth_scheduler::scheduler::Effect;

impl Simulation {
    /// Carries out the scheduler's effects, and lets it decide about the pods whose turn it is.
    pub(super) fn run_scheduler(&mut self) -> bool {
        let mut moved = false;
        loop {
            for effect in self.scheduler.take_effects() {
                moved = true;
                self.carry_out_scheduling(&effect);
            }
            // The scheduler sees the result of the writes before it decides again.
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

    fn carry_out_scheduling(&mut self, effect: &Effect) {
        let carried = self.carry_out(&effect.lower(self.now));
        let Effect::Write { id, write } = effect else {
            return;
        };
        let version = carried.versions.values().next().map_or("", String::as_str);
        let outcome = write.outcome(carried.refused.as_ref().map_or(Ok(version), Err));
        let now = self.since_start();
        self.scheduler.written(*id, &outcome, now);
    }
}
