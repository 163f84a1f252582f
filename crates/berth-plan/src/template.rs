//! A node that could be added, with its related objects: its CSINode, its local disks, and the capacity that is published only for
//! it.

use berth_cluster::simulation::scenario::copy::{self, Storage};
use berth_cluster::simulation::zone_of;
use berth_cluster::{View, field};
use berth_core::names::{HOSTNAME, REGION, REGION_BETA, ZONE};
use berth_core::quantity::{Bytes, Quantity};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Placeholder for the name of the node: no name and no label can contain it.
const NAME: &str = "\u{1}";

/// The objects of a node without a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    /// The node first.
    objects: Vec<Value>,
}

/// The resources of one node of a template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supply {
    /// Allocatable resources: CPU in thousandths, everything else in units.
    pub resources: BTreeMap<String, i64>,
    /// Local disks: class and size.
    pub disks: Vec<(String, i64)>,
    /// Capacity that is published only for the node: class and bytes.
    pub pools: Vec<(String, i64)>,
}

impl Template {
    /// A copy of an existing node. All its disks are free, and so is the space of the volumes that were created on it.
    #[must_use]
    pub fn like(view: &dyn View, node: &Value) -> Self {
        let mut template = Self::of_node(copy::node(node, NAME));
        if let Some(csi_node) = view.get("CSINode", "", field::name(node)) {
            template
                .objects
                .push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": NAME}, "spec": {"drivers": copy::drivers(node, csi_node, NAME)}}));
        }
        let storage = Storage::of(view, node);
        template.objects.extend(storage.disks_on(NAME));
        template.objects.extend(storage.pools_on(NAME));
        template
    }

    /// A copy of an existing node, in a zone.
    #[must_use]
    pub fn like_in_zone(view: &dyn View, node: &Value, zone: &str) -> Self {
        let mut template = Self::like(view, node);
        let from = zone_of(node);
        if from != zone {
            template
                .objects
                .iter_mut()
                .for_each(|object| rezone(object, from, zone));
            template.put_in_zone(view, zone);
        }
        template
    }

    /// A node of a zone from its manifest, which need not have a name, with local disks: class and size of each.
    #[must_use]
    pub fn new(node: Value, disks: &[(String, i64)], view: &dyn View, zone: &str) -> Self {
        let mut template = Self::of_node(node);
        for (number, (class, bytes)) in disks.iter().enumerate() {
            let name = format!("{NAME}-disk{number}");
            template.objects.push(local_volume(&name, NAME, class, *bytes, None));
        }
        template.put_in_zone(view, zone);
        template
    }

    /// Labels the node with the zone, and with the region of the nodes in that zone.
    fn put_in_zone(&mut self, view: &dyn View, zone: &str) {
        let Some(node) = self.objects.first_mut().filter(|_| !zone.is_empty()) else {
            return;
        };
        field::set(node, &["metadata", "labels", ZONE], json!(zone));
        if let Some(neighbour) = view.of_kind("Node").find(|node| zone_of(node) == zone) {
            for key in [REGION, REGION_BETA] {
                let region = field::label(neighbour, key);
                if !region.is_empty() {
                    field::set(node, &["metadata", "labels", key], json!(region));
                }
            }
        }
    }

    fn of_node(mut node: Value) -> Self {
        field::set(&mut node, &["apiVersion"], json!("v1"));
        field::set(&mut node, &["kind"], json!("Node"));
        field::set(&mut node, &["metadata", "name"], json!(NAME));
        field::set(&mut node, &["metadata", "labels", HOSTNAME], json!(NAME));
        Self { objects: vec![node] }
    }

    /// The node itself.
    pub(crate) fn node(&self) -> &Value {
        self.objects.first().unwrap_or(&Value::Null)
    }

    /// The objects of the node with a name.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<Value> {
        let mut objects = self.objects.clone();
        objects.iter_mut().for_each(|object| put_name(object, name));
        objects
    }

    /// The resources of one such node.
    #[must_use]
    pub fn supply(&self) -> Supply {
        let mut supply = Supply {
            resources: allocatable(self.node()),
            ..Supply::default()
        };
        for object in &self.objects {
            match field::kind(object) {
                "PersistentVolume" => {
                    let class = field::text(object, "/spec/storageClassName").to_owned();
                    supply
                        .disks
                        .push((class, bytes_of(&object["spec"]["capacity"]["storage"])));
                }
                "CSIStorageCapacity" => {
                    let class = field::text(object, "/storageClassName").to_owned();
                    supply.pools.push((class, bytes_of(&object["capacity"])));
                }
                _ => {}
            }
        }
        supply.disks.sort();
        supply.pools.sort();
        supply
    }
}

/// The allocatable resources of a node: CPU in thousandths, everything else in units.
pub(crate) fn allocatable(node: &Value) -> BTreeMap<String, i64> {
    let parts = ["/status/capacity", "/status/allocatable"].into_iter();
    let lists = parts.filter_map(|part| field::at(node, part).and_then(Value::as_object));
    let amounts = lists
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), amount_of(name, amount)?)));
    amounts.collect()
}

fn amount_of(name: &str, amount: &Value) -> Option<i64> {
    let amount: Quantity = serde_json::from_value(amount.clone()).ok()?;
    Some(match name {
        "cpu" => amount.milli_value(),
        _ => amount.value(),
    })
}

/// Bytes of a quantity; zero if missing.
pub(crate) fn bytes_of(amount: &Value) -> i64 {
    serde_json::from_value::<Quantity>(amount.clone()).map_or(0, Quantity::value)
}

/// A new local volume. Access modes and volume mode are those of a claim, if given.
pub(crate) fn local_volume(name: &str, hostname: &str, class: &str, bytes: i64, claim: Option<&Value>) -> Value {
    let of_claim = |part: &str| claim.map_or(&Value::Null, |claim| &claim["spec"][part]);
    let modes = match of_claim("accessModes") {
        Value::Null => json!(["ReadWriteOnce"]),
        modes => modes.clone(),
    };
    let mut volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": Bytes(bytes).to_string()}, "accessModes": modes, "storageClassName": class,
        "persistentVolumeReclaimPolicy": "Retain", "local": {"path": format!("/mnt/disks/{name}")},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": HOSTNAME, "operator": "In", "values": [hostname]}]}]}}}});
    if of_claim("volumeMode").is_string() {
        field::set(&mut volume, &["spec", "volumeMode"], of_claim("volumeMode").clone());
    }
    volume
}

/// Replaces a text wherever it is a whole value.
fn put_value(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(found) if found == from => to.clone_into(found),
        Value::Array(items) => items.iter_mut().for_each(|item| put_value(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| put_value(field, from, to)),
        _ => {}
    }
}

/// Fills in the name.
fn put_name(value: &mut Value, name: &str) {
    match value {
        Value::String(found) if found.contains(NAME) => *found = found.replace(NAME, name),
        Value::Array(items) => items.iter_mut().for_each(|item| put_name(item, name)),
        Value::Object(fields) => fields.values_mut().for_each(|field| put_name(field, name)),
        _ => {}
    }
}

fn is_zone_key(key: &str) -> bool {
    key == "zone" || key.ends_with("/zone")
}

/// Changes the zone in labels, and in requirements on labels.
fn rezone(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Object(fields) => {
            if fields.get("key").and_then(Value::as_str).is_some_and(is_zone_key)
                && let Some(values) = fields.get_mut("values")
            {
                put_value(values, from, to);
            }
            for (key, field) in fields {
                if is_zone_key(key) && *field == from {
                    *field = json!(to);
                } else {
                    rezone(field, from, to);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rezone(item, from, to)),
        _ => {}
    }
}
