//! The one task that owns the state: it takes in what watches and workers bring, decides, and hands the work out.

use super::Options;
use super::capacity::{Publisher, Question, Subject, Write};
use super::effects::{Outcome, Worker};
use crate::backoff::Backoff;
use crate::component;
use crate::endpoint::PULSE;
use crate::executor::{Answer, Gone};
use crate::inbox::{Inbox, Message};
use crate::queue::{Failure, Queue};
use crate::watch::{Change, ObjectName};
use berth_core::api::{CsiStorageCapacity, Kind, Object, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::When;
use berth_core::names;
use berth_provisioner::answer::Then;
use berth_provisioner::capacity::{Available, Item};
use berth_provisioner::reclaim::{Reclaim, delete_failed, reclaim};
use berth_provisioner::request::{FailureKind, volume_name};
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::step::{Attempt, Decision, started, step};
use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How long calls and effects in flight may take when the provisioner stops. Pods are given 30 s by default; what is
/// cut off is recorded on its claim, and the next provisioner goes on from there.
const GRACE: Duration = Duration::from_secs(15);

/// A claim or a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Claim(String, String),
    Volume(String),
}

/// What a worker brings back.
enum Finished {
    /// A claim or volume was worked on.
    Object(Key, Outcome),
    /// The backend was asked about capacity.
    Asked(String, Item, Option<Available>),
    /// Capacity was written, or not.
    Written(Subject, Option<Item>, bool),
}

/// The state and everything around it.
pub(crate) struct Owner {
    worker: Worker,
    options: Options,
    settings: BTreeMap<String, Settings>,
    state: State,
    queue: Queue<Key>,
    inbox: Inbox,
    workers: JoinSet<Finished>,
    /// What is being worked on, with the version that it had at the beginning.
    begun: FxHashMap<Key, Option<String>>,
    /// Claims for which every answer of the backend was heard since the record was written.
    heard: FxHashSet<Key>,
    publisher: Option<Publisher>,
    publishing: JoinSet<Finished>,
    /// Published capacity that was seen before all objects were known.
    early: Vec<CsiStorageCapacity>,
}

impl component::Owner for Owner {
    /// Works until cancelled, then lets the workers finish what they have begun.
    async fn run(mut self, cancel: CancellationToken) {
        let mut resync = interval_at(Instant::now() + self.options.resync, self.options.resync);
        let poll = self
            .options
            .capacity
            .as_ref()
            .map_or(self.options.resync, |one| one.poll);
        let mut poll = interval_at(Instant::now() + poll, poll);
        for interval in [&mut resync, &mut poll] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut pulse = interval(PULSE);
        loop {
            self.options.process.health.set_beating(true);
            self.dispatch();
            let due = self.next_due();
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(finished) = self.workers.join_next() => match finished {
                    Ok(finished) => self.finish(finished),
                    // A worker that panicked leaves its locks behind: only a restart is safe.
                    Err(error) => {
                        tracing::error!(%error, "a worker failed");
                        break;
                    }
                },
                Some(finished) = self.publishing.join_next() => match finished {
                    Ok(finished) => self.finish(finished),
                    Err(error) => {
                        tracing::error!(%error, "a worker failed");
                        break;
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => break,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.queue.advance(Instant::now());
                }
                _ = resync.tick() => self.push_all(),
                _ = pulse.tick() => {}
                _ = poll.tick() => self.publisher.iter_mut().for_each(Publisher::poll),
            }
        }
        // A volume that is being made is better known before we go.
        let finish = async {
            while self.workers.join_next().await.is_some() {}
            while self.publishing.join_next().await.is_some() {}
        };
        if timeout(GRACE, finish).await.is_err() {
            tracing::warn!("calls and effects were left unfinished");
        }
    }
}

impl Owner {
    pub(super) fn new(worker: Worker, options: Options, inbox: Inbox) -> Self {
        let settings = options
            .settings
            .iter()
            .map(|one| (one.provisioner.clone(), one.clone()));
        let publisher = options.capacity.clone();
        Self {
            worker,
            settings: settings.collect(),
            publisher: publisher.map(|capacity| Publisher::new(capacity, &options.settings)),
            options,
            state: State::default(),
            queue: Queue::new(Backoff::CALL),
            inbox,
            workers: JoinSet::new(),
            begun: FxHashMap::default(),
            heard: FxHashSet::default(),
            publishing: JoinSet::new(),
            early: Vec::new(),
        }
    }

