//! Ends a search at its deadline, and reports its progress.

use crate::input::Progress as _;
use crate::terminal::ProgressLine;
use berth_plan::Watch;
use std::time::{Duration, Instant};

/// A search with a deadline.
pub(super) struct Deadline {
    end: Option<Instant>,
    line: ProgressLine,
}

impl Deadline {
    /// A search that starts now.
    pub(super) fn after(limit: Duration) -> Self {
        Self {
            end: Instant::now().checked_add(limit),
            line: ProgressLine::new(),
        }
    }
}

impl Watch for Deadline {
    fn goes_on(&mut self, simulations: usize, _placed: u64) -> bool {
        self.line.step("played", simulations, "simulations");
        self.end.is_none_or(|end| Instant::now() < end)
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.line.done();
    }
}
