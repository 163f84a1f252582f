//! Frees the memory of user-defined names when nothing uses them.
//!
//! Pods, claims and workloads come and go with their own names, labels and selectors. Strings and cached answers of deleted ones are freed
//! between two decisions: when as many strings were added as were in use, so that the work is proportional to reading them, or after a
//! while.

use super::binding_index::BindingIndex;
use super::{PendingPod, Scheduler};
use berth_core::trace::{Marks, Trace};
use std::time::Duration;

/// Fewer new strings than this are not worth a sweep: at some hundred bytes each they take a few MiB.
const MIN_FRESH: usize = 16_384;

/// One new string pays for examining this many places.
const PLACES_PER_TEXT: usize = 16;

/// After this time all leftovers are freed, however few.
const INTERVAL: Duration = Duration::from_secs(600);

/// When the next sweep is due.
#[derive(Debug)]
pub(super) struct Sweeps {
    fresh: usize,
    at: Duration,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self {
            fresh: MIN_FRESH,
            at: INTERVAL,
        }
    }
}

berth_core::trace!(PendingPod { compiled; object, said, nominations_sent, last_attempt, committed_before, has_clean_claims });

impl Trace for BindingIndex {
    fn trace(&self, marks: &mut Marks) {
        self.bindings().for_each(|binding| binding.trace(marks));
    }
}

impl Scheduler {
    /// Frees unused memory, if that is due.
    pub(super) fn sweep_if_due(&mut self, now: Duration) {
        if self.cluster.symbols().fresh() >= self.sweeps.fresh || now >= self.sweeps.at {
            self.sweep();
            self.sweeps.at = now + INTERVAL;
        }
    }

    /// Frees the unused strings, and cached data for decisions that was not used since the last sweep. Decisions do not change. A step
    /// calls this when enough has accumulated.
    pub fn sweep(&mut self) {
        self.scratch.tidy(&mut self.cluster);
        if self.cluster.tidy() {
            self.scratch.forget_verdicts(&mut self.cluster);
        }
        let mut marks = Marks::default();
        self.trace(&mut marks);
        self.cluster.sweep(&marks);
        let in_use = self.cluster.symbols().len();
        self.sweeps.fresh = MIN_FRESH.max(in_use).max(marks.count() / PLACES_PER_TEXT);
    }
}

berth_core::trace!(Scheduler {
    cluster, scratch, pods, bindings;
    queue, profiles, unanswered, early, await_claims, waiting_for_claim, nominations, evictions, nodes, refusals, promise_end, effects, writes,
    write_count, counts, last_tried, together, plan, sweeps, hold_volumes, replica, recommits, rollbacks, consulting
});
