//! Plays simulations, counts them, and ends a search when time runs out.

use crate::standing::Standing;
use berth_cluster::simulation::scenario::{Action, PerformError, Scenario, Step};
use berth_cluster::simulation::{Options, Simulation};
use berth_core::effect::Refusal;
use jiff::SignedDuration;
use serde_json::Value;

/// When actions on a cluster at rest are performed: after everything that its components do at startup.
const AT_REST: SignedDuration = SignedDuration::from_mins(10);

/// Observes the progress of a search, and decides whether it continues.
pub trait Watch {
    /// Whether to continue: the number of simulations started, and the number of pods scheduled in this one.
    fn goes_on(&mut self, simulations: usize, placed: u64) -> bool;
}

/// Why a simulation has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Halt {
    /// The search has to end.
    #[error("time ran out")]
    TimeUp,
    /// An object cannot be created.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An action on the cluster cannot be performed.
    #[error(transparent)]
    Impossible(#[from] Box<PerformError>),
}

/// Finds out whether everything runs on a cluster, by simulating it.
pub struct Oracle<'w> {
    options: Options,
    watch: &'w mut dyn Watch,
    simulations: usize,
}

/// A simulation that has ended.
#[derive(Debug)]
pub struct Played {
    /// The cluster at its end.
    pub simulation: Simulation,
    /// Which pods run at its end.
    pub standing: Standing,
    /// Whether it ended because nothing changes any more, not because time ran out.
    pub is_at_rest: bool,
}

impl<'w> Oracle<'w> {
    /// An oracle whose simulations all start with these options.
    pub fn new(options: Options, watch: &'w mut dyn Watch) -> Self {
        Self {
            options,
            watch,
            simulations: 0,
        }
    }

    /// Number of simulations started.
    #[must_use]
    pub fn simulations(&self) -> usize {
        self.simulations
    }

    /// Simulates a cluster until nothing changes.
    ///
    /// # Errors
    /// If time ran out, or an object cannot be created.
    pub fn play(&mut self, objects: Vec<Value>) -> Result<Played, Halt> {
        if !self.watch.goes_on(self.simulations, 0) {
            return Err(Halt::TimeUp);
        }
        let played = self.simulate(objects, false)?;
        if played.is_at_rest {
            Ok(played)
        } else {
            Err(Halt::TimeUp)
        }
    }

    /// Simulates the current cluster. If time runs out, returns it as it is by then: something is known in any case.
    ///
    /// # Errors
    /// If an object cannot be created.
    pub fn play_first(&mut self, objects: Vec<Value>) -> Result<Played, Halt> {
        self.simulate(objects, false)
    }

    /// Simulates a result even if time runs out meanwhile: an unchecked answer is not an answer.
    ///
    /// # Errors
    /// If an object cannot be created.
    pub fn play_to_the_end(&mut self, objects: Vec<Value>) -> Result<Played, Halt> {
        self.simulate(objects, true)
    }

    /// Simulates actions on a cluster at rest, until nothing changes.
    ///
    /// # Errors
    /// If time ran out, an object cannot be created, or an action cannot be performed.
    pub fn act(&mut self, objects: Vec<Value>, action: Action) -> Result<Played, Halt> {
        if !self.watch.goes_on(self.simulations, 0) {
            return Err(Halt::TimeUp);
        }
        self.simulations += 1;
        let mut simulation = Simulation::new(self.options.clone());
        simulation.load(objects)?;
        let step = Step {
            at: AT_REST,
            name: String::new(),
            actions: vec![action],
        };
        let scenario = Scenario {
            file: "plan".into(),
            steps: vec![step],
        };
        let number = self.simulations;
        let stop = &mut |placed| !self.watch.goes_on(number, placed);
        if !simulation.play_unless(&scenario, stop, &mut |_| {}).map_err(Box::new)? {
            return Err(Halt::TimeUp);
        }
        let standing = Standing::of(&simulation);
        Ok(Played {
            simulation,
            standing,
            is_at_rest: true,
        })
    }

    fn simulate(&mut self, objects: Vec<Value>, to_the_end: bool) -> Result<Played, Halt> {
        self.simulations += 1;
        let mut simulation = Simulation::new(self.options.clone());
        simulation.load(objects)?;
        let number = self.simulations;
        let goes_on = &mut |placed| self.watch.goes_on(number, placed) || to_the_end;
        let is_at_rest = simulation.run_while(goes_on);
        let standing = Standing::of(&simulation);
        Ok(Played {
            simulation,
            standing,
            is_at_rest,
        })
    }
}
