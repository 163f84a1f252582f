//! A process: a component with its state and its watches, which can be killed, paused and lose its lease.

use crate::component::{Component, Finished, JobId, News};
use crate::components::{Agents, Provisioning, Scheduling, Volumes, WorkloadSteps};
use crate::keyed::Keyed;
use crate::mutation::Mutation;
use crate::port::Job;
use crate::story::NetFault;
use crate::world::{Doc, Entry, KINDS, Millis};
use berth_core::backoff::Backoff;
use berth_core::names::SELECTED_NODE;
use berth_core::quantity::Quantity;
use berth_scheduler::scheduler::POD_FIELDS;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Scheduler,
    Controller,
    Builtin,
    Csi,
    Workloads,
    Agents,
}

impl Role {
    /// The role of each process of [`crate::story::PROCESSES`].
    pub(crate) const ALL: [Self; 8] = [
        Self::Scheduler,
        Self::Scheduler,
        Self::Controller,
        Self::Controller,
        Self::Builtin,
        Self::Csi,
        Self::Workloads,
        Self::Agents,
    ];

    /// The election in which it competes.
    pub(crate) fn election(self) -> Option<usize> {
        match self {
            Self::Scheduler => Some(0),
            Self::Controller => Some(1),
            Self::Builtin | Self::Csi | Self::Workloads | Self::Agents => None,
        }
    }

    pub(crate) fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Scheduler => &[
                "Node",
                "Pod",
                "PersistentVolume",
                "PersistentVolumeClaim",
                "StorageClass",
                "CSINode",
                "CSIDriver",
                "CSIStorageCapacity",
                "PriorityClass",
                "StatefulSet",
                "ReplicaSet",
                "PodDisruptionBudget",
            ],
            Self::Controller => &[
                "PersistentVolumeClaim",
                "PersistentVolume",
                "StorageClass",
                "Pod",
                "Node",
            ],
            Self::Builtin | Self::Csi => &[
                "PersistentVolumeClaim",
                "PersistentVolume",
                "StorageClass",
                "Node",
                "CSINode",
            ],
            Self::Workloads => &[
                "Node",
                "Pod",
                "PersistentVolumeClaim",
                "StatefulSet",
                "ReplicaSet",
                "Deployment",
                "ControllerRevision",
                "PodDisruptionBudget",
                "Lease",
            ],
            Self::Agents => &["Node", "Pod", "PersistentVolumeClaim", "PersistentVolume"],
        }
    }

    pub(crate) fn component(self, seed: u64, now: Millis) -> Box<dyn Component> {
        match self {
            Self::Scheduler => Box::new(Scheduling::new(seed, now)),
            Self::Controller => Box::new(Keyed::new(Volumes::new(), Backoff::EFFECT, 128)),
            Self::Builtin => Box::new(Keyed::new(Provisioning::builtin(), Backoff::CALL, 32)),
            Self::Csi => Box::new(Keyed::new(Provisioning::csi(), Backoff::CALL, 32)),
            // With one worker, each step sees what every earlier one wrote.
            Self::Workloads => Box::new(Keyed::new(WorkloadSteps::new(seed), Backoff::EFFECT, 1)),
            Self::Agents => Box::new(Keyed::new(Agents::default(), Backoff::EFFECT, 1)),
        }
    }
}

/// A watch of one kind.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The kind, by number.
    pub(crate) kind: usize,
    pub(crate) listed: bool,
    /// The position in the log up to which changes were delivered.
    pub(crate) next: usize,
    /// What was delivered: UID and version by name.
    known: BTreeMap<(String, String), (String, u64)>,
    pub(crate) held_until: Millis,
    /// It was held back, and has delivered nothing since.
    pub(crate) was_held: bool,
    pub(crate) relist: bool,
    pub(crate) double: bool,
    /// A delivery is scheduled.
    pub(crate) scheduled: bool,
    /// Number of deliveries.
    pub(crate) deliveries: u64,
    pub(crate) mutation: Option<Mutation>,
}

fn name_of(doc: &Doc) -> (String, String) {
    (doc.key.namespace.clone(), doc.key.name.clone())
}

