//! Storage pools that shrink as volumes are created.
//!
//! A simulated driver cannot publish its remaining capacity. The capacity in files is assumed to be true at the start.
//! From then on each created volume takes its bytes from a pool of its node, returns them when it is deleted, and is
//! refused if there is no space. A volume without a selected node takes them from a pool of any node. The same space may be
//! published by an object and in the status of the driver: then it is taken from both.

use super::driver_of;
use crate::workloads::{Selector, is_over};
use crate::{View, agent, field, key_for, key_of};
use berth_core::effect::{Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names::{EPHEMERAL_CLASS, FALLBACK_CLASS, INLINE_SIZE};
use berth_core::quantity::{Bytes, Quantity};
use berth_provisioner::request::{Failure, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The source of space.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pool {
    /// A CSIStorageCapacity object.
    Object(ObjectKey),
    /// A pool in the status of a driver.
    Status {
        driver: ObjectKey,
        class: String,
        name: String,
    },
}

/// A pool that a node reaches, with its available space.
struct Room {
    pool: Pool,
    name: String,
    /// The remaining space; `None` if unknown.
    left: Option<i64>,
    /// The largest volume.
    largest: i64,
}

/// The space taken from each pool, by volume handle.
#[derive(Debug, Default)]
pub(super) struct Pools {
    drawn: BTreeMap<String, Vec<(Pool, i64)>>,
}

impl Pools {
    /// Takes the space for a volume from pools of its node. A volume without a selected node takes nothing.
    pub(super) fn draw(&mut self, view: &dyn View, request: &Request) -> Result<Vec<Effect>, Failure> {
        let Some(node) = &request.selected_node else {
            return Ok(Vec::new());
        };
        let class = &request.class.metadata.name;
        let (driver, node) = (driver_of(&request.class), &node.metadata.name);
        // The scheduler does not choose such a node, but a pod may name it.
        let is_new = !self.drawn.contains_key(&request.name);
        if is_new && request.bytes > 0 && publishes_none_for(view, (&driver, class), node) {
            return Err(Failure::last(format!(
                "{driver} has published no capacity for node {node}"
            )));
        }
        self.draw_from(view, &request.name, (&driver, class), node, request.bytes)
    }

    fn draw_from(
        &mut self,
        view: &dyn View,
        handle: &str,
        (driver, class): (&str, &str),
        node: &str,
        bytes: i64,
    ) -> Result<Vec<Effect>, Failure> {
        if self.drawn.contains_key(handle) {
            return Ok(Vec::new());
        }
        let forms = [objects_for(view, class, node), status_for(view, driver, class, node)];
        let mut taken = Vec::new();
        for rooms in forms.into_iter().filter(|rooms| !rooms.is_empty()) {
            let fits = |room: &&Room| room.largest >= bytes && room.left.is_none_or(|left| left >= bytes);
            // The closest fit leaves the most space for others.
            let Some(room) = rooms
                .iter()
                .filter(fits)
                .min_by_key(|room| room.left.unwrap_or(i64::MAX))
            else {
                return Err(no_room(&rooms, bytes));
            };
            if let Some(left) = room.left {
                taken.push((room.pool.clone(), left - bytes));
            }
        }
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let effects = taken
            .iter()
            .filter_map(|(pool, left)| set_room(view, pool, *left))
            .collect();
        let drawn = taken.into_iter().map(|(pool, _)| (pool, bytes)).collect();
        self.drawn.insert(handle.to_owned(), drawn);
        Ok(effects)
    }

    /// Returns the space of a volume to the pools that still exist.
    pub(super) fn give_back(&mut self, view: &dyn View, handle: &str) -> Vec<Effect> {
        let drawn = self.drawn.remove(handle).unwrap_or_default().into_iter();
        let effects = drawn.filter_map(|(pool, bytes)| {
            let left = room_of(view, &pool)?;
            set_room(view, &pool, left.saturating_add(bytes))
        });
        effects.collect()
    }

    /// Forgets space that was reserved for a volume and not taken.
    pub(super) fn forget(&mut self, handle: &str) {
        self.drawn.remove(handle);
    }

    pub(super) fn pod_changed(&mut self, view: &dyn View, pod: &Value) -> Vec<Effect> {
        if is_over(pod) {
            return self.pod_gone(view, pod);
        }
        let node = field::text(pod, "/spec/nodeName");
        // A running pod has its volumes; pools already account for pods that ran before the start.
        if node.is_empty() || field::text(pod, "/status/phase") == "Running" {
            return Vec::new();
        }
        let mut drawn = inline_volumes(pod).filter_map(|volume| {
            let (handle, driver) = (inline_handle(pod, volume), field::text(volume, "/csi/driver"));
            // A pod with a fixed node may find no space; its driver will report that.
            self.draw_from(view, &handle, (driver, EPHEMERAL_CLASS), node, inline_size(volume)?)
                .ok()
        });
        drawn.find(|effects| !effects.is_empty()).unwrap_or_default()
    }

    pub(super) fn pod_gone(&mut self, view: &dyn View, pod: &Value) -> Vec<Effect> {
        let handles = inline_volumes(pod).map(|volume| inline_handle(pod, volume));
        let mut given = handles.map(|handle| self.give_back(view, &handle));
        given.find(|effects| !effects.is_empty()).unwrap_or_default()
    }
}

/// Whether a driver publishes the capacity of its classes, and none for this class and node.
fn publishes_none_for(view: &dyn View, (driver, class): (&str, &str), node: &str) -> bool {
    // A driver that tracks capacity in its status may report it in an object of its own, which is not read here.
    let publishes = view.get("CSIDriver", "", driver).is_some_and(|found| {
        field::flag(found, "/spec/storageCapacity") && !field::flag(found, "/spec/capacityTracking")
    });
    publishes && objects_for(view, class, node).is_empty() && status_for(view, driver, class, node).is_empty()
}

/// Whether capacity is published for a class at all. Drivers usually publish none for classes that bind at once: then
/// nothing is known about their space.
pub(super) fn is_published(view: &dyn View, driver: &str, class: &str) -> bool {
    let is_of_class = |pool: &Value| field::text(pool, "/storageClassName") == class;
    view.of_kind("CSIStorageCapacity").any(is_of_class)
        || view
            .get("CSIDriver", "", driver)
            .is_some_and(|found| status_entry(found, class).is_some())
}

/// The volumes that a driver creates for one pod only.
fn inline_volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = field::items(pod, "/spec/volumes").iter();
    volumes.filter(|volume| volume["csi"].is_object())
}

fn objects_for(view: &dyn View, class: &str, node: &str) -> Vec<Room> {
    let Some(node) = view.get("Node", "", node) else {
        return Vec::new();
    };
    let reaches = |pool: &&Value| {
        field::text(pool, "/storageClassName") == class && Selector::at(pool, "/nodeTopology").selects(node)
    };
    let pools = view.of_kind("CSIStorageCapacity").filter(reaches);
    pools
        .map(|pool| Room {
            pool: Pool::Object(key_of(pool)),
            name: field::name(pool).to_owned(),
            left: field::bytes(pool, "/capacity"),
            largest: field::bytes(pool, "/maximumVolumeSize")
                .or(field::bytes(pool, "/capacity"))
                .unwrap_or(0),
        })
        .collect()
}

/// The pools in the status of a driver: those of the class, or the fallback for classes without an entry.
fn status_for(view: &dyn View, driver: &str, class: &str, node: &str) -> Vec<Room> {
    let (Some(found), Some(node)) = (view.get("CSIDriver", "", driver), view.get("Node", "", node)) else {
        return Vec::new();
    };
    let Some(entry) = status_entry(found, class) else {
        return Vec::new();
    };
    let pools = field::items(entry, "/pools").iter().filter(|pool| reaches(pool, node));
    pools
        .filter_map(|pool| {
            let left = field::bytes(pool, "/capacity")?;
            let name = field::text(pool, "/name").to_owned();
            Some(Room {
                pool: Pool::Status {
                    driver: key_for("CSIDriver", "", driver),
                    class: field::text(entry, "/storageClassName").to_owned(),
                    name: name.clone(),
                },
                name,
                left: Some(left),
                largest: left,
            })
        })
        .collect()
}

/// The entry of a driver's status for a class: its own, or the fallback.
fn status_entry<'a>(driver: &'a Value, class: &str) -> Option<&'a Value> {
    let entries = field::items(driver, "/status/storage");
    let entry = |name: &str| {
        entries
            .iter()
            .find(|entry| field::text(entry, "/storageClassName") == name)
    };
    entry(class).or_else(|| entry(FALLBACK_CLASS))
}

