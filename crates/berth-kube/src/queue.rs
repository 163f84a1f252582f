//! Which object gets its step next.
//!
//! A key is in the queue at most once. While effects on an object are in flight, no other step that
//! would touch it starts: this keeps the order of writes for every claim and every volume.

use crate::backoff::Backoff;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::Hash;
use tokio::time::Instant;

/// The keys that wait, those that wait for a time, and those in flight.
#[derive(Debug)]
pub(crate) struct Queue<Key> {
    backoff: Backoff,
    ready: VecDeque<Key>,
    queued: FxHashSet<Key>,
    later: BinaryHeap<Reverse<(Instant, Key)>>,
    failures: FxHashMap<Key, u32>,
    /// What is in flight, with the keys that wait for it.
    locked: FxHashMap<Key, Vec<Key>>,
}

impl<Key: Clone + Eq + Hash + Ord> Queue<Key> {
    /// An empty queue, with the delays of keys that fail.
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            ready: VecDeque::new(),
            queued: FxHashSet::default(),
            later: BinaryHeap::new(),
            failures: FxHashMap::default(),
            locked: FxHashMap::default(),
        }
    }

    /// Puts a key at the end, unless it waits already.
    pub(crate) fn push(&mut self, key: Key) {
        if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// The next key.
    pub(crate) fn pop(&mut self) -> Option<Key> {
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        Some(key)
    }

    /// How many keys are ready.
    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether a key is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Lets a key wait for whatever of these is in flight. `false` if none is.
    pub(crate) fn wait_for(&mut self, key: &Key, touched: &[Key]) -> bool {
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
    pub(crate) fn lock(&mut self, touched: &[Key]) {
        for key in touched {
            self.locked.entry(key.clone()).or_default();
        }
    }

    /// Ends [`Queue::lock`] and brings back who waited.
    pub(crate) fn unlock(&mut self, touched: &[Key]) {
        for key in touched {
            for waiting in self.locked.remove(key).unwrap_or_default() {
                self.push(waiting);
            }
        }
    }

    /// Forgets the failures of a key.
    pub(crate) fn succeeded(&mut self, key: &Key) {
        self.failures.remove(key);
    }

    /// Brings a key back after a delay that grows with its failures in a row.
    pub(crate) fn failed(&mut self, key: Key, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let delay = self.backoff.jittered(*failures);
        self.later.push(Reverse((now + delay, key)));
    }

    /// When the next key comes back.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.peek().map(|Reverse((due, _))| *due)
    }

    /// Makes those ready whose time has come.
    pub(crate) fn advance(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now) {
            if let Some(Reverse((_, key))) = self.later.pop() {
                self.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Queue};
    use tokio::time::{Duration, Instant};

    fn key(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn a_key_waits_once_and_for_what_is_in_flight() {
        let mut queue = Queue::new(Backoff::EFFECT);
        queue.push(key("a"));
        queue.push(key("a"));
        assert_eq!(queue.len(), 1);
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
        let mut queue = Queue::new(Backoff::EFFECT);
        let now = Instant::now();
        queue.failed(key("a"), now);
        let first = queue.next_due().unwrap();
        queue.advance(now);
        assert_eq!(queue.len(), 0);
        queue.advance(first);
        assert_eq!(queue.pop(), Some(key("a")));
        queue.failed(key("a"), now);
        assert!(queue.next_due().unwrap() >= now + Duration::from_millis(10));
    }
}
