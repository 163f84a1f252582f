//! Publishes the remaining space of built-in pools with a limit, as the provisioners of a live cluster do.

use super::Simulation;
use crate::key_for;
use berth_core::api::StorageClass;
use berth_core::names::driver_object;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::capacity::pools::{self, Pool, PoolClass, PoolNodes};
use berth_provisioner::topology::Segment;

impl Simulation {
    /// Writes what has changed since the last call.
    pub(super) fn announce_limits(&mut self) -> bool {
        if !std::mem::take(&mut self.provisioners.limits_changed) {
            return false;
        }
        let run = &self.provisioners;
        let mut reports = Vec::new();
        for class in run.state.classes().filter(|class| is_announced(class)) {
            for segment in Builtin::segments(class, run.state.nodes()) {
                // A class with an invalid limit provisions nothing, and reports it on a request.
                let Ok(left) = run.builtin.available(class, &segment) else {
                    continue;
                };
                reports.push((class.clone(), pool(&segment, left.unwrap_or(i64::MAX))));
            }
        }
        let mut moved = false;
        for (class, pool) in reports {
            moved |= self.announce(&class, &pool);
        }
        moved
    }

    fn announce(&mut self, class: &StorageClass, pool: &Pool) -> bool {
        let driver = key_for("CSIDriver", "", &driver_object(&class.provisioner));
        if self.get(&driver).is_none() {
            // Nothing else creates it at the same time.
            let _ = self.carry_out(&[pools::driver(&class.provisioner)]);
        }
        let before = self.cluster.version();
        let of_class = PoolClass::Class(class.metadata.name.clone());
        let _ = self.carry_out(&[pools::announce(&class.provisioner, &of_class, pool)]);
        self.cluster.version() > before
    }
}

/// Whether the capacity of a class is published: it has a limit, and its claims wait for a pod.
fn is_announced(class: &StorageClass) -> bool {
    Builtin::has_limit(class) && class.is_delayed()
}

fn pool(segment: &Segment, bytes: i64) -> Pool {
    let values: Vec<&str> = segment.values().map(String::as_str).collect();
    Pool {
        name: match values.is_empty() {
            true => "cluster".to_owned(),
            false => values.join("."),
        },
        nodes: match values.is_empty() {
            true => PoolNodes::All,
            false => PoolNodes::Segment(segment.clone()),
        },
        bytes,
        expires: None,
    }
}
