//! A small cluster in which one message arrives at a time.

use super::{CLAIM, OTHER_CLAIM, POD, Scenario};
use crate::component::{Component, Finished, JobId, Turn};
use crate::invariants::Always;
use crate::objects;
use crate::port::{ApiError, Reply, Request};
use crate::process::{Process, Role, Running};
use crate::simulator::Author;
use crate::story::Action;
use crate::trace::change;
use crate::user;
use crate::world::{Doc, KINDS, Millis, World, wall};
use berth_cluster::field;
use berth_core::effect::{Effect, Fact, Target};
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::task::Poll;

/// Longer than a binding may take, and shorter than the flush of unschedulable pods.
const LONGEST_WAIT: Millis = 700_000;
/// How often time may pass before a path ends: more than any backoff needs.
const MOST_TICKS: usize = 16;

/// One possible next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Choice {
    Deliver { process: usize, kind: usize },
    Serve { process: usize, job: JobId },
    Answer { process: usize, job: JobId },
    User(usize),
    Tick,
}

/// A request in flight.
struct Pending {
    request: Request,
    reply: Option<Reply>,
}

/// What a process knows, as numbers: what each watch delivered, and the requests and responses of each of its jobs, in
/// order.
#[derive(Clone, Default, Hash)]
struct Memory {
    heard: [u64; KINDS.len()],
    jobs: BTreeMap<JobId, u64>,
    /// When it was woken, in order.
    woken: u64,
}

pub(super) struct System {
    world: World,
    processes: Vec<Process>,
    pending: BTreeMap<(usize, JobId), Pending>,
    memories: Vec<Memory>,
    user: Vec<Action>,
    /// The messages in flight, in the order in which they were sent.
    waiting: Vec<Choice>,
    ticks: usize,
    always: Always,
    failure: Option<String>,
    /// The writes, line by line, if requested.
    pub(super) lines: Option<Vec<String>>,
}

impl System {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut world = World::default();
        let mut all = vec![objects::class("local"), objects::node("n1"), objects::node("n2")];
        all.extend([objects::volume(0), objects::volume(1)]);
        let mut second = objects::pod(POD);
        field::set(&mut second, &["metadata", "name"], "p0".into());
        second["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = crate::story::claim(OTHER_CLAIM).into();
        let pods = [objects::pod(POD), second];
        let claims = [objects::claim(CLAIM), objects::claim(OTHER_CLAIM)];
        all.push(
            serde_json::json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": "high"}, "value": 10}),
        );
        for (claim, pod) in claims.into_iter().zip(pods).take(scenario.pods) {
            all.extend([claim, pod]);
        }
        for object in all {
            // Nothing exists yet that could refuse them.
            let _ = world.carry_out(&Effect::Create(Box::new(object)));
        }
        let mut processes = vec![Process::new(2, Role::Controller, "controller")];
        let names = ["scheduler-a", "scheduler-b"];
        let schedulers = names.into_iter().take(scenario.schedulers).enumerate();
        processes.extend(schedulers.map(|(number, name)| Process::new(number, Role::Scheduler, name)));
        let memories = vec![Memory::default(); processes.len()];
        let mut system = Self {
            world,
            processes,
            pending: BTreeMap::new(),
            memories,
            user: scenario.user.clone(),
            waiting: Vec::new(),
            ticks: 0,
            always: Always::default(),
            failure: None,
            lines: None,
        };
        for process in 0..system.processes.len() {
            system.start(process);
        }
        system
    }

    /// Starts a process that has listed everything.
    fn start(&mut self, number: usize) {
        let process = &mut self.processes[number];
        process.start(number as u64, 0, None);
        let role = process.role;
        let mut listed = Vec::new();
        for watch in &mut process.watches {
            let (kind, end) = (KINDS[watch.kind], self.world.logs[watch.kind].len());
            listed.push((kind, watch.list(role, self.world.of_kind(kind), end)));
        }
        self.turn(number, |component, turn| {
            turn.complete = false;
            for (kind, news) in listed {
                component.take(kind, news, turn);
            }
            turn.complete = true;
            component.complete();
        });
    }

