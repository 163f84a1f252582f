//! Decides what is queried and what is written, for all drivers of one provisioner.
//!
//! A caller passes it every change of an object, sends its questions to the backend and carries out its writes. A live
//! provisioner does both concurrently; a simulation does one after the other. Time is a parameter.

use super::pools::{Pool, PoolClass, PoolNodes};
use super::publication::{Publication, Subject, Write};
use super::{
    Available, CapacityForm, CapacityOptions, Item, Producer, ProducerSettings, Query, labelled_segments, managed_by,
    node_segment, segments,
};
use crate::builtin::Builtin;
use crate::request::places_of;
use crate::settings::Settings;
use crate::state::State;
use crate::topology::Segment;
use berth_core::api::{CsiNode, CsiStorageCapacity, Kind, Object, ObjectMeta, PersistentVolume, StorageClass};
use berth_core::effect::Effect;
use berth_core::migration::InTreePlugin;
use berth_core::names;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What determines the segments in which volumes can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentSource {
    /// Their class, for built-in provisioners.
    Classes,
    /// The nodes on which their driver runs.
    Drivers,
}

/// A query to the backend.
#[derive(Clone, Debug)]
pub struct Question {
    /// The driver.
    pub driver: String,
    /// Class, segment and parameters.
    pub query: Query,
}

/// Everything that is published.
#[derive(Clone, Debug)]
pub struct Publisher {
    options: CapacityOptions,
    source: SegmentSource,
    producers: BTreeMap<String, Producer>,
    nodes: BTreeMap<String, Option<String>>,
    writes: VecDeque<Write>,
    /// Targets of writes in progress.
    writing: BTreeSet<Subject>,
    /// Reported pools, by the name of the equivalent object.
    pools: BTreeMap<String, Item>,
    /// Nodes or classes have changed since segments were last computed.
    stale: bool,
    /// All objects are known.
    complete: bool,
    /// Published capacity that was observed before all objects were known.
    early: Vec<CsiStorageCapacity>,
}