fn find<'a>(view: &'a dyn View, key: &ObjectKey) -> Option<&'a Value> {
    view.get(&key.kind, &key.namespace, &key.name)
}

fn room_of(view: &dyn View, pool: &Pool) -> Option<i64> {
    match pool {
        Pool::Object(key) => field::bytes(find(view, key)?, "/capacity"),
        Pool::Status { driver, class, name } => {
            let storage = field::items(find(view, driver)?, "/status/storage");
            let entry = storage.iter().find(|entry| entry["storageClassName"] == **class)?;
            let pool = field::items(entry, "/pools")
                .iter()
                .find(|pool| pool["name"] == **name)?;
            field::bytes(pool, "/capacity")
        }
    }
}

/// Publishes the remaining space of a pool, if no one has published another value meanwhile.
fn set_room(view: &dyn View, pool: &Pool, left: i64) -> Option<Effect> {
    let capacity = json!(Bytes(left).to_string());
    let (key, subresource, body) = match pool {
        Pool::Object(key) => (key, None, json!({ "capacity": capacity })),
        Pool::Status { driver, class, name } => {
            let pool = json!({"name": name, "capacity": capacity});
            let storage = json!([{"storageClassName": class, "pools": [pool]}]);
            (driver, Some("status"), json!({"status": {"storage": storage}}))
        }
    };
    Some(Effect::Patch(Patch {
        target: Target::of_value(find(view, key)?),
        guard: Guard::Version,
        subresource,
        merge: Merge::Strategic,
        body,
        name: "set_room",
    }))
}

