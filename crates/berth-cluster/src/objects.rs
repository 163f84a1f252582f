//! The objects that steps read: a view, and its in-memory implementation.

use super::field;
use berth_core::effect::ObjectKey;
use berth_kinds::Kind;
use serde_json::Value;
use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What steps may read. Objects are ordered by namespace and name, so that the same objects give the same effects.
/// Every object has its `kind` and `apiVersion` (items of a List from an API server do not: add them).
pub trait View {
    /// One object. The namespace is empty for cluster-scoped objects.
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value>;
    /// All objects of a kind.
    fn of_kind<'a>(&'a self, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
    /// The objects of any kind with this UID as an owner.
    fn dependents<'a>(&'a self, uid: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
    /// Those of one kind.
    fn dependents_of_kind<'a>(&'a self, uid: &str, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
    /// A number that grows with every change of a pod.
    fn version(&self) -> u64;
    /// The names of the pods that the StatefulSet with this UID controls, or did, and that changed since a version: some of them more than
    /// once. `None` if the changes are no longer recorded.
    fn changed_pods<'a>(&'a self, uid: &str, since: u64) -> Option<Box<dyn Iterator<Item = &'a str> + 'a>>;
    /// The pods that are bound to a node.
    fn pods_on<'a>(&'a self, node: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
}

/// The key of an object.
#[must_use]
pub fn key_of(object: &Value) -> ObjectKey {
    key_for(field::kind(object), field::namespace(object), field::name(object))
}

/// A key from its parts. The most frequent kinds do not allocate.
#[must_use]
pub fn key_for(kind: &str, namespace: &str, name: &str) -> ObjectKey {
    const FREQUENT: [&str; 12] = [
        "Pod",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "Node",
        "StatefulSet",
        "ReplicaSet",
        "Deployment",
        "DaemonSet",
        "Job",
        "Lease",
        "CSIStorageCapacity",
        "PodDisruptionBudget",
    ];
    match FREQUENT.iter().find(|known| **known == kind) {
        Some(known) => ObjectKey::new(*known, namespace, name),
        None => ObjectKey::new(kind.to_owned(), namespace, name),
    }
}

/// The names of the claims that a pod uses, including those of its ephemeral volumes.
pub fn claims_of(pod: &Value) -> impl Iterator<Item = Cow<'_, str>> {
    field::items(pod, "/spec/volumes").iter().filter_map(|volume| {
        let named = field::text(volume, "/persistentVolumeClaim/claimName");
        if !named.is_empty() {
            return Some(named.into());
        }
        let is_ephemeral = volume["ephemeral"].is_object();
        is_ephemeral.then(|| format!("{}-{}", field::name(pod), field::text(volume, "/name")).into())
    })
}

type NamespacedName = (String, String);
/// Objects of one kind by namespace and name, so that a lookup needs no allocated key.
type Namespaces = BTreeMap<String, BTreeMap<String, Value>>;

/// Objects in memory with the indexes that steps need.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    kinds: BTreeMap<String, Namespaces>,
    dependents: BTreeMap<String, BTreeSet<ObjectKey>>,
    pods_by_node: BTreeMap<String, BTreeSet<NamespacedName>>,
    /// Names of pods by namespace and name of a claim.
    pods_by_claim: BTreeMap<NamespacedName, BTreeSet<String>>,
    /// The latest changes of pods, by the UID of the StatefulSet that controls them.
    changed_pods: BTreeMap<String, ChangedPods>,
    version: u64,
}

/// Maximum number of changes of pods recorded for a StatefulSet. Its controller usually reads them one by one; a few steps create this many.
const MAX_CHANGES: usize = 1024;

/// The latest changes of a StatefulSet's pods.
#[derive(Clone, Debug)]
struct ChangedPods {
    /// Changes after this version are recorded.
    since: u64,
    /// Versions and names of pods.
    changes: VecDeque<(u64, String)>,
}

impl Objects {
    /// Adds an object, replacing the one with the same kind and name. An older version than the known one is ignored: a
    /// response to a write can be ahead of the watch.
    pub fn insert(&mut self, object: Value) {
        let key = key_of(&object);
        if let Some(known) = self.find_mut(&key) {
            if is_newer(known, &object) {
                return;
            }
            if is_indexed_alike(known, &object) {
                *known = object;
                return self.note_change(&key);
            }
        }
        self.remove(&key);
        self.index(&key, &object);
        let namespaces = match self.kinds.get_mut(&*key.kind) {
            Some(known) => known,
            None => self.kinds.entry(key.kind.into_owned()).or_default(),
        };
        let names = match namespaces.get_mut(&key.namespace) {
            Some(known) => known,
            None => namespaces.entry(key.namespace).or_default(),
        };
        names.insert(key.name, object);
    }

