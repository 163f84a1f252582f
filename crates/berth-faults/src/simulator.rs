//! Plays a story: one thread, virtual time, every message with a delay of its own.

use crate::chance::mix;
use crate::component::{Component, Finished, JobId, News, Turn};
use crate::driver::Driver;
use crate::invariants::Always;
use crate::mutation::Mutation;
use crate::objects;
use crate::port::{ApiError, Reply, Request};
use crate::process::{Process, RENEW_DEADLINE, Role, Running};
use crate::story::{Action, NetFault, PROCESSES, Step, Story};
use crate::trace::Trace;
use crate::user;
use crate::world::{Entry, Millis, World, latency, wall};
use berth_cluster::MemoryCluster;
use berth_core::effect::{Effect, Fact, Refusal};
use std::collections::BTreeMap;
use std::task::Poll;

/// A leader that was silent for so long is deposed.
const LEASE: Millis = 15_000;
/// How often a lease is renewed or competed for.
const RETRY: Millis = 2_000;
/// How long a request without an answer is waited for.
const PATIENCE: Millis = 3_000;
/// More than any story needs that comes to rest.
const MAX_EVENTS: u64 = 60_000;
/// A cluster in which nothing changes for so long has come to rest: longer than any backoff, deadline or dispute, and shorter than
/// the time after which a scheduler of these stories tries forgotten pods again.
const REST: Millis = 7_200_000;

/// Something that is to happen.
#[derive(Debug)]
enum Event {
    Step(Step),
    /// Faults stop.
    Calm,
    Watch {
        process: usize,
        kind: usize,
        incarnation: u64,
    },
    Arrive {
        process: usize,
        incarnation: u64,
        job: JobId,
        request: Box<Request>,
        fault: Option<NetFault>,
    },
    Reply {
        process: usize,
        incarnation: u64,
        job: JobId,
        reply: Reply,
    },
    Wake {
        process: usize,
        incarnation: u64,
    },
    Start {
        process: usize,
        incarnation: u64,
    },
    /// Competes for a lease, or renews it.
    Lease {
        process: usize,
        incarnation: u64,
    },
}

/// A lease: who holds it, and how often it was written.
#[derive(Debug, Default)]
struct Lease {
    holder: Option<(usize, u64)>,
    stamp: u64,
}

/// Who made a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    User,
    Process(usize),
}

/// A story that is being played.
pub(crate) struct Simulator {
    jitter: u64,
    /// The bug that is switched on.
    mutation: Option<Mutation>,
    pub(crate) world: World,
    pub(crate) processes: Vec<Process>,
    pub(crate) driver: Driver,
    leases: [Lease; 2],
    events: BTreeMap<(Millis, u64), Event>,
    sequence: u64,
    handled: u64,
    /// When something last changed.
    changed_at: Millis,
    pub(crate) calm: bool,
    pub(crate) always: Always,
    pub(crate) trace: Trace,
    pub(crate) failure: Option<String>,
}

