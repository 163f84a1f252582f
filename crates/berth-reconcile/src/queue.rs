//! The queue of objects whose step must run.
//!
//! A key is in the queue at most once. While effects on an object are in flight, no other step that would touch it
//! starts: this preserves the order of writes for every claim and every volume.

use berth_core::backoff::Backoff;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeSet, VecDeque};
use std::hash::Hash;
use std::ops::Add;
use std::time::Duration;

/// Keys that waited for the server are retried within this time: all at once would be a storm.
const SPREAD: Duration = Duration::from_secs(1);

/// Why a step must be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A problem with this object.
    Own,
    /// The API server is unavailable or failing.
    Outage,
}

/// The ready keys, those that wait for a time, and those in flight.
///
/// A key that waits after a failure is nowhere else, and is retried only at that time: echoes of its own writes through
/// a watch do not trigger it earlier.
#[derive(Debug)]
pub struct Queue<Key, Time> {
    backoff: Backoff,
    /// A new random number between 0 and 1 each time.
    chance: fn() -> f64,
    /// In order. Keys that are no longer queued are skipped.
    ready: VecDeque<Key>,
    queued: FxHashSet<Key>,
    waits: FxHashMap<Key, Time>,
    /// The waiting keys, by time.
    later: BTreeSet<(Time, Key)>,
    /// Those that wait for the server to recover.
    outage: FxHashSet<Key>,
    /// Keys that are processed again at a fixed time, whatever happens until then.
    alarms: FxHashMap<Key, Time>,
    /// The alarms by time.
    ringing: BTreeSet<(Time, Key)>,
    /// The number of consecutive failures, and the reason of the last one.
    failures: FxHashMap<Key, (u32, Failure)>,
    /// Keys that were retried early because the server recovered. If they fail anyway, the server is not the cause.
    recovered: FxHashSet<Key>,
    /// Keys in flight, each with the keys that wait for it.
    locked: FxHashMap<Key, Vec<Key>>,
}

