//! Replaces names in a snapshot, so that the cluster cannot be identified.
//!
//! Names are replaced word by word: `data-db-0` becomes `w1-w2-0`, and `db` becomes `w2` everywhere. Derived names (for example, a claim of
//! a StatefulSet) therefore still match, and selectors select the same objects. Numbers are kept, because ordinals and comparisons need
//! them, except identifying ones: addresses, also in names such as `ip-10-0-1-23`, numbers as long as account numbers, and UIDs.
//! Quantities, kinds, keys of Kubernetes' own labels, and names of drivers, resources and schedulers are kept as well: decisions depend on
//! them.

use super::names::Names;
use crate::component::{BERTH_LEASE, KUBE_LEASE};
use berth_cluster::names as workload_names;
use berth_core::clean::Rollback;
use berth_core::hold::Hold;
use berth_core::names;
use berth_kube::REPORTS;
use berth_kube::announce::ANNOUNCED_BY;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A number with this many digits may be an account, a project or a time. Ports, ordinals and sizes are shorter.
const DIGITS_MAX: usize = 7;

/// Fields with an address that a server assigns again.
const CHOSEN_ADDRESSES: &[&str] = &["clusterIP", "clusterIPs"];

/// Words that affect decisions, or that every cluster has.
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

/// Label keys without a domain that Kubernetes itself sets on pods. Workloads find their revisions by them.
const PUBLIC_KEYS: &[&str] = &[
    "metadata.name",
    workload_names::POD_TEMPLATE_HASH,
    workload_names::CONTROLLER_REVISION_HASH,
    workload_names::JOB_NAME_LEGACY,
    workload_names::CONTROLLER_UID_LEGACY,
];

/// Domains whose label and taint keys are public.
const PUBLIC_DOMAINS: &[&str] = &["kubernetes.io", "k8s.io", "berth.dev"];

