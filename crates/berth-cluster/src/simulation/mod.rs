//! A whole cluster in virtual time: scheduler, volume controller, provisioners, workload controllers and node agents on
//! objects in memory, until nothing changes any more.
//!
//! The components are the same steps that run against an API server. Only the clock and the executor differ: time jumps
//! to the next moment at which something is due. The same objects and the same seed give the same outcome.
//!
//! ```text
//!   changed objects ──▶ delivered to every component
//!          ▲                        │ effects
//!          └───── MemoryCluster ◀───┘        nothing changed? on to the next moment
//! ```

mod agents;
mod compare;
mod drain;
mod fill;
mod fit;
mod limits;
mod location;
mod lost;
mod missing;
mod not_running;
mod onlooker;
mod outcome;
mod patience;
mod playback;
pub mod scenario;
mod scheduler;
mod volumes;

pub use compare::{Difference, Room, ZoneChange};
pub use fit::{Fit, NodeOutcome, Usage, ZoneOutcome};
pub use location::{VolumePlace, rack_of, zone_of};
pub use missing::{KEEPS_PODS, wanted_pods};
pub use onlooker::Onlooker;
pub use outcome::{
    ClaimOutcome, EventOutcome, Outcome, PendingOutcome, PodOutcome, RefusedNodes, Summary, TogetherOutcome,
    VolumeOutcome,
};
pub use playback::{BoundClaim, ClaimChanges, Moved, Placed, PodChanges, StepOutcome, StepSummary, Waiting};

use crate::drivers::Drivers;
use crate::executor::Carried;
use crate::memory::Change;
use crate::step::{self, Step};
use crate::workloads::{self, Workloads};
use crate::{MemoryCluster, View, controllers, disruption, key_of};
use agents::Agents;
use berth_core::api::{Kind, Object};
use berth_core::effect::{Effect, Event, EventType, Guard, Merge, ObjectKey, Patch, Refusal, Target};
use berth_core::reported::{self, Reported};
use berth_scheduler::scheduler::{DEFAULT_SEED, Scheduler, Settings};
use drain::Drains;
use jiff::{SignedDuration, Timestamp};
use lost::Lost;
use onlooker::Stop;
use patience::Patience;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use volumes::{ControllerRun, ProvisionerRun};

/// The start time of every simulation, and the time of an explained file. It is fixed so that outcomes can be compared, and
/// shared by all commands so that they agree on which reports have expired.
pub const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Event source of the workload controllers if none is given.
const SOURCE: &str = "workload-controller";

/// A simulation in which nothing changes for this long, beyond the delays of the scheduler's queue, has come to rest.
const REST: SignedDuration = SignedDuration::from_mins(1);

/// A simulation that never comes to rest (for example, a provisioner that fails forever) ends after this long.
const LONGEST: SignedDuration = SignedDuration::from_hours(2);

/// Maximum number of rounds at one moment, more than any cluster needs: one or two for each change. Looping workloads
/// are stopped long before.
const MAX_ROUNDS: u64 = 10_000_000;

/// The options of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Random seed for ties and pod names.
    pub seed: u64,
    /// Settings that affect scheduling decisions.
    pub settings: Settings,
    /// Settings of the volume controller. The feature gate for volume scheduling is that of the scheduler.
    pub controller: berth_controller::Settings,
    /// The start time.
    pub start: Timestamp,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: DEFAULT_SEED,
            settings: Settings::default(),
            controller: berth_controller::Settings::embedded(),
            start: START,
        }
    }
}

