//! The one task that owns what is known of the cluster. It takes in what watches bring, tells all pages what changed, some times
//! a second, and answers whoever wants to see everything.
//!
//! ```text
//!   watches ──▶ Owner ──▶ broadcast ──▶ one task for each page ──▶ page
//!                 ▲                          │ fell behind, or is new
//!                 └────── all rows ◀─────────┘
//! ```
//!
//! Nothing waits for a page: one that does not keep up misses frames of the broadcast, finds out, and is given everything anew. All rows are
//! written once for many pages: a page that comes later gets them as they were, and what changed since.

use super::kept::Kept;
use super::watching::{Failing, Failures, Heard, resources};
use crate::input::Source;
use berth_kube::CancellationToken;
use berth_view::{History, Model, Moment, Overview, Tick};
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
/// All rows are written anew when the changes since they were written take more than one part in so many of their size: a page then reads
/// little twice, and on a large and busy cluster they are written once a minute, however many pages come.
const SINCE_PARTS: usize = 4;
/// Moments that a page is told of when it is opened. It asks for the whole past when somebody wants to see it.
const RECENT_MAX: usize = 500;

const UPDATE: &str = "event: update\ndata: ";
const SINCE: &[u8] = b"event: since\ndata: ";

/// What pages ask the owner.
pub(super) enum Question {
    /// Everything, and what changes from then on.
    Follow(oneshot::Sender<Following>),
    /// The past, if it has begun.
    History(oneshot::Sender<Option<History>>),
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
    pub(super) first: Vec<Bytes>,
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
    written: Option<Written>,
    told: Vec<Failing>,
    cluster: Cluster,
}

/// All rows as a frame, and the updates since, as they were sent.
struct Written {
    everything: Bytes,
    since: Vec<Bytes>,
    /// How much they take.
    length: usize,
}

/// Which cluster this is.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cluster {
    /// The name of its context.
    pub(super) context: Option<String>,
    /// The address of its API server.
    pub(super) server: String,
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
    cluster: &'a Cluster,
    /// How many ticks of the past are kept.
    ticks: usize,
    /// What happened last, the oldest first.
    recent: Vec<Recent<'a>>,
    state: &'a berth_view::State,
}

/// What happened at a tick.
#[derive(Serialize)]
struct Recent<'a> {
    number: u64,
    at: i64,
    moments: &'a [Moment],
}

impl<'a> From<&'a Tick> for Recent<'a> {
    fn from(tick: &'a Tick) -> Self {
        let Tick {
            number, at, moments, ..
        } = tick;
        Self {
            number: *number,
            at: *at,
            moments,
        }
    }
}

