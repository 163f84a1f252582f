//! Maintains one object for each class and segment, and decides what to ask the driver next.
//!
//! ```text
//!  classes ─┐                        ┌─ next(now) ──► GetCapacity ─┐
//!  segments ┼─► items (class × segment) ─ queue                    ├─► answered() ─► create / update
//!  volumes ─┘        │               └─◄── later, after an error ──┘
//!                    └─ item gone ─► delete
//! ```
//!
//! The queue contains an item at most once, so it is never longer than classes times segments. A failed item waits
//! alone; the others continue.

use super::object;
use super::{Available, Owner};
use crate::request::Place;
use crate::topology::Segment;
use berth_core::api::{CsiStorageCapacity, StorageClass};
use berth_core::backoff::Backoff;
use berth_core::effect::Effect;
use berth_core::names::{CAPACITY_DRIVER, CAPACITY_MANAGED_BY};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How capacity is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerSettings {
    /// The driver.
    pub driver: String,
    /// The namespace of the objects.
    pub namespace: String,
    /// The value of the managed-by label: see [`super::managed_by`].
    pub managed_by: String,
    /// Their owner.
    pub owner: Option<Owner>,
    /// Also publish for classes with immediate binding, which schedulers ignore.
    pub immediate: bool,
}

/// A class in a segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The class.
    pub class: String,
    /// The segment.
    pub segment: Arc<Segment>,
}

/// A query to the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The class and segment.
    pub item: Item,
    /// The class parameters.
    pub parameters: BTreeMap<String, String>,
}

/// An object as last observed or written.
#[derive(Clone, Debug)]
struct Published {
    name: String,
    /// Empty until it is observed.
    uid: String,
    /// Its content; unknown after a write with an unknown result.
    available: Option<Available>,
    /// It certainly exists: it was observed, or a write of it was confirmed.
    seen: bool,
}

/// What should be published, what is published, and what to ask next.
#[derive(Clone, Debug)]
pub struct Producer {
    settings: ProducerSettings,
    classes: BTreeMap<String, BTreeMap<String, String>>,
    segments: BTreeSet<Arc<Segment>>,
    /// The segments of classes with their own.
    own_segments: BTreeMap<String, BTreeSet<Arc<Segment>>>,
    published: BTreeMap<Item, Published>,
    /// Published items, by object name.
    names: BTreeMap<String, Item>,
    queue: VecDeque<Item>,
    queued: BTreeSet<Item>,
    /// Queries in progress; true if the item must be queried again afterwards.
    asking: BTreeMap<Item, bool>,
    failures: BTreeMap<Item, u32>,
    /// Items that wait after a failure, by due time, and the reverse.
    waiting: BTreeSet<(Duration, Item)>,
    due: BTreeMap<Item, Duration>,
}

impl Producer {
    /// A producer that publishes nothing yet.
    #[must_use]
    pub fn new(settings: ProducerSettings) -> Self {
        Self {
            settings,
            classes: BTreeMap::new(),
            segments: BTreeSet::new(),
            own_segments: BTreeMap::new(),
            published: BTreeMap::new(),
            names: BTreeMap::new(),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            asking: BTreeMap::new(),
            failures: BTreeMap::new(),
            waiting: BTreeSet::new(),
            due: BTreeMap::new(),
        }
    }

    /// Sets the segments: objects of removed segments are deleted.
    pub fn set_segments(&mut self, segments: BTreeSet<Segment>) -> Vec<Effect> {
        let segments: BTreeSet<Arc<Segment>> = segments.into_iter().map(Arc::new).collect();
        let new: Vec<_> = segments.difference(&self.segments).cloned().collect();
        self.segments = segments;
        let common = |class: &&String| !self.own_segments.contains_key(*class);
        let classes: Vec<String> = self.classes.keys().filter(common).cloned().collect();
        for class in classes {
            self.enqueue_all(&class, &new);
        }
        self.drop_obsolete()
    }

    /// Sets the segments of one class whose volumes are placed by its own labels, such as a built-in provisioner's:
    /// objects of removed segments are deleted.
    pub fn set_class_segments(&mut self, class: &str, segments: BTreeSet<Segment>) -> Vec<Effect> {
        let segments: BTreeSet<Arc<Segment>> = segments.into_iter().map(Arc::new).collect();
        let before = self.own_segments.insert(class.to_owned(), segments.clone());
        if self.classes.contains_key(class) {
            let new: Vec<_> = segments.difference(&before.unwrap_or_default()).cloned().collect();
            self.enqueue_all(class, &new);
        }
        self.drop_obsolete()
    }

