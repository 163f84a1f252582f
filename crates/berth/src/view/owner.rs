//! The one task that owns what is known of the cluster. It takes in what watches bring, tells all pages what changed, some times
//! a second, and answers whoever wants to see everything.
//!
//! ```text
//!   watches ──▶ Owner ──▶ broadcast ──▶ one task for each page ──▶ page
//!                 ▲                          │ fell behind, or is new
//!                 └────── all rows ◀─────────┘
//! ```
//!
//! Nothing waits for a page: one that does not keep up misses frames of the broadcast, finds out, and is given everything anew.

use super::kept::Kept;
use super::watching::{Changed, Failing, Failures, Heard, resources};
use crate::input::Source;
use berth_kube::CancellationToken;
use berth_view::{History, Model, Overview};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How long changes are gathered before pages are told: short enough to look immediate, long enough that a burst is one frame.
const GATHER: Duration = Duration::from_millis(100);
/// How often pages are told that all is as it was. A page that hears nothing for several times as long is cut off.
pub(super) const PULSE: Duration = Duration::from_secs(3);
/// Frames that a page may be behind before it is given everything anew: 25 s of a cluster that never rests.
const BEHIND_MAX: usize = 256;
/// Questions that may wait.
const QUESTIONS: usize = 64;

/// What pages ask the owner.
pub(super) enum Question {
    /// Everything, and what changes from then on.
    Follow(oneshot::Sender<Following>),
    /// The past.
    History(oneshot::Sender<Bytes>),
    /// The cluster summed up, if it changed since a tick.
    Look {
        seen: Option<u64>,
        sender: oneshot::Sender<Look>,
    },
    /// The objects, to decide on.
    Sources(oneshot::Sender<Vec<Source>>),
}

/// Everything at one moment, and what changes from then on, as frames of server-sent events.
pub(super) struct Following {
    pub(super) first: Bytes,
    pub(super) next: broadcast::Receiver<Bytes>,
}

/// The cluster summed up, and how well it is heard.
pub(super) struct Look {
    /// The tick it belongs to.
    pub(super) number: u64,
    /// Nothing if it is as it was.
    pub(super) overview: Option<Overview>,
    /// Whether all kinds were listed, as far as that is possible.
    pub(super) complete: bool,
    pub(super) failing: Vec<Failing>,
}

/// Asks the owner.
#[derive(Clone)]
pub(super) struct Asker(mpsc::Sender<Question>);

impl Asker {
    /// Asks and waits for the answer; nothing if the owner has ended.
    pub(super) async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.0.send(question(sender)).await.ok()?;
        answer.await.ok()
    }
}

/// What is known of the cluster.
pub(super) struct Owner {
    model: Model,
    history: Option<History>,
    kept: Kept,
    failures: Failures,
    /// Kinds that were not listed yet.
    missing: BTreeSet<&'static str>,
    frames: broadcast::Sender<Bytes>,
    /// All rows as a frame, until something changes.
    everything: Option<Bytes>,
    told: Vec<Failing>,
}

/// What pages are told besides rows.
#[derive(Serialize)]
struct Standing<'a> {
    at: i64,
    /// Whether all kinds were listed, as far as that is possible.
    complete: bool,
    failing: &'a [Failing],
}

#[derive(Serialize)]
struct Everything<'a> {
    number: u64,
    #[serde(flatten)]
    standing: Standing<'a>,
    state: &'a berth_view::State,
}

impl Owner {
    pub(super) fn new(failures: Failures) -> Self {
        Self {
            model: Model::default(),
            history: None,
            kept: Kept::default(),
            failures,
            missing: resources().iter().map(|resource| resource.kind).collect(),
            frames: broadcast::Sender::new(BEHIND_MAX),
            everything: None,
            told: Vec::new(),
        }
    }