    fn is_ready(&self) -> bool {
        self.inbox.is_complete()
    }

    fn next_due(&self) -> Option<Instant> {
        let published = self.publisher.as_ref().and_then(Publisher::wake_at);
        let limit = self.options.capacity.as_ref().map_or(0, |one| one.workers.max(1));
        // While all who could ask are busy, somebody who finishes wakes us.
        let published = published.filter(|_| self.publishing.len() < limit);
        self.queue.next_due().into_iter().chain(published).min()
    }

    fn push_all(&mut self) {
        let claims = self.state.claims().map(claim_key);
        let volumes = self
            .state
            .volumes()
            .map(|volume| Key::Volume(volume.metadata.name.clone()));
        let keys: Vec<Key> = claims.chain(volumes).collect();
        keys.into_iter().for_each(|key| self.queue.push(key));
    }

    /// Hands out work while there is some and somebody to do it.
    fn dispatch(&mut self) {
        if !self.is_ready() {
            return;
        }
        while self.workers.len() < self.options.workers.max(1) {
            let Some(key) = self.queue.pop() else { break };
            if !self.queue.wait_for(&key, std::slice::from_ref(&key)) {
                self.step(key);
            }
        }
        self.publish();
        let metrics = &self.worker.metrics;
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        metrics.queue.set(count(self.queue.len()));
        metrics.in_flight.set(count(self.workers.len()));
        if let Some(publisher) = &self.publisher {
            metrics.capacity_queue.set(count(publisher.queued()));
            metrics.capacity_published.set(count(publisher.published()));
        }
    }

    fn step(&mut self, key: Key) {
        match &key {
            Key::Claim(namespace, name) => {
                let claim = self.state.claim(namespace, name);
                let found = claim.and_then(|claim| Some((claim, self.settings_of(claim)?)));
                let decided = found.map(|(claim, settings)| {
                    let decision = step(claim, &self.state, settings, Timestamp::now());
                    (decision, settings.clone())
                });
                match decided {
                    None | Some((Decision::Nothing(_), _)) => self.queue.succeeded(&key),
                    Some((Decision::Act(conclusion), _)) => {
                        self.work(key, move |worker| async move { worker.act(&conclusion).await });
                    }
                    Some((Decision::Ask(attempt), settings)) => self.ask(key, attempt, settings),
                }
            }
            Key::Volume(name) => {
                let volume = self.state.volume(name);
                let found = volume.and_then(|volume| Some((volume, self.settings_of_volume(volume)?)));
                let Some((volume, settings)) = found else {
                    self.queue.succeeded(&key);
                    return;
                };
                match reclaim(volume, &self.state, settings) {
                    Reclaim::Nothing => self.queue.succeeded(&key),
                    Reclaim::Wait { because } => {
                        self.worker.executor.tell(delete_failed(volume, &because, settings));
                        self.queue.succeeded(&key);
                    }
                    Reclaim::Act(actions) => {
                        let (volume, settings) = (volume.clone(), settings.clone());
                        self.work(key, move |worker| async move {
                            let failed = |problem: &str| delete_failed(&volume, problem, &settings);
                            worker.reclaim(&actions, failed).await
                        });
                    }
                }
            }
        }
    }

    fn ask(&mut self, key: Key, mut attempt: Box<Attempt>, settings: Settings) {
        attempt.in_doubt = attempt.repeated && !self.heard.contains(&key);
        if !attempt.repeated {
            self.heard.insert(key.clone());
        }
        let claim = &attempt.request.claim;
        if claim.metadata.annotation(names::ATTEMPT).is_none() {
            self.worker.executor.tell(started(claim, &settings));
        }
        let answer = self.options.backend.answer_now(&attempt.request, self.state.nodes());
        self.work(key, move |worker| async move {
            worker.attempt(*attempt, answer, &settings).await
        });
    }

