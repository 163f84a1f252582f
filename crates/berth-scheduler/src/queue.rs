//! The scheduling queue.
//!
//! ```text
//!            add ───▶ gated ──gates gone──┐
//!             │                           ▼
//!             └─────────────────────▶  active ──pop──▶ in its cycle ──bound──▶ gone
//!                                         ▲              │     │
//!                    backoff is over ─────┤       failed │     │ refused
//!                                         │              ▼     ▼
//!                                         └─────── backoff ◀─ unschedulable
//!                                                        woken
//! ```
//!
//! When no pod is active, pods that an event woke need not wait for their backoff: its purpose is to let others go
//! first. A pod that failed has to: whatever failed needs time to recover.
//!
//! A pod waits with the plugins that refused it, and only an event that could change one of their results wakes it. Sleeping pods are grouped by
//! those plugins, so that an event skips all that it cannot help. The decision about a pod is one step of the single writer, so no event can fall
//! between its verdict and its sleep; an event during its binding is covered by the retry if the binding fails. The queue reads no clock: time is a
//! parameter, relative to a fixed moment.

use crate::framework::{PluginName, PluginSet};
use berth_core::backoff::Backoff;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A pod's namespace and name, as `namespace/name`.
///
/// One shared string, not an [`ObjectKey`](berth_core::effect::ObjectKey): the queue, bindings and nominations hold
/// several copies of each key, and hash one for every event that could wake its pod.
pub type PodKey = Arc<str>;

/// How long pods wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueTimes {
    /// After the first failure, doubled with each further one.
    pub initial_backoff: Duration,
    /// Maximum.
    pub max_backoff: Duration,
    /// A pod that nothing woke is retried after this long, in case an event was missed.
    pub flush_after: Duration,
    /// How long a new pod waits for unknown claims. Watches of one server differ by some milliseconds, and the claim of an
    /// ephemeral volume is created by a controller that has to see the pod first.
    pub await_claims: Duration,
}

impl Default for QueueTimes {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            flush_after: Duration::from_secs(300),
            await_claims: Duration::from_millis(50),
        }
    }
}

/// The state of a pod in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// To be tried next.
    Active,
    /// To be tried when its backoff is over or, if it was refused and woken, when no other pod is to be tried.
    Backoff,
    /// Until an event could help it.
    Unschedulable,
    /// Until its scheduling gates are gone.
    Gated,
    /// Not in the queue: it is in its scheduling or binding cycle.
    InCycle,
}

/// The effect of an event on a sleeping pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rousing {
    /// It could fit now.
    Wake,
    /// It continues to sleep.
    SleepOn,
    /// It continues to sleep, also with this plugin: an event that changes its result could help as well.
    RefusedToo(PluginName),
}

/// The order in which pods are tried: by priority, then by time since the last try, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    priority: std::cmp::Reverse<i32>,
    since: Duration,
    number: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    turn: Turn,
    place: Place,
    gated: bool,
    attempts: u32,
    /// When it was last refused.
    refused_at: Duration,
    /// It is not tried before this time.
    not_before: Duration,
    /// The plugins that refused it.
    refused_by: PluginSet,
    /// It was not refused, but could not be scheduled for a temporary reason.
    failed: bool,
}