/// Whether a process watches an object: schedulers omit some pods by a field selector such as
/// `status.phase!=Succeeded`.
fn is_selected(role: Role, doc: &Doc) -> bool {
    if role != Role::Scheduler || doc.key.kind != "Pod" {
        return true;
    }
    let unwanted = POD_FIELDS.split_once("!=");
    unwanted.is_none_or(|(field, value)| doc.text(&format!("/{}", field.replace('.', "/"))) != value)
}

/// An amount of storage.
fn gi(doc: &Doc, path: &str) -> Option<i64> {
    let quantity: Quantity = doc.text(path).parse().ok()?;
    Some(quantity.value())
}

fn is_free(volume: &Doc) -> bool {
    volume.value["spec"]["claimRef"].is_null()
}

impl Watch {
    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Lists, and delivers the differences from the known state as one.
    pub(crate) fn list<'a>(&mut self, role: Role, docs: impl Iterator<Item = &'a Rc<Doc>>, end: usize) -> Vec<News> {
        let mut listed = BTreeMap::new();
        let mut news = Vec::new();
        for doc in docs.filter(|doc| is_selected(role, doc)) {
            let (name, seen) = (name_of(doc), (doc.uid.clone(), doc.version));
            let known = self.known.get(&name);
            // An object that was deleted and recreated under its name is a different one: the deletion of the old one
            // comes first.
            let another = known.filter(|known| known.0 != seen.0);
            if let (Some(another), true) = (another, self.has(Mutation::NamesakesInLists)) {
                listed.insert(name, another.clone());
                continue;
            }
            if let Some((uid, _)) = another {
                news.push(News::Removed(name.0.clone(), name.1.clone(), uid.clone()));
            }
            if known != Some(&seen) {
                news.push(News::Applied(Rc::clone(doc)));
            }
            listed.insert(name, seen);
        }
        let silent = self.has(Mutation::RemovalsInLists);
        let gone = self
            .known
            .iter()
            .filter(|(name, _)| !listed.contains_key(*name) && !silent);
        news.extend(
            gone.map(|((namespace, name), (uid, _))| News::Removed(namespace.clone(), name.clone(), uid.clone())),
        );
        news.push(News::Listed);
        self.known = listed;
        (self.listed, self.next, self.relist) = (true, end, false);
        news
    }

    /// Whether a process misses a change, for a bug.
    fn is_deaf(&self, role: Role, entry: &Entry) -> bool {
        let is = |kind: &str| role == Role::Scheduler && entry.doc.key.kind == kind;
        let before = entry.before.as_deref();
        match self.mutation {
            Some(Mutation::SkippedChange) => self.was_held && !entry.gone,
            Some(Mutation::DeafToNodes) => is("Node") && entry.gone,
            Some(Mutation::DeafToVolumes) => is("PersistentVolume") && is_free(&entry.doc),
            Some(Mutation::DeafToReservations) => {
                is("PersistentVolume") && before.is_some_and(is_free) && !is_free(&entry.doc)
            }
            Some(Mutation::DeafToCapacity) => {
                is("CSIStorageCapacity")
                    && before.is_some_and(|before| gi(&entry.doc, "/capacity") > gi(before, "/capacity"))
            }
            Some(Mutation::DeafToSizes) => {
                let largest = |doc: &Doc| gi(doc, "/maximumVolumeSize").unwrap_or(i64::MAX);
                is("CSIStorageCapacity") && before.is_some_and(|before| largest(&entry.doc) > largest(before))
            }
            Some(Mutation::DeafToFreedSlots) => {
                // Volumes of the driver are named after their claims.
                let volume = entry.doc.text("/spec/volumeName");
                is("PersistentVolumeClaim")
                    && berth_cluster::field::annotation(&entry.doc.value, SELECTED_NODE).is_some()
                    && !volume.is_empty()
                    && !volume.starts_with("pvc-")
            }
            Some(Mutation::DeafToClaims) => {
                let selected = |doc: &Doc| berth_cluster::field::annotation(&doc.value, SELECTED_NODE).is_some();
                is("PersistentVolumeClaim") && before.is_some_and(selected) && !selected(&entry.doc)
            }
            _ => false,
        }
    }

    /// Delivers the next change.
    pub(crate) fn follow(&mut self, role: Role, entry: &Entry) -> Vec<News> {
        self.next += 1;
        let doc = &entry.doc;
        if self.is_deaf(role, entry) {
            return Vec::new();
        }
        let name = name_of(doc);
        let change = if entry.gone || !is_selected(role, doc) {
            if self.known.remove(&name).is_none() {
                return Vec::new();
            }
            News::Removed(name.0, name.1, doc.uid.clone())
        } else {
            self.known.insert(name, (doc.uid.clone(), doc.version));
            News::Applied(Rc::clone(doc))
        };
        match std::mem::take(&mut self.double) {
            true => vec![change.clone(), change],
            false => vec![change],
        }
    }
}

