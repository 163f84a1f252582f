//! Publishes capacity: queries the backend for classes in segments and writes what changed.

use super::backend::Backend;
use crate::clock::Clock;
use berth_core::api::{CsiNode, CsiStorageCapacity, ObjectMeta, PersistentVolume, StorageClass};
use berth_core::effect::Effect;
use berth_core::names;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::capacity::pools::{Pool, PoolClass, PoolNodes};
use berth_provisioner::capacity::{
    Available, Item, Owner, Producer, ProducerSettings, Query, labelled_segments, managed_by, node_segment, segments,
};
use berth_provisioner::request::places_of;
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::topology::Segment;
use jiff::SignedDuration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Where capacity is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityForm {
    /// `CSIStorageCapacity` objects, which every cluster has.
    Objects,
    /// Pools in the status of the `CSIDriver`, if the server supports it.
    DriverStatus,
    /// Pools in Berth's custom resource.
    CustomResource,
}

/// How capacity is published.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// The form.
    pub form: CapacityForm,
    /// Pools only: also publish for inline volumes, without parameters.
    pub ephemeral: bool,
    /// Pools only: publish once for all classes, without parameters, instead of for each. For storage that does not
    /// depend on the class.
    pub fallback: bool,
    /// Segments are the node labels with this prefix, instead of those that the driver registered.
    pub label_prefix: Option<String>,
    /// For built-in provisioners, which have no `CSIDriver`: create it if missing, publish only classes with a limit,
    /// and report that all others have space.
    pub announce: bool,
    /// Pools only: a report that was not renewed for this long expires. Without this it counts until it is replaced: for a
    /// backend that is deleted with the cluster.
    pub expiry: Option<Duration>,
    /// The namespace of the objects.
    pub namespace: String,
    /// The manager of the objects. Objects that another program published under this name are adopted.
    pub keeper: &'static str,
    /// Their owner.
    pub owner: Option<Owner>,
    /// Also publish for classes with immediate binding.
    pub immediate: bool,
    /// How often everything is queried again.
    pub poll: Duration,
    /// Number of concurrent queries and writes.
    pub workers: usize,
}

impl CapacityOptions {
    /// Objects in a namespace, queried every minute.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            form: CapacityForm::Objects,
            ephemeral: false,
            fallback: false,
            label_prefix: None,
            announce: false,
            // Five consecutive queries may fail before the last report expires.
            expiry: Some(Duration::from_secs(300)),
            namespace: namespace.into(),
            keeper: "berth-provisioner",
            owner: None,
            immediate: false,
            poll: Duration::from_secs(60),
            workers: 8,
        }
    }
}

/// What is written.
#[derive(Debug)]
pub(super) enum Publication {
    /// An object.
    Object(Effect),
    /// A pool of a driver is reported.
    Report(PoolClass, Pool),
    /// A pool of a driver is removed.
    Withdraw(PoolClass, String),
}

impl Publication {
    /// What is written to: an object, or a pool of a driver.
    fn subject(&self, driver: &str) -> Subject {
        let (class, name) = match self {
            Self::Object(effect) => ("", written_name(effect)),
            Self::Report(class, pool) => (class.name(), pool.name.clone()),
            Self::Withdraw(class, pool) => (class.name(), pool.clone()),
        };
        Subject {
            driver: driver.to_owned(),
            class: class.to_owned(),
            name,
        }
    }
}

/// The name of the object that an effect writes.
fn written_name(effect: &Effect) -> String {
    effect.writes_to().map(|key| key.name).unwrap_or_default()
}

/// The target of a write. Two writes to the same target are never concurrent: the older could arrive last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    driver: String,
    class: String,
    name: String,
}

/// A waiting write, and its item if it must be retried.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) driver: String,
    pub(super) item: Option<Item>,
    pub(super) publication: Publication,
    pub(super) subject: Subject,
}

/// A query to the backend.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) driver: String,
    pub(super) query: Query,
}

/// Everything that is published.
pub(super) struct Publisher {
    pub(super) options: CapacityOptions,
    producers: BTreeMap<String, Producer>,
    nodes: BTreeMap<String, Option<String>>,
    writes: VecDeque<Write>,
    /// Targets of writes in progress.
    writing: BTreeSet<Subject>,
    /// Reported pools, by the name of the equivalent object.
    pools: BTreeMap<String, Item>,
    /// Nodes or classes have changed since segments were last computed.
    stale: bool,
    epoch: Instant,
    clock: Clock,
}

