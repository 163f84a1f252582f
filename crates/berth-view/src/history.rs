//! The past, within bounds: where it begins, and every tick since.

use crate::model::Tick;
use crate::shared::Shared;
use crate::tables::State;
use serde::Serialize;
use std::collections::VecDeque;

/// How many changed rows are kept: at some 250 bytes each, what a browser takes in at once. On a calm cluster that is days, under
/// a hundred changes a second some minutes.
pub const ROWS_MAX: usize = 50_000;
/// How many ticks are kept, also of those that change few rows.
const TICKS_MAX: usize = 20_000;

/// Every tick of the past that is kept, and the rows before the first of them. A clone shares them: it can be written somewhere else while the
/// past goes on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct History {
    /// When it begins, in milliseconds since 1970.
    begin: i64,
    /// The rows before the first tick.
    base: Shared<State>,
    ticks: VecDeque<Shared<Tick>>,
    #[serde(skip)]
    rows: usize,
}

impl History {
    /// Begins with these rows.
    #[must_use]
    pub fn new(base: State, begin: i64) -> Self {
        Self {
            begin,
            base: Shared::new(base),
            ..Self::default()
        }
    }

    /// Keeps a tick. What is too long ago is no longer told apart.
    pub fn push(&mut self, tick: Tick) {
        self.rows += tick.update.len();
        self.ticks.push_back(Shared::new(tick));
        while self.rows > ROWS_MAX || self.ticks.len() > TICKS_MAX {
            let Some(oldest) = self.ticks.pop_front() else {
                return;
            };
            self.rows -= oldest.update.len();
            self.base.own().apply(&oldest.update);
            self.begin = oldest.at;
        }
    }

    /// The rows after the first so many ticks.
    #[must_use]
    pub fn state_after(&self, ticks: usize) -> State {
        let mut state = State::clone(&self.base);
        for tick in self.ticks.iter().take(ticks) {
            state.apply(&tick.update);
        }
        state
    }

    /// The ticks that are kept, the oldest first.
    pub fn ticks(&self) -> impl ExactSizeIterator<Item = &Tick> + DoubleEndedIterator {
        self.ticks.iter().map(|tick| &**tick)
    }
}