    /// The messages in flight, oldest first. Time passes when there are none.
    pub(super) fn messages(&mut self) -> Vec<Choice> {
        let mut enabled = Vec::new();
        for (number, process) in self.processes.iter().enumerate() {
            for watch in &process.watches {
                if watch.next < self.world.logs[watch.kind].len() {
                    enabled.push(Choice::Deliver {
                        process: number,
                        kind: watch.kind,
                    });
                }
            }
        }
        for ((process, job), pending) in &self.pending {
            let (process, job) = (*process, *job);
            enabled.push(match pending.reply {
                None => Choice::Serve { process, job },
                Some(_) => Choice::Answer { process, job },
            });
        }
        self.waiting.retain(|waiting| enabled.contains(waiting));
        for choice in enabled {
            if !self.waiting.contains(&choice) {
                self.waiting.push(choice);
            }
        }
        if self.waiting.is_empty() && self.ticks < MOST_TICKS && self.next_wake().is_some() {
            return vec![Choice::Tick];
        }
        self.waiting.clone()
    }

    /// What the user can do.
    pub(super) fn user_choices(&self) -> impl Iterator<Item = Choice> + use<> {
        (0..self.user.len()).map(Choice::User)
    }

    pub(super) fn failure(&mut self) -> Option<String> {
        self.failure.clone().or_else(|| self.wrong_at_the_end())
    }

    fn next_wake(&self) -> Option<(Millis, usize)> {
        let wakes = self.processes.iter().enumerate().filter_map(|(number, process)| {
            let wake = process.component.as_ref()?.wake()?;
            Some((wake, number))
        });
        wakes.min().filter(|(wake, _)| *wake < self.world.now + LONGEST_WAIT)
    }

    pub(super) fn happen(&mut self, choice: Choice) {
        self.waiting.retain(|waiting| *waiting != choice);
        match choice {
            Choice::Deliver { process, kind } => self.deliver(process, kind),
            Choice::Serve { process, job } => self.serve(process, job),
            Choice::Answer { process, job } => self.answer(process, job),
            Choice::User(index) => {
                let action = self.user[index];
                self.user.clear();
                for effect in user::effects(action, &self.world) {
                    let _ = self.carry_out(Author::User, &effect);
                }
            }
            Choice::Tick => {
                self.ticks += 1;
                if let Some((wake, number)) = self.next_wake() {
                    self.world.now = self.world.now.max(wake);
                    let woken = &mut self.memories[number].woken;
                    *woken = number_of(&(*woken, wake));
                    self.turn(number, |_, _| {});
                }
            }
        }
    }

    /// A process sent a request, or received a response.
    fn remember(&mut self, number: usize, job: JobId, words: &str) {
        let known = self.memories[number].jobs.entry(job).or_default();
        *known = number_of(&(*known, words));
    }

    fn deliver(&mut self, number: usize, kind: usize) {
        let (logs, process) = (&self.world.logs, &mut self.processes[number]);
        let role = process.role;
        let Some(watch) = process.watch(kind) else { return };
        let entry = logs[kind][watch.next].clone();
        let news = watch.follow(role, &entry);
        if role == Role::Scheduler && KINDS[kind] == "Pod" && !entry.doc.text("/spec/nodeName").is_empty() {
            process.seen_bound.insert(entry.doc.uid.clone());
        }
        let revision = self.world.revision(&entry.doc);
        let heard = &mut self.memories[number].heard[kind];
        *heard = number_of(&(*heard, &entry.doc.key, revision, entry.gone));
        self.turn(number, |component, turn| component.take(KINDS[kind], news, turn));
    }

