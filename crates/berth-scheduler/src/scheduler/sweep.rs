//! Memory of what users named: freed when nothing uses it.
//!
//! Pods, claims and workloads come and go with names, labels and selectors of their own. Texts and kept answers of those that are gone are
//! freed between two decisions: when as many texts came as there were in use, so that the work is a share of what it takes to read
//! them, or after a while.

use super::binding_index::BindingIndex;
use super::{PendingPod, Scheduler};
use berth_core::trace::{Marks, Trace};
use std::time::Duration;

/// Fewer new texts than this are not worth a sweep: at some hundred bytes each they take a few MiB.
const MIN_FRESH: usize = 16_384;

/// One new text pays for looking at so many places that keep one.
const PLACES_PER_TEXT: usize = 16;

/// After this time whatever is left over is freed, however little it is.
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

berth_core::trace!(PendingPod { compiled; object, said, nominations_sent, last_attempt });

impl Trace for BindingIndex {
    fn trace(&self, marks: &mut Marks) {
        self.bindings().for_each(|binding| binding.trace(marks));
    }
}

impl Scheduler {
    /// Frees what nobody uses, if that is due.
    pub(super) fn sweep_if_due(&mut self, now: Duration) {
        if self.cluster.symbols().fresh() >= self.sweeps.fresh || now >= self.sweeps.at {
            self.sweep();
            self.sweeps.at = now + INTERVAL;
        }
    }

    /// Frees the texts that nothing uses, and what was kept for decisions and not asked for since the last sweep. Decisions are the same
    /// without it. A step does so when enough has piled up.
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
    queue, profiles, unanswered, hold, await_claims, waiting_for_claim, nominations, evictions, nodes, refusals, promise_end, effects, writes,
    write_count, counts, last_tried, together, plan, sweeps, hold_volumes, recommits
});
