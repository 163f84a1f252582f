//! The scheduler, with the same loop and order of writes as in a live cluster.

use crate::component::{Component, Finished, JobId, News, Turn};
use crate::executor::carry_out;
use crate::mutation::Mutation;
use crate::world::{Doc, Millis};
use berth_cluster::field;
use berth_core::api::Kind;
use berth_core::backoff::Backoff;
use berth_core::binder::VolumeWrite;
use berth_scheduler::queue::PodKey;
use berth_scheduler::scheduler::{Effect, MOST_TRIES, Order, Scheduler, Settings, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// A scheduler and its work in flight.
pub(crate) struct Scheduling {
    scheduler: Scheduler,
    begun: Millis,
    order: Order,
    /// The observed volumes, by name, for a bug.
    volumes: BTreeSet<String>,
    /// The pods with a nominated node, for a bug.
    nominated: BTreeSet<PodKey>,
    /// The first node that others nominated for each pod, by UID, for a bug.
    named: BTreeMap<String, String>,
}

impl Scheduling {
    pub(crate) fn new(seed: u64, now: Millis) -> Self {
        let mut settings = Settings {
            hold_volumes: true,
            replica: u16::try_from(seed & u64::from(u16::MAX)).unwrap_or_default(),
            ..Settings::default()
        };
        // A missed event must become visible: nothing is retried just because it waited for long.
        settings.times.flush_after = Duration::from_secs(1_000_000);
        Self {
            scheduler: Scheduler::new(settings, seed),
            begun: now,
            order: Order::default(),
            volumes: BTreeSet::new(),
            nominated: BTreeSet::new(),
            named: BTreeMap::new(),
        }
    }

    /// Shows a claim as lost if its volume was not observed yet, for a bug.
    fn lose_unseen(&mut self, doc: Rc<Doc>) -> Rc<Doc> {
        if doc.key.kind == "PersistentVolume" {
            self.volumes.insert(doc.key.name.clone());
        }
        let volume = doc.text("/spec/volumeName");
        if doc.key.kind != "PersistentVolumeClaim" || volume.is_empty() || self.volumes.contains(volume) {
            return doc;
        }
        let mut value = doc.value.clone();
        field::set(&mut value, &["status", "phase"], "Lost".into());
        Rc::new(Doc::of(value))
    }

    /// Hides a node nominated for a pod if another one was nominated before, for a bug.
    fn lose_later_node(&mut self, doc: Rc<Doc>) -> Rc<Doc> {
        let node = doc.text("/status/nominatedNodeName");
        let key = format!("{}/{}", doc.key.namespace, doc.key.name);
        if doc.key.kind != "Pod" || node.is_empty() || self.nominated.contains(key.as_str()) {
            return doc;
        }
        let first = self.named.entry(doc.uid.clone()).or_insert_with(|| node.to_owned());
        if first == node {
            return doc;
        }
        let mut value = doc.value.clone();
        field::unset(&mut value, &["status", "nominatedNodeName"]);
        Rc::new(Doc::of(value))
    }

    /// Forgets the pods that wait for room on a node, for a bug.
    fn forget_nominated(&mut self, node: &str, now: Duration) {
        let is_nominated = |pod: &&PodKey| self.scheduler.nominated_node(pod) == Some(node);
        let pods: Vec<_> = self.nominated.iter().filter(is_nominated).cloned().collect();
        for pod in pods {
            let (namespace, name) = pod.split_once('/').unwrap_or(("", &pod));
            self.scheduler.remove(Kind::Pod, namespace, name, now);
        }
    }

    fn since(&self, now: Millis) -> Duration {
        Duration::from_millis(now.saturating_sub(self.begun))
    }

    fn hand_on(&mut self, turn: &mut Turn) {
        for effect in self.scheduler.take_effects() {
            if let Effect::Nominate { pod, .. } = &effect {
                self.nominated.insert(PodKey::clone(&pod.key));
            }
            turn.decided.push(effect.clone());
            self.send(effect, turn);
        }
    }

    fn send(&mut self, mut effect: Effect, turn: &mut Turn) {
        if matches!(effect, Effect::Event { .. }) {
            return;
        }
        let order = effect.ordered_for().filter(|_| !turn.has(Mutation::NoOrder)).cloned();
        if turn.has(Mutation::UserReservationMarked)
            && let Effect::Write {
                write: Write::Volume(VolumeWrite::ReserveVolume { prebound, .. }),
                ..
            } = &mut effect
        {
            *prebound = false;
        }
        let effect = match &order {
            Some(_) => match self.order.admit(effect) {
                Some(effect) => effect,
                None => return,
            },
            None => effect,
        };
        let lowered = effect.lower(turn.wall);
        turn.spawn(|port| async move {
            let mut done = carry_out(&port, &lowered).await;
            for tries in 1..MOST_TRIES {
                let refused = done.refused.as_ref();
                if !refused.is_some_and(|refused| effect.is_sent_again(&refused.refusal)) {
                    break;
                }
                port.sleep(Backoff::WATCH.delay(tries)).await;
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

impl Component for Scheduling {
    fn take(&mut self, kind: &'static str, news: Vec<News>, turn: &mut Turn) {
        let Some(kind) = Kind::named(kind) else { return };
        let now = self.since(turn.now);
        for one in news {
            match one {
                News::Applied(doc) => {
                    let doc = match turn.mutation {
                        Some(Mutation::UnseenVolumeIsLost) => self.lose_unseen(doc),
                        Some(Mutation::DeafToNominations) => self.lose_later_node(doc),
                        _ => doc,
                    };
                    if let Some(object) = doc.object() {
                        self.scheduler.upsert(object, now);
                    }
                }
                News::Removed(namespace, name, _) => {
                    if kind == Kind::Node && turn.has(Mutation::DeadNomination) {
                        self.forget_nominated(&name, now);
                    }
                    self.scheduler.remove(kind, &namespace, &name, now);
                }
                News::Listed => {}
            }
        }
        self.hand_on(turn);
    }

    fn finish(&mut self, _job: JobId, finished: Finished, turn: &mut Turn) {
        let Finished::Scheduling(outcome, order) = finished else {
            return;
        };
        if let Some(key) = order {
            let after = self.order.done(&key);
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