/// Fields with a name.
const NAMES: &[&str] = &[
    "name",
    "namespace",
    "generateName",
    "nodeName",
    "holderIdentity",
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

/// Fields with a label or taint key.
const KEYS: &[&str] = &["key", "topologyKey"];

/// Lists of such keys.
const KEY_LISTS: &[&str] = &["topologyKeys", "matchLabelKeys", "mismatchLabelKeys"];

/// Replaces the names in all objects. Returns the original of each replacement.
pub(super) fn anonymize(objects: &mut [Value]) -> Names {
    let mut words = Words::default();
    for object in objects {
        if object["kind"] == "Event"
            && let Some(fields) = object.as_object_mut()
        {
            // A message can quote anything.
            fields.remove("message");
        }
        // A driver's name connects its class, its nodes and its volumes, and is public.
        let is_driver = object["kind"] == "CSIDriver" || object["kind"] == REPORTS.kind;
        // A scheduler's lease shows that the scheduler runs, by its name.
        let is_scheduler = object["kind"] == "Lease"
            && object["metadata"]["name"].as_str().is_some_and(|name| {
                name == KUBE_LEASE || name.split_once('.').map_or(name, |(first, _)| first) == BERTH_LEASE
            });
        let public = (is_driver || is_scheduler).then(|| object["metadata"]["name"].clone());
        words.object("", object);
        if let Some(name) = public {
            object["metadata"]["name"] = name;
        }
    }
    words.into_names()
}

#[derive(Default)]
struct Words {
    replaced: BTreeMap<String, String>,
    uids: BTreeMap<String, String>,
    addresses: BTreeMap<IpAddr, IpAddr>,
}

impl Words {
    fn into_names(self) -> Names {
        let words = self.replaced.into_iter().chain(self.uids);
        let addresses = self.addresses.into_iter();
        let addresses = addresses.map(|(address, replaced)| (address.to_string(), replaced.to_string()));
        Names::new(words.chain(addresses))
    }

    /// A name with its words replaced.
    fn name(&mut self, text: &str) -> String {
        // Two special class names in drivers' reports.
        if [names::FALLBACK_CLASS, names::EPHEMERAL_CLASS].contains(&text) {
            return text.to_owned();
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let in_word = first.is_alphanumeric();
            if in_word && let Some((whole, after)) = split_whole(rest) {
                out.push_str(&self.whole(whole));
                rest = after;
                continue;
            }
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
        let is_number = word.len() <= DIGITS_MAX && word.chars().all(|c| c.is_ascii_digit());
        if is_number || COMMON.contains(&word) {
            return word.to_owned();
        }
        self.replacement(word)
    }

    /// A name that must be replaced as a whole: its parts would identify it.
    fn whole(&mut self, text: &str) -> String {
        if is_uid(text) {
            self.uid(text)
        } else {
            self.replacement(text)
        }
    }

    /// A realistic UID.
    fn uid(&mut self, uid: &str) -> String {
        let next = self.uids.len() + 1;
        let replaced = self.uids.entry(uid.to_owned());
        replaced
            .or_insert_with(|| format!("00000000-0000-4000-8000-{next:012}"))
            .clone()
    }

    /// An unused address: from the ranges for benchmarks and documentation.
    fn address(&mut self, address: IpAddr) -> IpAddr {
        let next = u32::try_from(self.addresses.len() + 1).unwrap_or(u32::MAX);
        *self.addresses.entry(address).or_insert_with(|| match address {
            IpAddr::V4(_) => Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() | (next & 0x1_ffff)).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(next)).into(),
        })
    }

    fn replacement(&mut self, word: &str) -> String {
        let next = self.replaced.len() + 1;
        let replaced = self.replaced.entry(word.to_owned());
        replaced.or_insert_with(|| format!("w{next}")).clone()
    }

    fn label_key(&mut self, key: &str) -> String {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_below = |public: &&str| domain == *public || domain.ends_with(&format!(".{public}"));
        if PUBLIC_KEYS.contains(&key) || PUBLIC_DOMAINS.iter().any(is_below) {
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
                _ => {
                    fields.retain(|key, value| !CHOSEN_ADDRESSES.contains(&key.as_str()) || !holds_address(value));
                    fields.iter_mut().for_each(|(key, value)| self.field(at, key, value));
                }
            },
            Value::Array(items) => {
                for item in items {
                    match item {
                        Value::String(text) if NAME_LISTS.contains(&at) => *text = self.name(text),
                        Value::String(text) if KEY_LISTS.contains(&at) => *text = self.label_key(text),
                        // A finalizer without a domain belongs to Kubernetes.
                        Value::String(text) if at == "finalizers" && text.contains('/') => *text = self.label_key(text),
                        Value::Object(owner) if at == "ownerReferences" => self.owner(owner),
                        item => self.object(at, item),
                    }
                }
            }
            Value::String(text) => {
                if let Ok(address) = text.parse() {
                    *text = self.address(address).to_string();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// An owner of a custom kind reveals what runs here.
    fn owner(&mut self, owner: &mut Map<String, Value>) {
        let group = owner.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let own = group.split_once('.').is_some() && self.label_key(group) != group;
        for (key, value) in owner {
            match value {
                Value::String(text) if key == "uid" => *text = self.uid(text),
                Value::String(text) if key == "name" || own && (key == "apiVersion" || key == "kind") => {
                    *text = self.name(text);
                }
                _ => {}
            }
        }
    }

    fn field(&mut self, at: &str, key: &str, value: &mut Value) {
        match value {
            Value::String(text) if key == "uid" => *text = self.uid(text),
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
        // It quotes labels in its own text.
        annotations.remove(names::ATTEMPT);
        for key in [
            names::SELECTED_NODE,
            names::SELECTED_NODE_ALPHA,
            names::STORAGE_CLASS_BETA,
            ANNOUNCED_BY,
        ] {
            if let Some(Value::String(text)) = annotations.get_mut(key) {
                *text = self.name(text);
            }
        }
        for key in [names::HELD_FOR, names::MADE_FOR] {
            self.mark(annotations, key, |hidden, text| {
                let hold = Hold::parse(text)?;
                let hold = Hold {
                    pod: hidden.name(&hold.pod).into(),
                    pod_uid: hidden.uid(&hold.pod_uid).into(),
                    claim_uid: hidden.uid(&hold.claim_uid).into(),
                    attempt: hold.attempt,
                };
                Some(hold.to_string())
            });
        }
        self.mark(annotations, names::ROLLED_BACK_FOR, |hidden, text| {
            let rollback = Rollback::parse(text)?;
            let rollback = Rollback {
                pod: hidden.name(&rollback.pod).into(),
                pod_uid: hidden.uid(&rollback.pod_uid).into(),
                claim_uid: hidden.uid(&rollback.claim_uid).into(),
            };
            Some(rollback.to_string())
        });
        self.mark(annotations, names::CLEAN, |hidden, uid| Some(hidden.uid(uid)));
        // Everything else that these may say is a number or a switch.
        for key in [names::COMMITTED, names::ABORTED, names::ROLLBACK] {
            self.mark(annotations, key, |_, text| {
                let is_plain = text.parse::<u64>().is_ok() || text.parse::<bool>().is_ok();
                is_plain.then(|| text.to_owned())
            });
        }
    }

    /// Replaces what an annotation says, or drops an annotation that cannot be read.
    fn mark(
        &mut self,
        annotations: &mut Map<String, Value>,
        key: &str,
        replaced: impl FnOnce(&mut Self, &str) -> Option<String>,
    ) {
        let Some(Value::String(text)) = annotations.get_mut(key) else {
            return;
        };
        match replaced(self, text) {
            Some(hidden) => *text = hidden,
            None => {
                annotations.remove(key);
            }
        }
    }

    /// Parameters of the built-in provisioners, some of which are label values, pools and label keys.
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

/// Whether a field or the first item of a list is an address.
fn holds_address(value: &Value) -> bool {
    let first = value.as_array().map_or(Some(value), |items| items.first());
    first
        .and_then(Value::as_str)
        .is_some_and(|text| text.parse::<IpAddr>().is_ok())
}

fn is_uid(text: &str) -> bool {
    let is_part = |(part, length): (&str, usize)| part.len() == length && part.bytes().all(|b| b.is_ascii_hexdigit());
    text.split('-').count() == 5 && text.split('-').zip([8, 4, 4, 4, 12]).all(is_part)
}

/// The UID or address at the start of a text, and the rest.
fn split_whole(text: &str) -> Option<(&str, &str)> {
    let split = |length: usize| {
        let (whole, after) = text.split_at_checked(length)?;
        let ends = after.chars().next().is_none_or(|next| !next.is_alphanumeric());
        ends.then_some((whole, after))
    };
    let end_of = |is_part: fn(char) -> bool| text.find(|c| !is_part(c)).unwrap_or(text.len());
    let uid = || split(36).filter(|(whole, _)| is_uid(whole));
    let six = || {
        let (whole, _) = text.split_at(end_of(|c| c.is_ascii_hexdigit() || c == ':'));
        // What follows a port or a mask belongs to neither.
        let whole = whole.trim_end_matches(':');
        let is_address = whole.matches(':').count() >= 2 && whole.parse::<Ipv6Addr>().is_ok();
        is_address.then(|| text.split_at(whole.len()))
    };
    uid()
        .or_else(|| groups(text, 6, |group| group.len() == 2).and_then(split))
        .or_else(|| groups(text, 3, |group| group.len() == 4 && is_number(group)).and_then(split))
        .or_else(|| dashed_six(text))
        .or_else(|| four(text, '.').and_then(split))
        .or_else(|| {
            let length = four(text, '-')?;
            // Names end in ordinals, and four small numbers are not an address. Private networks start with 10 at
            // least.
            let is_private = text.split('-').next()?.parse::<u8>().is_ok_and(|first| first >= 10);
            split(length).filter(|_| is_private)
        })
        .or_else(six)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The length of so many groups of hexadecimal digits at the start of a text, joined by dashes or by colons: the address of a
/// network card, or an account number as providers print it.
fn groups(text: &str, count: usize, is_group: fn(&str) -> bool) -> Option<usize> {
    let length_of = |separator: char| {
        let mut length = 0;
        for (index, part) in text.splitn(count, separator).enumerate() {
            let is_last = index + 1 == count;
            // What follows the last group is not part of it.
            let digits = part.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(part.len());
            if !is_group(&part[..digits]) || !is_last && digits != part.len() {
                return None;
            }
            length += digits + usize::from(!is_last);
            if is_last {
                return Some(length);
            }
        }
        None
    };
    length_of('-').or_else(|| length_of(':'))
}

/// An IPv6 address that is written with dashes, as in the names of pods and nodes in DNS, and the rest of a text.
fn dashed_six(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_hexdigit() && c != '-')
        .unwrap_or(text.len());
    let whole = text[..end].trim_end_matches('-');
    let (rest, count) = (
        &text[whole.len()..],
        whole.split('-').filter(|group| !group.is_empty()).count(),
    );
    // Part of a word, such as the `db` of `10-dbase`.
    let is_whole = rest.chars().next().is_none_or(|next| !next.is_alphanumeric());
    let is_address = count >= 3 && whole.replace('-', ":").parse::<Ipv6Addr>().is_ok();
    (is_whole && is_address).then_some((whole, rest))
}

/// The length of four byte-sized numbers at the start of a text.
fn four(text: &str, separator: char) -> Option<usize> {
    let mut length = 0;
    for (index, part) in text.splitn(4, separator).enumerate() {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let is_last = index == 3;
        if digits == 0 || part[..digits].parse::<u8>().is_err() || !is_last && digits != part.len() {
            return None;
        }
        length += digits + usize::from(!is_last);
        if is_last {
            return Some(length);
        }
    }
    None
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
    fn attempts_still_name_their_pods_and_claims() {
        let annotations = json!({"binding.berth.dev/held-for": "db-0/secret-1/secret-2/7", "binding.berth.dev/clean": "secret-2",
            "binding.berth.dev/rolled-back-for": "db-0/secret-1/secret-2", "binding.berth.dev/rollback": "true"});
        let mut objects = [
            json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-0", "uid": "secret-2", "annotations": annotations}}),
            json!({"kind": "Pod", "metadata": {"name": "db-0", "uid": "secret-1",
                "annotations": {"binding.berth.dev/aborted": "6", "binding.berth.dev/committed": "hidden"}}}),
        ];
        anonymize(&mut objects);
        let [claim, pod] = &objects;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let claim_uid = text(&claim["metadata"]["uid"]);
        assert_eq!(
            claim["metadata"]["annotations"],
            json!({"binding.berth.dev/held-for": format!("{name}/{uid}/{claim_uid}/7"), "binding.berth.dev/clean": claim_uid,
                "binding.berth.dev/rolled-back-for": format!("{name}/{uid}/{claim_uid}"), "binding.berth.dev/rollback": "true"})
        );
        assert_eq!(
            pod["metadata"]["annotations"],
            json!({"binding.berth.dev/aborted": "6"})
        );
        assert!(!claim.to_string().contains("secret"), "{claim}");
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

    #[test]
    fn addresses_accounts_and_uids_tell_nothing() {
        let uid = "6f1d2c3b-1234-4321-9876-123456789abc";
        let node = "ip-10-0-1-23.eu-west-1.compute.internal";
        let handle = "projects/123456789012/zones/z/disks/d";
        let mut objects = [
            json!({"kind": "Node", "metadata": {"name": node, "uid": uid, "labels": {"kubernetes.io/hostname": node}},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.0.1.23"}]}}),
            json!({"kind": "PersistentVolume", "metadata": {"name": format!("pvc-{uid}"), "uid": "other"},
                "spec": {"claimRef": {"name": "data-db-0", "uid": uid}, "csi": {"driver": "d.example.com", "volumeHandle": handle}}}),
            json!({"kind": "Pod", "metadata": {"name": "db-10-0-1", "ownerReferences": [{"kind": "Job", "name": "j-28473920", "uid": uid}]},
                "spec": {"nodeName": node, "containers": [{"image": "[2001:db8:7::1]:5000/a:1.2"}, {"image": "10.0.1.24:5000/b"}]}}),
            json!({"kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"]}}),
            json!({"kind": "Service", "metadata": {"name": "h"}, "spec": {"clusterIP": "None"}}),
        ];
        anonymize(&mut objects);
        let text = serde_json::to_string(&objects).unwrap();
        for part in [
            uid,
            "6f1d2c3b",
            "10-0-1-23",
            "10.0.1",
            "123456789012",
            "28473920",
            "2001:db8:7",
            "10.96.0.7",
            "eu-west",
        ] {
            assert!(!text.contains(part), "{part} is in {text}");
        }
        let [node, volume, pod, service, headless] = &objects;
        assert_eq!(node["metadata"]["name"], pod["spec"]["nodeName"]);
        assert_eq!(
            node["metadata"]["name"],
            node["metadata"]["labels"]["kubernetes.io/hostname"]
        );
        assert_eq!(volume["spec"]["claimRef"]["uid"], node["metadata"]["uid"]);
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert!(name.ends_with("-10-0-1"), "ordinals stay: {name}");
        assert_eq!(service["spec"], json!({}));
        assert_eq!(headless["spec"]["clusterIP"], "None");
    }

    #[test]
    fn addresses_in_other_spellings_tell_nothing() {
        for (name, hidden) in [
            ("node-02-42-ac-11-00-02", "02-42"),
            ("02:42:ac:11:00:02", "02:42"),
            ("pod-2001-db8-0-7--12.default.pod", "0-7--12"),
            ("host-fd00--1-23.internal", "1-23"),
            ("acct-1234-5678-9012-bucket", "1234"),
            ("6F1D2C3B-1234-4321-9876-123456789ABC", "1234"),
        ] {
            let mut objects = [
                json!({"metadata": {"name": name}}),
                json!({"spec": {"nodeName": name, "claimName": format!("data-{name}-0")}}),
            ];
            anonymize(&mut objects);
            let text = serde_json::to_string(&objects).unwrap();
            assert!(!text.contains(hidden), "{hidden} is in {text}");
            let name = objects[0]["metadata"]["name"].as_str().unwrap();
            assert_eq!(objects[1]["spec"]["nodeName"], name);
            let claim = objects[1]["spec"]["claimName"].as_str().unwrap();
            assert!(
                claim.contains(name) && claim.ends_with("-0"),
                "{claim} is not of {name}"
            );
        }
        // Ordinals, ports and versions are no addresses.
        for name in ["a-0-1-2-3", "web-12-0", "v1-28-4", "zone-1-2-3"] {
            let mut objects = [json!({"metadata": {"name": name}})];
            anonymize(&mut objects);
            let (_, numbers) = name.split_once('-').unwrap();
            assert!(
                objects[0]["metadata"]["name"].as_str().unwrap().ends_with(numbers),
                "{objects:?}"
            );
        }
    }
}
