//! Storage pools that shrink by what is made from them.
//!
//! A driver that is not here cannot publish how much room it has left. What the files say about its capacity is taken for
//! the truth at the start; from then on each volume that is made takes its bytes from a pool of its node, gives them
//! back when it is deleted, and is refused where they are not there. The same room may be published by an object and in
//! the status of the driver: then it is taken from both.

use super::Simulation;
use crate::workloads::{Selector, is_over};
use crate::{View, agent, field, key_for, key_of};
use berth_core::api::StorageClass;
use berth_core::effect::ObjectKey;
use berth_core::migration::InTreePlugin;
use berth_core::names::{EPHEMERAL_CLASS, FALLBACK_CLASS, driver_object};
use berth_core::quantity::{Bytes, Quantity};
use berth_provisioner::request::{Failure, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Where room is taken from.
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

/// The attribute of an inline volume that gives its size, on clusters without a field for it.
const INLINE_SIZE: &str = "csi.storage.k8s.io/size";

/// A pool that a node reaches, with what it can give.
struct Room {
    pool: Pool,
    name: String,
    /// How much is left; `None` if nobody says.
    left: Option<i64>,
    /// The largest volume.
    largest: i64,
}

/// What was taken from which pools, by the handle of the volume.
#[derive(Debug, Default)]
pub(super) struct Pools {
    drawn: BTreeMap<String, Vec<(Pool, i64)>>,
}

/// The driver that serves a class: what once was part of Kubernetes is served by the driver that took over.
pub(super) fn driver_of(class: &StorageClass) -> String {
    match InTreePlugin::from_name(&class.provisioner) {
        Some(plugin) => plugin.driver().to_owned(),
        None => driver_object(&class.provisioner).into_owned(),
    }
}

impl Simulation {
    /// Takes the room for a volume from pools of its node, if there are such pools.
    pub(super) fn draw(&mut self, request: &Request) -> Result<(), Failure> {
        let Some(node) = &request.selected_node else {
            return Ok(());
        };
        let class = &request.class.metadata.name;
        let (driver, node) = (driver_of(&request.class), node.metadata.name.clone());
        self.draw_from(&request.name, &driver, class, &node, request.bytes)
    }

    fn draw_from(&mut self, handle: &str, driver: &str, class: &str, node: &str, bytes: i64) -> Result<(), Failure> {
        if self.pools.drawn.contains_key(handle) {
            return Ok(());
        }
        let forms = [self.objects_for(class, node), self.status_for(driver, class, node)];
        let mut taken = Vec::new();
        for rooms in forms.into_iter().filter(|rooms| !rooms.is_empty()) {
            let fits = |room: &&Room| room.largest >= bytes && room.left.is_none_or(|left| left >= bytes);
            // The one that fits closest leaves the most room for others.
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
            return Ok(());
        }
        for (pool, left) in &taken {
            self.set_room(pool, *left);
        }
        let drawn = taken.into_iter().map(|(pool, _)| (pool, bytes)).collect();
        self.pools.drawn.insert(handle.to_owned(), drawn);
        Ok(())
    }

    /// Gives back what a volume took.
    pub(super) fn give_back(&mut self, handle: &str) {
        for (pool, bytes) in self.pools.drawn.remove(handle).unwrap_or_default() {
            if let Some(left) = self.room_of(&pool) {
                self.set_room(&pool, left.saturating_add(bytes));
            }
        }
    }

    /// Takes the room for the inline volumes of a pod when it has a node, and gives it back when it has ended.
    pub(super) fn draw_inline(&mut self, pod: &Value) {
        let node = field::text(pod, "/spec/nodeName");
        for volume in field::items(pod, "/spec/volumes")
            .iter()
            .filter(|volume| volume["csi"].is_object())
        {
            let handle = inline_handle(pod, volume);
            if is_over(pod) {
                self.give_back(&handle);
            } else if field::text(pod, "/status/phase") == "Running" {
                // It has what it needs; of one that ran before the start, the pools know already.
            } else if let (false, Some(bytes)) = (node.is_empty(), inline_size(volume)) {
                let driver = field::text(volume, "/csi/driver");
                // A pod that was given its node by name may find no room; its driver will say so.
                let _ = self.draw_from(&handle, driver, EPHEMERAL_CLASS, node, bytes);
            }
        }
    }

    /// Gives back what the inline volumes of a pod took that is gone.
    pub(super) fn give_back_inline(&mut self, pod: &Value) {
        for volume in field::items(pod, "/spec/volumes")
            .iter()
            .filter(|volume| volume["csi"].is_object())
        {
            self.give_back(&inline_handle(pod, volume));
        }
    }

    fn objects_for(&self, class: &str, node: &str) -> Vec<Room> {
        let view = self.cluster.objects();
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
                left: bytes_at(pool, "/capacity"),
                largest: bytes_at(pool, "/maximumVolumeSize")
                    .or(bytes_at(pool, "/capacity"))
                    .unwrap_or(0),
            })
            .collect()
    }

    /// The pools in the status of a driver: those of the class, or those of classes that are not named there.
    fn status_for(&self, driver: &str, class: &str, node: &str) -> Vec<Room> {
        let view = self.cluster.objects();
        let (Some(found), Some(node)) = (view.get("CSIDriver", "", driver), view.get("Node", "", node)) else {
            return Vec::new();
        };
        let entries = field::items(found, "/status/storage");
        let entry = |name: &str| {
            entries
                .iter()
                .find(|entry| field::text(entry, "/storageClassName") == name)
        };
        let Some(entry) = entry(class).or_else(|| entry(FALLBACK_CLASS)) else {
            return Vec::new();
        };
        let pools = field::items(entry, "/pools").iter().filter(|pool| reaches(pool, node));
        pools
            .filter_map(|pool| {
                let left = bytes_at(pool, "/capacity")?;
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

    fn room_of(&self, pool: &Pool) -> Option<i64> {
        match pool {
            Pool::Object(key) => bytes_at(self.get(key)?, "/capacity"),
            Pool::Status { driver, class, name } => {
                let storage = field::items(self.get(driver)?, "/status/storage");
                let entry = storage.iter().find(|entry| entry["storageClassName"] == **class)?;
                let pool = field::items(entry, "/pools")
                    .iter()
                    .find(|pool| pool["name"] == **name)?;
                bytes_at(pool, "/capacity")
            }
        }
    }

    fn set_room(&mut self, pool: &Pool, left: i64) {
        let capacity = json!(Bytes(left).to_string());
        match pool {
            Pool::Object(key) => {
                self.change(key, None, json!({ "capacity": capacity }));
            }
            Pool::Status { driver, class, name } => {
                let pool = json!({"name": name, "capacity": capacity});
                let storage = json!([{"storageClassName": class, "pools": [pool]}]);
                self.change(driver, Some("status"), json!({"status": {"storage": storage}}));
            }
        }
    }
}

fn inline_handle(pod: &Value, volume: &Value) -> String {
    format!("{}/{}", field::uid(pod), field::text(volume, "/name"))
}

/// The size of an inline volume, by its field or by its attribute.
fn inline_size(volume: &Value) -> Option<i64> {
    let attribute = volume["csi"]["volumeAttributes"][INLINE_SIZE].as_str();
    bytes_at(volume, "/csi/fsSize").or_else(|| Some(attribute?.parse::<Quantity>().ok()?.value()))
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

fn bytes_at(object: &Value, path: &str) -> Option<i64> {
    let quantity = match field::at(object, path)? {
        Value::String(text) => text.parse::<Quantity>(),
        Value::Number(number) => number.to_string().parse::<Quantity>(),
        _ => return None,
    };
    quantity.ok().map(Quantity::value)
}
