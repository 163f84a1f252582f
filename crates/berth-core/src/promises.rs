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
//!
//! A scheduler that has just started did not see how reports changed. It judges by when volume and report were written
//! ([`Report::includes`]). Times are whole seconds, and a report is written a moment after the driver was asked, so a report and a volume of
//! about the same second say nothing about each other. Such a volume is in **doubt**: the first known report includes it, or a later decrease
//! will. Decreases settle other volumes first, and the amount in doubt stays subtracted until
//!
//! - a decrease is larger than the other volumes explain,
//! - no volume is left that a report might lack: each is older than the last report, or than [`UNCLEAR_SECONDS`].

use crate::model::{ClaimId, VolumeId};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// A volume older than this is included in the current report: drivers are polled at least once a minute.
pub(crate) const REPORT_DUE_SECONDS: i64 = 60;

/// After a restart, a volume older than this is included in the current report: provisioners ask their driver after each call, and write
/// the answer within a few seconds if it has changed.
pub(crate) const UNCLEAR_SECONDS: i64 = 10;

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
    /// Until when it counts, if its report is due for this long after it was created.
    fn until(&self, due: i64) -> i64 {
        self.created.saturating_add(due)
    }
}

/// Whether a report includes a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Includes {
    Yes,
    No,
    Unclear,
}

/// A report about a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The free space.
    pub(crate) capacity: i64,
    /// Its resource version; 0 if unknown.
    pub(crate) version: u64,
    /// When it was written, in seconds since 1970.
    pub(crate) written: Option<i64>,
}

impl Report {
    /// Whether it includes a volume, by versions and times.
    fn includes(&self, made: &Made) -> Includes {
        match self.written {
            _ if self.version == 0 => Includes::Yes,
            Some(written) if written > made.created.saturating_add(1) => Includes::Yes,
            Some(written) if written.saturating_add(1) < made.created => Includes::No,
            Some(_) => Includes::Unclear,
            // The version of a volume is that of its last change, so it tells only of volumes that were last changed before.
            None if made.version < self.version => Includes::Yes,
            None => Includes::Unclear,
        }
    }
}

/// What was promised to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// A volume is to be created. All reports since the request are known, or the first known one may be younger.
    Asked { bytes: i64, since: i64, seen: bool },
    /// The volume exists, and this much of it is not known to be in a report.
    Made { made: Made, open: i64 },
    /// The volume exists, and the first known report may include it. It has a part in [`Account::doubt`].
    Unclear { made: Made },
}

impl Promise {
    fn open(&self) -> i64 {
        match self {
            Self::Asked { bytes, .. } => *bytes,
            Self::Made { open, .. } => *open,
            Self::Unclear { .. } => 0,
        }
    }

    fn expires(&self) -> i64 {
        match self {
            Self::Asked { since, .. } => since.saturating_add(ASKED_MAX_SECONDS),
            Self::Made { made, .. } => made.until(REPORT_DUE_SECONDS),
            Self::Unclear { made } => made.until(UNCLEAR_SECONDS),
        }
    }

    /// The volume, and how much of it is taken to be in a report.
    fn settled(&self) -> Option<(&Made, i64)> {
        match self {
            Self::Asked { .. } => None,
            Self::Made { made, open } => Some((made, made.bytes - open)),
            Self::Unclear { made } => Some((made, made.bytes)),
        }
    }
}

/// The reports about a pool, and the capacity promised from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    /// The last report with new content.
    report: Report,
    /// The version of the first known report.
    first: u64,
    /// Decreases in reports that no volume observed so far accounts for: volumes not observed yet, or other users.
    ahead: i64,
    /// How much of the volumes that exist may be missing from the last report, in addition to what is open.
    doubt: i64,
    promises: FxHashMap<ClaimId, Promise>,
    /// The total of all promises, without doubt.
    promised: i64,
    /// The total of the promises whose volumes are not known to exist.
    asked: i64,
}

impl Account {
    /// An account of a pool without promises.
    pub(crate) fn new(report: Report) -> Self {
        Self {
            first: report.version,
            report,
            ..Self::default()
        }
    }

    /// The amount to subtract from the last report.
    pub(crate) fn promised(&self) -> i64 {
        self.promised.saturating_add(self.doubt)
    }

    /// What is left of the last report.
    pub(crate) fn room(&self) -> i64 {
        self.report.capacity.saturating_sub(self.promised())
    }

    /// How much is promised to a claim.
    pub(crate) fn promised_to(&self, claim: ClaimId) -> i64 {
        match self.promises.get(&claim) {
            Some(Promise::Unclear { made }) => made.bytes.min(self.doubt),
            promise => promise.map_or(0, Promise::open),
        }
    }