    /// Whether an object is not news: this or a later state of it is known, or a newer object with its name. For objects of
    /// one server, whose resource versions are increasing numbers.
    #[must_use]
    pub fn knows(&self, object: &Value) -> bool {
        let known = self.find(&key_of(object)).and_then(version);
        known.zip(version(object)).is_some_and(|(known, told)| known >= told)
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Value> {
        let object = self
            .kinds
            .get_mut(&*key.kind)?
            .get_mut(&key.namespace)?
            .remove(&key.name)?;
        self.unindex(key, &object);
        Some(object)
    }

    /// An object by its key.
    #[must_use]
    pub fn find(&self, key: &ObjectKey) -> Option<&Value> {
        self.get(&key.kind, &key.namespace, &key.name)
    }

    /// The pods of a namespace that use a claim.
    pub fn pods_using<'a>(&'a self, namespace: &str, claim: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let claim = (namespace.to_owned(), claim.to_owned());
        let pods = self.kinds.get("Pod").and_then(|pods| pods.get(namespace));
        let names = self.pods_by_claim.get(&claim).into_iter().flatten();
        names.filter_map(move |name| pods?.get(name))
    }

    fn find_mut(&mut self, key: &ObjectKey) -> Option<&mut Value> {
        self.kinds
            .get_mut(&*key.kind)?
            .get_mut(&key.namespace)?
            .get_mut(&key.name)
    }

    /// Takes an object to be changed; [`Self::give_back`] must follow before the next read.
    pub(crate) fn take(&mut self, key: &ObjectKey, changes_indexes: bool) -> Option<Value> {
        if changes_indexes {
            return self.remove(key);
        }
        self.find_mut(key).map(std::mem::take)
    }

    /// Returns a taken object in its new state.
    pub(crate) fn give_back(&mut self, key: &ObjectKey, object: Value) {
        match self.find_mut(key) {
            Some(place) => {
                *place = object;
                self.note_change(key);
            }
            None => self.insert(object),
        }
    }

    /// Records a change of a pod for the StatefulSet that controls it.
    fn note_change(&mut self, key: &ObjectKey) {
        if key.kind == "Pod"
            && let Some(owner) = self.find(key).and_then(field::controller_of)
        {
            let uid = field::text(owner, "/uid").to_owned();
            self.pod_changed(&uid, &key.name);
        }
    }

    fn pod_changed(&mut self, owner: &str, name: &str) {
        self.version += 1;
        let Some(changed) = self.changed_pods.get_mut(owner) else {
            return;
        };
        if changed.changes.len() == MAX_CHANGES
            && let Some((version, _)) = changed.changes.pop_front()
        {
            changed.since = version;
        }
        changed.changes.push_back((self.version, name.to_owned()));
    }

    /// Records that a pod was added to or removed from the indexes, or a StatefulSet was.
    fn note_entry(&mut self, key: &ObjectKey, object: &Value, is_added: bool) {
        match &*key.kind {
            "Pod" => {
                if let Some(owner) = field::controller_of(object) {
                    self.pod_changed(field::text(owner, "/uid"), &key.name);
                }
            }
            "StatefulSet" if is_added => {
                let (since, changes) = (self.version, VecDeque::new());
                let changed = ChangedPods { since, changes };
                self.changed_pods.insert(field::uid(object).to_owned(), changed);
            }
            "StatefulSet" => {
                self.changed_pods.remove(field::uid(object));
            }
            _ => {}
        }
    }

    fn index(&mut self, key: &ObjectKey, object: &Value) {
        self.note_entry(key, object, true);
        for owner in field::items(object, "/metadata/ownerReferences") {
            let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
            self.dependents.entry(uid).or_default().insert(key.clone());
        }
        if key.kind == "Pod" {
            let node = field::text(object, "/spec/nodeName").to_owned();
            let name = (key.namespace.clone(), key.name.clone());
            self.pods_by_node.entry(node).or_default().insert(name);
            for claim in claims_of(object) {
                let claim = (key.namespace.clone(), claim.into_owned());
                self.pods_by_claim.entry(claim).or_default().insert(key.name.clone());
            }
        }
    }

    fn unindex(&mut self, key: &ObjectKey, object: &Value) {
        self.note_entry(key, object, false);
        for owner in field::items(object, "/metadata/ownerReferences") {
            forget(&mut self.dependents, owner["uid"].as_str().unwrap_or_default(), key);
        }
        if key.kind == "Pod" {
            let name = (key.namespace.clone(), key.name.clone());
            forget(&mut self.pods_by_node, field::text(object, "/spec/nodeName"), &name);
            for claim in claims_of(object) {
                let claim = (key.namespace.clone(), claim.into_owned());
                forget(&mut self.pods_by_claim, &claim, &key.name);
            }
        }
    }

    /// Every object, by kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.kinds
            .values()
            .flat_map(BTreeMap::values)
            .flat_map(BTreeMap::values)
    }
}