    fn serve(&mut self, number: usize, job: JobId) {
        let Some(request) = self.pending.get(&(number, job)).map(|pending| pending.request.clone()) else {
            return;
        };
        let reply = match request {
            Request::Read(key) => Reply::Object(Ok(self.world.find(&key).cloned())),
            Request::Holds(fact) => Reply::Holds(Ok(self.world.carry_out(&Effect::Confirm(fact)).0.is_ok())),
            Request::Write(effect) => Reply::Object(match self.carry_out(Author::Process(number), &effect) {
                Ok(()) => Ok(effect.writes_to().and_then(|key| self.world.find(&key).cloned())),
                Err(refusal) => Err(ApiError::Refused(refusal)),
            }),
            Request::CreateVolume(_) | Request::DeleteVolume(_) => Reply::Deleted(Ok(())),
            Request::Sleep(_) => Reply::Holds(Ok(true)),
        };
        if let Some(pending) = self.pending.get_mut(&(number, job)) {
            pending.reply = Some(reply);
        }
    }

    fn answer(&mut self, number: usize, job: JobId) {
        let Some(Pending { reply: Some(reply), .. }) = self.pending.remove(&(number, job)) else {
            return;
        };
        let heard = self.words_of(&reply);
        self.remember(number, job, &heard);
        if let Some(running) = self.processes[number].jobs.get(&job) {
            running.job.port.reply(reply);
            self.go_on(number, job);
        }
    }

    fn words_of(&self, reply: &Reply) -> String {
        match reply {
            Reply::Object(Ok(Some(doc))) => format!("{} {}", doc.key, self.world.revision(doc)),
            Reply::Object(other) => format!("{:?}", other.as_ref().err()),
            Reply::Holds(holds) => format!("{holds:?}"),
            Reply::Volume(_) | Reply::Deleted(_) => String::new(),
        }
    }

    /// A request without the versions of objects, which only reflect the order of all writes: instead, it includes the state
    /// of its object that a write was decided on.
    fn words_of_request(&self, request: &Request) -> String {
        let state = |target: &Target| {
            let states = self.world.states(&target.key);
            let mut known = states.filter(|doc| doc.version.to_string() == target.resource_version);
            known.next().map(|doc| self.world.revision(doc))
        };
        match request {
            Request::Write(Effect::Patch(patch)) => {
                let (key, body) = (&patch.target.key, &patch.body);
                format!("{} {key} {:?} {body}", patch.name, state(&patch.target))
            }
            Request::Write(Effect::Delete(delete)) => {
                format!("delete {} {:?}", delete.target.key, state(&delete.target))
            }
            Request::Write(Effect::Bind { pod, node }) => format!("bind {} {} {node}", pod.key, pod.uid),
            Request::Holds(Fact::Unchanged(target)) => format!("is {} still {:?}", target.key, state(target)),
            other => format!("{other:?}"),
        }
    }

    fn carry_out(&mut self, author: Author, effect: &Effect) -> Result<(), berth_core::effect::Refusal> {
        let (done, entries) = self.world.carry_out(effect);
        if let Some(lines) = &mut self.lines {
            let refused = done.as_ref().err().map(|refusal| format!("  refused: {refusal}"));
            lines.extend(refused);
            lines.extend(entries.iter().map(|entry| format!("  {}", change(entry))));
        }
        for entry in &entries {
            if let Err(why) = self.always.changed(author, entry, &self.world) {
                self.failure.get_or_insert(why);
            }
        }
        done
    }

    fn turn(&mut self, number: usize, act: impl FnOnce(&mut dyn Component, &mut Turn)) {
        let now = self.world.now;
        let process = &mut self.processes[number];
        let Some(mut component) = process.component.take() else {
            return;
        };
        let mut turn = Turn {
            now,
            wall: wall(now, 0),
            complete: true,
            next_job: process.next_job,
            mutation: None,
            spawned: Vec::new(),
            decided: Vec::new(),
        };
        act(component.as_mut(), &mut turn);
        component.run(&mut turn);
        process.component = Some(component);
        process.next_job = turn.next_job;
        for effect in &turn.decided {
            if let Err(why) = self.always.decided(&self.processes[number], effect, &self.world) {
                self.failure.get_or_insert(why);
            }
        }
        for (id, job) in turn.spawned {
            self.processes[number].jobs.insert(id, Running { job, since: now });
            self.go_on(number, id);
        }
    }

