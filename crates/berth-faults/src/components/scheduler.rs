//! The scheduler, with the loop and the order of writes that it has in a live cluster.

use crate::component::{Component, Finished, JobId, News, Turn};
use crate::executor::carry_out;
use crate::mutation::Mutation;
use crate::world::Millis;
use berth_core::api::Kind;
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Context, DEFAULT_SCHEDULER_NAME, Effect, Scheduler, Settings, Write};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How often it is tried to write what the scheduler does not wait for.
const MOST_TRIES: u32 = 5;

/// A scheduler and what is on its way.
pub(crate) struct Scheduling {
    scheduler: Scheduler,
    begun: Millis,
    /// Pods with an ordered effect under way, and what comes after it.
    ordered: BTreeMap<PodKey, VecDeque<Effect>>,
}

impl Scheduling {
    pub(crate) fn new(seed: u64, now: Millis) -> Self {
        let mut settings = Settings::default();
        // What an event missed must show: nothing is tried again just because it waited for long.
        settings.times.flush_after = Duration::from_secs(1_000_000);
        Self {
            scheduler: Scheduler::new(settings, seed),
            begun: now,
            ordered: BTreeMap::new(),
        }
    }

    fn since(&self, now: Millis) -> Duration {
        Duration::from_millis(now.saturating_sub(self.begun))
    }

    fn hand_on(&mut self, turn: &mut Turn) {
        for effect in self.scheduler.take_effects() {
            turn.decided.push(effect.clone());
            self.send(effect, turn);
        }
    }

    fn send(&mut self, effect: Effect, turn: &mut Turn) {
        if matches!(effect, Effect::Event { .. }) {
            return;
        }
        let order = order(&effect).filter(|_| !turn.has(Mutation::NoOrder));
        let effect = match effect {
            Effect::Write {
                id,
                write:
                    Write::ReserveVolume {
                        volume,
                        version,
                        namespace,
                        claim,
                        uid,
                        ..
                    },
            } if turn.has(Mutation::UserReservationMarked) => Effect::Write {
                id,
                write: Write::ReserveVolume {
                    volume,
                    version,
                    namespace,
                    claim,
                    uid,
                    prebound: false,
                },
            },
            other => other,
        };
        if let Some(key) = &order {
            if let Some(after) = self.ordered.get_mut(key) {
                after.push_back(effect);
                return;
            }
            self.ordered.insert(PodKey::clone(key), VecDeque::new());
        }
        let context = Context {
            now: turn.wall,
            source: DEFAULT_SCHEDULER_NAME.into(),
        };
        let lowered = effect.lower(&context);
        turn.spawn(|port| async move {
            let mut done = carry_out(&port, &lowered).await;
            // Nobody hears of what is no write: it is tried again while the server is out of order.
            for _ in 1..MOST_TRIES {
                let is_passing = done.refused.as_ref().is_some_and(|refused| refused.outage);
                if !is_passing || matches!(effect, Effect::Write { .. }) {
                    break;
                }
                done = carry_out(&port, &lowered).await;
            }
            let refusal = done.refused.map(|refused| refused.refusal);
            let Effect::Write { id, write } = effect else {
                return Finished::Scheduling(None, order);
            };
            let version = done
                .fresh
                .last()
                .map_or_else(String::new, |answer| answer.version.to_string());
            let outcome = write.outcome(refusal.as_ref().map_or(Ok(version.as_str()), Err));
            Finished::Scheduling(Some((id, outcome)), order)
        });
    }
}

/// The pod whose effects must keep their order, if this is one of them.
fn order(effect: &Effect) -> Option<PodKey> {
    match effect {
        Effect::Condition { pod, .. }
        | Effect::Nominate { pod, .. }
        | Effect::Write {
            write: Write::BindPod { pod, .. } | Write::EvictPod { pod, .. },
            ..
        } => Some(PodKey::clone(&pod.key)),
        Effect::Write {
            write: Write::ReserveVolume { .. } | Write::SelectNode { .. },
            ..
        }
        | Effect::Event { .. } => None,
    }
}

impl Component for Scheduling {
    fn take(&mut self, kind: &'static str, news: Vec<News>, turn: &mut Turn) {
        let Some(kind) = Kind::named(kind) else { return };
        let now = self.since(turn.now);
        for one in news {
            match one {
                News::Applied(doc) => {
                    if let Some(object) = doc.object() {
                        self.scheduler.upsert(object, now);
                    }
                }
                News::Removed(namespace, name, _) => self.scheduler.remove(kind, &namespace, &name, now),
            }
        }
        self.hand_on(turn);
    }

    fn finish(&mut self, _job: JobId, finished: Finished, turn: &mut Turn) {
        let Finished::Scheduling(outcome, order) = finished else {
            return;
        };
        if let Some(after) = order.and_then(|key| self.ordered.remove(&key)) {
            after.into_iter().for_each(|effect| self.send(effect, turn));
        }
        if let Some((id, outcome)) = outcome {
            self.scheduler.written(id, &outcome, self.since(turn.now));
            self.hand_on(turn);
        }
    }

    fn run(&mut self, turn: &mut Turn) {
        let now = self.since(turn.now);
        self.scheduler.set_now(turn.wall.as_second());
        self.scheduler.tick(now);
        self.hand_on(turn);
        while turn.complete && self.scheduler.step(now) {
            self.hand_on(turn);
        }
    }

    fn wake(&self) -> Option<Millis> {
        let wake = self.scheduler.next_wakeup().filter(|wake| !wake.is_zero())?;
        let millis = Millis::try_from(wake.as_nanos().div_ceil(1_000_000)).ok()?;
        Some(self.begun + millis)
    }

    fn scheduler(&self) -> Option<&Scheduler> {
        Some(&self.scheduler)
    }
}