/// The queue.
#[derive(Clone, Debug)]
pub struct Queue {
    times: QueueTimes,
    pods: FxHashMap<PodKey, Waiting>,
    active: BTreeSet<(Turn, PodKey)>,
    /// Pods that failed, by the end of their backoff.
    backoff: BTreeSet<(Duration, PodKey)>,
    /// Pods that were refused and woken, by the end of their backoff.
    woken: BTreeSet<(Duration, PodKey)>,
    unschedulable: BTreeSet<(Duration, PodKey)>,
    /// Unschedulable pods by the plugins that refused them. There are few distinct sets of plugins.
    sleeping: BTreeMap<PluginSet, BTreeSet<PodKey>>,
    gated: FxHashSet<PodKey>,
    in_cycle: FxHashSet<PodKey>,
    numbers: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(times: QueueTimes) -> Self {
        Self {
            times,
            pods: FxHashMap::default(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            woken: BTreeSet::new(),
            unschedulable: BTreeSet::new(),
            sleeping: BTreeMap::new(),
            gated: FxHashSet::default(),
            in_cycle: FxHashSet::default(),
            numbers: 0,
        }
    }

    /// Adds a pod, or updates its priority and gates. A pod in its cycle stays there.
    pub fn upsert(&mut self, key: &PodKey, priority: i32, gated: bool, now: Duration) {
        if let Some(known) = self.pods.get_mut(key) {
            let turn = Turn {
                priority: std::cmp::Reverse(priority),
                ..known.turn
            };
            let moved = known.gated != gated || known.turn != turn;
            known.gated = gated;
            if moved && known.place != Place::InCycle {
                self.leave(key);
                if let Some(known) = self.pods.get_mut(key) {
                    known.turn = turn;
                }
                self.enter(key, if gated { Place::Gated } else { Place::Active });
            }
            return;
        }
        self.numbers += 1;
        let waiting = Waiting {
            turn: Turn {
                priority: std::cmp::Reverse(priority),
                since: now,
                number: self.numbers,
            },
            place: Place::InCycle,
            gated,
            attempts: 0,
            refused_at: Duration::ZERO,
            not_before: Duration::ZERO,
            refused_by: PluginSet::default(),
            failed: false,
        };
        self.pods.insert(Arc::clone(key), waiting);
        self.enter(key, if gated { Place::Gated } else { Place::Active });
    }

    /// Delays a new pod: it replaces others that failed.
    pub fn hold_off(&mut self, key: &str, until: Duration, now: Duration) {
        let Some((key, waiting)) = self.pods.get_key_value(key) else {
            return;
        };
        if waiting.place == Place::Active {
            let key = Arc::clone(key);
            self.leave(&key);
            if let Some(waiting) = self.pods.get_mut(&key) {
                waiting.not_before = until;
                waiting.refused_at = now;
                waiting.failed = true;
            }
            self.enter(&key, Place::Backoff);
        }
    }

    /// Removes a pod in any state.
    pub fn remove(&mut self, key: &str) {
        if let Some((key, _)) = self.pods.get_key_value(key) {
            let key = Arc::clone(key);
            self.leave(&key);
            self.pods.remove(&key);
        }
    }

    /// The pods that can be tried now, in order, as of the last [`Self::flush`].
    pub fn ready(&self) -> impl Iterator<Item = &PodKey> {
        let active = self.active.iter().map(|(_, key)| key);
        active.chain(self.woken.iter().map(|(_, key)| key))
    }

    /// Takes the next pod into its cycle.
    pub fn pop(&mut self, now: Duration) -> Option<PodKey> {
        self.flush(now);
        let key = Arc::clone(self.ready().next()?);
        self.take(&key).then_some(key)
    }

    /// Takes a pod that can be tried now into its cycle, out of order. Returns `false` if it cannot be tried.
    pub fn take(&mut self, key: &PodKey) -> bool {
        let waiting = self.pods.get(key);
        let is_ready = waiting.is_some_and(|waiting| match waiting.place {
            Place::Active => true,
            Place::Backoff => !waiting.failed,
            Place::Unschedulable | Place::Gated | Place::InCycle => false,
        });
        if !is_ready {
            return false;
        }
        self.leave(key);
        if let Some(waiting) = self.pods.get_mut(key) {
            waiting.attempts += 1;
        }
        self.enter(key, Place::InCycle);
        true
    }

    /// Ends the cycle of a pod that plugins refused: it sleeps until an event could help.
    pub fn refused(&mut self, key: &str, by: PluginSet, now: Duration) {
        if let Some(waiting) = self.pods.get_mut(key).filter(|waiting| waiting.place == Place::InCycle) {
            waiting.refused_at = now;
            waiting.turn.since = now;
            waiting.refused_by = by;
            waiting.failed = false;
            self.finish_cycle(key, Place::Unschedulable);
        }
    }

    /// Ends the cycle of a pod that could not be scheduled for a temporary reason: it is retried after its backoff.
    pub fn failed(&mut self, key: &str, now: Duration) {
        if let Some(waiting) = self.pods.get_mut(key).filter(|waiting| waiting.place == Place::InCycle) {
            waiting.refused_at = now;
            waiting.turn.since = now;
            waiting.failed = true;
            self.finish_cycle(key, Place::Backoff);
        }
    }

    fn finish_cycle(&mut self, key: &str, place: Place) {
        if let Some((key, waiting)) = self.pods.get_key_value(key) {
            let (key, gated) = (Arc::clone(key), waiting.gated);
            self.leave(&key);
            self.enter(&key, if gated { Place::Gated } else { place });
        }
    }

    /// Wakes the sleeping pods that an event helps, and returns their number. A pod is checked only if the event could
    /// help any pod that its plugins refused.
    pub fn rouse(
        &mut self,
        now: Duration,
        could_help: impl Fn(PluginSet) -> bool,
        mut ask: impl FnMut(&PodKey, PluginSet) -> Rousing,
    ) -> usize {
        let (mut woken, mut refused_too) = (Vec::new(), Vec::new());
        for (refused_by, keys) in &self.sleeping {
            if !could_help(*refused_by) {
                continue;
            }
            for key in keys {
                match ask(key, *refused_by) {
                    Rousing::Wake => woken.push(Arc::clone(key)),
                    Rousing::SleepOn => {}
                    Rousing::RefusedToo(plugin) => refused_too.push((Arc::clone(key), plugin)),
                }
            }
        }
        for (key, plugin) in refused_too {
            self.leave(&key);
            if let Some(waiting) = self.pods.get_mut(&key) {
                waiting.refused_by.insert(plugin);
            }
            self.enter(&key, Place::Unschedulable);
        }
        for key in &woken {
            self.wake(key, now);
        }
        woken.len()
    }

    /// Wakes a sleeping pod: it is tried at once if its backoff is over.
    pub fn wake(&mut self, key: &str, now: Duration) {
        let Some((key, waiting)) = self.pods.get_key_value(key) else {
            return;
        };
        if waiting.place == Place::Unschedulable {
            let place = if self.backoff_ends(waiting) <= now {
                Place::Active
            } else {
                Place::Backoff
            };
            let key = Arc::clone(key);
            self.leave(&key);
            self.enter(&key, place);
        }
    }

    /// Moves a sleeping pod whose cycle failed after all to the backoff queue, where it waits for its full backoff.
    pub fn back_off(&mut self, key: &str) {
        let Some((key, waiting)) = self.pods.get_key_value(key) else {
            return;
        };
        if waiting.place == Place::Unschedulable {
            let key = Arc::clone(key);
            self.leave(&key);
            if let Some(waiting) = self.pods.get_mut(&key) {
                waiting.failed = true;
            }
            self.enter(&key, Place::Backoff);
        }
    }

    fn backoff_ends(&self, waiting: &Waiting) -> Duration {
        let backoff = Backoff {
            initial: self.times.initial_backoff,
            max: self.times.max_backoff,
        };
        let ends = waiting.refused_at + backoff.delay(waiting.attempts);
        ends.max(waiting.not_before)
    }

    /// Moves the pods whose time has come.
    pub fn flush(&mut self, now: Duration) {
        while let Some((at, key)) = self.backoff.first().into_iter().chain(self.woken.first()).min()
            && *at <= now
        {
            let key = Arc::clone(key);
            self.leave(&key);
            self.enter(&key, Place::Active);
        }
        while let Some((since, key)) = self.unschedulable.first()
            && *since + self.times.flush_after <= now
        {
            let key = Arc::clone(key);
            self.wake(&key, now);
        }
    }

    /// When [`Self::pop`] or [`Self::flush`] has something to do, if nothing else happens. Now, if a pod is active or
    /// woken.
    #[must_use]
    pub fn next_turn(&self) -> Option<Duration> {
        if !(self.active.is_empty() && self.woken.is_empty()) {
            return Some(Duration::ZERO);
        }
        let backoff = self.backoff.first().map(|(at, _)| *at);
        let flush = self
            .unschedulable
            .first()
            .map(|(since, _)| *since + self.times.flush_after);
        backoff.into_iter().chain(flush).min()
    }

    /// The state of a pod.
    #[must_use]
    pub fn place(&self, key: &str) -> Option<Place> {
        self.pods.get(key).map(|waiting| waiting.place)
    }

    /// Number of tries of a pod.
    #[must_use]
    pub fn attempts(&self, key: &str) -> u32 {
        self.pods.get(key).map_or(0, |waiting| waiting.attempts)
    }

    /// The pods that fit nowhere, with the plugins that refused them.
    pub fn refused_pods(&self) -> impl Iterator<Item = (&PodKey, PluginSet)> {
        let pods = self.unschedulable.iter();
        pods.filter_map(|(_, key)| Some((key, self.pods.get(key)?.refused_by)))
    }

    /// Number of pods in a state.
    #[must_use]
    pub fn count(&self, place: Place) -> usize {
        match place {
            Place::Active => self.active.len(),
            Place::Backoff => self.backoff.len() + self.woken.len(),
            Place::Unschedulable => self.unschedulable.len(),
            Place::Gated => self.gated.len(),
            Place::InCycle => self.in_cycle.len(),
        }
    }

    fn leave(&mut self, key: &PodKey) {
        let Some(waiting) = self.pods.get(key) else {
            return;
        };
        match waiting.place {
            Place::Active => {
                self.active.remove(&(waiting.turn, Arc::clone(key)));
            }
            Place::Backoff => {
                let (ends, failed) = (self.backoff_ends(waiting), waiting.failed);
                let pods = if failed { &mut self.backoff } else { &mut self.woken };
                pods.remove(&(ends, Arc::clone(key)));
            }
            Place::Unschedulable => {
                self.unschedulable.remove(&(waiting.refused_at, Arc::clone(key)));
                if let Some(keys) = self.sleeping.get_mut(&waiting.refused_by) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.sleeping.remove(&waiting.refused_by);
                    }
                }
            }
            Place::Gated => {
                self.gated.remove(key);
            }
            Place::InCycle => {
                self.in_cycle.remove(key);
            }
        }
    }

    fn enter(&mut self, key: &PodKey, place: Place) {
        let Some(waiting) = self.pods.get_mut(key) else {
            return;
        };
        waiting.place = place;
        let (turn, refused_at, refused_by) = (waiting.turn, waiting.refused_at, waiting.refused_by);
        let failed = waiting.failed;
        let key = Arc::clone(key);
        match place {
            Place::Active => {
                self.active.insert((turn, key));
            }
            Place::Backoff => {
                let ends = self.pods.get(&key).map(|waiting| self.backoff_ends(waiting));
                let pods = if failed { &mut self.backoff } else { &mut self.woken };
                pods.insert((ends.unwrap_or(refused_at), key));
            }
            Place::Unschedulable => {
                self.sleeping.entry(refused_by).or_default().insert(Arc::clone(&key));
                self.unschedulable.insert((refused_at, key));
            }
            Place::Gated => {
                self.gated.insert(key);
            }
            Place::InCycle => {
                self.in_cycle.insert(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::PluginName;

    fn key(name: &str) -> PodKey {
        name.into()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn queue() -> Queue {
        Queue::new(QueueTimes::default())
    }

    fn refuse(queue: &mut Queue, name: &str, now: u64) {
        let by = PluginSet::of(PluginName::VolumeBinding);
        queue.refused(name, by, seconds(now));
    }

    #[test]
    fn pods_are_tried_by_priority_then_age() {
        let mut queue = queue();
        for (name, priority, at) in [("old", 0, 1), ("urgent", 9, 3), ("young", 0, 2)] {
            queue.upsert(&key(name), priority, false, seconds(at));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(4))).collect();
        assert_eq!(order, [key("urgent"), key("old"), key("young")]);
    }

    #[test]
    fn a_pod_that_was_tried_comes_after_those_that_wait_for_longer_since() {
        let mut queue = queue();
        queue.upsert(&key("tried"), 0, false, seconds(1));
        assert_eq!(queue.pop(seconds(1)), Some(key("tried")));
        queue.upsert(&key("waits"), 0, false, seconds(2));
        queue.failed("tried", seconds(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(9))).collect();
        assert_eq!(order, [key("waits"), key("tried")]);
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let mut queue = queue();
        queue.upsert(&key("pod"), 0, false, seconds(0));
        let mut now = seconds(0);
        for expected in [1, 2, 4, 8, 10, 10] {
            assert_eq!(queue.pop(now), Some(key("pod")));
            queue.failed("pod", now);
            assert_eq!(queue.pop(now + seconds(expected) - Duration::from_millis(1)), None);
            now += seconds(expected);
            assert_eq!(queue.next_turn(), Some(now));
        }
    }

    #[test]
    fn only_an_event_that_helps_wakes_a_pod() {
        let mut queue = queue();
        queue.upsert(&key("pod"), 0, false, seconds(0));
        queue.pop(seconds(0));
        refuse(&mut queue, "pod", 0);
        let of = |plugin| move |by: PluginSet| by.contains(plugin);
        let wake = |_: &PodKey, _: PluginSet| Rousing::Wake;
        assert_eq!(queue.rouse(seconds(5), of(PluginName::VolumeZone), wake), 0);
        assert_eq!(queue.place("pod"), Some(Place::Unschedulable));
        let refused_too = |_: &PodKey, _: PluginSet| Rousing::RefusedToo(PluginName::VolumeZone);
        assert_eq!(queue.rouse(seconds(5), of(PluginName::VolumeBinding), refused_too), 0);
        assert_eq!(queue.place("pod"), Some(Place::Unschedulable));
        assert_eq!(queue.rouse(seconds(5), of(PluginName::VolumeZone), wake), 1);
        assert_eq!(queue.place("pod"), Some(Place::Active));
    }

    #[test]
    fn a_woken_pod_waits_for_its_backoff_only_while_others_are_active() {
        let mut queue = queue();
        queue.upsert(&key("pod"), 9, false, seconds(0));
        queue.pop(seconds(0));
        refuse(&mut queue, "pod", 7);
        assert_eq!(queue.rouse(seconds(7), |_| true, |_, _| Rousing::Wake), 1);
        assert_eq!(queue.place("pod"), Some(Place::Backoff));
        queue.upsert(&key("other"), 0, false, seconds(7));
        assert_eq!(queue.pop(seconds(7)), Some(key("other")), "whatever the priorities are");
        assert_eq!(queue.next_turn(), Some(Duration::ZERO));
        assert_eq!(queue.pop(seconds(7)), Some(key("pod")), "nobody else is to be tried");
    }

    #[test]
    fn a_pod_that_failed_waits_for_its_backoff_in_any_case() {
        let mut queue = queue();
        for name in ["failed", "failed-later"] {
            queue.upsert(&key(name), 0, false, seconds(0));
            queue.pop(seconds(0));
        }
        queue.failed("failed", seconds(0));
        refuse(&mut queue, "failed-later", 0);
        queue.back_off("failed-later");
        assert_eq!(queue.pop(Duration::from_millis(999)), None);
        assert_eq!(queue.next_turn(), Some(seconds(1)));
        let tried: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(1))).collect();
        assert_eq!(tried, [key("failed"), key("failed-later")]);
    }

    #[test]
    fn a_forgotten_pod_is_tried_again_after_five_minutes() {
        let mut queue = queue();
        queue.upsert(&key("pod"), 0, false, seconds(0));
        queue.pop(seconds(0));
        refuse(&mut queue, "pod", 7);
        assert_eq!(queue.next_turn(), Some(seconds(307)));
        assert_eq!(queue.pop(seconds(306)), None);
        assert_eq!(queue.pop(seconds(307)), Some(key("pod")));
    }

    #[test]
    fn gates_hold_a_pod_back() {
        let mut queue = queue();
        queue.upsert(&key("pod"), 0, true, seconds(0));
        assert_eq!(queue.pop(seconds(0)), None);
        assert_eq!(queue.count(Place::Gated), 1);
        queue.upsert(&key("pod"), 0, false, seconds(1));
        assert_eq!(queue.pop(seconds(1)), Some(key("pod")));
    }

    #[test]
    fn a_removed_pod_is_gone_from_everywhere() {
        let mut queue = queue();
        for name in ["active", "cycle", "asleep", "backing-off"] {
            queue.upsert(&key(name), 0, false, seconds(0));
        }
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(0))).collect();
        assert_eq!(popped.len(), 4);
        refuse(&mut queue, "asleep", 0);
        queue.failed("backing-off", seconds(0));
        queue.failed("active", seconds(0));
        queue.flush(seconds(1));
        for name in ["active", "cycle", "asleep", "backing-off"] {
            queue.remove(name);
        }
        for place in [
            Place::Active,
            Place::Backoff,
            Place::Unschedulable,
            Place::Gated,
            Place::InCycle,
        ] {
            assert_eq!(queue.count(place), 0, "{place:?}");
        }
        assert_eq!(queue.next_turn(), None);
    }
}
