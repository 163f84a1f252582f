//! Capacity in flight: the part of a pool that is promised to claims and not included in a report yet.
//!
//! A `CSIStorageCapacity` object reports how much was free when the driver was asked. Until the next one arrives, the capacity
//! promised since is subtracted:
//!
//! ```text
//!   node selected ──▶ asked ──volume exists────▶ made ──reports have dropped by as much────▶ settled
//!                       │                          │
//!                       ▼                          ▼
//!      selection cleared, claim gone       volume gone, or older than a report can be
//! ```
//!
//! A report does not say which volumes it includes: the driver may have been asked before a volume was created, and its answer written
//! afterwards. Reports are therefore interpreted by what they changed. If a report is lower than its predecessor, the difference settles
//! created volumes, oldest first; a decrease for other reasons is trusted. The part of a decrease that belongs to a volume not observed
//! yet is kept, and settles the volume when it appears. If a report is higher, space was returned and the difference says nothing; it
//! then settles the volumes that were created before the preceding report.
//!
//! A driver whose reports do not change when it creates a volume (thin provisioning, or the total instead of the free space)
//! writes no report. After [`REPORT_DUE_SECONDS`] a volume counts as reported, so that no pod waits forever for space that is
//! available.

use crate::model::{ClaimId, VolumeId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// A volume older than this is included in the current report: drivers are polled at least once a minute.
pub(crate) const REPORT_DUE_SECONDS: i64 = 60;

/// A promise that is not fulfilled within this time no longer reserves space: pods wait ten minutes for their volumes.
pub(crate) const ASKED_MAX_SECONDS: i64 = 600;

/// A volume that was created for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) volume: VolumeId,
    pub(crate) bytes: i64,
    /// The version at which it was first seen.
    pub(crate) version: u64,
    /// When it was created, in seconds since 1970.
    pub(crate) created: i64,
}

impl Made {
    /// Whether a report that includes it may still be due.
    pub(crate) fn is_recent(&self, now: i64) -> bool {
        (0..REPORT_DUE_SECONDS).contains(&now.saturating_sub(self.created))
    }
}

/// What was promised to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// A volume is to be created.
    Asked { bytes: i64, since: i64 },
    /// The volume exists, and this much of it is not known to be in a report.
    Made { made: Made, open: i64 },
}

impl Promise {
    fn open(&self) -> i64 {
        match self {
            Self::Asked { bytes, .. } => *bytes,
            Self::Made { open, .. } => *open,
        }
    }

    fn expires(&self) -> i64 {
        match self {
            Self::Asked { since, .. } => since.saturating_add(ASKED_MAX_SECONDS),
            Self::Made { made, .. } => made.created.saturating_add(REPORT_DUE_SECONDS),
        }
    }
}

/// The reports about a pool, and the capacity promised from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The free space in the last report.
    capacity: i64,
    /// The version of the last report with new content.
    version: u64,
    /// Decreases in reports that no volume observed so far accounts for: volumes not observed yet, or other users.
    ahead: i64,
    promises: FxHashMap<ClaimId, Promise>,
    /// The total of all promises.
    promised: i64,
    /// The total of the promises whose volumes are not known to exist.
    asked: i64,
}

impl Account {
    /// An account of a pool without promises.
    pub(crate) fn new(capacity: i64, version: u64) -> Self {
        Self {
            capacity,
            version,
            ..Self::default()
        }
    }

    /// The amount to subtract from the last report.
    pub(crate) fn promised(&self) -> i64 {
        self.promised
    }

    /// The part of it that is promised to a claim.
    pub(crate) fn promised_to(&self, claim: ClaimId) -> i64 {
        self.promises.get(&claim).map_or(0, Promise::open)
    }

    /// Whether the report is older than the volume, judging by versions.
    pub(crate) fn is_older_than(&self, made: &Made) -> bool {
        self.version != 0 && self.version < made.version
    }

