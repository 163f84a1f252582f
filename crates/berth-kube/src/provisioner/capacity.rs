//! Publishes capacity: asks the backend about classes in segments and writes what changed.

use super::backend::Backend;
use berth_core::api::{CsiNode, CsiStorageCapacity, Node, ObjectMeta, PersistentVolume, StorageClass};
use berth_core::names;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::capacity::pools::{Pool, PoolClass, PoolNodes};
use berth_provisioner::capacity::{
    Available, CapacityEffect, Item, Owner, Producer, ProducerSettings, Query, managed_by, node_segment, segments,
};
use berth_provisioner::request::places_of;
use berth_provisioner::settings::Settings;
use berth_provisioner::state::State;
use berth_provisioner::topology::Segment;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Where capacity is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityForm {
    /// `CSIStorageCapacity` objects: what every cluster has.
    Objects,
    /// Pools in the status of the `CSIDriver`, where the server has it.
    DriverStatus,
    /// The same pools in a custom resource of ours.
    CustomResource,
}

/// How capacity is published.
#[derive(Clone, Debug)]
pub struct CapacityOptions {
    /// Where.
    pub form: CapacityForm,
    /// Pools only: also for inline volumes, without parameters.
    pub ephemeral: bool,
    /// Pools only: a report that was not renewed for so long stops counting.
    pub expiry: Duration,
    /// Where the objects live.
    pub namespace: String,
    /// What they go away with.
    pub owner: Option<Owner>,
    /// Publish for classes with immediate binding too.
    pub immediate: bool,
    /// How often everything is asked again.
    pub poll: Duration,
    /// How many questions and writes are under way at a time.
    pub workers: usize,
}

impl CapacityOptions {
    /// Objects in a namespace, asked about every minute.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            form: CapacityForm::Objects,
            ephemeral: false,
            // Five questions may fail in a row before the last answer is taken back.
            expiry: Duration::from_secs(300),
            namespace: namespace.into(),
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
    Object(CapacityEffect),
    /// A pool of a driver is reported.
    Report(PoolClass, Pool),
    /// A pool of a driver is taken away.
    Withdraw(PoolClass, String),
}

/// A write that waits, and the item that it is about if it must be made good.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) driver: String,
    pub(super) item: Option<Item>,
    pub(super) publication: Publication,
}

/// A question to the backend.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) driver: String,
    pub(super) query: Query,
}

/// All that is published.
pub(super) struct Publisher {
    pub(super) options: CapacityOptions,
    producers: BTreeMap<String, Producer>,
    nodes: BTreeMap<String, Option<String>>,
    writes: VecDeque<Write>,
    /// Pools that are reported, by the name of the object that they stand for.
    pools: BTreeMap<String, Item>,
    /// Nodes or classes have changed since segments were last looked for.
    stale: bool,
    epoch: Instant,
}