impl<Key, Time> Queue<Key, Time>
where
    Key: Clone + Eq + Hash + Ord,
    Time: Copy + Ord + Add<Duration, Output = Time>,
{
    /// An empty queue, with the backoff for failing keys and randomness to spread them.
    #[must_use]
    pub fn new(backoff: Backoff, chance: fn() -> f64) -> Self {
        Self {
            backoff,
            chance,
            ready: VecDeque::new(),
            queued: FxHashSet::default(),
            waits: FxHashMap::default(),
            later: BTreeSet::new(),
            outage: FxHashSet::default(),
            alarms: FxHashMap::default(),
            ringing: BTreeSet::new(),
            failures: FxHashMap::default(),
            recovered: FxHashSet::default(),
            locked: FxHashMap::default(),
        }
    }

    /// Appends a key, unless it is already waiting.
    pub fn push(&mut self, key: Key) {
        if !self.waits.contains_key(&key) {
            self.make_ready(key);
        }
    }

    /// Appends a key because of an external change: it no longer waits, however often it failed.
    pub fn hurry(&mut self, key: Key) {
        self.end_wait(&key);
        self.make_ready(key);
    }

    fn make_ready(&mut self, key: Key) {
        if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn end_wait(&mut self, key: &Key) {
        // Nearly always nothing waits, and the key need not be hashed.
        if self.waits.is_empty() {
            return;
        }
        if let Some(until) = self.waits.remove(key) {
            self.later.remove(&(until, key.clone()));
            self.outage.remove(key);
        }
    }

    fn wait(&mut self, key: Key, until: Time) {
        self.end_wait(&key);
        self.queued.remove(&key);
        self.later.insert((until, key.clone()));
        self.waits.insert(key, until);
    }

    /// The next key.
    pub fn pop(&mut self) -> Option<Key> {
        loop {
            let key = self.ready.pop_front()?;
            if self.queued.remove(&key) {
                return Some(key);
            }
        }
    }

    /// Number of ready keys.
    #[must_use]
    pub fn count_ready(&self) -> usize {
        self.queued.len()
    }

    /// Whether a key is ready.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Makes a key wait for those of these that are in flight. Returns `false` if none is.
    pub fn wait_for(&mut self, key: &Key, touched: &[Key]) -> bool {
        let Some(busy) = touched.iter().find(|touched| self.locked.contains_key(*touched)) else {
            return false;
        };
        if let Some(waiting) = self.locked.get_mut(busy)
            && !waiting.contains(key)
        {
            waiting.push(key.clone());
        }
        true
    }

    /// Marks keys as in flight.
    pub fn lock(&mut self, touched: &[Key]) {
        for key in touched {
            self.locked.entry(key.clone()).or_default();
        }
    }

    /// Whether effects on an object are in flight.
    #[must_use]
    pub fn is_locked(&self, key: &Key) -> bool {
        self.locked.contains_key(key)
    }

    /// Ends [`Queue::lock`] and makes the waiting keys ready.
    pub fn unlock(&mut self, touched: &[Key]) {
        for key in touched {
            for waiting in self.locked.remove(key).unwrap_or_default() {
                self.push(waiting);
            }
        }
    }

    /// Forgets the failures of a key.
    pub fn succeeded(&mut self, key: &Key) {
        if !self.failures.is_empty() && self.failures.remove(key).is_some() {
            self.end_wait(key);
            self.recovered.remove(key);
        }
    }

    /// Retries a key after a delay that grows with its consecutive failures.
    pub fn failed(&mut self, key: Key, failure: Failure, now: Time) {
        let failure = match failure {
            Failure::Outage if !self.recovered.contains(&key) => Failure::Outage,
            _ => Failure::Own,
        };
        let (count, last) = self.failures.entry(key.clone()).or_insert((0, failure));
        // What an outage leaves behind, such as a write without a response, counts separately.
        *count = if *last == failure { count.saturating_add(1) } else { 1 };
        *last = failure;
        let count = *count;
        if failure == Failure::Outage {
            let backoff = self.backoff.at_most(Backoff::OUTAGE_MAX);
            self.wait(key.clone(), now + backoff.jittered(count, (self.chance)()));
            self.outage.insert(key);
        } else {
            self.wait(key, now + self.backoff.jittered(count, (self.chance)()));
        }
    }

    /// The server recovered: keys that wait for it are retried soon. The outage does not count against a key: a server
    /// that has just started may refuse once more before its authorization is ready.
    pub fn recover(&mut self, now: Time) {
        for key in std::mem::take(&mut self.outage) {
            self.failures.insert(key.clone(), (0, Failure::Own));
            let soon = now + SPREAD.mul_f64((self.chance)());
            let until = self.waits.get(&key).map_or(soon, |until| soon.min(*until));
            self.recovered.insert(key.clone());
            self.wait(key, until);
        }
    }

    /// Triggers a key at a time, or earlier for any other reason. The last alarm of a key counts.
    pub fn alarm(&mut self, key: Key, at: Time) {
        if let Some(before) = self.alarms.insert(key.clone(), at) {
            self.ringing.remove(&(before, key.clone()));
        }
        self.ringing.insert((at, key));
    }

    /// When the next key becomes ready.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        let first = |times: &BTreeSet<(Time, Key)>| times.first().map(|(due, _)| *due);
        first(&self.later).into_iter().chain(first(&self.ringing)).min()
    }

    /// Makes the keys ready whose time has come.
    pub fn advance(&mut self, now: Time) {
        while let Some((_, key)) = pop_due(&mut self.later, now) {
            self.waits.remove(&key);
            self.outage.remove(&key);
            self.make_ready(key);
        }
        while let Some((_, key)) = pop_due(&mut self.ringing, now) {
            self.alarms.remove(&key);
            self.push(key);
        }
    }
}