/// Removes one member from an index, and the entry with its last member.
fn forget<K, Q, T>(index: &mut BTreeMap<K, BTreeSet<T>>, entry: &Q, member: &T)
where
    K: Ord + Borrow<Q>,
    Q: Ord + ?Sized,
    T: Ord,
{
    if let Some(members) = index.get_mut(entry) {
        members.remove(member);
        if members.is_empty() {
            index.remove(entry);
        }
    }
}

/// Whether two states of an object have the same entries in every index.
fn is_indexed_alike(known: &Value, object: &Value) -> bool {
    let is_pod = field::kind(object) == "Pod";
    let same = |path: &str| field::at(known, path) == field::at(object, path);
    same("/metadata/ownerReferences") && (!is_pod || same("/spec/nodeName") && same("/spec/volumes"))
}

/// Whether the known state of an object is newer than this one. Resource versions of one server are numbers; those of
/// another object with the same name, or that are not numbers, cannot be compared.
fn is_newer(known: &Value, object: &Value) -> bool {
    field::uid(known) == field::uid(object)
        && version(known)
            .zip(version(object))
            .is_some_and(|(known, found)| known > found)
}

fn version(object: &Value) -> Option<u64> {
    field::text(object, "/metadata/resourceVersion").parse().ok()
}

impl View for Objects {
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.kinds.get(kind)?.get(namespace)?.get(name)
    }

    fn of_kind<'a>(&'a self, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        let same_kind = self.kinds.get(kind).into_iter();
        Box::new(same_kind.flat_map(BTreeMap::values).flat_map(BTreeMap::values))
    }

    fn dependents<'a>(&'a self, uid: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        let keys = self.dependents.get(uid).into_iter().flatten();
        Box::new(keys.filter_map(|key| self.find(key)))
    }

    fn dependents_of_kind<'a>(&'a self, uid: &str, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        let first = key_for(kind, "", "");
        let kind = first.kind.clone();
        let keys = self.dependents.get(uid).into_iter();
        let keys = keys.flat_map(move |keys| keys.range(first.clone()..));
        Box::new(
            keys.take_while(move |key| key.kind == kind)
                .filter_map(|key| self.find(key)),
        )
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn changed_pods<'a>(&'a self, uid: &str, since: u64) -> Option<Box<dyn Iterator<Item = &'a str> + 'a>> {
        let changed = self.changed_pods.get(uid).filter(|changed| changed.since <= since)?;
        let read = changed.changes.partition_point(|(version, _)| *version <= since);
        Some(Box::new(changed.changes.range(read..).map(|(_, name)| name.as_str())))
    }

    fn pods_on<'a>(&'a self, node: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        let pods = self.kinds.get("Pod");
        let names = self.pods_by_node.get(node).into_iter().flatten();
        Box::new(names.filter_map(move |(namespace, name)| pods?.get(namespace)?.get(name)))
    }
}

// Not imported: a view has its own `get`.
impl berth_kinds::admission::Lookup for Objects {
    fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Cow<'_, Value>> {
        View::get(self, kind.name, namespace, name).map(Cow::Borrowed)
    }

    fn all<'a>(&'a self, kind: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
        Box::new(self.of_kind(kind.name).map(Cow::Borrowed))
    }
}

impl Extend<Value> for Objects {
    fn extend<T: IntoIterator<Item = Value>>(&mut self, objects: T) {
        objects.into_iter().for_each(|object| self.insert(object));
    }
}

impl FromIterator<Value> for Objects {
    fn from_iter<T: IntoIterator<Item = Value>>(objects: T) -> Self {
        let mut all = Self::default();
        all.extend(objects);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(version: &str, node: &str, owner: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node}, "metadata": {
            "namespace": "default", "name": "p", "uid": "1", "resourceVersion": version, "ownerReferences": [{"uid": owner}]}})
    }

    #[test]
    fn indexes_follow_an_object() {
        let mut objects: Objects = [pod("1", "n1", "a")].into_iter().collect();
        assert_eq!(objects.pods_on("n1").count(), 1);
        objects.insert(pod("2", "n2", "b"));
        let counts = |objects: &Objects| {
            let nodes = ["n1", "n2"].map(|node| objects.pods_on(node).count());
            (nodes, ["a", "b"].map(|uid| objects.dependents(uid).count()))
        };
        assert_eq!(counts(&objects), ([0, 1], [0, 1]));
        objects.remove(&key_for("Pod", "default", "p"));
        assert_eq!(counts(&objects), ([0, 0], [0, 0]));
        assert!(objects.dependents.is_empty() && objects.pods_by_node.is_empty() && objects.pods_by_claim.is_empty());
    }

    #[test]
    fn a_late_watch_event_does_not_undo_an_answer() {
        let mut objects: Objects = [pod("10", "n1", "a")].into_iter().collect();
        objects.insert(pod("9", "", "a"));
        assert_eq!(objects.pods_on("n1").count(), 1);
    }
}
