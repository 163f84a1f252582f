//! Replaces names in a snapshot, so that nobody can tell whose cluster it is.
//!
//! Names are replaced word by word: `data-db-0` becomes `w1-w2-0`, and `db` becomes `w2` everywhere. So names that are
//! made from others (a claim of a StatefulSet, say) still belong together, and selectors select what they did. Numbers
//! stay, as ordinals and comparisons need them. Quantities, kinds, keys of Kubernetes' own labels, and names of drivers,
//! resources and schedulers stay as well: decisions depend on them.

use berth_core::names;
use berth_kube::REPORTS;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Words that mean something to decisions, or that every cluster has.
const COMMON: &[&str] = &[
    "arm64",
    "amd64",
    "default",
    "docker",
    "false",
    "io",
    "kube",
    "kubernetes",
    "latest",
    "library",
    "linux",
    "no",
    "pv",
    "pvc",
    "replace",
    "sha256",
    "system",
    "true",
    "windows",
    "yes",
];

/// Domains whose label and taint keys are public.
const PUBLIC_DOMAINS: &[&str] = &["kubernetes.io", "k8s.io", "berth.dev"];

/// Fields that hold the name of something.
const NAMES: &[&str] = &[
    "name",
    "namespace",
    "generateName",
    "nodeName",
    "nominatedNodeName",
    "volumeName",
    "storageClassName",
    "claimName",
    "persistentVolumeName",
    "serviceName",
    "externalName",
    "priorityClassName",
    "volumeAttributesClassName",
    "currentVolumeAttributesClassName",
    "currentRevision",
    "updateRevision",
    "image",
    "reference",
    "value",
    "volumeHandle",
    "nodeID",
    "volumeID",
    "pdName",
    "diskName",
    "diskURI",
    "targetPortal",
    "iqn",
    "pool",
    "path",
];

/// Lists of such names.
const NAME_LISTS: &[&str] = &["values", "namespaces", "names", "nodeList", "monitors"];

/// Fields that hold the key of a label or taint.
const KEYS: &[&str] = &["key", "topologyKey"];

/// Lists of such keys.
const KEY_LISTS: &[&str] = &["topologyKeys", "matchLabelKeys", "mismatchLabelKeys"];

/// Replaces the names in all objects.
pub(super) fn anonymize(objects: &mut [Value]) {
    let mut words = Words::default();
    for object in objects {
        // A driver's name is how its class, its nodes and its volumes find each other, and is public.
        let is_driver = object["kind"] == "CSIDriver" || object["kind"] == REPORTS.kind;
        let driver = is_driver.then(|| object["metadata"]["name"].clone());
        words.object("", object);
        if let Some(name) = driver {
            object["metadata"]["name"] = name;
        }
    }
}

#[derive(Default)]
struct Words {
    replaced: BTreeMap<String, String>,
}

impl Words {
    /// A name with its words replaced.
    fn name(&mut self, text: &str) -> String {
        // Two words that stand for classes in what drivers report.
        if ["<fallback>", "<ephemeral>"].contains(&text) {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let in_word = first.is_alphanumeric();
            let end = rest
                .find(|c: char| c.is_alphanumeric() != in_word)
                .unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            if in_word {
                out.push_str(&self.word(run));
            } else {
                out.push_str(run);
            }
            rest = after;
        }
        out
    }

    fn word(&mut self, word: &str) -> String {
        if word.chars().all(|c| c.is_ascii_digit()) || COMMON.contains(&word) {
            return word.to_owned();
        }
        let next = self.replaced.len() + 1;
        let replaced = self.replaced.entry(word.to_owned());
        replaced.or_insert_with(|| format!("w{next}")).clone()
    }

    fn label_key(&mut self, key: &str) -> String {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_below = |public: &&str| domain == *public || domain.ends_with(&format!(".{public}"));
        if key == "metadata.name" || PUBLIC_DOMAINS.iter().any(is_below) {
            return key.to_owned();
        }
        self.name(key)
    }

