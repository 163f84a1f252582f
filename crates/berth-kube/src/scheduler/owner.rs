//! The single task that owns the scheduler: it applies what watches and workers deliver, and passes on decisions.

use super::Options;
use super::metrics::Ledger;
use super::pool::Pool;
use super::stopwatch::{PluginTimes, Sampler};
use super::worker::{Finished, Worker};
use crate::component;
use crate::endpoint::PULSE;
use crate::inbox::{Inbox, Message};
use crate::lease::Lease;
use crate::watch::Change;
use berth_core::api::Kind;
use berth_scheduler::extender::{Advice, ConsultationId};
use berth_scheduler::scheduler::{Effect, Scheduler};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Number of decisions between two checks of the inbox. A decision takes well under a millisecond, so changes wait for
/// only a few.
const STEPS_AT_A_TIME: usize = 16;

/// Maximum number of differences applied before the next decision, so that a storm of changes does not stop decisions.
const MESSAGES_AT_A_TIME: usize = 64;

/// Minimum time between two checks of the clock.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// How long writes in flight may take when the scheduler stops. The default grace period of pods is 30 s.
const GRACE: Duration = Duration::from_secs(10);

/// The scheduler and everything around it.
pub(crate) struct Owner {
    worker: Worker,
    options: Options,
    scheduler: Scheduler,
    pool: Pool,
    /// Consultations under way.
    consulting: JoinSet<(ConsultationId, Advice)>,
    inbox: Inbox,
    ledger: Ledger,
    sampler: Sampler,
    begin: Instant,
    /// This replica leads. Until then it follows the watches and decides nothing.
    leading: bool,
    /// Pods are being scheduled; changes are not awaited until none is left.
    deciding: bool,
    _announcing: JoinSet<()>,
}

impl component::Owner for Owner {
    /// Works until cancelled, then finishes the writes in flight.
    async fn run(mut self, leading: CancellationToken, cancel: CancellationToken) {
        let mut pulse = interval(PULSE);
        loop {
            self.options.process.health.set_beating(true);
            self.decide();
            let more = self.can_decide() && self.scheduler.next_wakeup() == Some(Duration::ZERO);
            let wake = self.wake_at();
            let calm = self.inbox.calm_at().filter(|_| !self.deciding);
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                () = leading.cancelled(), if !self.leading => self.begin_to_lead(),
                Some(finished) = self.pool.next() => match finished {
                    Ok(finished) => self.finish(finished),
                    // A worker that panicked leaves its write without a result: only a restart is safe.
                    Err(error) => {
                        tracing::error!(%error, "a worker failed");
                        break;
                    }
                },
                Some(advice) = self.consulting.join_next() => match advice {
                    Ok((id, advice)) => {
                        let now = self.now();
                        self.scheduler.advised(id, advice, now);
                        self.hand_on("ExtenderAnswer");
                    }
                    // Its pod would wait for ever.
                    Err(error) => {
                        tracing::error!(%error, "a consultation failed");
                        break;
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(message) => self.take_all(message),
                    None => break,
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    let now = self.now();
                    self.scheduler.tick(now);
                    self.hand_on("Tick");
                }
                () = sleep_until(calm.unwrap_or_else(Instant::now)), if calm.is_some() => {}
                _ = pulse.tick() => self.beat(),
                () = std::future::ready(()), if more => {}
            }
        }
        self.finish_writes().await;
    }
}

