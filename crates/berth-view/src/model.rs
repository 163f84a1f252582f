//! Turns changes of objects into changes of rows.

use crate::entry::{Entry, Rows};
use crate::moment::Moment;
use crate::rows::{NodeRow, PodRow, PoolRow};
use crate::shared::Shared;
use crate::tables::{Changes, State, Table, Update};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What happened between two looks at the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tick {
    /// Its number; the next one has the next.
    pub number: u64,
    /// When it was, in milliseconds since 1970.
    pub at: i64,
    /// The rows that changed.
    pub update: Update,
    /// What happened, in order. Nothing before the cluster was known.
    pub moments: Vec<Moment>,
}

/// What the pods of a node request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    cpu: i64,
    memory: i64,
    pods: i64,
}

impl Usage {
    fn add(&mut self, pod: &PodRow, sign: i64) {
        self.cpu = self.cpu.saturating_add(pod.cpu.saturating_mul(sign));
        self.memory = self.memory.saturating_add(pod.memory.saturating_mul(sign));
        self.pods = self.pods.saturating_add(sign);
    }
}

/// The rows of a cluster, and what changed since somebody last asked.
///
/// ```
/// use berth_view::{Model, State};
/// use serde_json::json;
///
/// let mut model = Model::default();
/// model.apply(&json!({"kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "2"}}}), 0);
/// let mut shown = State::default();
/// shown.apply(&model.tick(0).unwrap().update);
/// assert_eq!(shown.nodes["n1"].cpu.allocatable, 2000);
/// assert_eq!(model.tick(1), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Model {
    state: State,
    update: Update,
    moments: Vec<Moment>,
    number: u64,
    /// Whether what changes from now on is news.
    live: bool,
    /// Whether nothing happens between two times at which changes are told.
    sees_everything: bool,
    usage: BTreeMap<String, Usage>,
    /// How many volumes can be attached, by node and driver.
    limits: BTreeMap<String, BTreeMap<String, i64>>,
    /// When pods that wait were first seen.
    waiting: BTreeMap<String, i64>,
}

impl Model {
    /// The rows as they are.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The number of the last tick.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// All objects are known: what changes from now on has happened now.
    pub fn go_live(&mut self) {
        self.live = true;
    }

    /// Like [`Self::go_live`], and nothing happens between two times at which changes are told: a pod that is first seen on a node
    /// has not waited for it.
    pub(crate) fn go_live_seeing_everything(&mut self) {
        self.sees_everything = true;
        self.go_live();
    }

    /// Takes in an object as it is at a time, in milliseconds since 1970. Kinds that have no row are passed over.
    pub fn apply(&mut self, object: &Value, now: i64) {
        self.put(Entry::of(object), now);
    }

    /// Takes in that an object is gone. Kind, namespace and name are all that is read of it.
    pub fn remove(&mut self, object: &Value, now: i64) {
        self.put(Entry::gone(object), now);
    }

    /// Takes in what was read of an object.
    pub fn put(&mut self, entry: Entry, now: i64) {
        let Entry { name, rows } = entry;
        let (state, update) = (&mut self.state, &mut self.update);
        match rows {
            Rows::None => {}
            Rows::Node(row) => self.put_node(&name, row),
            Rows::Limits(limits) => self.put_limits(&name, limits),
            Rows::Pod(row) => self.put_pod(&name, row, now),
            Rows::Claim(row) => {
                let news = Moment::of_claim(&name, state.claims.get(&name).map(|row| &**row), row.as_ref());
                put(&mut state.claims, &mut update.claims, &name, row);
                self.tell(news);
            }
            Rows::Volume(row) => {
                let news = Moment::of_volume(&name, state.volumes.get(&name).map(|row| &**row), row.as_ref());
                put(&mut state.volumes, &mut update.volumes, &name, row);
                self.tell(news);
            }
            Rows::Class(row) => put(&mut state.classes, &mut update.classes, &name, row),
            Rows::Pools(pools) => self.put_pools(&name, pools),
            Rows::Workload(row) => put(&mut state.workloads, &mut update.workloads, &name, row),
        }
    }

