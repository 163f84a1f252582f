//! The one task that owns the state: it takes in what watches and workers bring, runs the steps and
//! hands their effects to workers.

use super::Options;
use super::effects::{Executor, Fresh, Next, Outcome};
use crate::announce;
use crate::backoff::Backoff;
use crate::component;
use crate::endpoint::PULSE;
use crate::inbox::{Inbox, Message};
use crate::queue::{Failure, Queue};
use crate::watch::{Change, ObjectName};
use berth_controller::{Effect, Key, NamespacedName, State, sync};
use berth_core::api::{Kind, Object};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, interval_at, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Steps between two looks at the inbox: a resync of many objects must not hold up what is new.
const STEPS_AT_A_TIME: usize = 256;

/// How long effects in flight may take when the controller stops. Pods are given 30 s by default.
const GRACE: Duration = Duration::from_secs(10);

/// What a worker brings back.
struct Finished {
    key: Key,
    touched: Vec<Key>,
    outcome: Outcome,
}

/// The state and everything around it.
pub(crate) struct Owner {
    executor: Executor,
    options: Options,
    state: State,
    queue: Queue<Key>,
    inbox: Inbox,
    workers: JoinSet<Finished>,
    /// Whether a scheduler announces that it can bind delayed claims, if that matters.
    announced: watch::Receiver<bool>,
    _listening: JoinSet<()>,
}

impl component::Owner for Owner {
    /// Works until cancelled, then lets the workers finish what they have begun.
    async fn run(mut self, cancel: CancellationToken) {
        let mut resync = interval_at(Instant::now() + self.options.resync, self.options.resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pulse = interval(PULSE);
        loop {
            self.options.process.health.set_beating(true);
            self.dispatch();
            let due = self.queue.next_due();
            let more_steps = self.queue.has_ready() && self.can_step();
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
                message = self.inbox.recv() => match message {
                    Some(message) => self.take(message),
                    None => break,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.queue.advance(Instant::now());
                }
                Ok(()) = self.announced.changed() => self.hear(),
                _ = resync.tick() => self.resync(),
                _ = pulse.tick() => {}
                () = std::future::ready(()), if more_steps => {}
            }
        }
        // A list of effects is not cut between two writes without need; the next controller could go on from there.
        let finish = async { while self.workers.join_next().await.is_some() {} };
        if timeout(GRACE, finish).await.is_err() {
            tracing::warn!("effects were left unfinished");
        }
    }
}

impl Owner {
    pub(super) fn new(executor: Executor, mut options: Options, inbox: Inbox) -> Self {
        // Until it was listened for long enough, a scheduler is taken to be there.
        let (fact, announced) = watch::channel(true);
        let mut listening = JoinSet::new();
        if let Some(required) = options.required_scheduler.clone() {
            options.settings.require_delayed_binding_scheduler = true;
            executor.metrics.announced.set(1);
            listening.spawn(announce::listen(executor.api.clone(), required, fact));
        }
        let mut state = State::default();
        state.set_delay_announced(true);
        Self {
            executor,
            options,
            state,
            queue: Queue::new(Backoff::EFFECT),
            inbox,
            workers: JoinSet::new(),
            announced,
            _listening: listening,
        }
    }

    fn can_step(&self) -> bool {
        self.inbox.is_complete() && self.workers.len() < self.options.workers.max(1)
    }

    /// Takes in whether there is a scheduler that can bind delayed claims.
    fn hear(&mut self) {
        let announced = *self.announced.borrow_and_update();
        self.executor.metrics.announced.set(i64::from(announced));
        for key in self.state.set_delay_announced(announced) {
            self.queue.push(key);
        }
    }

    fn resync(&mut self) {
        for key in self.state.all_keys() {
            self.queue.push(key);
        }
    }

    /// Runs steps while there is something to do and somebody to do it.
    fn dispatch(&mut self) {
        for _ in 0..STEPS_AT_A_TIME {
            if !self.can_step() {
                break;
            }
            let Some(key) = self.queue.pop() else { break };
            self.step(key);
        }
        self.executor
            .metrics
            .queue
            .set(i64::try_from(self.queue.len()).unwrap_or(i64::MAX));
        let in_flight = i64::try_from(self.workers.len()).unwrap_or(i64::MAX);
        self.executor.metrics.in_flight.set(in_flight);
    }