impl Owner {
    pub(super) fn new(worker: Worker, options: Options, inbox: Inbox) -> Self {
        let mut announcing = JoinSet::new();
        if let Some(lease) = options.announcement.clone() {
            announcing.spawn(Lease::new(worker.executor.api().clone(), lease).keep());
        }
        Self {
            pool: Pool::new(worker.clone(), options.workers),
            consulting: JoinSet::new(),
            scheduler: Scheduler::new(options.settings.clone(), options.seed),
            ledger: Ledger::new(options.metrics.clone()),
            worker,
            options,
            inbox,
            sampler: Sampler::default(),
            begin: Instant::now(),
            leading: false,
            deciding: false,
            _announcing: announcing,
        }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Finishes work in progress. A pod whose volumes are bound is bound too; what waits for others is left to the next
    /// scheduler.
    async fn finish_writes(&mut self) {
        let finish = async {
            loop {
                self.pool.dispatch();
                match self.pool.next().await {
                    Some(Ok(finished)) => self.finish(finished),
                    Some(Err(error)) => tracing::error!(%error, "a worker failed"),
                    None if self.pool.is_idle() => break,
                    None => {}
                }
            }
        };
        if timeout(GRACE, finish).await.is_err() {
            tracing::warn!("stopped before all writes were finished");
        }
    }

    /// When the scheduler's next timer is due. Decisions that can be made at once do not depend on time.
    fn wake_at(&self) -> Option<Instant> {
        let wake = self.scheduler.next_wakeup().filter(|wake| !wake.is_zero());
        // An expired deadline without work must not keep the task busy.
        Some((self.begin + wake?).max(Instant::now() + SHORTEST_SLEEP))
    }

    fn can_decide(&self) -> bool {
        let is_calm = self.deciding || self.inbox.calm_at().is_none();
        self.leading && is_calm && self.inbox.is_complete() && !self.pool.is_full()
    }

    /// Schedules pods while there are any and their writes can be carried out.
    fn decide(&mut self) {
        // Capacity reports have an expiry time.
        self.scheduler.set_now(self.options.process.clock.now().as_second());
        for _ in 0..STEPS_AT_A_TIME {
            if !self.can_decide() {
                break;
            }
            if !std::mem::replace(&mut self.deciding, true) {
                self.inbox.acted();
            }
            let begun = Instant::now();
            let now = self.now();
            if !self.step(now) {
                self.deciding = false;
                break;
            }
            self.ledger.decided(self.scheduler.last_tried(), begun);
            self.hand_on("ScheduleAttempt");
            if self.scheduler.last_brings_volumes() {
                // Its driver may be about to report the remaining capacity.
                self.inbox.expect_news();
                self.deciding = false;
                break;
            }
        }
        self.pool.dispatch();
        if self.leading {
            self.ledger.pending(&self.scheduler);
        }
    }

    fn begin_to_lead(&mut self) {
        self.leading = true;
        self.ledger.begin();
    }

    /// What is done every few seconds, whatever happens.
    fn beat(&mut self) {
        if self.leading {
            self.ledger
                .count_refused(&self.scheduler, &self.options.settings.profiles);
        } else {
            let now = self.now();
            self.scheduler.stand_by(now);
        }
    }

    /// Considers the waiting pods together for a limited time, if that is due.
    fn look_together(&mut self, now: Duration) {
        let begun = Instant::now();
        let per_pod = self.options.settings.together.time_per_pod;
        let limit = |pods: usize| per_pod.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX));
        let is_over = &mut |pods: usize| begun.elapsed() >= limit(pods);
        if let Some(look) = self.scheduler.look_together(now, is_over) {
            self.options.metrics.looked(&look, begun.elapsed());
        }
    }

    /// Schedules one pod, and occasionally measures the plugins.
    fn step(&mut self, now: Duration) -> bool {
        self.look_together(now);
        let decided = if self.sampler.is_due() {
            let mut times = PluginTimes::new();
            let decided = self.scheduler.step_timed(now, &mut times);
            times.report(&self.options.metrics);
            decided
        } else {
            self.scheduler.step(now)
        };
        // A turn without a pod does not count.
        if decided {
            self.sampler.decided();
        }
        decided
    }

    /// Passes the effects of the last call to the pool. While another replica leads, its effects count.
    fn hand_on(&mut self, cause: &'static str) {
        if !self.leading {
            let now = self.now();
            self.scheduler.stand_by(now);
            return;
        }
        let effects = self.scheduler.take_effects();
        self.carry_out(effects, cause);
        for consultation in self.scheduler.take_consultations() {
            self.consulting
                .spawn(self.worker.extenders.clone().consult(consultation));
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, cause: &'static str) {
        self.ledger.saw(&effects, self.scheduler.counts(), cause);
        let is_event = |effect: &Effect| matches!(effect, Effect::Event { .. });
        let (events, others): (Vec<_>, Vec<_>) = effects.into_iter().partition(is_event);
        events.iter().for_each(|event| self.worker.tell(event));
        self.pool.push(others.into_iter());
    }

    fn finish(&mut self, finished: Finished) {
        if let Some((id, outcome)) = finished.outcome {
            let (now, overtaken) = (self.now(), self.scheduler.counts().overtaken);
            self.scheduler.written(id, &outcome, now);
            if self.scheduler.counts().overtaken > overtaken {
                finished.order.iter().for_each(|key| self.ledger.overtaken(key));
            }
            self.hand_on("Written");
        }
    }

    /// Applies a message and those queued behind it, so that decisions use the newest state.
    fn take_all(&mut self, message: Message) {
        self.take(message);
        for _ in 0..MESSAGES_AT_A_TIME {
            match self.inbox.try_recv() {
                Some(message) => self.take(message),
                None => break,
            }
        }
    }

    fn take(&mut self, message: Message) {
        let Message { resource, difference } = message;
        let Some(kind) = Kind::named(resource.kind) else { return };
        let now = self.now();
        for change in difference.changes {
            match change {
                Change::Applied(object) => {
                    self.ledger.seen(&object, &self.options.settings.profiles, self.leading);
                    self.scheduler.upsert(&object, now);
                }
                Change::Removed {
                    name: (namespace, name),
                    ..
                } => {
                    if kind == Kind::Pod {
                        self.ledger.gone(&namespace, &name);
                    }
                    self.scheduler.remove(kind, &namespace, &name, now);
                }
                // The known state remains: an object that cannot be decoded is not deleted.
                Change::Broken { .. } => {}
            }
        }
        self.hand_on(kind.name());
        if difference.relisted && self.inbox.listed(resource) {
            tracing::info!("all objects are known");
            self.options.process.health.set_ready(true);
        }
    }
}