fn pop_due<Time: Copy + Ord, Key: Ord>(times: &mut BTreeSet<(Time, Key)>, now: Time) -> Option<(Time, Key)> {
    times
        .first()
        .is_some_and(|(due, _)| *due <= now)
        .then(|| times.pop_first())?
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Failure, Queue};
    use std::time::{Duration, Instant};

    fn key(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn a_key_waits_once_and_for_what_is_in_flight() {
        let mut queue = Queue::<String, Instant>::new(Backoff::EFFECT, || 0.5);
        queue.push(key("a"));
        queue.push(key("a"));
        assert_eq!(queue.count_ready(), 1);
        assert_eq!(queue.pop(), Some(key("a")));
        queue.lock(&[key("a"), key("b")]);
        assert!(queue.wait_for(&key("c"), &[key("b"), key("c")]));
        assert!(!queue.wait_for(&key("d"), &[key("d")]));
        assert_eq!(queue.pop(), None);
        queue.unlock(&[key("a"), key("b")]);
        assert_eq!(queue.pop(), Some(key("c")));
    }

    #[test]
    fn a_failed_key_comes_back_later_and_later() {
        let mut queue = Queue::<String, Instant>::new(Backoff::EFFECT, || 0.5);
        let now = Instant::now();
        queue.failed(key("a"), Failure::Own, now);
        let first = queue.next_due().unwrap();
        queue.advance(now);
        assert_eq!(queue.count_ready(), 0);
        queue.advance(first);
        assert_eq!(queue.pop(), Some(key("a")));
        queue.failed(key("a"), Failure::Own, now);
        assert!(queue.next_due().unwrap() >= now + Duration::from_millis(10));
    }

    #[test]
    fn only_news_from_outside_shorten_the_wait_of_a_key_that_failed() {
        let mut queue = Queue::<String, Instant>::new(Backoff::CALL, || 0.5);
        let now = Instant::now();
        queue.lock(&[key("a")]);
        assert!(queue.wait_for(&key("a"), &[key("a")]));
        queue.unlock(&[key("a")]);
        queue.failed(key("a"), Failure::Own, now);
        queue.push(key("a"));
        assert_eq!(
            (queue.count_ready(), queue.pop()),
            (0, None),
            "neither an echo nor who waited brings it back"
        );
        queue.hurry(key("a"));
        assert_eq!(queue.pop(), Some(key("a")));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn a_key_waits_for_one_time_only_however_often_it_fails() {
        let mut queue = Queue::<String, Instant>::new(Backoff::EFFECT, || 0.5);
        let now = Instant::now();
        for _ in 0..240 {
            queue.failed(key("a"), Failure::Own, now);
        }
        assert_eq!((queue.later.len(), queue.waits.len()), (1, 1));
        assert!(
            queue.next_due().unwrap() >= now + Duration::from_secs(60),
            "the last failure counts"
        );
        queue.succeeded(&key("a"));
        assert_eq!(queue.next_due(), None);
        assert!(queue.failures.is_empty() && queue.recovered.is_empty());
    }

    #[test]
    fn an_alarm_brings_a_key_back_and_keeps_it_from_nothing() {
        let mut queue = Queue::<String, Instant>::new(Backoff::EFFECT, || 0.5);
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        queue.alarm(key("a"), later(60));
        queue.push(key("a"));
        assert_eq!(queue.pop(), Some(key("a")), "it may come earlier");
        queue.alarm(key("a"), later(90));
        queue.advance(later(60));
        assert_eq!(queue.pop(), None, "the last one counts");
        queue.advance(later(90));
        assert_eq!((queue.pop(), queue.next_due()), (Some(key("a")), None));
        // A failed key is retried in its own time.
        queue.alarm(key("b"), now);
        for _ in 0..20 {
            queue.failed(key("b"), Failure::Own, now);
        }
        queue.advance(later(30));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn after_an_outage_everything_comes_back_soon() {
        let mut queue = Queue::<String, Instant>::new(Backoff::EFFECT, || 0.5);
        let now = Instant::now();
        for _ in 0..20 {
            queue.failed(key("a"), Failure::Outage, now);
            queue.failed(key("b"), Failure::Own, now);
        }
        let due = queue.next_due().unwrap();
        assert!(due <= now + Duration::from_millis(6250), "an outage is looked at often");
        queue.recover(now);
        queue.advance(now + Duration::from_secs(1));
        assert_eq!((queue.pop(), queue.pop()), (Some(key("a")), None));
        // How a key failed during an outage says nothing about how it fails afterwards.
        for _ in 0..20 {
            queue.failed(key("c"), Failure::Outage, now);
        }
        queue.failed(key("c"), Failure::Own, now);
        assert!(queue.next_due().unwrap() <= now + Duration::from_millis(7));
        queue.succeeded(&key("c"));
        // The reason for its failures is gone: it starts over.
        queue.failed(key("a"), Failure::Own, now);
        assert!(queue.next_due().unwrap() <= now + Duration::from_millis(7));
        // The server responds, and this key fails anyway: the server is not the cause.
        for _ in 0..20 {
            queue.failed(key("a"), Failure::Outage, now);
            queue.recover(now);
        }
        assert!(queue.next_due().unwrap() >= now + Duration::from_secs(60));
    }
}