    /// Whether a volume whose creation was not observed counts: it may be missing from the report.
    pub(crate) fn may_lack(&self, made: &Made, now: i64) -> bool {
        match self.report.includes(made) {
            Includes::Yes => false,
            Includes::No => now < made.until(REPORT_DUE_SECONDS),
            Includes::Unclear => now < made.until(UNCLEAR_SECONDS),
        }
    }

    /// Whether all reports since a version are known.
    pub(crate) fn is_known_since(&self, version: u64) -> bool {
        version == 0 || self.first < version
    }

    /// The claims that hold promises.
    pub(crate) fn claims(&self) -> impl Iterator<Item = ClaimId> + '_ {
        self.promises.keys().copied()
    }

    /// Applies a report.
    pub(crate) fn report(&mut self, report: Report) {
        let lower = self.report.capacity.saturating_sub(report.capacity);
        if lower == 0 {
            // Rewritten without a change, it says nothing about recently created volumes.
            return;
        }
        let previous = std::mem::replace(&mut self.report, report);
        if lower > 0 {
            self.ahead = self.ahead.saturating_add(self.settle(lower));
            self.explain_ahead();
            return;
        }
        for promise in self.promises.values_mut() {
            if let Promise::Made { made, open } = promise
                && made.version < previous.version
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

    /// A decrease that neither created nor requested volumes explain is that of a volume in doubt.
    fn explain_ahead(&mut self) {
        let unexplained = self.ahead.saturating_sub(self.asked).max(0);
        self.ahead -= unexplained;
        self.doubt = self.doubt.saturating_sub(unexplained).max(0);
    }

    /// Whether time alone may leave more room.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt > 0
    }

    /// Resolves doubt by time: no more can be missing from the last report than the volumes that are neither older than it, nor old enough to have
    /// caused another one.
    pub(crate) fn resolve(&mut self, now: i64) {
        if self.doubt == 0 {
            return;
        }
        let young = self.young(now).map(|(_, settled)| settled);
        let most = young.fold(self.ahead, i64::saturating_add);
        self.doubt = self.doubt.min(most);
    }

    /// The volumes that may be missing from the last report, and how much of each is taken to be in it.
    fn young(&self, now: i64) -> impl Iterator<Item = (&Made, i64)> {
        let settled = self.promises.values().filter_map(Promise::settled);
        settled
            .filter(move |(made, _)| now < made.until(UNCLEAR_SECONDS) && self.report.includes(made) != Includes::Yes)
    }

    /// A volume is to be created for a claim. All reports since were seen, or not.
    pub(crate) fn ask(&mut self, claim: ClaimId, bytes: i64, now: i64, seen: bool) {
        if !self.promises.contains_key(&claim) {
            let since = now;
            self.set(claim, Some(Promise::Asked { bytes, since, seen }));
        }
    }

    /// The volume of a claim exists. The last report may already include it, if it was requested by then.
    pub(crate) fn make(&mut self, claim: ClaimId, made: Made) {
        let promise = match self.promises.get(&claim) {
            Some(Promise::Made { .. } | Promise::Unclear { .. }) => return,
            Some(Promise::Asked { seen: true, .. }) => {
                let known = self.ahead.min(made.bytes);
                self.ahead -= known;
                let open = made.bytes - known;
                Promise::Made { made, open }
            }
            Some(Promise::Asked { seen: false, .. }) | None => match self.report.includes(&made) {
                Includes::No => Promise::Made { made, open: made.bytes },
                Includes::Yes if self.report.version == self.first => Promise::Made { made, open: 0 },
                Includes::Yes | Includes::Unclear => {
                    self.doubt = self.doubt.saturating_add(made.bytes);
                    Promise::Unclear { made }
                }
            },
        };
        self.set(claim, Some(promise));
        self.explain_ahead();
    }

    /// The volume that was created for a claim, if it is known.
    pub(crate) fn made_for(&self, claim: ClaimId) -> Option<VolumeId> {
        let (made, _) = self.promises.get(&claim)?.settled()?;
        Some(made.volume)
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

    /// When the promise to a claim expires.
    pub(crate) fn end_of(&self, claim: ClaimId) -> Option<i64> {
        self.promises.get(&claim).map(Promise::expires)
    }

    /// When the next promise expires, or less may be in doubt.
    pub(crate) fn next_end(&self, now: i64) -> Option<i64> {
        let promises = self.promises.values().map(Promise::expires);
        let in_doubt = (self.doubt > 0).then(|| self.young(now).map(|(made, _)| made.until(UNCLEAR_SECONDS)));
        promises.chain(in_doubt.into_iter().flatten()).min()
    }
}

#[cfg(test)]
mod tests;