    fn enqueue_all(&mut self, class: &str, segments: &[Arc<Segment>]) {
        for segment in segments {
            self.enqueue(Item {
                class: class.to_owned(),
                segment: segment.clone(),
            });
        }
    }

    fn segments_of(&self, class: &str) -> &BTreeSet<Arc<Segment>> {
        self.own_segments.get(class).unwrap_or(&self.segments)
    }

    fn enqueue_matching(&mut self, matches: impl Fn(&Segment) -> bool) {
        let classes: Vec<String> = self.classes.keys().cloned().collect();
        for class in classes {
            let segments = self.segments_of(&class).iter().filter(|one| matches(one));
            let segments: Vec<_> = segments.cloned().collect();
            self.enqueue_all(&class, &segments);
        }
    }

    /// A class was added or changed.
    pub fn upsert_class(&mut self, class: &StorageClass) -> Vec<Effect> {
        let name = &class.metadata.name;
        let wanted = class.provisioner == self.settings.driver && (self.settings.immediate || class.is_delayed());
        if !wanted {
            return self.remove_class(name);
        }
        if self.classes.get(name) != Some(&class.parameters) {
            self.classes.insert(name.clone(), class.parameters.clone());
            let segments: Vec<_> = self.segments_of(name).iter().cloned().collect();
            self.enqueue_all(name, &segments);
        }
        Vec::new()
    }

    /// A class was deleted.
    pub fn remove_class(&mut self, name: &str) -> Vec<Effect> {
        self.own_segments.remove(name);
        if self.classes.remove(name).is_none() {
            return Vec::new();
        }
        self.drop_obsolete()
    }

    fn is_wanted(&self, item: &Item) -> bool {
        self.classes.contains_key(&item.class) && self.segments_of(&item.class).contains(&item.segment)
    }

    fn drop_obsolete(&mut self) -> Vec<Effect> {
        let mut gone: Vec<Item> = self.published.keys().cloned().collect();
        gone.retain(|item| !self.is_wanted(item));
        let (classes, common, own) = (&self.classes, &self.segments, &self.own_segments);
        let wanted = |item: &Item| {
            let segments = own.get(&item.class).unwrap_or(common);
            classes.contains_key(&item.class) && segments.contains(&item.segment)
        };
        self.queue.retain(wanted);
        self.queued.retain(wanted);
        self.failures.retain(|item, _| wanted(item));
        self.waiting.retain(|(_, item)| wanted(item));
        self.due.retain(|item, _| wanted(item));
        let objects: Vec<Published> = gone.iter().filter_map(|item| self.forget(item)).collect();
        let delete = |object: &Published| object::delete(&self.settings, &object.name, &object.uid);
        objects.iter().map(delete).collect()
    }

    fn forget(&mut self, item: &Item) -> Option<Published> {
        let object = self.published.remove(item)?;
        self.names.remove(&object.name);
        Some(object)
    }

    /// Applies an object of the cluster: ours are adopted, unneeded ones are deleted, and those of others are left
    /// alone.
    pub fn observe(&mut self, seen: &CsiStorageCapacity) -> Vec<Effect> {
        let labels = &seen.metadata.labels;
        let ours = labels.get(CAPACITY_DRIVER) == Some(&object::driver_label(&self.settings.driver))
            && labels.get(CAPACITY_MANAGED_BY) == Some(&self.settings.managed_by)
            && seen.metadata.namespace == self.settings.namespace;
        if !ours || seen.metadata.is_deleting() {
            return Vec::new();
        }
        let name = seen.metadata.name.clone();
        let segment = seen
            .node_topology
            .as_ref()
            .map(|selector| selector.match_labels.clone());
        let item = segment.map(|segment| Item {
            class: seen.storage_class_name.clone(),
            segment: Arc::new(segment),
        });
        let uid = seen.metadata.uid.clone();
        let Some(item) = item.filter(|item| self.is_wanted(item)) else {
            return vec![object::delete(&self.settings, &name, &uid)];
        };
        if self.published.get(&item).is_some_and(|known| known.name != name) {
            return vec![object::delete(&self.settings, &name, &uid)];
        }
        let available = Available {
            bytes: seen.capacity.map_or(0, |quantity| quantity.value()),
            maximum_volume_size: seen.maximum_volume_size.map(|quantity| quantity.value()),
        };
        self.names.insert(name.clone(), item.clone());
        let object = Published {
            name,
            uid,
            available: Some(available),
            seen: true,
        };
        let known = self.published.insert(item.clone(), object);
        if known.is_some_and(|known| known.available != Some(available)) {
            // Another writer changed it, or this is an echo of an older write: one query settles it.
            self.enqueue(item);
        }
        Vec::new()
    }