    /// The claims that hold promises.
    pub(crate) fn claims(&self) -> impl Iterator<Item = ClaimId> + '_ {
        self.promises.keys().copied()
    }

    /// Applies a report.
    pub(crate) fn report(&mut self, capacity: i64, version: u64) {
        let lower = self.capacity.saturating_sub(capacity);
        if lower == 0 {
            // Rewritten without a change, it says nothing about recently created volumes.
            return;
        }
        let previous = std::mem::replace(&mut self.version, version);
        self.capacity = capacity;
        if lower > 0 {
            self.ahead = self.ahead.saturating_add(self.settle(lower)).min(self.asked);
            return;
        }
        for promise in self.promises.values_mut() {
            if let Promise::Made { made, open } = promise
                && made.version < previous
            {
                self.promised -= std::mem::take(open);
            }
        }
    }

    /// Settles this much of the created volumes, oldest first. Returns the remainder.
    fn settle(&mut self, mut bytes: i64) -> i64 {
        let mut made: Vec<(u64, &mut i64)> = Vec::new();
        for promise in self.promises.values_mut() {
            if let Promise::Made { made: volume, open } = promise
                && *open > 0
            {
                made.push((volume.version, open));
            }
        }
        made.sort_unstable_by_key(|(version, open)| (*version, Reverse(**open)));
        for (_, open) in made {
            let settled = bytes.min(*open);
            *open -= settled;
            bytes -= settled;
            self.promised -= settled;
        }
        bytes
    }

    /// A volume is to be created for a claim.
    pub(crate) fn ask(&mut self, claim: ClaimId, bytes: i64, now: i64) {
        if !self.promises.contains_key(&claim) {
            self.set(claim, Some(Promise::Asked { bytes, since: now }));
        }
    }

    /// The volume of a claim exists. The last report may already include it, if it was requested by then.
    pub(crate) fn make(&mut self, claim: ClaimId, made: Made) {
        let mut open = made.bytes;
        match self.promises.get(&claim) {
            Some(Promise::Made { .. }) => return,
            Some(Promise::Asked { .. }) => {
                let known = self.ahead.min(open);
                self.ahead -= known;
                open -= known;
            }
            None => {}
        }
        self.set(claim, Some(Promise::Made { made, open }));
    }

    /// The volume that was created for a claim, if it is known.
    pub(crate) fn made_for(&self, claim: ClaimId) -> Option<VolumeId> {
        match self.promises.get(&claim)? {
            Promise::Made { made, .. } => Some(made.volume),
            Promise::Asked { .. } => None,
        }
    }

    fn set(&mut self, claim: ClaimId, promise: Option<Promise>) {
        let old = match promise {
            Some(promise) => self.promises.insert(claim, promise),
            None => self.promises.remove(&claim),
        };
        for (promise, sign) in [(old, -1), (promise, 1)] {
            let Some(promise) = promise else {
                continue;
            };
            self.promised += sign * promise.open();
            if let Promise::Asked { bytes, .. } = promise {
                self.asked += sign * bytes;
            }
        }
    }

    /// Drops a promise.
    pub(crate) fn forget(&mut self, claim: ClaimId) {
        self.set(claim, None);
        self.ahead = self.ahead.min(self.asked);
    }

    /// The promises that have expired at this time.
    pub(crate) fn expired(&self, now: i64) -> impl Iterator<Item = ClaimId> + '_ {
        let is_over = move |(_, promise): &(&ClaimId, &Promise)| promise.expires() <= now;
        self.promises.iter().filter(is_over).map(|(claim, _)| *claim)
    }

    /// When the next promise expires.
    pub(crate) fn next_end(&self) -> Option<i64> {
        self.promises.values().map(Promise::expires).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{SlotId, Slots};
    use proptest::prelude::*;

    fn ids(count: usize) -> Vec<SlotId> {
        let mut slots = Slots::default();
        (0..count).map(|_| slots.insert(())).collect()
    }

    fn made(id: SlotId, bytes: i64, version: u64) -> Made {
        Made {
            volume: VolumeId(id),
            bytes,
            version,
            created: 0,
        }
    }

    /// How much may still be promised.
    fn room(account: &Account) -> i64 {
        account.capacity - account.promised()
    }

    #[test]
    fn a_report_settles_as_much_as_it_is_lower() {
        let ids = ids(3);
        let mut account = Account::new(10, 1);
        for (id, version) in ids.iter().zip(2..) {
            account.ask(ClaimId(*id), 2, 0);
            account.make(ClaimId(*id), made(*id, 2, version));
        }
        assert_eq!(room(&account), 4);
        // The driver was polled after it had created one of them.
        account.report(8, 9);
        assert_eq!((room(&account), account.promised()), (4, 4));
        account.report(4, 10);
        assert_eq!((room(&account), account.promised()), (4, 0));
    }

    #[test]
    fn a_report_that_knows_of_a_volume_first_settles_it_when_it_comes() {
        let ids = ids(1);
        let mut account = Account::new(10, 1);
        account.ask(ClaimId(ids[0]), 2, 0);
        account.report(8, 2);
        assert_eq!(room(&account), 6, "somebody else may have taken it");
        account.make(ClaimId(ids[0]), made(ids[0], 2, 3));
        assert_eq!(room(&account), 8);
    }

    #[test]
    fn what_is_lower_for_other_reasons_is_believed() {
        let ids = ids(1);
        let mut account = Account::new(10, 1);
        account.ask(ClaimId(ids[0]), 2, 0);
        account.report(3, 2);
        assert_eq!(room(&account), 1);
    }

    #[test]
    fn after_something_was_given_back_the_next_report_settles() {
        let ids = ids(2);
        let mut account = Account::new(10, 1);
        account.make(ClaimId(ids[0]), made(ids[0], 2, 2));
        account.report(20, 5);
        assert_eq!(room(&account), 18, "the driver may have been asked before it was made");
        account.make(ClaimId(ids[1]), made(ids[1], 2, 6));
        account.report(21, 7);
        assert_eq!(room(&account), 19);
    }

    #[test]
    fn a_report_that_is_written_twice_settles_once() {
        let ids = ids(2);
        let mut account = Account::new(10, 1);
        for (id, version) in ids.iter().zip(2..) {
            account.make(ClaimId(*id), made(*id, 2, version));
        }
        account.report(8, 4);
        account.report(8, 5);
        assert_eq!(room(&account), 6);
    }

    #[test]
    fn promises_end_when_a_report_must_have_come() {
        let ids = ids(2);
        let mut account = Account::new(10, 1);
        account.ask(ClaimId(ids[0]), 2, 0);
        account.make(ClaimId(ids[1]), made(ids[1], 2, 2));
        assert_eq!(account.next_end(), Some(REPORT_DUE_SECONDS));
        assert_eq!(account.expired(REPORT_DUE_SECONDS - 1).count(), 0);
        assert_eq!(
            account.expired(REPORT_DUE_SECONDS).collect::<Vec<_>>(),
            [ClaimId(ids[1])]
        );
        assert_eq!(account.expired(ASKED_MAX_SECONDS).count(), 2);
    }

    proptest! {
        /// A driver creates volumes in any order and reports its free space at any time. Each report describes an earlier moment
        /// than the one at which it is written, but reports never go backwards. However late they are, no more is promised than
        /// there is; and once everything is reported, no less.
        #[test]
        fn what_is_promised_is_there(
            total in 1..30_i64,
            steps in proptest::collection::vec((0..4_u8, 1..4_i64, 0..5_usize), 1..60),
        ) {
            let ids = ids(60);
            let mut account = Account::new(total, 1);
            // The driver's free space after each volume that it created.
            let mut left = vec![total];
            let (mut asked, mut unseen) = (Vec::new(), Vec::new());
            let (mut version, mut reported) = (1, 0);
            for (number, (what, bytes, pick)) in steps.into_iter().enumerate() {
                version += 1;
                match what {
                    0 if room(&account) >= bytes => {
                        account.ask(ClaimId(ids[number]), bytes, 0);
                        asked.push((ids[number], bytes));
                    }
                    1 if !asked.is_empty() => {
                        let (id, bytes) = asked.remove(pick % asked.len());
                        let now = left[left.len() - 1] - bytes;
                        prop_assert!(now >= 0, "the driver is asked for more than it has");
                        left.push(now);
                        unseen.push((id, bytes));
                    }
                    2 if !unseen.is_empty() => {
                        let (id, bytes) = unseen.remove(0);
                        account.make(ClaimId(id), made(id, bytes, version));
                    }
                    3 => {
                        reported = reported.max(left.len().saturating_sub(1 + pick));
                        account.report(left[reported], version);
                    }
                    _ => {}
                }
            }
            for (id, bytes) in unseen {
                version += 1;
                account.make(ClaimId(id), made(id, bytes, version));
            }
            account.report(left[left.len() - 1], version + 1);
            let open: i64 = asked.iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(room(&account), left[left.len() - 1] - open);
        }
    }
}
