//! Compares the store with a model that keeps every past state: random operations, same results.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use berth_apiserver::store::{Compacted, Counting, EventKind, Expect, Limits, PageQuery, Store, WriteError};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use serde_json::{Value, json};

const TABLES: [&str; 2] = ["pods", "storage.k8s.io/storageclasses"];

#[derive(Debug, Clone)]
enum Operation {
    Create(usize, u8),
    /// Update at the current version, or at one that differs by this many versions.
    Update(usize, u8, u64),
    Delete(usize, u8, u64),
    List(usize, Option<u8>, usize, u64),
    StartWatch(usize, u64),
    Drain(usize),
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let table = 0..TABLES.len();
    let key = 0..12_u8;
    let off = prop_oneof![6 => Just(0_u64), 1 => 1..4_u64];
    prop_oneof![
        6 => (table.clone(), key.clone()).prop_map(|(t, k)| Operation::Create(t, k)),
        6 => (table.clone(), key.clone(), off.clone()).prop_map(|(t, k, o)| Operation::Update(t, k, o)),
        3 => (table.clone(), key.clone(), off).prop_map(|(t, k, o)| Operation::Delete(t, k, o)),
        3 => (table.clone(), prop::option::of(key), 1..6_usize, 0..30_u64)
            .prop_map(|(t, k, l, b)| Operation::List(t, k, l, b)),
        2 => (table, 0..30_u64).prop_map(|(t, b)| Operation::StartWatch(t, b)),
        4 => any::<usize>().prop_map(Operation::Drain),
        1 => Just(Operation::Reopen),
    ]
}

/// The objects of each table: key to version and mark.
type State = [BTreeMap<String, (u64, u64)>; 2];

/// Every state of every table, by version; and every change.
#[derive(Default)]
struct Model {
    version: u64,
    states: BTreeMap<u64, State>,
    changes: Vec<(usize, u64, EventKind, String)>,
    /// Per table, the newest version that may no longer be readable.
    compacted: [u64; 2],
}

impl Model {
    fn at(&self, version: u64) -> State {
        self.states
            .range(..=version)
            .next_back()
            .map(|(_, state)| state.clone())
            .unwrap_or_default()
    }

    fn change(&mut self, table: usize, key: &str, kind: EventKind, limit: usize) {
        let mut state = self.at(self.version);
        self.version += 1;
        if kind == EventKind::Deleted {
            state[table].remove(key);
        } else {
            state[table].insert(key.into(), (self.version, self.version * 7));
        }
        self.states.insert(self.version, state);
        self.changes.push((table, self.version, kind, key.into()));
        let of_table: Vec<u64> = self.changes.iter().filter(|c| c.0 == table).map(|c| c.1).collect();
        if let Some(lost) = of_table.len().checked_sub(limit + 1) {
            self.compacted[table] = self.compacted[table].max(of_table[lost]);
        }
    }

    fn events(&self, table: usize, after: u64) -> Vec<(u64, EventKind, String)> {
        let later = self.changes.iter().filter(|c| c.0 == table && c.1 > after);
        later.map(|c| (c.1, c.2, c.3.clone())).collect()
    }
}

fn key_of(key: u8) -> String {
    format!("ns{}/object-{key}", key % 3)
}

fn body(key: &str, mark: u64) -> Value {
    json!({"metadata": {"name": key}, "mark": mark})
}

struct Watcher {
    watch: berth_apiserver::store::Watch,
    table: usize,
    seen: u64,
}

struct Run {
    store: Store,
    directory: Option<tempfile::TempDir>,
    limits: Limits,
    model: Model,
    watchers: Vec<Watcher>,
}

impl Run {
    fn new(on_disk: bool, history_events: usize) -> Self {
        let limits = Limits {
            history_events,
            ..Limits::default()
        };
        let directory = on_disk.then(|| tempfile::tempdir().unwrap());
        let store = match &directory {
            Some(directory) => Store::open(directory.path(), limits).unwrap(),
            None => Store::in_memory(limits),
        };
        Self {
            store,
            directory,
            limits,
            model: Model::default(),
            watchers: Vec::new(),
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Create(table, key) => self.create(table, &key_of(key)),
            Operation::Update(table, key, off) => self.write(table, &key_of(key), off, false),
            Operation::Delete(table, key, off) => self.write(table, &key_of(key), off, true),
            Operation::List(table, namespace, limit, back) => {
                self.list(table, namespace, limit, back);
            }
            Operation::StartWatch(table, back) => self.start_watch(table, back),
            Operation::Drain(which) => self.drain(which),
            Operation::Reopen => self.reopen(),
        }
    }

    fn create(&mut self, table: usize, key: &str) {
        let mark = (self.model.version + 1) * 7;
        let answer = self.store.put(TABLES[table], key, Expect::Absent, body(key, mark));
        if self.model.at(self.model.version)[table].contains_key(key) {
            assert!(matches!(answer, Err(WriteError::Exists)), "{answer:?}");
        } else {
            answer.unwrap().wait().unwrap();
            self.model
                .change(table, key, EventKind::Added, self.limits.history_events);
        }
    }