/// A cluster in virtual time.
#[derive(Debug)]
pub struct Simulation {
    cluster: MemoryCluster,
    start: Timestamp,
    now: Timestamp,
    changed_at: Timestamp,
    scheduler: Scheduler,
    settings: Settings,
    controller: ControllerRun,
    provisioners: ProvisionerRun,
    workloads: Workloads,
    /// Workloads to process.
    busy: BTreeSet<ObjectKey>,
    patience: Patience,
    agents: Agents,
    drivers: Drivers,
    /// CSI drivers with their separate capacity reports.
    reported: Reported,
    drains: Drains,
    /// Deleted pods that no controller creates again.
    lost: Lost,
    /// Jobs that had failed before the simulation started.
    failed_before: BTreeSet<ObjectKey>,
    /// Disruption budgets and volume attributes classes to process.
    guards: BTreeSet<ObjectKey>,
    /// When a workload, a pod or a node is to be processed again.
    due: BTreeMap<Timestamp, BTreeSet<ObjectKey>>,
    /// The outcome of the scenario's steps so far.
    steps: Vec<StepOutcome>,
    /// Objects that changed at this moment, if somebody follows them.
    touched: Option<BTreeSet<ObjectKey>>,
}

impl Simulation {
    /// An empty cluster.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let settings = Settings {
            // This controller supports held volumes.
            hold_volumes: true,
            ..options.settings.clone()
        };
        let mut scheduler = Scheduler::new(settings, options.seed);
        scheduler.set_now(options.start.as_second());
        let gates = options.settings.volume_gates();
        let controller = berth_controller::Settings {
            volume_scheduling: gates.volume_scheduling,
            claim_unused_since_time: gates.claim_unused_since_time,
            ..options.controller
        };
        Self {
            cluster: MemoryCluster::default(),
            start: options.start,
            now: options.start,
            changed_at: options.start,
            scheduler,
            settings: options.settings,
            controller: ControllerRun::new(controller),
            provisioners: ProvisionerRun::new(gates),
            workloads: Workloads::new(options.seed),
            busy: BTreeSet::new(),
            patience: Patience::default(),
            agents: Agents::default(),
            drivers: Drivers::default(),
            reported: Reported::default(),
            drains: Drains::default(),
            lost: Lost::default(),
            failed_before: BTreeSet::new(),
            guards: BTreeSet::new(),
            due: BTreeMap::new(),
            steps: Vec::new(),
            touched: None,
        }
    }

    /// Adds an object, as a user creates it.
    ///
    /// # Errors
    /// If it has no kind or name, or already exists.
    pub fn create(&mut self, object: Value) -> Result<(), Refusal> {
        self.cluster.create(object, self.now)
    }

    /// The current objects.
    #[must_use]
    pub fn objects(&self) -> &dyn View {
        self.cluster.objects()
    }

    /// The cluster as the scheduler sees it.
    #[must_use]
    pub fn scheduled_cluster(&self) -> &berth_scheduler::cluster::Cluster {
        self.scheduler.cluster()
    }

    /// The settings of the scheduler.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The recorded events so far, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        self.cluster.events()
    }

    /// Number of pods bound so far.
    #[must_use]
    pub fn scheduled(&self) -> u64 {
        self.scheduler.counts().scheduled
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// How much virtual time had passed at the last change.
    #[must_use]
    pub fn moved_for(&self) -> Duration {
        self.changed_at
            .duration_since(self.start)
            .try_into()
            .unwrap_or_default()
    }

    /// How long nothing may change before the simulation has come to rest: longer than the time after which the scheduler
    /// retries pods, and than any backoff.
    fn rest(&self) -> SignedDuration {
        let times = &self.settings.times;
        let longest = times.flush_after.max(times.max_backoff);
        SignedDuration::try_from(longest).map_or(LONGEST, |longest| longest.saturating_add(REST))
    }

    fn since_start(&self) -> Duration {
        self.now.duration_since(self.start).try_into().unwrap_or_default()
    }

    /// Runs until nothing changes any more. Occasionally reports how many pods were bound.
    pub fn run(&mut self, progress: &mut dyn FnMut(u64)) {
        self.run_until(None, progress);
    }

    /// Runs like [`Self::run`] while `goes_on` returns true, which gets the number of pods bound so far. Returns `false` if it was
    /// stopped.
    pub fn run_while(&mut self, goes_on: &mut dyn FnMut(u64) -> bool) -> bool {
        !self.advance(None, &mut Stop(|simulation: &Self| !goes_on(simulation.scheduled())))
    }

    /// Runs until a time, or until nothing changes any more. What is due at exactly that time has not happened when
    /// this returns.
    fn run_until(&mut self, end: Option<Timestamp>, progress: &mut dyn FnMut(u64)) {
        let go_on = |simulation: &Self| {
            progress(simulation.scheduled());
            false
        };
        self.advance(end, &mut Stop(go_on));
    }

    /// Runs like [`Self::run_until`]. Stops and reports it if requested before the scheduler's turn.
    fn advance(&mut self, end: Option<Timestamp>, onlooker: &mut dyn Onlooker) -> bool {
        let begin = self.now;
        // Whatever happens at the start is a change, even if it was not observed yet.
        self.changed_at = self.changed_at.max(begin);
        loop {
            if self.settle(onlooker) {
                return true;
            }
            let touched = self.touched.as_mut().map(std::mem::take);
            if let Some(touched) = touched.filter(|touched| !touched.is_empty()) {
                onlooker.moment(self, touched);
            }
            self.patience.renew();
            let is_near = |next: &Timestamp| {
                // What a node has to do certainly happens: a pod is evicted when its toleration expires.
                let is_certain = self
                    .due
                    .get(next)
                    .is_some_and(|keys| keys.iter().any(|key| key.kind == "Node"));
                end.is_none_or(|end| *next < end)
                    && (is_certain || next.duration_since(self.changed_at) <= self.rest())
                    && next.duration_since(begin) <= LONGEST
            };
            let Some(next) = self.next_moment().filter(is_near) else {
                break;
            };
            self.now = self.now.max(next);
            self.wake_due();
        }
        if let Some(end) = end {
            self.now = self.now.max(end);
            self.wake_due();
        }
        false
    }

    /// Lets every component act until nothing is left to do at this moment. Stops and reports it if requested.
    fn settle(&mut self, onlooker: &mut dyn Onlooker) -> bool {
        for _ in 0..MAX_ROUNDS {
            if self.settle_but_placing() {
                continue;
            }
            if onlooker.stops(self) {
                return true;
            }
            if !self.place() {
                break;
            }
        }
        false
    }

    /// Runs the scheduler at this moment, or else the agents. Returns `false` if nothing was left to do.
    ///
    /// The scheduler decides when the controllers are done, and agents process pods after its decision, so that no component
    /// reports what others are about to change. The components of `berth up` wait for each other in this order.
    fn place(&mut self) -> bool {
        self.run_scheduler() || self.run_agents() || self.run_drains()
    }

    /// Runs every component except the scheduler and the agents at this moment. Returns `false` if nothing was left to
    /// do.
    fn settle_but_placing(&mut self) -> bool {
        let mut moved = self.take_changes();
        moved |= self.run_nodes();
        moved |= self.run_workloads();
        moved |= self.take_changes();
        moved |= self.run_controller();
        moved |= self.run_provisioners();
        moved |= self.announce_limits();
        moved |= self.run_guards();
        moved
    }

    /// Delivers all changes to every component.
    fn take_changes(&mut self) -> bool {
        let mut any = false;
        while let Some(change) = self.cluster.next_change() {
            any = true;
            self.changed_at = self.now;
            let (key, gone) = match change {
                Change::Present(key) => (key, None),
                Change::Relabelled(before) => {
                    self.guards
                        .extend(disruption::concerned(self.cluster.objects(), &before));
                    continue;
                }
                Change::Gone(last) => (key_of(&last), Some(last)),
            };
            if let Some(touched) = &mut self.touched {
                touched.insert(key.clone());
            }
            let view = self.cluster.objects();
            let present = view.find(&key);
            for object in present.iter().copied().chain(&gone) {
                self.busy.extend(workloads::concerned(view, object));
                self.guards.extend(controllers::guards(view, object));
            }
            if key.kind == "Pod" {
                gone.iter().for_each(|last| self.lost.gone(last));
                self.follow_pod(&key, gone.as_ref());
            }
            self.take_in(&key);
        }
        any
    }

    /// Delivers the current state or the deletion of an object.
    fn take_in(&mut self, key: &ObjectKey) {
        let view = self.cluster.objects();
        let Some(value) = view.find(key) else {
            return self.take_out(key);
        };
        self.agents.upsert(key, value, view);
        if reported::is_report(value) {
            // An unreadable report is ignored, as the scheduler of a live cluster does.
            if let Ok(driver) = self.reported.report(value).map(str::to_owned) {
                self.show_driver(&driver);
            }
            return;
        }
        match Object::decode(value) {
            Ok(Some(Object::CsiDriver(driver))) => {
                self.reported.driver(*driver);
                self.show_driver(&key.name);
            }
            Ok(Some(object)) => self.show(&object),
            Ok(None) | Err(_) => {}
        }
    }

    fn show(&mut self, object: &Object) {
        let now = self.since_start();
        self.scheduler.upsert(object, now);
        self.controller.upsert(object);
        self.provisioners.upsert(object);
    }

    /// Delivers a driver merged with its report, or the deletion of both.
    fn show_driver(&mut self, name: &str) {
        match self.reported.get(name) {
            Some(driver) => self.show(&driver.into()),
            None => self.hide(Kind::CsiDriver, "", name),
        }
    }

    fn take_out(&mut self, key: &ObjectKey) {
        self.agents.remove(key, self.cluster.objects());
        match key.known_kind() {
            Some(Kind::CsiDriver) => {
                self.reported.remove_driver(&key.name);
                self.show_driver(&key.name);
            }
            Some(kind) => self.hide(kind, &key.namespace, &key.name),
            None if key.kind == reported::KIND => {
                self.reported.remove_report(&key.name);
                self.show_driver(&key.name);
            }
            None => {}
        }
    }

    fn hide(&mut self, kind: Kind, namespace: &str, name: &str) {
        let now = self.since_start();
        self.scheduler.remove(kind, namespace, name, now);
        self.controller.remove(kind, namespace, name);
        self.provisioners.remove(kind, namespace, name);
    }

    /// Runs DaemonSets before anything else happens.
    fn run_daemon_sets(&mut self) {
        self.take_changes();
        let is_daemon_set = |key: &ObjectKey| key.kind == "DaemonSet";
        while self.busy.iter().any(is_daemon_set) {
            let (now, later) = std::mem::take(&mut self.busy).into_iter().partition(is_daemon_set);
            self.look_after(now);
            self.busy.extend::<BTreeSet<ObjectKey>>(later);
            self.take_changes();
        }
    }

    fn run_workloads(&mut self) -> bool {
        let busy = std::mem::take(&mut self.busy);
        let any = !busy.is_empty();
        self.look_after(busy);
        any
    }

    fn look_after(&mut self, busy: BTreeSet<ObjectKey>) {
        for key in busy {
            // It is processed when it has waited long enough.
            if self.patience.must_wait(&key, self.now) {
                continue;
            }
            let view = self.cluster.objects();
            let Some(workload) = view.get(&key.kind, &key.namespace, &key.name) else {
                continue;
            };
            let step = self.workloads.reconcile(view, &key, self.now);
            let nodes = match &*key.kind {
                "DaemonSet" => view.of_kind("Node").count(),
                _ => 0,
            };
            match self.patience.look(&key, workload, nodes, &step, self.now) {
                None => self.carry_out_step(&key, step),
                Some(excess) => {
                    let message = format!(
                        "made {} objects at one moment and wants more: the next ones are made {:#} later; see what becomes of its pods",
                        excess.made, excess.delay
                    );
                    self.tell(&key, EventType::Warning, "TooManyChanges", message);
                    self.look_again(key, excess.until);
                }
            }
        }
    }

    fn run_guards(&mut self) -> bool {
        let mut moved = false;
        for key in std::mem::take(&mut self.guards) {
            if let Some(effect) = controllers::guard_step(self.cluster.objects(), &key, self.now) {
                // An object that has changed meanwhile is processed again because of that.
                moved |= self.carry_out(&[effect]).refused.is_none();
            }
        }
        moved
    }

    /// Carries out the effects of a step, and records when it runs again.
    fn carry_out_step(&mut self, key: &ObjectKey, step: Step) {
        match self.carry_out(&step.effects).refused {
            None => {}
            Some(error @ Refusal::Invalid { .. }) => {
                self.tell(
                    key,
                    EventType::Warning,
                    "FailedCreate",
                    format!("Error creating: {error}"),
                );
                let delay = self.patience.delay(key);
                self.look_again(key.clone(), self.now + delay);
            }
            // The step read an older state: it is run again on the current one.
            Some(_) => self.look_again(key.clone(), self.now),
        }
        if let Some(at) = step.wake {
            self.look_again(key.clone(), at);
        }
    }

    fn carry_out(&mut self, effects: &[Effect]) -> Carried {
        self.cluster.carry_out(effects, self.now)
    }

    fn look_again(&mut self, key: ObjectKey, at: Timestamp) {
        let at = at.max(self.now + SignedDuration::from_millis(1));
        self.due.entry(at).or_default().insert(key);
    }

    /// The next time at which something is due.
    fn next_moment(&self) -> Option<Timestamp> {
        let scheduler = self.scheduler.next_wakeup().and_then(|after| {
            let after = SignedDuration::try_from(after).ok()?;
            self.start.checked_add(after).ok()
        });
        let due = self.due.keys().next().copied();
        let others = [self.controller.due(), self.provisioners.due(), self.drains.due()];
        scheduler
            .into_iter()
            .chain(due)
            .chain(others.into_iter().flatten())
            .min()
    }

    fn wake_due(&mut self) {
        while let Some((at, keys)) = self.due.pop_first() {
            if at > self.now {
                self.due.insert(at, keys);
                break;
            }
            for key in keys {
                match &*key.kind {
                    "Pod" | "Node" => self.agents.wake(key),
                    _ => {
                        self.busy.insert(key);
                    }
                }
            }
        }
        let now = self.since_start();
        self.scheduler.set_now(self.now.as_second());
        self.scheduler.tick(now);
        self.controller.wake(self.now);
        self.provisioners.wake(self.now);
    }

    fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.cluster.objects().find(key)
    }

    /// Changes an object as a user does, in any version. Returns `false` if it does not exist.
    fn change(&mut self, key: &ObjectKey, subresource: Option<&'static str>, body: Value) -> bool {
        let effect = Effect::Patch(Patch {
            target: Target {
                key: key.clone(),
                ..Target::default()
            },
            guard: Guard::Uid,
            subresource,
            merge: Merge::Strategic,
            body,
            name: "change",
        });
        self.carry_out(&[effect]).refused.is_none()
    }

    /// Deletes an object as a user does. Returns `false` if it does not exist.
    fn delete_object(&mut self, key: &ObjectKey) -> bool {
        match self.get(key).map(step::delete) {
            Some(effect) => self.carry_out(&[effect]).refused.is_none(),
            None => false,
        }
    }

    fn tell(&mut self, key: &ObjectKey, event_type: EventType, reason: &'static str, message: String) {
        let unknown = || Target {
            key: key.clone(),
            ..Target::default()
        };
        let event = Event {
            about: self.get(key).map_or_else(unknown, Target::of_value),
            event_type,
            reason,
            message,
            source: SOURCE.into(),
        };
        // Events are only recorded, which cannot fail.
        let _ = self.carry_out(&[Effect::Event(event)]);
    }
}