impl Publisher {
    pub(super) fn new(options: CapacityOptions, settings: &[Settings], clock: Clock) -> Self {
        let producer = |one: &Settings| {
            let settings = ProducerSettings {
                driver: one.provisioner.clone(),
                namespace: options.namespace.clone(),
                managed_by: managed_by(options.keeper, one.node.as_deref()),
                owner: options.owner.clone(),
                immediate: options.immediate,
            };
            (one.provisioner.clone(), Producer::new(settings))
        };
        let node = |one: &Settings| (one.provisioner.clone(), one.node.clone());
        let mut producers: BTreeMap<String, Producer> = settings.iter().map(producer).collect();
        let special = [
            (options.ephemeral, names::EPHEMERAL_CLASS),
            (options.fallback, names::FALLBACK_CLASS),
        ];
        if options.form != CapacityForm::Objects {
            for (driver, producer) in &mut producers {
                // Neither has a class: they are queried like one without parameters.
                for (_, class) in special.iter().filter(|(wanted, _)| *wanted) {
                    producer.upsert_class(&special_class(driver, class));
                }
            }
        }
        Self {
            producers,
            pools: BTreeMap::new(),
            nodes: settings.iter().map(node).collect(),
            options,
            writes: VecDeque::new(),
            writing: BTreeSet::new(),
            stale: true,
            epoch: Instant::now(),
            clock,
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn write(&mut self, driver: &str, effects: Vec<Effect>) {
        for effect in effects {
            let publication = match (self.options.form, effect) {
                (CapacityForm::Objects, effect) => Publication::Object(effect),
                (_, effect @ Effect::Delete(_)) => {
                    let Some(item) = self.pools.remove(&written_name(&effect)) else {
                        continue;
                    };
                    Publication::Withdraw(pool_class(&item), self.pool_name(driver, &item))
                }
                // Pools are reported when the backend responds.
                (_, _) => continue,
            };
            self.push(driver, None, publication);
        }
    }

    fn push(&mut self, driver: &str, item: Option<Item>, publication: Publication) {
        self.writes.push_back(Write {
            subject: publication.subject(driver),
            driver: driver.to_owned(),
            item,
            publication,
        });
    }

    pub(super) fn nodes_changed(&mut self) {
        self.stale = true;
    }

    pub(super) fn class_changed(&mut self, class: &StorageClass) {
        let by_fallback = self.options.fallback && self.options.form != CapacityForm::Objects;
        if by_fallback || self.options.announce && !Builtin::has_limit(class) {
            return self.class_removed(&class.metadata.name);
        }
        let mut writes = Vec::new();
        for (driver, producer) in &mut self.producers {
            writes.push((driver.clone(), producer.upsert_class(class)));
        }
        for (driver, effects) in writes {
            self.write(&driver, effects);
        }
        self.stale = true;
    }

    pub(super) fn class_removed(&mut self, class: &str) {
        let mut writes = Vec::new();
        for (driver, producer) in &mut self.producers {
            writes.push((driver.clone(), producer.remove_class(class)));
        }
        for (driver, effects) in writes {
            self.write(&driver, effects);
        }
    }

    /// Recomputes segments if nodes or classes have changed: once for many changes.
    pub(super) fn refresh_segments(&mut self, state: &State, backend: &Backend) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut writes = Vec::new();
        for (driver, producer) in &mut self.producers {
            if backend.is_builtin() {
                let announce = self.options.announce;
                let published = |class: &&StorageClass| !announce || Builtin::has_limit(class);
                let classes = state.classes().filter(|class| class.provisioner == *driver);
                for class in classes.filter(published) {
                    let found = Builtin::segments(class, state.nodes()).into_iter().collect();
                    let effects = producer.set_class_segments(&class.metadata.name, found);
                    writes.push((driver.clone(), effects));
                }
            } else {
                let node = self.nodes.get(driver).and_then(Option::as_deref);
                let found = driver_segments(&self.options, driver, node, state);
                writes.push((driver.clone(), producer.set_segments(found)));
            }
        }
        for (driver, effects) in writes {
            self.write(&driver, effects);
        }
    }

    pub(super) fn observe(&mut self, object: &CsiStorageCapacity) {
        let mut writes = Vec::new();
        for (driver, producer) in &mut self.producers {
            writes.push((driver.clone(), producer.observe(object)));
        }
        for (driver, effects) in writes {
            self.write(&driver, effects);
        }
    }

    pub(super) fn observe_deleted(&mut self, namespace: &str, name: &str) {
        if namespace == self.options.namespace {
            self.producers.values_mut().for_each(|one| one.observe_deleted(name));
        }
    }

    pub(super) fn volume_changed(&mut self, volume: &PersistentVolume) {
        let driver = volume.metadata.annotation(names::PROVISIONED_BY);
        if let Some(producer) = driver.and_then(|driver| self.producers.get_mut(driver)) {
            producer.volume_changed(&places_of(volume));
        }
    }

    pub(super) fn poll(&mut self) {
        self.producers.values_mut().for_each(Producer::refresh_all);
    }

    /// The next write. End it with [`Self::written`].
    pub(super) fn next_write(&mut self) -> Option<Write> {
        let is_free = |write: &Write| !self.writing.contains(&write.subject);
        let at = self.writes.iter().position(is_free)?;
        let write = self.writes.remove(at)?;
        self.writing.insert(write.subject.clone());
        Some(write)
    }

    /// A write has ended, successfully or not.
    pub(super) fn written(&mut self, subject: &Subject, item: Option<&Item>, done: bool) {
        self.writing.remove(subject);
        let now = self.now();
        let producer = self.producers.get_mut(&subject.driver);
        if let Some((producer, item)) = producer.zip(item) {
            if done {
                producer.written(item);
            } else {
                producer.write_failed(item, now);
            }
        }
    }

    pub(super) fn next_question(&mut self) -> Option<Question> {
        let now = self.now();
        self.producers.iter_mut().find_map(|(driver, producer)| {
            let driver = driver.clone();
            producer.next(now).map(|query| Question { driver, query })
        })
    }

    /// When the next query after a failure is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let due = self.producers.values().filter_map(Producer::wake_at).min()?;
        Some(self.epoch + due)
    }