    /// An object was deleted: if it is still needed, it is recreated.
    pub fn observe_deleted(&mut self, name: &str) {
        if let Some(item) = self.names.remove(name) {
            self.published.remove(&item);
            self.enqueue(item);
        }
    }

    /// Queries everything again: capacity also changes without notification.
    pub fn refresh_all(&mut self) {
        self.enqueue_matching(|_| true);
    }

    /// A volume was created or deleted: its segments have changed, for all classes.
    pub fn volume_changed(&mut self, accessible: &[Place]) {
        self.enqueue_matching(|segment| {
            let agrees = |place: &Place| {
                let mut common = place
                    .iter()
                    .filter_map(|(key, values)| Some((segment.get(key)?, values)));
                common.all(|(value, values)| values.contains(value))
            };
            accessible.is_empty() || accessible.iter().any(agrees)
        });
    }

    fn enqueue(&mut self, item: Item) {
        if let Some(again) = self.asking.get_mut(&item) {
            *again = true;
            return;
        }
        if self.queued.insert(item.clone()) {
            if let Some(due) = self.due.remove(&item) {
                self.waiting.remove(&(due, item.clone()));
            }
            self.queue.push_back(item);
        }
    }

    /// Delays an item after a failure.
    fn put_off(&mut self, item: &Item, now: Duration) {
        let failures = self.failures.entry(item.clone()).or_default();
        *failures = failures.saturating_add(1);
        let due = now.saturating_add(Backoff::CALL.delay(*failures));
        if let Some(earlier) = self.due.insert(item.clone(), due) {
            self.waiting.remove(&(earlier, item.clone()));
        }
        self.waiting.insert((due, item.clone()));
    }

    /// What to query next. Each query must be answered with [`Self::answered`].
    pub fn next(&mut self, now: Duration) -> Option<Query> {
        while self.waiting.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, item)) = self.waiting.pop_first() {
                self.due.remove(&item);
                self.enqueue(item);
            }
        }
        let item = self.queue.pop_front()?;
        self.queued.remove(&item);
        self.asking.insert(item.clone(), false);
        let parameters = self.classes.get(&item.class).cloned().unwrap_or_default();
        Some(Query { item, parameters })
    }

    /// When the next failed item is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        self.waiting.first().map(|(due, _)| *due)
    }

    /// Number of items waiting to be queried.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len() + self.waiting.len()
    }

    /// Number of objects that should be published.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.classes.keys().map(|class| self.segments_of(class).len()).sum()
    }

    /// Number of published objects.
    #[must_use]
    pub fn published(&self) -> usize {
        self.published.len()
    }

    /// The driver responded or failed.
    pub fn answered(&mut self, item: &Item, answer: Option<Available>, now: Duration) -> Option<Effect> {
        let again = self.asking.remove(item).unwrap_or(false);
        if !self.is_wanted(item) {
            return None;
        }
        let Some(available) = answer else {
            self.put_off(item, now);
            return None;
        };
        if again {
            self.enqueue(item.clone());
        }
        match self.published.get_mut(item) {
            Some(object) if object.available == Some(available) => {
                self.failures.remove(item);
                None
            }
            Some(object) => {
                object.available = Some(available);
                Some(object::update(&self.settings, &object.name, &object.uid, available))
            }
            None => {
                let name = object::name(&self.settings, item);
                self.names.insert(name.clone(), item.clone());
                let object = Published {
                    name,
                    uid: String::new(),
                    available: Some(available),
                    seen: false,
                };
                self.published.insert(item.clone(), object);
                Some(object::create(&self.settings, item, available))
            }
        }
    }

    /// Whether an object publishes this item.
    #[must_use]
    pub fn is_published(&self, item: &Item) -> bool {
        self.published.contains_key(item)
    }

    /// A write succeeded.
    pub fn written(&mut self, item: &Item) {
        self.failures.remove(item);
        if let Some(object) = self.published.get_mut(item) {
            object.seen = true;
        }
    }

    /// A write failed or its result is unknown: the published state is uncertain, so it is queried and written again. If the
    /// object already existed, the watch will have shown it by then.
    pub fn write_failed(&mut self, item: &Item, now: Duration) {
        match self.published.get_mut(item) {
            // It exists, whatever its content: it is updated, and deleted when no longer needed.
            Some(object) if object.seen => object.available = None,
            Some(_) => drop(self.forget(item)),
            None => {}
        }
        if self.is_wanted(item) {
            self.put_off(item, now);
        }
    }
}