    fn object(&mut self, at: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => match at {
                "labels" | "matchLabels" | "nodeSelector" => self.labels(fields),
                "selector" if fields.values().all(Value::is_string) => self.labels(fields),
                "annotations" => self.annotations(fields),
                "parameters" => self.parameters(fields),
                "disruptedPods" => fields.clear(),
                _ => fields.iter_mut().for_each(|(key, value)| self.field(at, key, value)),
            },
            Value::Array(items) => {
                for item in items {
                    match item {
                        Value::String(text) if NAME_LISTS.contains(&at) => *text = self.name(text),
                        Value::String(text) if KEY_LISTS.contains(&at) => *text = self.label_key(text),
                        // One without a domain is of Kubernetes.
                        Value::String(text) if at == "finalizers" && text.contains('/') => *text = self.label_key(text),
                        Value::Object(owner) if at == "ownerReferences" => self.owner(owner),
                        item => self.object(at, item),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// An owner of somebody's own kind tells what runs here.
    fn owner(&mut self, owner: &mut Map<String, Value>) {
        let group = owner.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let own = group.split_once('.').is_some() && self.label_key(group) != group;
        for (key, value) in owner {
            match value {
                Value::String(text) if key == "name" || own && (key == "apiVersion" || key == "kind") => {
                    *text = self.name(text);
                }
                _ => {}
            }
        }
    }

    fn field(&mut self, at: &str, key: &str, value: &mut Value) {
        match value {
            // The drivers of a node.
            Value::String(_) if at == "drivers" && key == "name" => {}
            Value::String(text) if NAMES.contains(&key) => *text = self.name(text),
            Value::String(text) if KEYS.contains(&key) => *text = self.label_key(text),
            value => self.object(key, value),
        }
    }

    fn labels(&mut self, labels: &mut Map<String, Value>) {
        *labels = std::mem::take(labels)
            .into_iter()
            .map(|(key, value)| match value {
                Value::String(text) if key != names::CAPACITY_DRIVER => {
                    (self.label_key(&key), Value::String(self.name(&text)))
                }
                value => (key, value),
            })
            .collect();
    }

    fn annotations(&mut self, annotations: &mut Map<String, Value>) {
        // It quotes labels in a text of its own.
        annotations.remove(names::ATTEMPT);
        for key in [
            names::SELECTED_NODE,
            names::SELECTED_NODE_ALPHA,
            names::STORAGE_CLASS_BETA,
        ] {
            if let Some(Value::String(text)) = annotations.get_mut(key) {
                *text = self.name(text);
            }
        }
    }

    /// Parameters of the built-in provisioners, of which some name label values, pools and label keys.
    fn parameters(&mut self, parameters: &mut Map<String, Value>) {
        *parameters = std::mem::take(parameters)
            .into_iter()
            .map(|(key, value)| match (key.split_once("berth.dev/"), value) {
                (Some(("", "topology-keys")), Value::String(keys)) => {
                    let keys: Vec<String> = keys.split(',').map(|key| self.label_key(key)).collect();
                    (key, keys.join(",").into())
                }
                (Some(("", "pool" | "path")), Value::String(text)) => (key, self.name(&text).into()),
                (Some(("", own)), value) => match own.split_once('.') {
                    Some(("capacity", segment)) => (format!("berth.dev/capacity.{}", self.name(segment)), value),
                    _ => (key, value),
                },
                (_, value) => (key, value),
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::anonymize;
    use serde_json::json;

    #[test]
    fn what_belongs_together_still_does() {
        let mut objects = [
            json!({"kind": "Pod", "metadata": {"name": "db-0", "namespace": "default", "labels": {"team": "blue"}},
                "spec": {"nodeSelector": {"topology.kubernetes.io/zone": "north-1"},
                    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}],
                    "containers": [{"image": "docker.io/library/secret:1.2", "resources": {"requests": {"cpu": "2"}}}]}}),
            json!({"kind": "Service", "spec": {"selector": {"team": "blue"}}}),
            json!({"kind": "Node", "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "north-1"}},
                "spec": {"taints": [{"key": "team", "value": "blue", "effect": "NoSchedule"}]}}),
            json!({"kind": "CSIDriver", "metadata": {"name": "disk.example.com"}}),
            json!({"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": [{"name": "disk.example.com"}]}}),
        ];
        anonymize(&mut objects);
        let [pod, service, node, driver, csi_node] = &objects;
        assert_eq!(
            pod,
            &json!({"kind": "Pod", "metadata": {"name": "w3-0", "namespace": "default", "labels": {"w1": "w2"}},
                "spec": {"nodeSelector": {"topology.kubernetes.io/zone": "w5-1"},
                    "volumes": [{"name": "w6", "persistentVolumeClaim": {"claimName": "w6-w3-0"}}],
                    "containers": [{"image": "docker.io/library/w4:1.2", "resources": {"requests": {"cpu": "2"}}}]}})
        );
        assert_eq!(service["spec"]["selector"], json!({"w1": "w2"}));
        assert_eq!(
            node["metadata"]["labels"],
            json!({"topology.kubernetes.io/zone": "w5-1"})
        );
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "w1", "value": "w2", "effect": "NoSchedule"}])
        );
        assert_eq!(driver["metadata"]["name"], "disk.example.com");
        assert_eq!(csi_node["spec"]["drivers"][0]["name"], "disk.example.com");
        assert_eq!(csi_node["metadata"]["name"], node["metadata"]["name"]);
    }

    #[test]
    fn kinds_of_ones_own_tell_nothing() {
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u"});
        let own = json!({"apiVersion": "shop.example.com/v1", "kind": "Basket", "name": "db", "uid": "u"});
        let finalizers = json!(["kubernetes.io/pvc-protection", "shop.example.com/sweep", "orphan"]);
        let mut objects = [json!({"metadata": {"ownerReferences": [set, own], "finalizers": finalizers}})];
        anonymize(&mut objects);
        let metadata = &objects[0]["metadata"];
        assert_eq!(metadata["ownerReferences"][0]["kind"], "StatefulSet");
        assert_eq!(
            metadata["ownerReferences"][0]["name"],
            metadata["ownerReferences"][1]["name"]
        );
        assert_eq!(metadata["finalizers"][0], "kubernetes.io/pvc-protection");
        assert_eq!(metadata["finalizers"][2], "orphan");
        let text = objects[0].to_string();
        assert!(
            !["shop", "Basket", "sweep"].iter().any(|word| text.contains(word)),
            "{text}"
        );
    }
}