    pub(super) fn answered(&mut self, driver: &str, item: &Item, answer: Option<Available>) {
        let now = self.now();
        let Some(producer) = self.producers.get_mut(driver) else {
            return;
        };
        let effect = producer.answered(item, answer, now);
        let is_published = producer.is_published(item);
        let publication = match (self.options.form, effect, answer) {
            (CapacityForm::Objects, Some(effect), _) => Publication::Object(effect),
            (CapacityForm::Objects, None, _) | (_, _, None) => return,
            (_, effect, Some(available)) => {
                if let Some(create @ Effect::Create(_)) = &effect {
                    self.pools.insert(written_name(create), item.clone());
                }
                if !is_published {
                    // It is no longer wanted.
                    return;
                }
                Publication::Report(pool_class(item), self.pool(driver, item, available))
            }
        };
        self.push(driver, Some(item.clone()), publication);
    }

    fn node_of(&self, driver: &str) -> Option<&str> {
        self.nodes.get(driver).and_then(Option::as_deref)
    }

    /// A readable name: where the pool is.
    fn pool_name(&self, driver: &str, item: &Item) -> String {
        let values: Vec<_> = item.segment.values().map(String::as_str).collect();
        match self.node_of(driver) {
            Some(node) => node.to_owned(),
            None if values.is_empty() => "cluster".to_owned(),
            None => values.join("."),
        }
    }

    fn pool(&self, driver: &str, item: &Item, available: Available) -> Pool {
        let expiry = self
            .options
            .expiry
            .map(|expiry| SignedDuration::try_from(expiry).unwrap_or(SignedDuration::MAX));
        Pool {
            name: self.pool_name(driver, item),
            nodes: match self.node_of(driver) {
                Some(node) => PoolNodes::List(vec![node.to_owned()]),
                None if item.segment.is_empty() => PoolNodes::All,
                None => PoolNodes::Segment((*item.segment).clone()),
            },
            bytes: available.maximum_volume_size.unwrap_or(available.bytes),
            expires: expiry.and_then(|expiry| self.clock.now().checked_add(expiry).ok()),
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.writes.len() + self.producers.values().map(Producer::queued).sum::<usize>()
    }

    pub(super) fn published(&self) -> usize {
        self.producers.values().map(Producer::published).sum()
    }
}

fn special_class(driver: &str, name: &str) -> StorageClass {
    StorageClass {
        metadata: ObjectMeta {
            name: name.to_owned(),
            ..ObjectMeta::default()
        },
        provisioner: driver.to_owned(),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    }
}

fn pool_class(item: &Item) -> PoolClass {
    match item.class.as_str() {
        names::EPHEMERAL_CLASS => PoolClass::Ephemeral,
        names::FALLBACK_CLASS => PoolClass::Fallback,
        class => PoolClass::Class(class.to_owned()),
    }
}

/// The segments of a driver; only those of one node if the provisioner runs there.
fn driver_segments(options: &CapacityOptions, driver: &str, node: Option<&str>, state: &State) -> BTreeSet<Segment> {
    let (nodes, csi_nodes) = (state.nodes(), state.csi_nodes());
    let Some(name) = node else {
        return match &options.label_prefix {
            Some(prefix) => labelled_segments(prefix, nodes),
            None => segments(driver, nodes, csi_nodes),
        };
    };
    let Some((node, csi_node)) = nodes.get(name).zip(csi_nodes.get(name)) else {
        return BTreeSet::new();
    };
    let is_here = |csi_node: &CsiNode| csi_node.spec.drivers.iter().any(|found| found.name == driver);
    let segment = match options.form {
        CapacityForm::Objects => node_segment(driver, node, csi_node),
        // The pool refers to its node, and the driver on that node knows its topology.
        CapacityForm::DriverStatus | CapacityForm::CustomResource => is_here(csi_node).then(Segment::new),
    };
    segment.into_iter().collect()
}
