//! Capacity in the design's own form: pools in the status of a `CSIDriver`.
//!
//! Each writer patches its own pool and nothing else, so writers never meet: lists are merged by class
//! and by pool name. A pool that its writer no longer renews expires.

use crate::topology::Segment;
use berth_core::api::CsiDriver;
use berth_core::names::{EPHEMERAL_CLASS, FALLBACK_CLASS, driver_object};
use berth_core::quantity::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Which volumes come from a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolClass {
    /// Those of a class.
    Class(String),
    /// Those of classes that have no pools of their own.
    Fallback,
    /// Inline volumes.
    Ephemeral,
}

impl PoolClass {
    /// As it stands in the status.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Class(name) => name,
            Self::Fallback => FALLBACK_CLASS,
            Self::Ephemeral => EPHEMERAL_CLASS,
        }
    }
}

/// Which nodes reach a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolNodes {
    /// All.
    All,
    /// Those of a segment.
    Segment(Segment),
    /// These.
    List(Vec<String>),
}

/// One pool as its writer reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Unique among the pools of its class.
    pub name: String,
    /// Who reaches it.
    pub nodes: PoolNodes,
    /// The largest volume that can be made.
    pub bytes: i64,
    /// When the report stops counting.
    pub expires: Option<Timestamp>,
}

impl Pool {
    fn to_json(&self) -> Value {
        let mut pool = json!({"name": self.name, "capacity": Bytes(self.bytes.max(0)).to_string()});
        match &self.nodes {
            PoolNodes::All => {}
            PoolNodes::List(nodes) => pool["nodeList"] = json!(nodes),
            PoolNodes::Segment(segment) => {
                let expressions: Vec<Value> = segment
                    .iter()
                    .map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}))
                    .collect();
                pool["nodeTopology"] = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
            }
        }
        if let Some(expires) = self.expires {
            pool["expiryTime"] = json!(whole_seconds(expires));
        }
        pool
    }
}

/// Kubernetes keeps times to the second.
fn whole_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).map_or_else(|_| time.to_string(), |time| time.to_string())
}

/// Whether a driver says that it publishes its capacity in its status.
#[must_use]
pub fn is_tracked(driver: &CsiDriver) -> bool {
    driver.spec.capacity_tracking == Some(true)
}

/// The object of a driver that has none of its own, such as a built-in provisioner.
#[must_use]
pub fn driver(provisioner: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": driver_object(provisioner)},
        "spec": {"attachRequired": false, "podInfoOnMount": false, "capacityTracking": true},
    })
}

/// The strategic merge patch of a driver's status that reports one pool.
#[must_use]
pub fn report(class: &PoolClass, pool: &Pool) -> Value {
    status(class, &pool.to_json())
}

/// The strategic merge patch of a driver's status that takes one pool away.
#[must_use]
pub fn withdraw(class: &PoolClass, pool: &str) -> Value {
    status(class, &json!({"$patch": "delete", "name": pool}))
}

fn status(class: &PoolClass, pool: &Value) -> Value {
    json!({"status": {"storage": [{"storageClassName": class.name(), "pools": [pool]}]}})
}

/// The group and version of the custom resource that has the same status, for clusters whose `CSIDriver` has none.
pub const CUSTOM_API_VERSION: &str = "storage.berth.dev/v1alpha1";
/// Its kind.
pub const CUSTOM_KIND: &str = "CSIDriverCapacity";

/// The same as a configuration for server-side apply on the custom resource, which knows no strategic patches.
/// Each pool has a field manager of its own; applying no pool takes it away.
#[must_use]
pub fn apply(driver: &str, pools: &[(PoolClass, Pool)]) -> Value {
    let storage: Vec<Value> = pools
        .iter()
        .map(|(class, pool)| json!({"storageClassName": class.name(), "pools": [pool.to_json()]}))
        .collect();
    json!({
        "apiVersion": CUSTOM_API_VERSION,
        "kind": CUSTOM_KIND,
        "metadata": {"name": driver},
        "status": {"storage": storage},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_patches_its_own_pool_only() {
        let pool = Pool {
            name: "node-1".into(),
            nodes: PoolNodes::List(vec!["node-1".into()]),
            bytes: 64 << 30,
            expires: Some("2026-11-15T04:00:00.5Z".parse().unwrap()),
        };
        assert_eq!(
            report(&PoolClass::Ephemeral, &pool),
            json!({"status": {"storage": [{"storageClassName": "<ephemeral>", "pools": [
                {"name": "node-1", "nodeList": ["node-1"], "capacity": "64Gi",
                 "expiryTime": "2026-11-15T04:00:00Z"}]}]}})
        );
        assert_eq!(
            withdraw(&PoolClass::Fallback, "node-1"),
            json!({"status": {"storage": [{"storageClassName": "<fallback>", "pools": [
                {"$patch": "delete", "name": "node-1"}]}]}})
        );
    }

    #[test]
    fn what_is_written_is_what_the_scheduler_reads() {
        let segment = Segment::from([
            ("example.com/zone".into(), "Z1".into()),
            ("example.com/rack".into(), "R3".into()),
        ]);
        let pool = Pool {
            name: "z1-r3".into(),
            nodes: PoolNodes::Segment(segment),
            bytes: 10 << 30,
            expires: None,
        };
        let mut driver = report(&PoolClass::Class("fast".into()), &pool);
        driver["apiVersion"] = json!("storage.k8s.io/v1");
        driver["kind"] = json!("CSIDriver");
        driver["metadata"] = json!({"name": "example.com"});
        driver["spec"] = json!({"capacityTracking": true});
        let Ok(Some(berth_core::api::Object::CsiDriver(driver))) = berth_core::api::Object::decode(driver) else {
            panic!("not a CSIDriver");
        };
        assert!(is_tracked(&driver));
        let read = &driver.status.storage[0].pools[0];
        assert_eq!(read.capacity.unwrap().value(), 10 << 30);
        let terms = &read.node_topology.as_ref().unwrap().node_selector_terms;
        assert_eq!(terms[0].match_expressions.len(), 2);
    }
}