    /// What changed since the last tick, if anything did.
    pub fn tick(&mut self, now: i64) -> Option<Tick> {
        if self.update.is_empty() && self.moments.is_empty() {
            return None;
        }
        self.number += 1;
        Some(Tick {
            number: self.number,
            at: now,
            update: std::mem::take(&mut self.update),
            moments: std::mem::take(&mut self.moments),
        })
    }

    fn tell(&mut self, news: impl IntoIterator<Item = Moment>) {
        if self.live {
            self.moments.extend(news);
        }
    }

    fn put_node(&mut self, name: &str, row: Option<NodeRow>) {
        let row = row.map(|row| self.completed(name, row));
        let before = self.state.nodes.get(name).map(|row| &**row);
        let news = Moment::of_node(name, before, row.as_ref());
        put(&mut self.state.nodes, &mut self.update.nodes, name, row);
        self.tell(news);
    }

    /// The row with what other objects say of the node.
    fn completed(&self, name: &str, mut row: NodeRow) -> NodeRow {
        let usage = self.usage.get(name).copied().unwrap_or_default();
        row.cpu.requested = usage.cpu;
        row.memory.requested = usage.memory;
        row.pods.requested = usage.pods;
        row.limits = self.limits.get(name).cloned().unwrap_or_default();
        row
    }

    /// What other objects say of a node has changed.
    fn complete(&mut self, name: &str) {
        if let Some(row) = self.state.nodes.get(name) {
            let row = self.completed(name, NodeRow::clone(row));
            put(&mut self.state.nodes, &mut self.update.nodes, name, Some(row));
        }
    }

    fn put_limits(&mut self, name: &str, limits: BTreeMap<String, i64>) {
        match limits.is_empty() {
            true => self.limits.remove(name),
            false => self.limits.insert(name.to_owned(), limits),
        };
        self.complete(name);
    }

    fn put_pod(&mut self, name: &str, row: Option<PodRow>, now: i64) {
        let before = self.state.pods.get(name).cloned();
        if before.as_deref() == row.as_ref() {
            return;
        }
        let came = before.is_none() && self.sees_everything;
        let since = self.waiting.get(name).copied().or(came.then_some(now));
        if row.as_ref().is_some_and(PodRow::is_waiting) {
            self.waiting.entry(name.to_owned()).or_insert(now);
        } else {
            self.waiting.remove(name);
        }
        let waited = since
            .filter(|_| self.live)
            .map(|since| now.saturating_sub(since).max(0));
        self.tell(Moment::of_pod(name, before.as_deref(), row.as_ref(), waited));
        for (pod, sign) in [(before.as_deref(), -1), (row.as_ref(), 1)] {
            if let Some((pod, node)) = pod.and_then(|pod| Some((pod, pod.holds()?))) {
                self.count(node, pod, sign);
            }
        }
        put(&mut self.state.pods, &mut self.update.pods, name, row);
    }

    fn count(&mut self, node: &str, pod: &PodRow, sign: i64) {
        let usage = self.usage.entry(node.to_owned()).or_default();
        usage.add(pod, sign);
        if *usage == Usage::default() {
            self.usage.remove(node);
        }
        self.complete(node);
    }

    /// Makes these the pools of an object.
    fn put_pools(&mut self, object: &str, pools: impl IntoIterator<Item = (String, PoolRow)>) {
        let (state, update) = (&mut self.state.pools, &mut self.update.pools);
        let begin = format!("{object}/");
        let known = state.range(begin.clone()..).map(|(name, _)| name);
        let mut gone: BTreeSet<String> = known.take_while(|name| name.starts_with(&begin)).cloned().collect();
        for (pool, row) in pools {
            let name = format!("{begin}{pool}");
            gone.remove(&name);
            put(state, update, &name, Some(row));
        }
        for name in gone {
            put(state, update, &name, None);
        }
    }
}

/// Changes a row, and takes down that it changed, if it did.
fn put<R: PartialEq>(rows: &mut Table<R>, changed: &mut Changes<R>, name: &str, row: Option<R>) {
    if rows.get(name).map(|row| &**row) == row.as_ref() {
        return;
    }
    let row = row.map(Shared::new);
    match &row {
        Some(row) => rows.insert(name.to_owned(), row.clone()),
        None => rows.remove(name),
    };
    changed.insert(name.to_owned(), row);
}
