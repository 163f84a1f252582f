//! Which object gets its step next, by the rules of `berth_kube::queue`, in virtual time.

use crate::world::Millis;
use berth_core::backoff::Backoff;
use berth_core::effect::ObjectKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The keys that wait, those that wait for a time, and those in flight.
#[derive(Debug)]
pub(crate) struct Queue {
    backoff: Backoff,
    ready: VecDeque<ObjectKey>,
    queued: BTreeSet<ObjectKey>,
    waits: BTreeMap<ObjectKey, Millis>,
    alarms: BTreeMap<ObjectKey, Millis>,
    failures: BTreeMap<ObjectKey, u32>,
    /// What is in flight, with the keys that wait for it.
    locked: BTreeMap<ObjectKey, Vec<ObjectKey>>,
}

impl Queue {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            ready: VecDeque::new(),
            queued: BTreeSet::new(),
            waits: BTreeMap::new(),
            alarms: BTreeMap::new(),
            failures: BTreeMap::new(),
            locked: BTreeMap::new(),
        }
    }

    /// Puts a key at the end, unless it waits already.
    pub(crate) fn push(&mut self, key: ObjectKey) {
        if !self.waits.contains_key(&key) {
            self.make_ready(key);
        }
    }

    /// Puts a key at the end about which there is news from outside.
    pub(crate) fn hurry(&mut self, key: ObjectKey) {
        self.waits.remove(&key);
        self.make_ready(key);
    }

    fn make_ready(&mut self, key: ObjectKey) {
        if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<ObjectKey> {
        loop {
            let key = self.ready.pop_front()?;
            if self.queued.remove(&key) {
                return Some(key);
            }
        }
    }

    /// Lets a key wait for whatever of these is in flight. `false` if none is.
    pub(crate) fn wait_for(&mut self, key: &ObjectKey, touched: &[ObjectKey]) -> bool {
        let Some(waiting) = touched.iter().find(|one| self.locked.contains_key(*one)) else {
            return false;
        };
        if let Some(waiting) = self.locked.get_mut(waiting)
            && !waiting.contains(key)
        {
            waiting.push(key.clone());
        }
        true
    }

    pub(crate) fn is_locked(&self, key: &ObjectKey) -> bool {
        self.locked.contains_key(key)
    }

    pub(crate) fn lock(&mut self, touched: &[ObjectKey]) {
        for key in touched {
            self.locked.entry(key.clone()).or_default();
        }
    }

    pub(crate) fn unlock(&mut self, touched: &[ObjectKey]) {
        for key in touched {
            for waiting in self.locked.remove(key).unwrap_or_default() {
                self.push(waiting);
            }
        }
    }

    pub(crate) fn succeeded(&mut self, key: &ObjectKey) {
        if self.failures.remove(key).is_some() {
            self.waits.remove(key);
        }
    }

    /// Brings a key back after a delay that grows with its failures in a row.
    pub(crate) fn failed(&mut self, key: ObjectKey, outage: bool, now: Millis) {
        let count = self.failures.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        let delay = self.backoff.delay(*count);
        let delay = if outage { delay.min(Backoff::OUTAGE_MAX) } else { delay };
        let delay = Millis::try_from(delay.as_millis()).unwrap_or(Millis::MAX / 2);
        self.queued.remove(&key);
        self.waits.insert(key, now + delay);
    }

    /// Brings a key back at a time, and keeps nothing from bringing it back earlier.
    pub(crate) fn alarm(&mut self, key: ObjectKey, at: Millis) {
        self.alarms.insert(key, at);
    }

    pub(crate) fn next_due(&self) -> Option<Millis> {
        self.waits.values().chain(self.alarms.values()).copied().min()
    }

    /// Makes those ready whose time has come.
    pub(crate) fn advance(&mut self, now: Millis) {
        let is_due = |times: &BTreeMap<ObjectKey, Millis>| -> Vec<ObjectKey> {
            let due = times.iter().filter(|(_, at)| **at <= now);
            due.map(|(key, _)| key.clone()).collect()
        };
        for key in is_due(&self.waits) {
            self.hurry(key);
        }
        for key in is_due(&self.alarms) {
            self.alarms.remove(&key);
            self.push(key);
        }
    }
}