    /// Starts the owner's task. It ends when it is cancelled.
    pub(super) fn start(
        mut self,
        mut heard: mpsc::Receiver<Heard>,
        cancel: CancellationToken,
        tasks: &mut tokio::task::JoinSet<()>,
    ) -> Asker {
        let (sender, mut questions) = mpsc::channel(QUESTIONS);
        tasks.spawn(async move {
            let mut pulse = interval(PULSE);
            pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut due: Option<Instant> = None;
            loop {
                let when = due.unwrap_or_else(Instant::now);
                tokio::select! {
                    () = cancel.cancelled() => return,
                    Some(news) = heard.recv() => {
                        self.take_in(news);
                        due = due.or_else(|| Some(Instant::now() + GATHER));
                    }
                    Some(question) = questions.recv() => self.answer(question),
                    () = sleep_until(when), if due.is_some() => {
                        due = None;
                        self.tick();
                    }
                    _ = pulse.tick() => {
                        self.tick();
                        self.tell_standing();
                    }
                }
            }
        });
        Asker(sender)
    }

    fn take_in(&mut self, news: Heard) {
        let now = Timestamp::now().as_millisecond();
        for change in news.changes {
            match change {
                Changed::Applied(object) => {
                    self.model.apply(&object, now);
                    self.kept.apply(object);
                }
                Changed::Removed(object) => {
                    self.model.remove(&object, now);
                    self.kept.remove(&object);
                }
            }
        }
        if news.listed {
            self.missing.remove(news.kind);
        }
    }

    /// Whether all kinds are known that can be.
    fn is_complete(&self) -> bool {
        self.missing.iter().all(|kind| self.failures.has(kind))
    }

    /// Tells pages what changed.
    fn tick(&mut self) {
        let now = Timestamp::now().as_millisecond();
        if let Some(tick) = self.model.tick(now) {
            self.everything = None;
            self.send(frame("update", &tick));
            if let Some(history) = &mut self.history {
                history.push(tick);
            }
        }
        let begins = self.history.is_none() && self.is_complete();
        if begins {
            self.model.go_live();
            self.history = Some(History::new(self.model.state().clone(), now));
        }
        let kinds = |failing: &[Failing]| failing.iter().map(|failing| failing.kind).collect::<Vec<_>>();
        if begins || kinds(&self.failures.all()) != kinds(&self.told) {
            self.tell_standing();
        }
    }

    /// Tells pages that the server is there, and how well it hears the cluster.
    fn tell_standing(&mut self) {
        self.told = self.failures.all();
        self.everything = None;
        let frame = frame("standing", &self.standing());
        self.send(frame);
    }

    fn standing(&self) -> Standing<'_> {
        Standing {
            at: Timestamp::now().as_millisecond(),
            complete: self.history.is_some(),
            failing: &self.told,
        }
    }

    /// Nobody may be listening.
    fn send(&self, frame: Bytes) {
        let _ = self.frames.send(frame);
    }

    /// Whoever asked may have gone.
    fn answer(&mut self, question: Question) {
        match question {
            Question::Follow(sender) => {
                // What is gathered belongs to what is told first.
                self.tick();
                let first = self.everything();
                let next = self.frames.subscribe();
                let _ = sender.send(Following { first, next });
            }
            Question::History(sender) => {
                self.tick();
                let history = serde_json::to_vec(&self.history.as_ref());
                let _ = sender.send(history.unwrap_or_default().into());
            }
            Question::Look { seen, sender } => {
                let number = self.model.number();
                let _ = sender.send(Look {
                    number,
                    overview: (seen != Some(number)).then(|| Overview::of(self.model.state())),
                    complete: self.history.is_some(),
                    failing: self.failures.all(),
                });
            }
            Question::Sources(sender) => {
                let failing = self.failures.all();
                let gaps = failing
                    .iter()
                    .map(|failing| format!("{}: {}", failing.kind, failing.problem));
                let _ = sender.send(self.kept.sources(Timestamp::now(), gaps));
            }
        }
    }

    fn everything(&mut self) -> Bytes {
        if let Some(frame) = &self.everything {
            return frame.clone();
        }
        let everything = Everything {
            number: self.model.number(),
            standing: self.standing(),
            state: self.model.state(),
        };
        let frame = frame("everything", &everything);
        self.everything = Some(frame.clone());
        frame
    }
}

/// A server-sent event.
fn frame(event: &str, data: &impl Serialize) -> Bytes {
    let mut text = format!("event: {event}\ndata: ").into_bytes();
    // Rows and texts always make JSON, without a line end in it.
    let _ = serde_json::to_writer(&mut text, data);
    text.extend_from_slice(b"\n\n");
    text.into()
}
