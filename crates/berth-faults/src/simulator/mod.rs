//! Plays a story: one thread, virtual time, and a delay for every message.

mod elections;
mod processes;
mod requests;
mod steps;
mod watches;

use crate::component::JobId;
use crate::driver::Driver;
use crate::invariants::Always;
use crate::mutation::Mutation;
use crate::objects;
use crate::port::{Reply, Request};
use crate::process::{Process, Role};
use crate::story::{NetFault, PROCESSES, Step, Story};
use crate::trace::Trace;
use crate::world::{Millis, World};
use berth_cluster::MemoryCluster;
use berth_core::effect::Effect;
use elections::Lease;
use std::collections::BTreeMap;

/// Maximum number of events: more than any story needs that comes to rest.
const MAX_EVENTS: u64 = 60_000;
/// A cluster in which nothing changes for this long has come to rest: longer than any backoff, deadline or dispute, and shorter
/// than the time after which a scheduler in these stories retries unschedulable pods.
const REST: Millis = 7_200_000;

/// One incarnation of a process. Messages for it are useless to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    process: usize,
    incarnation: u64,
}

impl Life {
    /// The current incarnation of a process.
    fn of(process: &Process) -> Self {
        Self {
            process: process.number,
            incarnation: process.incarnation,
        }
    }
}

/// A scheduled event.
#[derive(Debug)]
enum Event {
    Step(Step),
    /// Faults stop.
    Calm,
    /// A watch delivers something.
    Watch {
        life: Life,
        kind: usize,
    },
    /// A request arrives at the server.
    Arrive {
        life: Life,
        job: JobId,
        request: Box<Request>,
        fault: Option<NetFault>,
    },
    /// A response arrives at its sender.
    Reply {
        life: Life,
        job: JobId,
        reply: Reply,
    },
    /// A process has work to do.
    Wake(Life),
    Start(Life),
    /// Competes for a lease, or renews it.
    Lease(Life),
}

/// The author of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    User,
    Process(usize),
}

/// A story being played.
pub(crate) struct Simulator {
    jitter: u64,
    /// The enabled bug.
    mutation: Option<Mutation>,
    pub(crate) world: World,
    pub(crate) processes: Vec<Process>,
    pub(crate) driver: Driver,
    leases: [Lease; 2],
    events: BTreeMap<(Millis, u64), Event>,
    sequence: u64,
    handled: u64,
    /// The steps that wait for a write.
    armed: Vec<Step>,
    /// When something last changed.
    changed_at: Millis,
    pub(crate) calm: bool,
    /// Leases are no longer contested: leaders no longer renew theirs.
    elections_settled: bool,
    pub(crate) always: Always,
    pub(crate) trace: Trace,
    pub(crate) failure: Option<String>,
}

impl Simulator {
    /// A story on a new cluster.
    pub(crate) fn of(story: &Story, mutation: Option<Mutation>, trace: Trace) -> Self {
        let mut simulator = Self::on(World::default(), story.jitter, trace);
        simulator.mutation = mutation;
        for object in objects::initial() {
            // Nothing exists yet that could refuse them.
            let _ = simulator.carry_out(Author::User, &Effect::Create(Box::new(object)));
        }
        let mut end = 0;
        for step in &story.steps {
            simulator.at(1_000 + step.at, Event::Step(*step));
            end = end.max(1_000 + step.at);
        }
        simulator.at(end + 3_000, Event::Calm);
        simulator
    }

    /// Every component, newly started, on an existing cluster. Nothing fails.
    pub(crate) fn after(cluster: MemoryCluster, now: Millis, driver: Driver, trace: Trace) -> Self {
        let mut simulator = Self::on(World::of(cluster, now), 0, trace);
        simulator.driver = driver;
        simulator.at(now, Event::Calm);
        simulator
    }

    fn on(world: World, jitter: u64, trace: Trace) -> Self {
        let roles = Role::ALL.into_iter().zip(PROCESSES).enumerate();
        let processes = roles.map(|(number, (role, name))| Process::new(number, role, name));
        let now = world.now;
        let mut simulator = Self {
            jitter,
            mutation: None,
            world,
            processes: processes.collect(),
            driver: Driver::default(),
            leases: Default::default(),
            events: BTreeMap::new(),
            sequence: 0,
            handled: 0,
            armed: Vec::new(),
            changed_at: now,
            calm: false,
            elections_settled: false,
            always: Always::default(),
            trace,
            failure: None,
        };
        let lives: Vec<_> = simulator.processes.iter().map(Life::of).collect();
        for life in lives {
            simulator.at(now + 1 + life.process as Millis, Event::Start(life));
        }
        simulator
    }

    fn at(&mut self, at: Millis, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// Plays until nothing is left to happen, or something is wrong.
    pub(crate) fn run(&mut self) {
        while self.failure.is_none()
            && let Some(((at, _), event)) = self.events.pop_first()
        {
            if self.calm && at > self.changed_at + REST {
                return;
            }
            self.world.now = self.world.now.max(at);
            self.handled += 1;
            if self.handled > MAX_EVENTS {
                self.fail("the cluster does not come to rest".to_owned());
                return;
            }
            self.handle(event);
        }
    }

    pub(crate) fn fail(&mut self, why: String) {
        self.trace.line(self.world.now, || format!("WRONG: {why}"));
        self.failure.get_or_insert(why);
    }

    /// The process of this incarnation, unless that has ended.
    fn living(&mut self, life: Life) -> Option<&mut Process> {
        let process = self.processes.get_mut(life.process);
        process.filter(|process| Life::of(process) == life)
    }

    /// Until when a paused process receives nothing.
    fn pause_of(&self, life: Life) -> Option<Millis> {
        let until = self.processes.get(life.process)?.paused_until;
        (until > self.world.now).then_some(until)
    }

    fn handle(&mut self, event: Event) {
        let paused = match &event {
            Event::Step(_) | Event::Calm | Event::Arrive { .. } | Event::Start(_) => None,
            Event::Watch { life, .. } | Event::Reply { life, .. } | Event::Wake(life) | Event::Lease(life) => {
                self.pause_of(*life)
            }
        };
        if let Some(until) = paused {
            self.at(until, event);
            return;
        }
        match event {
            Event::Step(step) => self.happen(step),
            Event::Calm => self.become_calm(),
            Event::Watch { life, kind } => self.deliver(life, kind),
            Event::Arrive {
                life,
                job,
                request,
                fault,
            } => self.arrive(life, job, &request, fault),
            Event::Reply { life, job, reply } => self.replied(life, job, reply),
            Event::Wake(life) => self.wake(life),
            Event::Start(life) => self.start(life),
            Event::Lease(life) => self.compete(life),
        }
    }
}