impl Simulator {
    /// A story on a fresh cluster.
    pub(crate) fn of(story: &Story, mutation: Option<Mutation>, trace: Trace) -> Self {
        let mut simulator = Self::on(World::default(), story.jitter, trace);
        simulator.mutation = mutation;
        for object in objects::initial() {
            // Nothing is there that could refuse them.
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

    /// Every component, fresh, on a cluster that others left behind. Nothing goes wrong.
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
            changed_at: now,
            calm: false,
            always: Always::default(),
            trace,
            failure: None,
        };
        for process in 0..simulator.processes.len() {
            let incarnation = 0;
            simulator.at(now + 1 + process as Millis, Event::Start { process, incarnation });
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

    fn process(&mut self, number: usize, incarnation: u64) -> Option<&mut Process> {
        self.processes
            .get_mut(number)
            .filter(|process| process.incarnation == incarnation)
    }

    /// Until when a process that stands still hears nothing.
    fn pause_of(&self, number: usize) -> Option<Millis> {
        let until = self.processes.get(number)?.paused_until;
        (until > self.world.now).then_some(until)
    }

    fn handle(&mut self, event: Event) {
        let now = self.world.now;
        let concerns = match &event {
            Event::Step(_) | Event::Calm | Event::Arrive { .. } | Event::Start { .. } => None,
            Event::Watch { process, .. }
            | Event::Reply { process, .. }
            | Event::Wake { process, .. }
            | Event::Lease { process, .. } => self.pause_of(*process),
        };
        if let Some(until) = concerns {
            self.at(until, event);
            return;
        }
        match event {
            Event::Step(step) => self.happen(step),
            Event::Calm => self.become_calm(),
            Event::Watch {
                process,
                kind,
                incarnation,
            } => self.deliver(process, kind, incarnation),
            Event::Arrive {
                process,
                incarnation,
                job,
                request,
                fault,
            } => {
                let since = self
                    .process(process, incarnation)
                    .and_then(|process| process.jobs.get(&job))
                    .map_or(now, |running| running.since);
                let (reply, after) = self.serve(process, &request, fault, since);
                let delay = after + latency(&[self.jitter, 3, process as u64, job, self.sequence]);
                self.at(
                    now + delay,
                    Event::Reply {
                        process,
                        incarnation,
                        job,
                        reply,
                    },
                );
            }
            Event::Reply {
                process,
                incarnation,
                job,
                reply,
            } => {
                if let Some(running) = self.process(process, incarnation).and_then(|one| one.jobs.get(&job)) {
                    running.job.port.reply(reply);
                    self.go_on(process, job);
                }
            }
            Event::Wake { process, incarnation } => {
                if let Some(found) = self.process(process, incarnation) {
                    found.woken_at = None;
                    self.turn(process, |_, _| {});
                }
            }
            Event::Start { process, incarnation } => {
                if self.process(process, incarnation).is_some() {
                    self.start(process);
                }
            }
            Event::Lease { process, incarnation } => self.compete(process, incarnation),
        }
    }

    // Processes

    fn start(&mut self, number: usize) {
        let (now, jitter, mutation) = (self.world.now, self.jitter, self.mutation);
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        let incarnation = process.incarnation;
        if process.role.election().is_some() && process.renewed.is_none() {
            self.at(
                now,
                Event::Lease {
                    process: number,
                    incarnation,
                },
            );
            return;
        }
        process.start(mix(&[jitter, number as u64]), now, mutation);
        let kinds: Vec<usize> = process.watches.iter().map(|watch| watch.kind).collect();
        for kind in kinds {
            self.schedule_watch(number, kind);
        }
    }

    fn kill(&mut self, number: usize) {
        let (now, jitter) = (self.world.now, self.jitter);
        if let Some(process) = self.processes.get_mut(number) {
            process.die();
            let after = 100 + mix(&[jitter, 5, number as u64, process.incarnation]) % 3_000;
            let incarnation = process.incarnation;
            self.at(
                now + after,
                Event::Start {
                    process: number,
                    incarnation,
                },
            );
        }
    }

    /// Takes or renews a lease, if it is there to be taken.
    fn compete(&mut self, number: usize, incarnation: u64) {
        let now = self.world.now;
        let jitter = self.jitter;
        let Some(process) = self
            .processes
            .get_mut(number)
            .filter(|process| process.incarnation == incarnation)
        else {
            return;
        };
        let Some(lease) = process
            .role
            .election()
            .and_then(|election| self.leases.get_mut(election))
        else {
            return;
        };
        let stays = self.mutation == Some(Mutation::LeaderStays);
        if process.renewed.is_some_and(|renewed| now >= renewed + RENEW_DEADLINE) && !stays {
            // It has not renewed in time, and ends before another one can take over.
            self.trace.line(now, || format!("{} steps down", PROCESSES[number]));
            self.kill(number);
            return;
        }
        let me = (number, incarnation);
        let is_mine = lease.holder.is_none_or(|holder| holder == me);
        let is_lost = matches!(
            process.faults.front(),
            Some(NetFault::LostBefore | NetFault::Busy | NetFault::Conflict)
        );
        let expired = process
            .observed
            .is_some_and(|(stamp, since)| stamp == lease.stamp && now >= since + LEASE)
            || process.observed.is_some() && self.mutation == Some(Mutation::LeaseNotAwaited);
        if is_lost {
            process.faults.pop_front();
        } else if is_mine || expired {
            let is_first = process.renewed.is_none();
            lease.holder = Some(me);
            lease.stamp += 1;
            process.renewed = Some(now);
            process.renewed_on_the_wall = i64::try_from(now)
                .unwrap_or(i64::MAX)
                .saturating_add(process.offset_millis);
            if is_first {
                self.trace.line(now, || format!("{} leads", PROCESSES[number]));
                self.start(number);
            }
        } else if process.renewed.is_some() && !stays {
            self.kill(number);
            return;
        } else if process.observed.is_none_or(|(stamp, _)| stamp != lease.stamp) {
            process.observed = Some((lease.stamp, now));
        }
        if self.calm && self.has_leaders() {
            self.settle_elections();
            return;
        }
        let next = now + RETRY + mix(&[jitter, 6, number as u64, now]) % 100;
        self.at(
            next,
            Event::Lease {
                process: number,
                incarnation,
            },
        );
    }

    /// Time goes on without renewals: nobody is deposed any more but who should have been by now.
    fn settle_elections(&mut self) {
        for number in 0..self.processes.len() {
            let process = &mut self.processes[number];
            let Some(lease) = process.role.election().and_then(|election| self.leases.get(election)) else {
                continue;
            };
            if lease.holder == Some((number, process.incarnation)) {
                process.renewed = Some(Millis::MAX / 2);
                process.renewed_on_the_wall = i64::MAX / 2;
            } else if process.component.is_some() {
                self.kill(number);
            }
        }
    }

    /// Whether every election has a leader that runs.
    fn has_leaders(&self) -> bool {
        self.leases.iter().all(|lease| {
            lease.holder.is_some_and(|(number, incarnation)| {
                let holder = self.processes.get(number);
                holder.is_some_and(|process| process.incarnation == incarnation && process.component.is_some())
            })
        })
    }

    /// Gives a component a turn, and starts the jobs that it wants.
    fn turn(&mut self, number: usize, act: impl FnOnce(&mut dyn Component, &mut Turn)) {
        let now = self.world.now;
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        let Some(mut component) = process.component.take() else {
            return;
        };
        let mut turn = Turn {
            now,
            wall: wall(now, process.offset_millis),
            complete: process.is_complete(),
            next_job: process.next_job,
            mutation: self.mutation,
            spawned: Vec::new(),
            decided: Vec::new(),
        };
        act(component.as_mut(), &mut turn);
        component.run(&mut turn);
        let wake = component.wake();
        process.component = Some(component);
        process.next_job = turn.next_job;
        let incarnation = process.incarnation;
        if let Some(wake) = wake.map(|wake| wake.max(now + 1))
            && process.woken_at.is_none_or(|woken| wake < woken)
        {
            process.woken_at = Some(wake);
            self.at(
                wake,
                Event::Wake {
                    process: number,
                    incarnation,
                },
            );
        }
        for effect in &turn.decided {
            if let Some(process) = self.processes.get(number)
                && let Err(why) = self.always.decided(process, effect, &self.world)
            {
                self.fail(why);
            }
        }
        for (id, job) in turn.spawned {
            if let Some(process) = self.processes.get_mut(number) {
                process.jobs.insert(id, Running { job, since: now });
            }
            self.go_on(number, id);
        }
    }

    /// Lets a job go on until it asks for something, or is done.
    fn go_on(&mut self, number: usize, id: JobId) {
        let Some(running) = self
            .processes
            .get_mut(number)
            .and_then(|process| process.jobs.get_mut(&id))
        else {
            return;
        };
        match running.job.go_on() {
            Poll::Ready(finished) => self.finish(number, id, finished),
            Poll::Pending => {
                if let Some(request) = running.job.port.take_request() {
                    self.send(number, id, request);
                }
            }
        }
    }

    fn finish(&mut self, number: usize, id: JobId, finished: Finished) {
        if let Some(process) = self.processes.get_mut(number) {
            process.jobs.remove(&id);
        }
        self.turn(number, |component, turn| component.finish(id, finished, turn));
    }

    // Requests

    fn send(&mut self, number: usize, job: JobId, request: Request) {
        let (now, jitter) = (self.world.now, self.jitter);
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        let incarnation = process.incarnation;
        let is_api = !matches!(request, Request::CreateVolume(_) | Request::DeleteVolume(_));
        let leads = process.is_leading(now) || self.mutation == Some(Mutation::LeaderStays);
        if is_api && !leads {
            let reply = match request {
                Request::Holds(_) => Reply::Holds(Err(ApiError::NotLeading)),
                _ => Reply::Object(Err(ApiError::NotLeading)),
            };
            let event = Event::Reply {
                process: number,
                incarnation,
                job,
                reply,
            };
            self.at(now + 1, event);
            return;
        }
        process.requests += 1;
        let fault = process.faults.pop_front().filter(|_| is_api);
        let mut delay = latency(&[jitter, 2, number as u64, process.requests]);
        if fault == Some(NetFault::Late) {
            delay += 2_500;
        }
        self.at(
            now + delay,
            Event::Arrive {
                process: number,
                incarnation,
                job,
                request: Box::new(request),
                fault,
            },
        );
    }

    /// What the other side makes of a request, and how much longer its answer takes.
    fn serve(&mut self, number: usize, request: &Request, fault: Option<NetFault>, since: Millis) -> (Reply, Millis) {
        let failed = |error: ApiError| match request {
            Request::Holds(_) => Reply::Holds(Err(error)),
            _ => Reply::Object(Err(error)),
        };
        match fault {
            Some(NetFault::LostBefore) => return (failed(ApiError::InDoubt), PATIENCE),
            Some(NetFault::Busy) => return (failed(ApiError::Busy), 0),
            Some(NetFault::Conflict) => {
                if let Request::Write(effect) = request
                    && let Some(key) = effect.writes_to().filter(|_| !matches!(effect, Effect::Create(_)))
                {
                    return (failed(ApiError::Refused(Refusal::Conflict(key))), 0);
                }
            }
            Some(NetFault::LostAfter | NetFault::Failed | NetFault::Late) | None => {}
        }
        let (reply, after) = self.answer(number, request, since);
        match fault {
            Some(NetFault::LostAfter) => (failed(ApiError::InDoubt), PATIENCE),
            Some(NetFault::Failed) => (failed(ApiError::InDoubt), 0),
            _ => (reply, after),
        }
    }

    fn answer(&mut self, number: usize, request: &Request, since: Millis) -> (Reply, Millis) {
        match request {
            Request::Read(key) => (Reply::Object(Ok(self.world.find(key).cloned())), 0),
            Request::Holds(Fact::ClaimUnused { claim }) if self.mutation == Some(Mutation::ShutDownPodsUse) => {
                let mut pods = self.world.of_kind("Pod");
                let used = pods.any(|pod| {
                    !pod.text("/spec/nodeName").is_empty()
                        && berth_cluster::objects::claims_of(&pod.value).any(|name| name == claim.name)
                });
                (Reply::Holds(Ok(!used)), 0)
            }
            Request::Holds(fact) => {
                let (done, _) = self.world.carry_out(&Effect::Confirm(fact.clone()));
                (Reply::Holds(Ok(done.is_ok())), 0)
            }
            Request::Write(effect) => {
                let key = effect.writes_to();
                let reply = match self.carry_out(Author::Process(number), effect) {
                    Ok(()) => Ok(key.and_then(|key| self.world.find(&key).cloned())),
                    Err(refusal) => Err(ApiError::Refused(refusal)),
                };
                (Reply::Object(reply), 0)
            }
            Request::CreateVolume(request) => {
                let called = self.driver.create(request);
                self.trace.line(self.world.now, || {
                    let outcome = match &called.answer {
                        Ok(_) => "made".to_owned(),
                        Err(failure) => format!("{:?}: {failure}", failure.kind),
                    };
                    format!("driver is asked for {}: {outcome}", request.name)
                });
                (Reply::Volume(called.answer), called.extra_millis)
            }
            Request::DeleteVolume(handle) => {
                if let Err(why) = self.always.data_deleted(handle, since, &self.world) {
                    self.fail(why);
                }
                let called = self.driver.delete(handle);
                self.trace.line(self.world.now, || {
                    format!("driver is asked to delete {handle}: {:?}", called.answer)
                });
                (Reply::Deleted(called.answer), called.extra_millis)
            }
        }
    }

    /// Carries out one write, has the invariants look at it, and tells the watches.
    fn carry_out(&mut self, author: Author, effect: &Effect) -> Result<(), Refusal> {
        let (done, entries) = self.world.carry_out(effect);
        let who = match author {
            Author::User => "user",
            Author::Process(number) => PROCESSES.get(number).copied().unwrap_or_default(),
        };
        self.trace.write(self.world.now, who, effect, &done, &entries);
        if let Author::Process(number) = author
            && let Some(process) = self.processes.get(number)
            && let Err(why) = self.always.written(process, effect, &self.world)
        {
            self.fail(why);
        }
        for entry in &entries {
            if let Err(why) = self.always.changed(author, entry, &self.world) {
                self.fail(why);
            }
        }
        if !entries.is_empty() {
            self.changed_at = self.world.now;
        }
        self.notify(&entries);
        done
    }

    // Watches

    fn notify(&mut self, entries: &[Entry]) {
        for entry in entries {
            let Some(kind) = crate::world::kind_number(&entry.doc.key.kind) else {
                continue;
            };
            for number in 0..self.processes.len() {
                self.schedule_watch(number, kind);
            }
        }
    }

    fn schedule_watch(&mut self, number: usize, kind: usize) {
        let (now, jitter) = (self.world.now, self.jitter);
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        let incarnation = process.incarnation;
        let Some(watch) = process.watch(kind).filter(|watch| !watch.scheduled) else {
            return;
        };
        watch.scheduled = true;
        let delay = latency(&[jitter, 1, number as u64, kind as u64, watch.deliveries]);
        let at = (now + delay).max(watch.held_until);
        self.at(
            at,
            Event::Watch {
                process: number,
                kind,
                incarnation,
            },
        );
    }

    fn deliver(&mut self, number: usize, kind: usize, incarnation: u64) {
        let (now, jitter) = (self.world.now, self.jitter);
        let Some(process) = self
            .processes
            .get_mut(number)
            .filter(|process| process.incarnation == incarnation)
        else {
            return;
        };
        let (role, was_complete) = (process.role, process.is_complete());
        let Some(watch) = process.watches.iter_mut().find(|watch| watch.kind == kind) else {
            return;
        };
        if watch.held_until > now {
            let at = watch.held_until;
            self.at(
                at,
                Event::Watch {
                    process: number,
                    kind,
                    incarnation,
                },
            );
            return;
        }
        watch.scheduled = false;
        watch.deliveries += 1;
        let (Some(log), Some(name)) = (self.world.logs.get(kind), crate::world::KINDS.get(kind)) else {
            return;
        };
        let mut news = Vec::new();
        if watch.relist || !watch.listed {
            news.extend(watch.list(role, self.world.of_kind(name), log.len()));
        } else {
            // What comes together is taken in together, or one after the other.
            let all = mix(&[jitter, 4, number as u64, kind as u64, watch.deliveries]).is_multiple_of(2);
            let count = if all { log.len() } else { watch.next + 1 };
            while watch.next < count.min(log.len()) {
                news.extend(watch.follow(role, &log[watch.next]));
                watch.was_held = false;
            }
        }
        let more = watch.next < log.len();
        if role == Role::Scheduler && *name == "Pod" {
            for one in &news {
                if let News::Applied(doc) = one
                    && !doc.text("/spec/nodeName").is_empty()
                {
                    process.seen_bound.insert(doc.uid.clone());
                }
            }
        }
        if self.mutation == Some(Mutation::BoundPodWaits) && role == Role::Scheduler {
            for one in &mut news {
                if let News::Applied(doc) = one
                    && doc.key.kind == "Pod"
                    && !doc.text("/spec/nodeName").is_empty()
                    && berth_cluster::field::label(&doc.value, "late") == "yes"
                {
                    let mut value = doc.value.clone();
                    berth_cluster::field::unset(&mut value, &["spec", "nodeName"]);
                    *doc = std::rc::Rc::new(crate::world::Doc::of(value));
                }
            }
        }
        process.in_batch = news.len() > 1;
        let completes = !was_complete && process.is_complete();
        self.turn(number, |component, turn| {
            component.take(name, news, turn);
            if completes {
                component.complete();
            }
        });
        if let Some(process) = self.processes.get_mut(number) {
            process.in_batch = false;
        }
        if more {
            self.schedule_watch(number, kind);
        }
    }

    // Steps of the story

    fn happen(&mut self, step: Step) {
        let now = self.world.now;
        self.trace.line(now, || format!("* {}", step.action));
        match step.action {
            Action::Hold { process, kind, millis } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    watch.held_until = now + millis;
                    watch.was_held = true;
                }
            }
            Action::Relist { process, kind } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    watch.relist = true;
                    self.schedule_watch(process, kind);
                }
            }
            Action::Double { process, kind } => {
                if let Some(watch) = self.processes.get_mut(process).and_then(|one| one.watch(kind)) {
                    watch.double = true;
                }
            }
            Action::Kill { process } => self.kill(process),
            Action::Pause { process, millis } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.paused_until = now + millis;
                }
            }
            Action::Net {
                process,
                fault,
                requests,
            } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.faults.extend(std::iter::repeat_n(fault, requests));
                }
            }
            Action::Jump { process, seconds } => {
                if let Some(process) = self.processes.get_mut(process) {
                    process.offset_millis = process.offset_millis.saturating_add(seconds * 1_000);
                }
            }
            Action::Driver { fault, calls } => {
                self.driver.faults.extend(std::iter::repeat_n(fault, calls));
            }
            action => self.act(action),
        }
    }

    fn act(&mut self, action: Action) {
        self.always.acted(action, &self.world);
        for effect in user::effects(action, &self.world) {
            // A user whose command is refused reads why, and goes on.
            let _ = self.carry_out(Author::User, &effect);
        }
    }

    /// Faults stop: watches flow, requests arrive, and everything that stood still goes on.
    fn become_calm(&mut self) {
        self.calm = true;
        self.driver.faults.clear();
        let now = self.world.now;
        self.trace.line(now, || "* faults stop".to_owned());
        for node in 0..crate::story::NODES.len() {
            self.act(Action::NodeBack { node });
            self.act(Action::FreeCapacity { node });
        }
        for process in &mut self.processes {
            process.faults.clear();
            process.paused_until = 0;
            for watch in &mut process.watches {
                watch.held_until = 0;
            }
        }
        // What was held back comes now, not when it would have been released.
        let late: Vec<_> = self.events.keys().copied().filter(|(at, _)| *at > now).collect();
        for key in late {
            if matches!(self.events.get(&key), Some(Event::Watch { .. }))
                && let Some(event) = self.events.remove(&key)
            {
                self.at(now + 1, event);
            }
        }
    }
}