    fn go_on(&mut self, number: usize, id: JobId) {
        let Some(running) = self.processes[number].jobs.get_mut(&id) else {
            return;
        };
        match running.job.go_on() {
            Poll::Ready(finished) => self.finish(number, id, finished),
            Poll::Pending => {
                if let Some(request) = running.job.port.take_request() {
                    let words = self.words_of_request(&request);
                    self.remember(number, id, &words);
                    self.pending.insert((number, id), Pending { request, reply: None });
                }
            }
        }
    }

    fn finish(&mut self, number: usize, id: JobId, finished: Finished) {
        self.processes[number].jobs.remove(&id);
        self.turn(number, |component, turn| component.finish(id, finished, turn));
    }

    /// What every process knows, what exists, and what is in flight, as one number.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // Which messages can overtake others also depends on their order.
        (&self.memories, &self.waiting, self.user.len()).hash(&mut hasher);
        for kind in KINDS {
            for doc in self.world.of_kind(kind) {
                (&doc.key, self.world.revision(doc)).hash(&mut hasher);
                content(&doc.value).hash(&mut hasher);
            }
        }
        for component in self.processes.iter().filter_map(|process| process.component.as_ref()) {
            visible(component.as_ref()).hash(&mut hasher);
        }
        for (place, pending) in &self.pending {
            place.hash(&mut hasher);
            pending
                .reply
                .as_ref()
                .map(|reply| self.words_of(reply))
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Nothing is in flight any more: every pod that can run must run. A pod cannot if its claim is gone, or if a user left no
    /// volume for it: reservations are kept, even for claims that have meanwhile got another volume.
    fn wrong_at_the_end(&mut self) -> Option<String> {
        if !self.messages().is_empty() {
            return None;
        }
        let mut pods = self.world.of_kind("Pod").filter(|pod| !field::is_deleting(&pod.value));
        let waits = |pod: &Doc| pod.text("/spec/nodeName").is_empty();
        let is_left = |volume: &Doc, claim: &Doc| {
            let owner = volume.text("/spec/claimRef/name");
            owner.is_empty() || owner == claim.key.name
        };
        let has_volume = |claim: &Doc| {
            let mut volumes = self.world.of_kind("PersistentVolume");
            !claim.text("/spec/volumeName").is_empty() || volumes.any(|volume| is_left(volume, claim))
        };
        let has_claims = |pod: &Doc| {
            let mut claims = berth_cluster::objects::claims_of(&pod.value);
            claims.all(|name| {
                let claim = self.world.get("PersistentVolumeClaim", &pod.key.namespace, &name);
                claim.is_some_and(|claim| !field::is_deleting(&claim.value) && has_volume(claim))
            })
        };
        let pod = pods.find(|pod| waits(pod) && has_claims(pod))?;
        Some(format!("{} waits forever", pod.key))
    }

    pub(super) fn words(&self, choice: Choice) -> String {
        let name = |number: usize| self.processes[number].name;
        match choice {
            Choice::Deliver { process, kind } => format!("{} hears of a {}", name(process), KINDS[kind]),
            Choice::Serve { process, job } => format!("request {job} of {} arrives", name(process)),
            Choice::Answer { process, job } => format!("{} hears the answer to {job}", name(process)),
            Choice::User(index) => format!("user: action {index}"),
            Choice::Tick => "time passes".to_owned(),
        }
    }
}

fn number_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The visible part of a component's state besides its messages: how often it has tried what, and when it wakes up.
fn visible(component: &dyn Component) -> (Option<Millis>, [u64; 3]) {
    let counts = component.scheduler().map(|scheduler| scheduler.counts());
    let tried = counts.map(|counts| [counts.scheduled, counts.unschedulable, counts.errors]);
    (component.wake(), tried.unwrap_or_default())
}

/// An object without its version, which only reflects the order of writes.
fn content(value: &Value) -> String {
    let mut value = value.clone();
    field::unset(&mut value, &["metadata", "resourceVersion"]);
    field::unset(&mut value, &["spec", "claimRef", "resourceVersion"]);
    value.to_string()
}