impl Publisher {
    pub(super) fn new(options: CapacityOptions, settings: &[Settings]) -> Self {
        let producer = |one: &Settings| {
            let settings = ProducerSettings {
                driver: one.provisioner.clone(),
                namespace: options.namespace.clone(),
                managed_by: managed_by(one.node.as_deref()),
                owner: options.owner.clone(),
                immediate: options.immediate,
            };
            (one.provisioner.clone(), Producer::new(settings))
        };
        let node = |one: &Settings| (one.provisioner.clone(), one.node.clone());
        let mut producers: BTreeMap<String, Producer> = settings.iter().map(producer).collect();
        if options.form != CapacityForm::Objects && options.ephemeral {
            for (driver, producer) in &mut producers {
                // Inline volumes have no class: they are asked about like one without parameters.
                producer.upsert_class(&ephemeral_class(driver));
            }
        }
        Self {
            producers,
            pools: BTreeMap::new(),
            nodes: settings.iter().map(node).collect(),
            options,
            writes: VecDeque::new(),
            stale: true,
            epoch: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn write(&mut self, driver: &str, effects: Vec<CapacityEffect>) {
        for effect in effects {
            let publication = match (self.options.form, effect) {
                (CapacityForm::Objects, effect) => Publication::Object(effect),
                (_, CapacityEffect::Delete { name }) => {
                    let Some(item) = self.pools.remove(&name) else { continue };
                    Publication::Withdraw(pool_class(&item), pool_name(&item))
                }
                // Pools are reported when the backend answers.
                (_, CapacityEffect::Create(_) | CapacityEffect::Update { .. }) => continue,
            };
            self.writes.push_back(Write {
                driver: driver.to_owned(),
                item: None,
                publication,
            });
        }
    }

    pub(super) fn nodes_changed(&mut self) {
        self.stale = true;
    }

    pub(super) fn class_changed(&mut self, class: &StorageClass) {
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

    /// Looks for segments anew if nodes or classes have changed: once for many changes.
    pub(super) fn refresh_segments(&mut self, state: &State, backend: &Backend) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let mut writes = Vec::new();
        for (driver, producer) in &mut self.producers {
            if backend.is_builtin() {
                for class in state.classes().filter(|class| class.provisioner == *driver) {
                    let found = Builtin::segments(class, state.nodes()).into_iter().collect();
                    let effects = producer.set_class_segments(&class.metadata.name, found);
                    writes.push((driver.clone(), effects));
                }
            } else {
                let node = self.nodes.get(driver).and_then(Option::as_deref);
                let found = driver_segments(driver, node, state.nodes(), state.csi_nodes());
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

    pub(super) fn next_write(&mut self) -> Option<Write> {
        self.writes.pop_front()
    }

    pub(super) fn next_question(&mut self) -> Option<Question> {
        let now = self.now();
        self.producers.iter_mut().find_map(|(driver, producer)| {
            let driver = driver.clone();
            producer.next(now).map(|query| Question { driver, query })
        })
    }

    /// When the next question is due that waits after a failure.
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
        let publication = match (self.options.form, effect, answer) {
            (CapacityForm::Objects, Some(effect), _) => Publication::Object(effect),
            (CapacityForm::Objects, None, _) | (_, _, None) => return,
            (_, effect, Some(available)) => {
                if let Some(CapacityEffect::Create(object)) = &effect {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    self.pools.insert(name.to_owned(), item.clone());
                }
                if !self.pools.values().any(|known| known == item) {
                    // It is no longer wanted.
                    return;
                }
                let node = self.nodes.get(driver).cloned().flatten();
                Publication::Report(pool_class(item), self.pool(item, available, node))
            }
        };
        self.writes.push_back(Write {
            driver: driver.to_owned(),
            item: Some(item.clone()),
            publication,
        });
    }

    fn pool(&self, item: &Item, available: Available, node: Option<String>) -> Pool {
        let expiry = SignedDuration::try_from(self.options.expiry).unwrap_or(SignedDuration::MAX);
        Pool {
            name: pool_name(item),
            nodes: match node {
                Some(node) => PoolNodes::List(vec![node]),
                None if item.segment.is_empty() => PoolNodes::All,
                None => PoolNodes::Segment((*item.segment).clone()),
            },
            bytes: available.maximum_volume_size.unwrap_or(available.bytes),
            expires: Timestamp::now().checked_add(expiry).ok(),
        }
    }

    pub(super) fn write_failed(&mut self, driver: &str, item: &Item) {
        let now = self.now();
        if let Some(producer) = self.producers.get_mut(driver) {
            producer.write_failed(item, now);
        }
    }

    pub(super) fn queued(&self) -> usize {
        self.writes.len() + self.producers.values().map(Producer::queued).sum::<usize>()
    }

    pub(super) fn published(&self) -> usize {
        self.producers.values().map(Producer::published).sum()
    }
}

fn ephemeral_class(driver: &str) -> StorageClass {
    StorageClass {
        metadata: ObjectMeta {
            name: names::EPHEMERAL_CLASS.to_owned(),
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
        class => PoolClass::Class(class.to_owned()),
    }
}

/// A name for people: where the pool is.
fn pool_name(item: &Item) -> String {
    let values: Vec<_> = item.segment.values().map(String::as_str).collect();
    if values.is_empty() {
        "cluster".to_owned()
    } else {
        values.join(".")
    }
}

/// The segments of a driver; of one node only, if the provisioner runs there.
fn driver_segments(
    driver: &str,
    node: Option<&str>,
    nodes: &BTreeMap<String, Node>,
    csi_nodes: &BTreeMap<String, CsiNode>,
) -> BTreeSet<Segment> {
    let Some(name) = node else {
        return segments(driver, nodes, csi_nodes);
    };
    let found = nodes.get(name).zip(csi_nodes.get(name));
    found
        .and_then(|(node, csi_node)| node_segment(driver, node, csi_node))
        .into_iter()
        .collect()
}
