//! `berth view --terminal`: the cluster as lines that change as it does.
//!
//! `state` knows what somebody chose to see, `draw` makes cells of that and of what is known of the cluster, both without input or
//! output. This module has the terminal: it reads keys, asks the owner of the rows how the cluster is, and draws.

mod cells;
mod draw;
mod lines;
mod state;
#[cfg(test)]
mod tests;
mod text;

use super::answers::{About, Answers, Unanswered};
use super::owner::{Asker, Question};
use anyhow::Context;
use draw::{Shown, draw};
use jiff::Timestamp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use state::{Rendering, Screen, Wish};
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// How often the cluster is looked at: some times a second, as pages are told.
const LOOK: Duration = Duration::from_millis(250);
/// Keys that may wait.
const KEYS: usize = 64;

/// Refuses to start where nobody could see it.
///
/// # Errors
/// If standard input or output is not a terminal.
pub(super) fn check_terminal() -> anyhow::Result<()> {
    for (is_terminal, name) in [
        (io::stdout().is_terminal(), "output"),
        (io::stdin().is_terminal(), "input"),
    ] {
        anyhow::ensure!(
            is_terminal,
            "--terminal needs a terminal, and standard {name} is none; without --terminal, berth view serves a web page"
        );
    }
    Ok(())
}

/// A terminal that is given back as it was, however this ends. A panic gives it back, too, before it is told.
struct Session {
    terminal: DefaultTerminal,
}

impl Session {
    fn begin() -> anyhow::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                ratatui::restore();
                Err(error).context("cannot use the terminal")
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The screen is given back in any case.
        let _ = self.terminal.show_cursor();
        ratatui::restore();
    }
}

/// What is shown, and where it comes from.
pub(super) struct View {
    pub(super) server: String,
    pub(super) asker: Asker,
    pub(super) answers: Answers,
    pub(super) colored: bool,
}

/// An answer, and what was asked.
type Answered = (About, Option<Result<Rendering, Unanswered>>);

impl View {
    /// Shows the cluster until somebody wants to quit, or `interrupted` is there.
    ///
    /// # Errors
    /// If the terminal cannot be used, or a part of berth has failed.
    pub(super) async fn show(
        self,
        tasks: &mut JoinSet<()>,
        interrupted: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let mut session = Session::begin()?;
        let mut keys = keys();
        let size = session.terminal.size().context("the terminal has no size")?;
        let mut screen = Screen::new((size.width, size.height), self.colored);
        let mut shown = Shown {
            server: self.server.clone(),
            ..Shown::default()
        };
        let mut seen = None;
        let mut asked: JoinSet<Answered> = JoinSet::new();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(interrupted);
        loop {
            tokio::select! {
                () = &mut interrupted => return Ok(()),
                _ = tasks.join_next() => anyhow::bail!("berth view has failed"),
                Some(answered) = asked.join_next() => take_in(&mut screen, answered.context("the explanation failed")?)?,
                first = keys.recv() => {
                    // Without keys nobody could leave.
                    let Some(first) = first else { return Ok(()) };
                    let more = std::iter::from_fn(|| keys.try_recv().ok());
                    for event in std::iter::once(first).chain(more) {
                        match self.react(event, &mut screen, &shown, &mut asked) {
                            Some(Wish::Quit) => return Ok(()),
                            Some(Wish::Explain(_)) | None => {}
                        }
                    }
                }
                _ = looks.tick() => {
                    let look = self.asker.ask(|sender| Question::Look { seen, sender }).await;
                    let Some(look) = look else { anyhow::bail!("berth view has failed") };
                    seen = Some(look.number);
                    shown.complete = look.complete;
                    shown.failing = look.failing;
                    if let Some(overview) = look.overview {
                        shown.overview = overview;
                    }
                }
            }
            let drawn = session
                .terminal
                .draw(|frame| draw(frame, &shown, &screen, Timestamp::now()));
            drawn.context("cannot draw")?;
        }
    }

    fn react(&self, event: Event, screen: &mut Screen, shown: &Shown, asked: &mut JoinSet<Answered>) -> Option<Wish> {
        match event {
            Event::Resize(width, height) => {
                screen.resize((width, height));
                None
            }
            Event::Key(key) => {
                let wish = screen.press(key, &shown.overview)?;
                if let Wish::Explain(about) = &wish {
                    let (asker, answers, about) = (self.asker.clone(), self.answers.clone(), about.clone());
                    asked.spawn(async move {
                        let answer = answers.explained(&asker, &about).await;
                        (
                            about,
                            answer.map(|answer| answer.map(|(answer, remarks)| rendering(answer, remarks))),
                        )
                    });
                }
                Some(wish)
            }
            _ => None,
        }
    }
}

/// The answer as `berth explain` prints it, with what it says beside it.
fn rendering(answer: crate::explain::Answer, remarks: Vec<String>) -> Rendering {
    Box::new(move |width| {
        let remarks: Vec<String> = remarks
            .iter()
            .flat_map(|remark| crate::terminal::wrapped(remark, width))
            .collect();
        match remarks.is_empty() {
            true => answer.render(width),
            false => format!("{}\n\n{}", remarks.join("\n"), answer.render(width)),
        }
    })
}

fn take_in(screen: &mut Screen, (about, answer): Answered) -> anyhow::Result<()> {
    match answer {
        // A panic has given the terminal back: what went wrong stands there.
        Some(Err(Unanswered::Failed(error))) => return Err(error).context("the explanation failed"),
        Some(Err(unanswered)) => screen.answered(&about, Err(unanswered.to_string())),
        Some(Ok(rendering)) => screen.answered(&about, Ok(rendering)),
        None => anyhow::bail!("berth view has failed"),
    }
    Ok(())
}

/// Keys and new sizes, read in the background. The thread ends with the process.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, keys) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    keys
}