fn inline_handle(pod: &Value, volume: &Value) -> String {
    format!("{}/{}", field::uid(pod), field::text(volume, "/name"))
}

/// The size of an inline volume, from its field or its attribute.
fn inline_size(volume: &Value) -> Option<i64> {
    let attribute = volume["csi"]["volumeAttributes"][INLINE_SIZE].as_str();
    field::bytes(volume, "/csi/fsSize").or_else(|| Some(attribute?.parse::<Quantity>().ok()?.value()))
}

/// Whether a node reaches a pool in the status of a driver.
fn reaches(pool: &Value, node: &Value) -> bool {
    let nodes = field::items(pool, "/nodeList");
    let is_listed = nodes.is_empty() || nodes.iter().any(|name| *name == field::name(node));
    let topology = json!({"spec": {"nodeAffinity": {"required": pool["nodeTopology"]}}});
    is_listed && agent::is_reachable(&topology, node)
}

fn no_room(rooms: &[Room], bytes: i64) -> Failure {
    let left: Vec<String> = rooms
        .iter()
        .map(|room| {
            format!(
                "{} left in pool {:?}",
                Bytes(room.left.unwrap_or(room.largest)),
                room.name
            )
        })
        .collect();
    Failure::last(format!("not enough room for {}: {}", Bytes(bytes), left.join(", ")))
}
