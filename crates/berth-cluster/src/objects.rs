//! The objects that steps read: a view, and the one kept in memory.

use super::field;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What steps may read. Objects come in the order of namespace and name, so that the same objects give the same
/// effects. Every object carries its `kind` and `apiVersion` (items of a List from an API server do not: put them in).
pub trait View {
    /// One object. The namespace is empty for objects of the cluster.
    fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value>;
    /// All objects of a kind.
    fn of_kind<'a>(&'a self, kind: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
    /// The objects of any kind that name the object of this uid as an owner.
    fn dependents<'a>(&'a self, uid: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
    /// The pods that are bound to a node.
    fn pods_on<'a>(&'a self, node: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a>;
}

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Kind.
    pub kind: String,
    /// Namespace, empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    #[must_use]
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The key of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::new(field::kind(object), field::namespace(object), field::name(object))
    }
}

type NamespacedName = (String, String);
/// Objects of one kind by namespace and name, so that a look-up needs no key of its own.
type Namespaces = BTreeMap<String, BTreeMap<String, Value>>;

/// Objects in memory with the indexes that steps need.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    kinds: BTreeMap<String, Namespaces>,
    dependents: BTreeMap<String, BTreeSet<Key>>,
    pods_by_node: BTreeMap<String, BTreeSet<NamespacedName>>,
}

impl Objects {
    /// Puts an object in, in place of the one of the same kind and name. A version older than the one that is there
    /// is passed over: an answer to a write can be ahead of the watch.
    pub fn insert(&mut self, object: Value) {
        let key = Key::of(&object);
        if self
            .get(&key.kind, &key.namespace, &key.name)
            .is_some_and(|known| is_newer(known, &object))
        {
            return;
        }
        self.remove(&key);
        for owner in field::items(&object, "/metadata/ownerReferences") {
            let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
            self.dependents.entry(uid).or_default().insert(key.clone());
        }
        if key.kind == "Pod" {
            let node = field::text(&object, "/spec/nodeName").to_owned();
            let name = (key.namespace.clone(), key.name.clone());
            self.pods_by_node.entry(node).or_default().insert(name);
        }
        let same_kind = self.kinds.entry(key.kind).or_default();
        same_kind.entry(key.namespace).or_default().insert(key.name, object);
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &Key) -> Option<Value> {
        let name = (key.namespace.clone(), key.name.clone());
        let object = self
            .kinds
            .get_mut(&key.kind)?
            .get_mut(&key.namespace)?
            .remove(&key.name)?;
        for owner in field::items(&object, "/metadata/ownerReferences") {
            let uid = owner["uid"].as_str().unwrap_or_default();
            forget(&mut self.dependents, uid, key);
        }
        if key.kind == "Pod" {
            forget(&mut self.pods_by_node, field::text(&object, "/spec/nodeName"), &name);
        }
        Some(object)
    }

    /// Every object, by kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Value> {
        self.kinds
            .values()
            .flat_map(BTreeMap::values)
            .flat_map(BTreeMap::values)
    }
}

/// Takes one member out of an index, and the entry with its last member.
fn forget<T: Ord>(index: &mut BTreeMap<String, BTreeSet<T>>, entry: &str, member: &T) {
    if let Some(members) = index.get_mut(entry) {
        members.remove(member);
        if members.is_empty() {
            index.remove(entry);
        }
    }
}

/// Whether the known state of an object came after the one at hand. Resource versions of one server are numbers;
/// those of another object of the same name, or no numbers at all, say nothing.
fn is_newer(known: &Value, object: &Value) -> bool {
    let version = |of: &Value| field::text(of, "/metadata/resourceVersion").parse::<u64>().ok();
    field::uid(known) == field::uid(object)
        && version(known)
            .zip(version(object))
            .is_some_and(|(known, found)| known > found)
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
        Box::new(keys.filter_map(|key| self.get(&key.kind, &key.namespace, &key.name)))
    }

    fn pods_on<'a>(&'a self, node: &str) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        let pods = self.kinds.get("Pod");
        let names = self.pods_by_node.get(node).into_iter().flatten();
        Box::new(names.filter_map(move |(namespace, name)| pods?.get(namespace)?.get(name)))
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
        objects.remove(&Key::new("Pod", "default", "p"));
        assert_eq!(counts(&objects), ([0, 0], [0, 0]));
        assert!(objects.dependents.is_empty() && objects.pods_by_node.is_empty());
    }

    #[test]
    fn a_late_watch_event_does_not_undo_an_answer() {
        let mut objects: Objects = [pod("10", "n1", "a")].into_iter().collect();
        objects.insert(pod("9", "", "a"));
        assert_eq!(objects.pods_on("n1").count(), 1);
    }
}
