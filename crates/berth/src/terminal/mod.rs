//! The terminal: colour, width, progress. Everything here degrades gracefully without one.

mod clean;
mod wrap;

use crate::input::Progress;
use anstream::{AutoStream, ColorChoice};
pub use clean::{Clean, clean_json, clean_text, one_line};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
pub use wrap::wrapped;

/// The width of tables that are not written to a terminal.
const WIDTH_WITHOUT_TERMINAL: usize = 100;
/// Below this there is no room for columns; text is wrapped at this width.
const WIDTH_MIN: usize = 40;
/// Beyond this, lines are hard to follow.
const WIDTH_MAX: usize = 160;
/// A shorter task is not worth reporting.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Standard output with this choice, for text that may be untrusted.
    #[must_use]
    pub fn stdout(self) -> Clean<AutoStream<io::Stdout>> {
        let choice = self.choice(|| AutoStream::choice(&io::stdout()));
        Clean::new(AutoStream::new(io::stdout(), choice))
    }

    /// Standard error with this choice, for text that may be untrusted.
    #[must_use]
    pub fn stderr(self) -> Clean<AutoStream<io::Stderr>> {
        let choice = self.choice(|| AutoStream::choice(&io::stderr()));
        Clean::new(AutoStream::new(io::stderr(), choice))
    }

    /// Whether standard output has colours.
    #[must_use]
    pub fn is_colored(self) -> bool {
        self.stdout().get_ref().current_choice() != ColorChoice::Never
    }

    fn choice(self, auto: impl FnOnce() -> ColorChoice) -> ColorChoice {
        match self {
            Self::Auto => auto(),
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        }
    }
}

/// The width of a table on standard output.
#[must_use]
pub fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal
        .or_else(from_environment)
        .unwrap_or(WIDTH_WITHOUT_TERMINAL)
        .clamp(WIDTH_MIN, WIDTH_MAX)
}

/// A progress line on standard error, if it is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    begun: Instant,
    shown: Option<Instant>,
    visible: bool,
}

impl ProgressLine {
    /// Starts a task.
    #[must_use]
    pub fn new() -> Self {
        Self {
            begun: Instant::now(),
            shown: None,
            visible: io::stderr().is_terminal(),
        }
    }
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress for ProgressLine {
    fn step(&mut self, verb: &str, count: usize, what: &str) {
        let now = Instant::now();
        let due = match self.shown {
            None => now - self.begun >= PROGRESS_AFTER,
            Some(shown) => now - shown >= PROGRESS_EVERY,
        };
        if self.visible && due {
            let seconds = (now - self.begun).as_secs();
            // A failed progress write is no reason to stop.
            let _ = write!(io::stderr(), "\r\x1b[K{verb} {count} {what} ({seconds} s)");
            self.shown = Some(now);
        }
    }

    fn done(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