    fn settings_of_volume(&self, volume: &PersistentVolume) -> Option<&Settings> {
        let driver = volume.metadata.annotation(names::PROVISIONED_BY)?;
        self.settings.get(driver)
    }

    fn settings_of(&self, claim: &PersistentVolumeClaim) -> Option<&Settings> {
        let annotation = |key| claim.metadata.annotation(key);
        let provisioner =
            annotation(names::STORAGE_PROVISIONER).or_else(|| annotation(names::STORAGE_PROVISIONER_BETA))?;
        self.settings.values().find(|settings| settings.serves(provisioner))
    }

    /// Gives an object to a worker. Nobody else touches it meanwhile.
    fn work<F>(&mut self, key: Key, job: impl FnOnce(Worker) -> F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        self.queue.lock(std::slice::from_ref(&key));
        self.begun.insert(key.clone(), self.version_of(&key));
        let job = job(self.worker.clone());
        self.workers.spawn(async move { Finished::Object(key, job.await) });
    }

    fn publish(&mut self) {
        let Some(publisher) = &mut self.publisher else { return };
        publisher.refresh_segments(&self.state, &self.options.backend);
        while self.publishing.len() < publisher.options.workers.max(1) {
            let worker = self.worker.clone();
            if let Some(Write {
                driver,
                item,
                publication,
                subject,
            }) = publisher.next_write()
            {
                let options = publisher.options.clone();
                self.publishing.spawn(async move {
                    let written = worker.publish(&options, &driver, &publication).await;
                    Finished::Written(subject, item, written)
                });
            } else if let Some(Question { driver, query }) = publisher.next_question() {
                let class = self.state.class(&query.item.class).cloned();
                self.publishing.spawn(async move {
                    let answer = worker.capacity(&query, class.as_ref()).await;
                    Finished::Asked(driver, query.item, answer)
                });
            } else {
                break;
            }
        }
    }

    fn finish(&mut self, finished: Finished) {
        match finished {
            Finished::Object(key, outcome) => self.finish_object(key, outcome),
            Finished::Asked(driver, item, answer) => {
                if let Some(publisher) = &mut self.publisher {
                    publisher.answered(&driver, &item, answer);
                }
            }
            Finished::Written(subject, item, written) => {
                if let Some(publisher) = &mut self.publisher {
                    publisher.written(&subject, item.as_ref(), written);
                }
            }
        }
    }

    fn version_of(&self, key: &Key) -> Option<String> {
        let metadata = match key {
            Key::Claim(namespace, name) => self.state.claim(namespace, name).map(|claim| &claim.metadata),
            Key::Volume(name) => self.state.volume(name).map(|volume| &volume.metadata),
        };
        metadata.map(|metadata| metadata.resource_version.clone())
    }

    fn finish_object(&mut self, key: Key, outcome: Outcome) {
        self.queue.unlock(std::slice::from_ref(&key));
        let begun = self.begun.remove(&key).flatten();
        match outcome.failure {
            Some(FailureKind::InDoubt) => drop(self.heard.remove(&key)),
            // The record is gone, or as it was.
            Some(FailureKind::Final | FailureKind::Unclear | FailureKind::NotAsked) => {}
            // Whether the backend was asked is not known here if the step is to be run again.
            None => drop(self.heard.remove(&key)),
        }
        for gone in &outcome.gone {
            self.find_gone(gone);
        }
        let versions = outcome.fresh.iter().map(|answer| &answer.resource_version);
        let own: Vec<String> = versions.chain(&begun).cloned().collect();
        for object in outcome.fresh.iter().filter_map(Answer::object) {
            self.refresh(&object);
        }
        let now = Instant::now();
        let then = outcome.then.unwrap_or(Then::Rest);
        if outcome.retry || then == Then::Retry {
            let failure = if outcome.outage { Failure::Outage } else { Failure::Own };
            self.queue.failed(key.clone(), failure, now);
        } else {
            self.queue.succeeded(&key);
            self.queue.recover(now);
        }
        if let Key::Claim(namespace, name) = &key
            && let Some(claim) = self.state.claim(namespace, name).cloned()
        {
            self.state.concluded(&claim, &then, Timestamp::now());
        }
        for (_, when) in outcome.again {
            self.look_again(&key, when, now);
        }
        match self.version_of(&key) {
            // Somebody else has changed it meanwhile: whatever came of this, the next step starts from there.
            Some(version) if !own.contains(&version) => self.queue.hurry(key),
            version if outcome.stale && version != begun => self.queue.hurry(key),
            version if version == begun => {}
            // Its own writes come back as echoes, which are passed over.
            _ => self.queue.push(key),
        }
    }