/// A job and when it started.
pub(crate) struct Running {
    pub(crate) job: Job<Finished>,
    pub(crate) since: Millis,
}

/// A process.
pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) role: Role,
    pub(crate) name: &'static str,
    /// How often it was started.
    pub(crate) incarnation: u64,
    pub(crate) component: Option<Box<dyn Component>>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) jobs: BTreeMap<JobId, Running>,
    pub(crate) next_job: JobId,
    pub(crate) paused_until: Millis,
    /// How far its wall clock is ahead.
    pub(crate) offset_millis: i64,
    pub(crate) faults: VecDeque<NetFault>,
    /// Number of requests it sent.
    pub(crate) requests: u64,
    /// It is applying several changes at once: decisions on the first ones are older than its information.
    pub(crate) in_batch: bool,
    /// Pods, by UID, that it knows to be bound.
    pub(crate) seen_bound: BTreeSet<String>,
    /// When it will be woken; no later than requested.
    pub(crate) woken_at: Option<Millis>,
    /// When the last successful acquire or renew request of its lease was sent.
    pub(crate) renewed: Option<Millis>,
    /// Its wall clock at that time.
    pub(crate) renewed_on_the_wall: i64,
    /// The lease of another process as last observed to change, and when.
    pub(crate) observed: Option<(u64, Millis)>,
}

/// How long a leader considers its lease valid.
pub(crate) const RENEW_DEADLINE: Millis = 10_000;

impl Process {
    pub(crate) fn new(number: usize, role: Role, name: &'static str) -> Self {
        Self {
            number,
            role,
            name,
            incarnation: 0,
            component: None,
            watches: Vec::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            paused_until: 0,
            offset_millis: 0,
            faults: VecDeque::new(),
            requests: 0,
            in_batch: false,
            seen_bound: BTreeSet::new(),
            woken_at: None,
            renewed: None,
            renewed_on_the_wall: 0,
            observed: None,
        }
    }

    /// Loses all of its state.
    pub(crate) fn die(&mut self) {
        self.incarnation += 1;
        self.component = None;
        self.watches.clear();
        self.jobs.clear();
        self.seen_bound.clear();
        (self.woken_at, self.renewed, self.observed) = (None, None, None);
    }

    pub(crate) fn start(&mut self, seed: u64, now: Millis, mutation: Option<Mutation>) {
        self.component = Some(self.role.component(seed, now));
        let numbers = self
            .role
            .kinds()
            .iter()
            .filter_map(|kind| crate::world::kind_number(kind));
        self.watches = numbers
            .map(|kind| Watch {
                kind,
                mutation,
                ..Watch::default()
            })
            .collect();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.watches.iter().all(|watch| watch.listed)
    }

    pub(crate) fn watch(&mut self, kind: usize) -> Option<&mut Watch> {
        self.watches.iter_mut().find(|watch| watch.kind == kind)
    }

    /// Whether it may write at this moment.
    pub(crate) fn is_leading(&self, now: Millis) -> bool {
        if self.role.election().is_none() {
            return true;
        }
        let on_the_wall = i64::try_from(now)
            .unwrap_or(i64::MAX)
            .saturating_add(self.offset_millis);
        let deadline = i64::try_from(RENEW_DEADLINE).unwrap_or(i64::MAX);
        self.renewed.is_some_and(|renewed| now < renewed + RENEW_DEADLINE)
            && on_the_wall < self.renewed_on_the_wall.saturating_add(deadline)
    }

    /// Whether every watch has delivered everything.
    pub(crate) fn is_up_to_date(&self, logs: &[Vec<Entry>; KINDS.len()]) -> bool {
        let ends = |watch: &Watch| logs.get(watch.kind).map_or(0, Vec::len);
        self.watches
            .iter()
            .all(|watch| watch.listed && watch.next == ends(watch))
    }
}
