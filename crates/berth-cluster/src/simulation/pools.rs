//! Storage pools that shrink by what is made from them.
//!
//! A driver that is not here cannot publish how much room it has left. What the files say about its capacity is taken for
//! the truth at the start; from then on each volume that is made takes its bytes from the pool of its node, gives them
//! back when it is deleted, and is refused where they are not there.

use super::Simulation;
use crate::workloads::Selector;
use crate::{View, field, key_of};
use berth_core::effect::ObjectKey;
use berth_core::quantity::{Bytes, Quantity};
use berth_provisioner::request::Failure;
use berth_provisioner::step::Attempt;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What was taken from which pool, by the handle of the volume.
#[derive(Debug, Default)]
pub(super) struct Pools {
    drawn: BTreeMap<String, (ObjectKey, i64)>,
}

impl Simulation {
    /// Takes the room for a volume from the pool of its node, if there is such a pool.
    pub(super) fn draw(&mut self, attempt: &Attempt) -> Result<(), Failure> {
        let request = &attempt.request;
        let Some(node) = &request.selected_node else {
            return Ok(());
        };
        if self.pools.drawn.contains_key(&request.name) {
            return Ok(());
        }
        let Some(pool) = self.pool_for(&request.class.metadata.name, &node.metadata.name) else {
            return Ok(());
        };
        let key = key_of(pool);
        let left = room(pool) - request.bytes;
        if left < 0 {
            return Err(Failure::last(format!(
                "not enough room in pool {:?} for {}: {} left",
                key.name,
                Bytes(request.bytes),
                Bytes(room(pool))
            )));
        }
        self.change(&key, None, json!({"capacity": Bytes(left).to_string()}));
        self.pools.drawn.insert(request.name.clone(), (key, request.bytes));
        Ok(())
    }

    /// Gives back what a volume took.
    pub(super) fn give_back(&mut self, handle: &str) {
        let Some((key, bytes)) = self.pools.drawn.remove(handle) else {
            return;
        };
        if let Some(pool) = self.get(&key) {
            let left = room(pool).saturating_add(bytes);
            self.change(&key, None, json!({"capacity": Bytes(left).to_string()}));
        }
    }

    fn pool_for(&self, class: &str, node: &str) -> Option<&Value> {
        let view = self.cluster.objects();
        let node = view.get("Node", "", node)?;
        view.of_kind("CSIStorageCapacity").find(|pool| {
            field::text(pool, "/storageClassName") == class && Selector::at(pool, "/nodeTopology").selects(node)
        })
    }
}

fn room(pool: &Value) -> i64 {
    let quantity = field::text(pool, "/capacity").parse::<Quantity>();
    quantity.map_or(0, Quantity::value)
}
