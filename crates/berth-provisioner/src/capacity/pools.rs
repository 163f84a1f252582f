//! Capacity in the form of the first drafts of KEP-1472 (storage capacity): pools in the status of a `CSIDriver`.
//!
//! Each writer patches only its own pool, so writers never conflict: lists are merged by class and by pool name. A pool
//! that its writer no longer renews expires.

use crate::topology::Segment;
use berth_core::api::{CsiDriver, Kind};
use berth_core::effect::{Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_core::names::{EPHEMERAL_CLASS, FALLBACK_CLASS, driver_object};
use berth_core::quantity::Bytes;
use berth_core::time;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Which volumes a pool serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolClass {
    /// Those of a class.
    Class(String),
    /// Those of classes without their own pools.
    Fallback,
    /// Inline volumes.
    Ephemeral,
}

impl PoolClass {
    /// As written in the status.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Class(name) => name,
            Self::Fallback => FALLBACK_CLASS,
            Self::Ephemeral => EPHEMERAL_CLASS,
        }
    }
}

/// Which nodes can reach a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolNodes {
    /// All.
    All,
    /// Those of a segment.
    Segment(Segment),
    /// These.
    List(Vec<String>),
}

/// One pool as reported by its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Unique among the pools of its class.
    pub name: String,
    /// The nodes that can reach it.
    pub nodes: PoolNodes,
    /// The largest volume that can be created.
    pub bytes: i64,
    /// When the report expires.
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
            pool["expiryTime"] = json!(time::seconds(expires));
        }
        pool
    }
}

/// Whether a driver publishes its capacity in its status.
#[must_use]
pub fn is_tracked(driver: &CsiDriver) -> bool {
    driver.spec.capacity_tracking == Some(true)
}

/// Creates the object of a driver that has none, for example a built-in provisioner.
#[must_use]
pub fn driver(provisioner: &str) -> Effect {
    Effect::Create(Box::new(json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": driver_object(provisioner)},
        "spec": {"attachRequired": false, "podInfoOnMount": false, "capacityTracking": true},
    })))
}

/// Reports one pool in the status of a driver.
#[must_use]
pub fn report(driver: &str, class: &PoolClass, pool: &Pool) -> Effect {
    patch(driver, "report_pool", &[(class, pool.to_json())])
}

/// Reports one pool of a driver whose other classes are unlimited. This is included with every pool, so that the two
/// are never observed separately.
#[must_use]
pub fn announce(driver: &str, class: &PoolClass, pool: &Pool) -> Effect {
    let everywhere = Pool {
        name: "unlimited".to_owned(),
        nodes: PoolNodes::All,
        bytes: i64::MAX,
        expires: None,
    };
    let pools = [(&PoolClass::Fallback, everywhere.to_json()), (class, pool.to_json())];
    patch(driver, "report_pool", &pools)
}

/// Removes one pool from the status of a driver.
#[must_use]
pub fn withdraw(driver: &str, class: &PoolClass, pool: &str) -> Effect {
    let gone = json!({"$patch": "delete", "name": pool});
    patch(driver, "withdraw_pool", &[(class, gone)])
}

/// Merges pools into the status of a driver. Each writer has its own pools, so any version is acceptable.
fn patch(driver: &str, name: &'static str, pools: &[(&PoolClass, Value)]) -> Effect {
    let kind = Kind::CsiDriver;
    Effect::Patch(Patch {
        target: Target {
            api_version: kind.api_version(),
            key: ObjectKey::new(kind.name(), "", driver_object(driver)),
            ..Target::default()
        },
        guard: Guard::Uid,
        subresource: Some("status"),
        merge: Merge::Strategic,
        body: json!({"status": storage(pools)}),
        name,
    })
}

fn storage(pools: &[(&PoolClass, Value)]) -> Value {
    let of_class = |(class, pool): &(&PoolClass, Value)| json!({"storageClassName": class.name(), "pools": [pool]});
    let storage: Vec<Value> = pools.iter().map(of_class).collect();
    json!({"storage": storage})
}

/// The group and version of the custom resource with the same status, for clusters whose `CSIDriver` has none.
pub const CUSTOM_API_VERSION: &str = "storage.berth.dev/v1alpha1";
/// Its kind.
pub const CUSTOM_KIND: &str = "CSIDriverCapacity";

/// The server-side apply configuration that reports a pool on the custom resource, which does not support strategic
/// patches. Each pool has its own field manager; applying no pool removes it.
#[must_use]
pub fn apply(driver: &str, class: &PoolClass, pool: Option<&Pool>) -> Value {
    let pools: Vec<_> = pool.iter().map(|pool| (class, pool.to_json())).collect();
    json!({
        "apiVersion": CUSTOM_API_VERSION,
        "kind": CUSTOM_KIND,
        "metadata": {"name": driver},
        "status": storage(&pools),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(effect: Effect) -> Value {
        match effect {
            Effect::Patch(patch) => patch.body,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_writer_patches_its_own_pool_only() {
        let pool = Pool {
            name: "node-1".into(),
            nodes: PoolNodes::List(vec!["node-1".into()]),
            bytes: 64 << 30,
            expires: Some("2026-11-15T04:00:00.5Z".parse().unwrap()),
        };
        assert_eq!(
            body(report("d", &PoolClass::Ephemeral, &pool)),
            json!({"status": {"storage": [{"storageClassName": "<ephemeral>", "pools": [
                {"name": "node-1", "nodeList": ["node-1"], "capacity": "64Gi",
                 "expiryTime": "2026-11-15T04:00:00Z"}]}]}})
        );
        assert_eq!(
            body(withdraw("d", &PoolClass::Fallback, "node-1")),
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
        let mut driver = body(report("d", &PoolClass::Class("fast".into()), &pool));
        driver["apiVersion"] = json!("storage.k8s.io/v1");
        driver["kind"] = json!("CSIDriver");
        driver["metadata"] = json!({"name": "example.com"});
        driver["spec"] = json!({"capacityTracking": true});
        let Ok(Some(berth_core::api::Object::CsiDriver(driver))) = berth_core::api::Object::decode(&driver) else {
            panic!("not a CSIDriver");
        };
        assert!(is_tracked(&driver));
        let read = &driver.status.storage[0].pools[0];
        assert_eq!(read.capacity.unwrap().value(), 10 << 30);
        let terms = &read.node_topology.as_ref().unwrap().node_selector_terms;
        assert_eq!(terms[0].match_expressions.len(), 2);
    }
}