    /// A step is to be run again, even if nothing changes. Steps ask for that about their own object alone.
    fn look_again(&mut self, key: &Key, when: When, now: Instant) {
        match when {
            When::Now => self.queue.hurry(key.clone()),
            When::Backoff => self.queue.failed(key.clone(), Failure::Own, now),
            When::At(time) => {
                let wait = time.duration_since(Timestamp::now());
                let wait = Duration::try_from(wait).unwrap_or_default();
                self.queue.wait(key.clone(), now + wait);
            }
        }
    }

    /// An object turned out to be gone.
    fn find_gone(&mut self, gone: &Gone) {
        let (namespace, name) = (&gone.key.namespace, &gone.key.name);
        let is_claim = gone.key.kind == Kind::PersistentVolumeClaim.name();
        let known = if is_claim {
            self.state.claim(namespace, name).map(|one| &one.metadata.uid)
        } else {
            self.state.volume(name).map(|one| &one.metadata.uid)
        };
        if known != Some(&gone.uid) {
            return;
        }
        if is_claim {
            self.state.remove(Kind::PersistentVolumeClaim, namespace, name);
        } else {
            self.volume_vanished(name);
            self.state.remove(Kind::PersistentVolume, "", name);
        }
    }

    /// Takes in what a write answered, unless the object is gone or another one by now.
    fn refresh(&mut self, object: &Object) {
        let wanted = match object {
            Object::PersistentVolumeClaim(claim) => {
                let known = self.state.claim(&claim.metadata.namespace, &claim.metadata.name);
                known.is_some_and(|known| known.metadata.uid == claim.metadata.uid)
            }
            // One that was just made is not known yet; its claim is.
            Object::PersistentVolume(volume) => volume.spec.claim_ref.as_ref().is_some_and(|claim| {
                let known = self.state.claim(&claim.namespace, &claim.name);
                known.is_some_and(|known| known.metadata.uid == claim.uid)
            }),
            _ => false,
        };
        if !wanted {
            return;
        }
        if let Object::PersistentVolume(volume) = object {
            self.volume_appeared(volume);
        }
        self.state.upsert(object);
    }

    /// A volume is there, by an answer or by a watch, whichever is first: what it takes is no longer free.
    fn volume_appeared(&mut self, volume: &PersistentVolume) {
        if self.is_ready() && self.state.volume(&volume.metadata.name).is_none() {
            let class = self.state.class(volume.class_name());
            self.options.backend.observe(volume, class);
            self.publisher.iter_mut().for_each(|one| one.volume_changed(volume));
        }
    }

    /// A volume is gone, by an answer or by a watch, whichever is first: what it took is free.
    fn volume_vanished(&mut self, name: &str) {
        self.options.backend.forget(name);
        if let (Some(publisher), Some(volume)) = (&mut self.publisher, self.state.volume(name)) {
            publisher.volume_changed(volume);
        }
    }

    fn take(&mut self, message: Message) {
        if message.is_recovery() {
            self.queue.recover(Instant::now());
        }
        for change in message.difference.changes {
            match change {
                Change::Applied(object) => self.apply(&object),
                Change::Removed(name) => {
                    if let Some(kind) = Kind::named(message.resource.kind) {
                        self.remove(kind, &name);
                    }
                }
                // What was known still stands: an object that cannot be read is not gone.
                Change::Broken { .. } => {}
            }
        }
        if message.difference.relisted && self.inbox.listed(message.resource) {
            self.begin();
        }
    }