impl Owner {
    pub(super) fn new(failures: Failures, cluster: Cluster) -> Self {
        Self {
            model: Model::default(),
            history: None,
            kept: Kept::default(),
            failures,
            missing: resources().iter().map(|resource| resource.kind).collect(),
            frames: broadcast::Sender::new(BEHIND_MAX),
            written: None,
            told: Vec::new(),
            cluster,
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
            self.model.put(change.entry, now);
            match change.text {
                Some(text) => self.kept.apply(change.key, text),
                None => self.kept.remove(&change.key),
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
            let frame = frame(UPDATE, &tick);
            if let Some(written) = &mut self.written {
                written.length += frame.len();
                written.since.push(frame.slice(UPDATE.len()..));
            }
            self.send(frame);
            if let Some(history) = &mut self.history {
                history.push(tick);
            }
        }
        let begins = self.history.is_none() && self.is_complete();
        if begins {
            self.model.go_live();
            self.history = Some(History::new(self.model.state().clone(), now));
            self.written = None;
        }
        let kinds = |failing: &[Failing]| failing.iter().map(|failing| failing.kind).collect::<Vec<_>>();
        if begins || kinds(&self.failures.all()) != kinds(&self.told) {
            self.tell_standing();
        }
    }

    /// Tells pages that the server is there, and how well it hears the cluster.
    fn tell_standing(&mut self) {
        self.told = self.failures.all();
        self.send(self.standing_frame());
    }

    fn standing_frame(&self) -> Bytes {
        frame("event: standing\ndata: ", &self.standing())
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
                let first = self.first();
                let next = self.frames.subscribe();
                let _ = sender.send(Following { first, next });
            }
            Question::History(sender) => {
                self.tick();
                let _ = sender.send(self.history.clone());
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

    /// All rows, what changed since they were written, and how it stands now.
    fn first(&mut self) -> Vec<Bytes> {
        let written = self.written.take();
        let written = written.filter(|written| written.length <= written.everything.len() / SINCE_PARTS);
        let written = written.unwrap_or_else(|| Written {
            everything: self.everything(),
            since: Vec::new(),
            length: 0,
        });
        let since = written.since.iter();
        let since = since.flat_map(|update| [Bytes::from_static(SINCE), update.clone()]);
        let all = std::iter::once(written.everything.clone()).chain(since);
        let first = all.chain([self.standing_frame()]).collect();
        self.written = Some(written);
        first
    }

    fn everything(&self) -> Bytes {
        let ticks = self.history.iter().flat_map(History::ticks);
        let mut count = 0;
        let recent = ticks.rev().filter(|tick| !tick.moments.is_empty());
        let recent = recent.take_while(|tick| {
            count += tick.moments.len();
            count <= RECENT_MAX
        });
        let mut recent: Vec<Recent<'_>> = recent.map(Recent::from).collect();
        recent.reverse();
        let everything = Everything {
            number: self.model.number(),
            standing: self.standing(),
            cluster: &self.cluster,
            ticks: self.history.as_ref().map_or(0, |history| history.ticks().len()),
            recent,
            state: self.model.state(),
        };
        frame("event: everything\ndata: ", &everything)
    }
}

/// A server-sent event, by how it begins.
fn frame(begin: &str, data: &impl Serialize) -> Bytes {
    let mut text = begin.as_bytes().to_vec();
    // Rows and texts always make JSON, without a line end in it.
    let _ = serde_json::to_writer(&mut text, data);
    text.extend_from_slice(b"\n\n");
    text.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::kept::Text;
    use super::super::watching::Changed;
    use super::*;
    use berth_view::Entry;
    use serde_json::{Value, json};

    fn node(name: &str) -> Heard {
        let object = json!({"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": "2"}}});
        let change = Changed {
            key: ("Node", "".into(), name.into()),
            entry: Entry::of(&object),
            text: Some(Text::of(object)),
        };
        Heard {
            kind: "Node",
            changes: vec![change],
            listed: true,
        }
    }

    fn follow(owner: &mut Owner) -> Following {
        let (sender, mut answer) = oneshot::channel();
        owner.answer(Question::Follow(sender));
        answer.try_recv().unwrap()
    }

    fn data(frame: &[u8]) -> Value {
        let text = std::str::from_utf8(frame).unwrap();
        serde_json::from_str(text.split_once("data: ").map_or(text, |(_, data)| data)).unwrap()
    }

    #[test]
    fn all_rows_are_written_once_for_many_pages() {
        let mut owner = Owner::new(Failures::default(), Cluster::default());
        owner.missing.clear();
        for number in 0..20 {
            owner.take_in(node(&format!("n{number}")));
        }
        owner.tick();
        let earlier = follow(&mut owner);
        assert_eq!(data(&earlier.first[0])["state"]["nodes"].as_object().unwrap().len(), 20);
        assert_eq!(earlier.first.len(), 2, "everything, and how it stands");
        owner.take_in(node("late"));
        let mut later = follow(&mut owner);
        assert_eq!(
            later.first[0].as_ptr(),
            earlier.first[0].as_ptr(),
            "it is not written again"
        );
        assert_eq!(later.first[1], SINCE);
        assert_eq!(
            data(&later.first[2])["update"]["nodes"]["late"]["cpu"]["allocatable"],
            2000
        );
        assert_eq!(data(later.first.last().unwrap())["complete"], true);
        assert!(later.next.try_recv().is_err(), "nothing is told twice");
        for number in 0..20 {
            owner.take_in(node(&format!("m{number}")));
        }
        let anew = follow(&mut owner);
        assert_eq!(anew.first.len(), 2, "much has changed: it is written anew");
        let everything = data(&anew.first[0]);
        assert_eq!(everything["state"]["nodes"].as_object().unwrap().len(), 41);
        assert_eq!(everything["ticks"], 2);
        let recent = everything["recent"].as_array().unwrap();
        let moments: Vec<_> = recent
            .iter()
            .flat_map(|tick| tick["moments"].as_array().unwrap())
            .collect();
        assert_eq!(moments.len(), 21, "what happened since all was known");
        assert_eq!(moments[0], &json!({"what": "nodeAdded", "node": "late"}));
    }
}