    fn write(&mut self, table: usize, key: &str, off: u64, delete: bool) {
        let current = self.model.at(self.model.version)[table].get(key).copied();
        let version = current.map_or(1, |(version, _)| version) + off;
        let mark = (self.model.version + 1) * 7;
        let answer = if delete {
            self.store.delete(TABLES[table], key, version, body(key, mark))
        } else {
            self.store
                .put(TABLES[table], key, Expect::Version(version), body(key, mark))
        };
        match (current, off) {
            (None, _) => assert!(matches!(answer, Err(WriteError::NotFound)), "{answer:?}"),
            (Some((at, _)), 1..) => {
                assert!(
                    matches!(answer, Err(WriteError::Conflict { current }) if current == at),
                    "{answer:?}"
                );
            }
            (Some(_), 0) => {
                answer.unwrap().wait().unwrap();
                let kind = if delete {
                    EventKind::Deleted
                } else {
                    EventKind::Modified
                };
                self.model.change(table, key, kind, self.limits.history_events);
            }
        }
    }

    /// Lists all pages as of an earlier version, and compares each object.
    fn list(&mut self, table: usize, namespace: Option<u8>, limit: usize, back: u64) {
        let at = self.model.version.saturating_sub(back);
        let prefix = namespace.map_or(String::new(), |key| format!("ns{}/", key % 3));
        let mut found = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let query = PageQuery {
                prefix: &prefix,
                after: after.as_deref(),
                limit,
                at: Some(at),
                counting: Counting::Yes,
            };
            let page = match self.store.list(TABLES[table], &query) {
                Ok(page) => page,
                Err(Compacted { requested, oldest }) => {
                    assert_eq!((requested, oldest), (at, self.model.compacted[table]));
                    assert!(at < oldest);
                    return;
                }
            };
            assert_eq!(page.version, at);
            for object in &page.objects {
                let mark = object.value()["mark"].as_u64().unwrap();
                found.push((object.key().to_string(), (object.version(), mark)));
            }
            match page.next {
                Some(next) => after = Some(next.to_string()),
                None => break,
            }
        }
        assert!(at >= self.model.compacted[table]);
        let mut expected: Vec<_> = self.model.at(at)[table].clone().into_iter().collect();
        expected.retain(|(key, _)| key.starts_with(&prefix));
        assert_eq!(found, expected);
    }

    fn start_watch(&mut self, table: usize, back: u64) {
        let from = self.model.version.saturating_sub(back);
        match self.store.watch(TABLES[table], from) {
            Ok(watch) => {
                assert!(from >= self.model.compacted[table]);
                self.watchers.push(Watcher {
                    watch,
                    table,
                    seen: from,
                });
            }
            Err(_) => assert!(from < self.model.compacted[table]),
        }
    }

    fn drain(&mut self, which: usize) {
        if self.watchers.is_empty() {
            return;
        }
        let index = which % self.watchers.len();
        let watcher = &mut self.watchers[index];
        let expected = self.model.events(watcher.table, watcher.seen);
        let mut seen = Vec::new();
        loop {
            match watcher.watch.poll_batch(3) {
                Ok(batch) if batch.events.is_empty() => break,
                Ok(batch) => {
                    seen.extend(
                        batch
                            .events
                            .iter()
                            .map(|e| (e.version(), e.kind, e.object.key().to_string())),
                    );
                }
                Err(_) => {
                    assert!(watcher.seen < self.model.compacted[watcher.table]);
                    self.watchers.remove(index);
                    return;
                }
            }
        }
        assert_eq!(seen, expected);
        watcher.seen = self.model.version;
    }

    fn reopen(&mut self) {
        let Some(directory) = &self.directory else {
            return;
        };
        self.watchers.clear();
        self.store = Store::in_memory(self.limits);
        self.store = Store::open(directory.path(), self.limits).unwrap();
        assert_eq!(self.store.version(), self.model.version);
        // History is not kept across a restart: each table is readable from its own last change on.
        for table in 0..TABLES.len() {
            let last = self.model.events(table, 0).last().map_or(0, |event| event.0);
            self.model.compacted[table] = last;
        }
    }

    fn compare_all(&mut self) {
        for table in 0..TABLES.len() {
            self.list(table, None, 4, 0);
        }
        while !self.watchers.is_empty() {
            self.drain(0);
            if !self.watchers.is_empty() {
                self.watchers.remove(0);
            }
        }
    }
}

fn check(on_disk: bool, history_events: usize, operations: Vec<Operation>) {
    let mut run = Run::new(on_disk, history_events);
    operations.into_iter().for_each(|operation| run.apply(operation));
    run.compare_all();
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 400, failure_persistence: None, ..Default::default() })]
    #[test]
    fn in_memory_it_answers_like_the_model(
        history in prop_oneof![Just(4_usize), Just(1000)],
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        check(false, history, operations);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, failure_persistence: None, ..Default::default() })]
    #[test]
    fn on_disk_it_answers_like_the_model(
        history in prop_oneof![Just(4_usize), Just(1000)],
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        check(true, history, operations);
    }
}