    /// All objects are known: what depends on several kinds can be put together.
    fn begin(&mut self) {
        for volume in self.state.volumes() {
            let class = self.state.class(volume.class_name());
            self.options.backend.observe(volume, class);
        }
        if let Some(publisher) = &mut self.publisher {
            self.state.classes().for_each(|class| publisher.class_changed(class));
            publisher.refresh_segments(&self.state, &self.options.backend);
            self.early.drain(..).for_each(|object| publisher.observe(&object));
        }
        tracing::info!("all objects are known");
        self.options.process.health.set_ready(true);
    }

    fn apply(&mut self, object: &Object) {
        if self.state.knows(object) {
            // An echo of a write, or of a list.
            return;
        }
        let ready = self.is_ready();
        match object {
            Object::PersistentVolumeClaim(claim) => self.news(claim_key(claim)),
            Object::PersistentVolume(volume) => {
                self.news(Key::Volume(volume.metadata.name.clone()));
                self.volume_appeared(volume);
            }
            Object::StorageClass(class) => {
                self.push_claims(|claim| claim.class_name() == Some(&class.metadata.name));
                if ready {
                    self.publisher.iter_mut().for_each(|one| one.class_changed(class));
                }
            }
            Object::Node(node) => {
                let known = self.state.nodes().get(&node.metadata.name);
                // Nodes report that they are alive; only their labels matter here.
                if known.is_some_and(|known| known.metadata.labels == node.metadata.labels) {
                    return;
                }
                self.node_changed(&node.metadata.name);
            }
            Object::CsiNode(csi_node) => {
                let known = self.state.csi_nodes().get(&csi_node.metadata.name);
                if known.is_some_and(|known| known.spec == csi_node.spec) {
                    return;
                }
                self.node_changed(&csi_node.metadata.name);
            }
            Object::CsiStorageCapacity(capacity) => match &mut self.publisher {
                Some(publisher) if ready => publisher.observe(capacity),
                Some(_) => self.early.push((**capacity).clone()),
                None => {}
            },
            _ => {}
        }
        self.state.upsert(object);
    }

    /// A claim or volume has changed. While it is being worked on, its own writes may come back before their answers do:
    /// which they are is known at the end.
    fn news(&mut self, key: Key) {
        if !self.begun.contains_key(&key) {
            self.queue.hurry(key);
        }
    }

    fn node_changed(&mut self, node: &str) {
        self.push_claims(|claim| claim.selected_node() == Some(node));
        self.publisher.iter_mut().for_each(Publisher::nodes_changed);
    }

    fn push_claims(&mut self, wanted: impl Fn(&PersistentVolumeClaim) -> bool) {
        let unbound = self.state.claims().filter(|claim| claim.spec.volume_name.is_empty());
        let keys: Vec<Key> = unbound.filter(|claim| wanted(claim)).map(claim_key).collect();
        keys.into_iter().for_each(|key| self.queue.hurry(key));
    }

    fn remove(&mut self, kind: Kind, (namespace, name): &ObjectName) {
        match kind {
            Kind::PersistentVolumeClaim => {
                self.heard.remove(&Key::Claim(namespace.clone(), name.clone()));
                // A built-in provisioner may hold a volume that was never written.
                let volume = self.state.claim(namespace, name).map(volume_name);
                if let Some(volume) = volume.filter(|volume| self.state.volume(volume).is_none()) {
                    self.options.backend.forget(&volume);
                }
            }
            Kind::PersistentVolume => self.volume_vanished(name),
            Kind::StorageClass => self.publisher.iter_mut().for_each(|one| one.class_removed(name)),
            Kind::CsiStorageCapacity => {
                self.publisher
                    .iter_mut()
                    .for_each(|one| one.observe_deleted(namespace, name));
            }
            _ => {}
        }
        if kind == Kind::VolumeAttachment {
            // A volume may have waited to be detached.
            if let Some(volume) = self.state.detach(name) {
                self.queue.hurry(Key::Volume(volume));
            }
            return;
        }
        self.state.remove(kind, namespace, name);
        if let Kind::Node | Kind::CsiNode = kind {
            self.node_changed(name);
        }
    }
}

fn claim_key(claim: &PersistentVolumeClaim) -> Key {
    Key::Claim(claim.metadata.namespace.clone(), claim.metadata.name.clone())
}