    fn step(&mut self, key: Key) {
        if self.queue.wait_for(&key, std::slice::from_ref(&key)) {
            return;
        }
        self.executor.metrics.steps.inc();
        let effects = sync(&key, &self.state, &self.options.settings);
        if effects
            .iter()
            .all(|effect| matches!(effect, Effect::Emit(_) | Effect::Requeue(_)))
        {
            self.queue.succeeded(&key);
            for effect in effects {
                match effect {
                    Effect::Emit(event) => self.executor.emit(event),
                    Effect::Requeue(key) => self.queue.push(key),
                    // Nothing else came through the filter.
                    _ => {}
                }
            }
            return;
        }
        let touched = touched(&key, &effects);
        if self.queue.wait_for(&key, &touched) {
            return;
        }
        self.queue.lock(&touched);
        for touched in &touched {
            if let Key::Volume(name) = touched {
                self.state.hold(name);
            }
        }
        let executor = self.executor.clone();
        self.workers.spawn(async move {
            let outcome = executor.execute(effects).await;
            Finished { key, touched, outcome }
        });
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { key, touched, outcome } = finished;
        self.queue.unlock(&touched);
        for fresh in outcome.fresh {
            self.refresh(fresh);
        }
        // A watch may have brought the answers before us: then it is here that a volume becomes free to choose.
        for touched in &touched {
            if let Key::Volume(name) = touched
                && let Some(waiting) = self.state.unhold(name)
            {
                self.queue.push(waiting);
            }
        }
        for key in outcome.requeue {
            self.queue.push(key);
        }
        match outcome.next {
            Next::Done => {
                self.queue.succeeded(&key);
                self.queue.recover(Instant::now());
            }
            Next::Again { problem } => {
                let failure = match &problem {
                    Some(error) if error.is_outage() => Failure::Outage,
                    Some(_) | None => Failure::Own,
                };
                if let Some(error) = problem {
                    tracing::warn!(%key, %error, "effects failed, trying again");
                }
                self.queue.failed(key, failure, Instant::now());
            }
        }
    }

    /// Takes in what a write answered, unless the object is gone or another one by now.
    fn refresh(&mut self, fresh: Fresh) {
        let keys = match fresh {
            Fresh::Claim(claim) => {
                let known = self.state.claim(&NamespacedName::of(&claim.metadata));
                let same = known.is_some_and(|known| known.metadata.uid == claim.metadata.uid);
                if same {
                    self.state.apply_claim(*claim)
                } else {
                    Vec::new()
                }
            }
            Fresh::Volume(volume) => {
                let known = self.state.volume(&volume.metadata.name);
                let same = known.is_some_and(|known| known.metadata.uid == volume.metadata.uid);
                if same {
                    self.state.apply_volume(*volume)
                } else {
                    Vec::new()
                }
            }
        };
        keys.into_iter().for_each(|key| self.queue.push(key));
    }

    fn take(&mut self, message: Message) {
        if message.is_recovery() {
            self.queue.recover(Instant::now());
        }
        for change in message.difference.changes {
            let keys = match change {
                Change::Applied(object) => self.apply(object),
                Change::Removed(name) => self.remove(message.kind, name),
                // What was known still stands: an object that cannot be read is not gone.
                Change::Broken { .. } => Vec::new(),
            };
            // Echoes of our own writes give no keys: this is news.
            keys.into_iter().for_each(|key| self.queue.hurry(key));
        }
        if message.difference.relisted && self.inbox.listed(message.kind) {
            tracing::info!("all objects are known");
            self.options.process.health.set_ready(true);
        }
    }

    fn apply(&mut self, object: Object) -> Vec<Key> {
        let state = &mut self.state;
        match object {
            Object::PersistentVolumeClaim(claim) => state.apply_claim(*claim),
            Object::PersistentVolume(volume) => state.apply_volume(*volume),
            Object::StorageClass(class) => state.apply_class(*class),
            Object::Pod(pod) => state.apply_pod(&pod),
            Object::Node(node) => state.apply_node(*node),
            // Nothing else is watched.
            _ => Vec::new(),
        }
    }

    fn remove(&mut self, kind: Kind, (namespace, name): ObjectName) -> Vec<Key> {
        let state = &mut self.state;
        match kind {
            Kind::PersistentVolumeClaim => state.remove_claim(&NamespacedName::new(namespace, name)),
            Kind::PersistentVolume => state.remove_volume(&name),
            Kind::StorageClass => state.remove_class(&name),
            Kind::Pod => state.remove_pod(&NamespacedName::new(namespace, name)),
            Kind::Node => {
                state.remove_node(&name);
                Vec::new()
            }
            // Nothing else is watched.
            _ => Vec::new(),
        }
    }
}

/// The objects that a step writes to, its own included.
fn touched(key: &Key, effects: &[Effect]) -> Vec<Key> {
    let mut touched = vec![key.clone()];
    for effect in effects {
        let target = match effect {
            Effect::Write(write) => write.target.key(),
            Effect::Delete(target) => target.key(),
            Effect::CreateClaim { .. } | Effect::Confirm(_) | Effect::Emit(_) | Effect::Requeue(_) | Effect::Retry => {
                None
            }
        };
        if let Some(target) = target
            && !touched.contains(&target)
        {
            touched.push(target);
        }
    }
    touched
}
