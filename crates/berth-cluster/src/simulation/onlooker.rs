//! Those who look on while a simulation runs.

use super::Simulation;
use berth_core::effect::ObjectKey;
use std::collections::BTreeSet;

/// Looks on while a scenario is played.
pub trait Onlooker {
    /// Called before each turn of the scheduler. `true` ends the scenario early.
    fn stops(&mut self, _simulation: &Simulation) -> bool {
        false
    }

    /// Whether [`Self::moment`] is to be called: only then are changed objects recorded.
    fn follows(&self) -> bool {
        false
    }

    /// Called when nothing is left to do at a moment, with the objects that were created, changed or deleted at it.
    fn moment(&mut self, _simulation: &Simulation, _touched: BTreeSet<ObjectKey>) {}

    /// Called at the end of each step, including the start.
    fn step(&mut self, _simulation: &Simulation) {}
}

/// Only decides when to stop.
pub(super) struct Stop<F>(pub(super) F);

impl<F: FnMut(&Simulation) -> bool> Onlooker for Stop<F> {
    fn stops(&mut self, simulation: &Simulation) -> bool {
        (self.0)(simulation)
    }
}

/// Decides when to stop, and looks at the cluster after each step.
pub(super) struct Steps<'a> {
    pub(super) stop: &'a mut dyn FnMut(u64) -> bool,
    pub(super) after: &'a mut dyn FnMut(&Simulation),
}

impl Onlooker for Steps<'_> {
    fn stops(&mut self, simulation: &Simulation) -> bool {
        (self.stop)(simulation.scheduled())
    }

    fn step(&mut self, simulation: &Simulation) {
        (self.after)(simulation);
    }
}