impl Publisher {
    /// A publisher for these provisioners. It writes nothing before [`Self::begin`].
    #[must_use]
    pub fn new(options: CapacityOptions, settings: &[Settings], source: SegmentSource) -> Self {
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
            source,
            producers,
            pools: BTreeMap::new(),
            nodes: settings.iter().map(node).collect(),
            options,
            writes: VecDeque::new(),
            writing: BTreeSet::new(),
            stale: true,
            complete: false,
            early: Vec::new(),
        }
    }

    /// How capacity is published.
    #[must_use]
    pub fn options(&self) -> &CapacityOptions {
        &self.options
    }

    /// All objects are known.
    pub fn begin(&mut self, state: &State) {
        self.complete = true;
        state.classes().for_each(|class| self.class_changed(class));
        self.refresh_segments(state);
        let early = std::mem::take(&mut self.early);
        early.iter().for_each(|object| self.observe(object));
    }

    /// An object was added or changed. `state` does not contain that change yet.
    pub fn apply(&mut self, object: &Object, state: &State) {
        match object {
            Object::Node(_) | Object::CsiNode(_) => self.stale = true,
            Object::CsiStorageCapacity(capacity) if self.complete => self.observe(capacity),
            Object::CsiStorageCapacity(capacity) => self.early.push((**capacity).clone()),
            Object::StorageClass(class) if self.complete => self.class_changed(class),
            Object::PersistentVolume(volume) if self.complete => {
                let known = state.volume(&volume.metadata.name);
                if known.is_none_or(|known| known.spec.capacity != volume.spec.capacity) {
                    self.volume_changed(volume);
                }
            }
            _ => {}
        }
    }

    /// An object was deleted. `state` still contains it.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str, state: &State) {
        match kind {
            Kind::PersistentVolume => {
                if let Some(volume) = state.volume(name) {
                    self.volume_changed(volume);
                }
            }
            Kind::StorageClass => self.class_removed(name),
            Kind::Node | Kind::CsiNode => self.stale = true,
            Kind::CsiStorageCapacity if namespace == self.options.namespace => {
                self.producers.values_mut().for_each(|one| one.observe_deleted(name));
            }
            _ => {}
        }
    }

    fn class_changed(&mut self, class: &StorageClass) {
        let by_fallback = self.options.fallback && self.options.form != CapacityForm::Objects;
        if by_fallback || self.options.announce && !Builtin::has_limit(class) {
            return self.class_removed(&class.metadata.name);
        }
        self.change_each(|producer| producer.upsert_class(class));
        self.stale = true;
    }

    fn class_removed(&mut self, class: &str) {
        self.change_each(|producer| producer.remove_class(class));
    }

    fn observe(&mut self, object: &CsiStorageCapacity) {
        self.change_each(|producer| producer.observe(object));
    }

    fn volume_changed(&mut self, volume: &PersistentVolume) {
        let Some(name) = volume.metadata.annotation(names::PROVISIONED_BY) else {
            return;
        };
        // A driver also creates the volumes of the in-tree plugin that it replaces.
        let driver = InTreePlugin::from_name(name).map_or(name, |plugin| plugin.driver());
        let name = if self.producers.contains_key(name) {
            name
        } else {
            driver
        };
        if let Some(producer) = self.producers.get_mut(name) {
            producer.volume_changed(&places_of(volume));
        }
    }

    /// Changes what each producer wants, and queues the writes that follow.
    fn change_each(&mut self, mut change: impl FnMut(&mut Producer) -> Vec<Effect>) {
        let each = self.producers.iter_mut();
        let writes: Vec<_> = each.map(|(driver, one)| (driver.clone(), change(one))).collect();
        for (driver, effects) in writes {
            self.write(&driver, effects);
        }
    }

    /// Recomputes segments if nodes or classes have changed: once for many changes.
    pub fn refresh_segments(&mut self, state: &State) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut writes = Vec::new();
        for (driver, producer) in &mut self.producers {
            match self.source {
                SegmentSource::Classes => {
                    let announce = self.options.announce;
                    let published = |class: &&StorageClass| !announce || Builtin::has_limit(class);
                    let classes = state.classes().filter(|class| class.provisioner == *driver);
                    for class in classes.filter(published) {
                        let found = Builtin::segments(class, state.nodes()).into_iter().collect();
                        let effects = producer.set_class_segments(&class.metadata.name, found);
                        writes.push((driver.clone(), effects));
                    }
                }
                SegmentSource::Drivers => {
                    let node = self.nodes.get(driver).and_then(Option::as_deref);
                    let found = driver_segments(&self.options, driver, node, state);
                    writes.push((driver.clone(), producer.set_segments(found)));
                }
            }
        }
        for (driver, effects) in writes {
            self.write(&driver, effects);
        }
    }

    fn write(&mut self, driver: &str, effects: Vec<Effect>) {
        for effect in effects {
            let name = written_name(&effect);
            if self.options.form == CapacityForm::Objects {
                self.push(driver, "", name, None, Publication::Effect(effect));
                continue;
            }
            // Pools are reported when the backend responds.
            let is_gone = matches!(effect, Effect::Delete(_));
            let Some(item) = is_gone.then(|| self.pools.remove(&name)).flatten() else {
                continue;
            };
            let (class, pool) = (pool_class(&item), self.pool_name(driver, &item));
            if let Some(withdrawal) = Publication::withdraw(&self.options, driver, class, pool.clone()) {
                self.push(driver, &item.class, pool, None, withdrawal);
            }
        }
    }

    fn push(&mut self, driver: &str, class: &str, name: String, item: Option<Item>, publication: Publication) {
        self.writes.push_back(Write {
            publication,
            subject: Subject {
                driver: driver.to_owned(),
                class: class.to_owned(),
                name,
            },
            item,
        });
    }

    /// Queries everything again: capacity also changes without notification.
    pub fn poll(&mut self) {
        self.producers.values_mut().for_each(Producer::refresh_all);
    }

    /// The next write. End it with [`Self::written`].
    pub fn next_write(&mut self) -> Option<Write> {
        let is_free = |write: &Write| !self.writing.contains(&write.subject);
        let at = self.writes.iter().position(is_free)?;
        let write = self.writes.remove(at)?;
        self.writing.insert(write.subject.clone());
        Some(write)
    }

    /// A write has ended, successfully or not. `now` is the time since any fixed moment.
    pub fn written(&mut self, subject: &Subject, item: Option<&Item>, done: bool, now: Duration) {
        self.writing.remove(subject);
        let producer = self.producers.get_mut(&subject.driver);
        if let Some((producer, item)) = producer.zip(item) {
            if done {
                producer.written(item);
            } else {
                producer.write_failed(item, now);
            }
        }
    }

    /// The next query. End it with [`Self::answered`].
    pub fn next_question(&mut self, now: Duration) -> Option<Question> {
        self.producers.iter_mut().find_map(|(driver, producer)| {
            let driver = driver.clone();
            producer.next(now).map(|query| Question { driver, query })
        })
    }

    /// When the next query after a failure is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        self.producers.values().filter_map(Producer::wake_at).min()
    }

    /// The backend responded, or failed. `date` is the time from which a report expires.
    pub fn answered(&mut self, driver: &str, item: &Item, answer: Option<Available>, now: Duration, date: Timestamp) {
        let Some(producer) = self.producers.get_mut(driver) else {
            return;
        };
        let effect = producer.answered(item, answer, now);
        let is_published = producer.is_published(item);
        if self.options.form == CapacityForm::Objects {
            if let Some(effect) = effect {
                let name = written_name(&effect);
                self.push(driver, "", name, Some(item.clone()), Publication::Effect(effect));
            }
            return;
        }
        let Some(available) = answer else {
            return;
        };
        if let Some(create @ Effect::Create(_)) = &effect {
            self.pools.insert(written_name(create), item.clone());
        }
        if !is_published {
            // It is no longer wanted.
            return;
        }
        let pool = self.pool(driver, item, available, date);
        let name = pool.name.clone();
        if let Some(report) = Publication::report(&self.options, driver, pool_class(item), pool) {
            self.push(driver, &item.class, name, Some(item.clone()), report);
        }
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

    fn pool(&self, driver: &str, item: &Item, available: Available, date: Timestamp) -> Pool {
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
            expires: expiry.and_then(|expiry| date.checked_add(expiry).ok()),
        }
    }

    /// Number of writes and queries that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.writes.len() + self.producers.values().map(Producer::queued).sum::<usize>()
    }

    /// Number of objects or pools that should be published.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.producers.values().map(Producer::wanted).sum()
    }

    /// Number of published objects or pools.
    #[must_use]
    pub fn published(&self) -> usize {
        self.producers.values().map(Producer::published).sum()
    }
}

/// The name of the object that an effect writes.
fn written_name(effect: &Effect) -> String {
    effect.writes_to().map(|key| key.name).unwrap_or_default()
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
