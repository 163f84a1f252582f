//! One table of the store: the live objects of one resource, and the ring of its latest changes.
//!
//! The ring makes old versions readable. A watch is a cursor into it, and a page of a list as of an earlier version is
//! the live state with the later changes undone. Both end with [`Compacted`] once the ring has moved on. There is no
//! queue per watcher: the ring is the queue, so a slow watcher blocks nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::object::Object;
use super::{Compacted, Counting, Limits, Page, PageQuery};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It changed.
    Modified,
    /// It was deleted; the event has its last state with the version of the deletion.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The state after the change; for a deletion, the last state.
    pub object: Arc<Object>,
    /// The state before the change.
    pub previous: Option<Arc<Object>>,
}

impl Event {
    /// The resource version of the change.
    pub fn version(&self) -> u64 {
        self.object.version()
    }

    fn weight(&self) -> usize {
        self.object.body().len()
    }
}

pub(super) struct Table {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    /// What writers see on top of `objects`: changes that wait for the journal. `None` is a deletion.
    pending: HashMap<Arc<str>, (u64, Option<Arc<Object>>)>,
    history: VecDeque<Arc<Event>>,
    history_bytes: usize,
    /// The version of the last change that the ring has dropped. Reading from here on is complete.
    compacted: u64,
    signal: watch::Sender<u64>,
}

impl Table {
    pub(super) fn new(compacted: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            pending: HashMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            compacted,
            signal: watch::Sender::new(compacted),
        }
    }

    pub(super) fn load(&mut self, object: Arc<Object>) {
        self.objects.insert(object.key().clone(), object);
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// The state that the next write is based on, whether or not the journal has it yet.
    pub(super) fn latest(&self, key: &str) -> Option<&Arc<Object>> {
        match self.pending.get(key) {
            Some((_, state)) => state.as_ref(),
            None => self.objects.get(key),
        }
    }

    /// All objects as the next write finds them.
    pub(super) fn latest_all(&self) -> Vec<Arc<Object>> {
        let settled = self.objects.iter().filter(|(key, _)| !self.pending.contains_key(*key));
        let staged = self.pending.values().filter_map(|(_, state)| state.clone());
        settled.map(|(_, object)| object.clone()).chain(staged).collect()
    }

    pub(super) fn stage(&mut self, event: &Event) {
        let state = (event.kind != EventKind::Deleted).then(|| event.object.clone());
        self.pending
            .insert(event.object.key().clone(), (event.version(), state));
    }

    pub(super) fn forget_staged(&mut self) {
        self.pending.clear();
    }

    pub(super) fn publish(&mut self, event: Arc<Event>, limits: &Limits) {
        let (key, version) = (event.object.key().clone(), event.version());
        if self.pending.get(&key).is_some_and(|(staged, _)| *staged == version) {
            self.pending.remove(&key);
        }
        match event.kind {
            EventKind::Added | EventKind::Modified => {
                self.objects.insert(key, event.object.clone());
            }
            EventKind::Deleted => {
                self.objects.remove(&key);
            }
        }
        self.history_bytes += event.weight();
        self.history.push_back(event);
        while self.history.len() > limits.history_events
            || (self.history_bytes > limits.history_bytes && self.history.len() > 1)
        {
            if let Some(lost) = self.history.pop_front() {
                self.history_bytes -= lost.weight();
                self.compacted = lost.version();
            }
        }
        self.signal.send_replace(version);
    }

    pub(super) fn subscribe(&self, from: u64) -> Result<watch::Receiver<u64>, Compacted> {
        self.readable(from)?;
        Ok(self.signal.subscribe())
    }

    fn readable(&self, from: u64) -> Result<(), Compacted> {
        if from < self.compacted {
            Err(Compacted {
                requested: from,
                oldest: self.compacted,
            })
        } else {
            Ok(())
        }
    }

    /// At most `max` changes after `cursor`, oldest first.
    pub(super) fn changes(&self, cursor: u64, max: usize) -> Result<Vec<Arc<Event>>, Compacted> {
        self.readable(cursor)?;
        let start = self.history.partition_point(|event| event.version() <= cursor);
        Ok(self.history.range(start..).take(max).cloned().collect())
    }

    /// One page of the live state, or of the state at `query.at`.
    pub(super) fn page(&self, query: &PageQuery<'_>, current: u64) -> Result<Page, Compacted> {
        let at = query.at.unwrap_or(current);
        self.readable(at)?;
        let undo = self.undo_after(at, query);
        let mut states = self.states(query, &undo);
        let objects: Vec<Arc<Object>> = states.by_ref().take(query.limit).cloned().collect();
        let has_more = states.next().is_some();
        let is_whole = query.prefix.is_empty() && query.after.is_none() && undo.is_empty();
        let remaining = match query.counting {
            _ if !has_more => 0,
            Counting::No => 1,
            Counting::Known(all) => all.saturating_sub(objects.len()).max(1),
            Counting::Yes if is_whole => self.objects.len() - objects.len(),
            Counting::Yes => 1 + states.count(),
        };
        let next = objects.last().filter(|_| has_more).map(|last| last.key().clone());
        Ok(Page {
            objects,
            version: at,
            next,
            remaining,
        })
    }

    /// The objects of a query, in order, with later changes undone.
    fn states<'t>(&'t self, query: &PageQuery<'t>, undo: &'t Undo<'t>) -> impl Iterator<Item = &'t Arc<Object>> {
        let prefix = query.prefix;
        let start = match query.after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let live = self.objects.range::<str, _>((start, Bound::Unbounded));
        let mut live = live.take_while(move |(key, _)| key.starts_with(prefix)).peekable();
        let mut undone = undo.iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let next = (live.peek().map(|(key, _)| &***key), undone.peek().map(|(key, _)| **key));
                match next {
                    (None, None) => return None,
                    (Some(_), None) => return live.next().map(|(_, object)| object),
                    (Some(key), Some(other)) if key < other => return live.next().map(|(_, object)| object),
                    (key, other) => {
                        if key == other {
                            live.next();
                        }
                        if let Some((_, Some(state))) = undone.next() {
                            return Some(*state);
                        }
                    }
                }
            }
        })
    }

    /// The state at version `at` of each key of a query that changed later.
    fn undo_after(&self, at: u64, query: &PageQuery<'_>) -> Undo<'_> {
        let after = query.after.unwrap_or_default();
        let later = self.history.iter().rev().take_while(|event| event.version() > at);
        later
            .map(|event| (&**event.object.key(), event.previous.as_ref()))
            .filter(|(key, _)| *key > after && key.starts_with(query.prefix))
            .collect()
    }
}

/// Past states by key; `None` if there was no object.
type Undo<'t> = BTreeMap<&'t str, Option<&'t Arc<Object>>>;
