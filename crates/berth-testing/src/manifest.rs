//! Methods that change an object.

use berth_core::api::Object;
use berth_core::names;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Changes of an object under construction.
#[must_use]
pub trait Manifest: Sized {
    /// Sets the field at a JSON pointer, creating missing parents.
    fn with(self, pointer: &str, value: impl Into<Value>) -> Self;

    /// Sets the size of a volume, the request of a claim, or the capacity of a pool.
    fn gi(self, gi: u32) -> Self;

    /// Sets the node of a pod, a local volume or a pool.
    fn on(self, node: &str) -> Self;

    /// The object as decoded by the components of Berth.
    fn decoded(&self) -> Object;

    /// The object as the type of its kind.
    fn read<T: DeserializeOwned>(&self) -> T;

    /// Sets the namespace.
    fn namespace(self, namespace: &str) -> Self {
        self.with("/metadata/namespace", namespace)
    }

    /// Sets the uid.
    fn uid(self, uid: &str) -> Self {
        self.with("/metadata/uid", uid)
    }

    /// Adds a label.
    fn label(self, key: &str, value: &str) -> Self {
        self.with(&format!("/metadata/labels/{}", escaped(key)), value)
    }

    /// Adds labels.
    fn labels(self, labels: &[(&str, &str)]) -> Self {
        let labels = labels.iter();
        labels.fold(self, |object, (key, value)| object.label(key, value))
    }

    /// Adds an annotation.
    fn annotation(self, key: &str, value: &str) -> Self {
        self.with(&format!("/metadata/annotations/{}", escaped(key)), value)
    }

    /// Puts a node into a zone.
    fn zone(self, zone: &str) -> Self {
        self.label(names::ZONE, zone)
    }

    /// Sets the phase.
    fn phase(self, phase: &str) -> Self {
        self.with("/status/phase", phase)
    }

    /// Sets immediate binding for a class.
    fn immediate(self) -> Self {
        self.with("/volumeBindingMode", "Immediate")
    }

    /// Sets the class of a claim or volume.
    fn class(self, class: &str) -> Self {
        self.with("/spec/storageClassName", class)
    }

    /// Sets the access modes of a claim or volume.
    fn access_modes(self, modes: &[&str]) -> Self {
        self.with("/spec/accessModes", json!(modes))
    }

    /// Makes a volume reachable only from nodes with one of these values of a label.
    fn reached_by(self, key: &str, values: &[&str]) -> Self {
        let expression = json!({"key": key, "operator": "In", "values": values});
        self.with(
            "/spec/nodeAffinity/required/nodeSelectorTerms",
            json!([{"matchExpressions": [expression]}]),
        )
    }

    /// Reserves a volume for a claim of the namespace `default`.
    fn claimed_by(self, claim: &str) -> Self {
        self.with("/spec/claimRef", json!({"namespace": "default", "name": claim}))
    }

    /// Binds a claim to a volume completely.
    fn bound_to(self, volume: &str) -> Self {
        self.with("/spec/volumeName", volume)
            .annotation(names::BIND_COMPLETED, "yes")
            .phase("Bound")
    }

    /// Sets how much of a resource the first container of a pod requests.
    fn requests(self, resource: &str, quantity: impl Into<Value>) -> Self {
        let resource = escaped(resource);
        self.with(&format!("/spec/containers/0/resources/requests/{resource}"), quantity)
    }

    /// Sets how much of a resource a node has allocatable.
    fn allocatable(self, resource: &str, quantity: impl Into<Value>) -> Self {
        self.with(&format!("/status/allocatable/{}", escaped(resource)), quantity)
    }

    /// Sets the priority of a pod.
    fn priority(self, priority: i32) -> Self {
        self.with("/spec/priority", priority)
    }
}

/// A key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

impl Manifest for Value {
    fn with(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let mut place = &mut self;
        for key in pointer.split('/').skip(1) {
            let key = key.replace("~1", "/").replace("~0", "~");
            place = match (place, key.parse::<usize>()) {
                (Value::Array(items), Ok(index)) => &mut items[index],
                (place, _) => &mut place[key],
            };
        }
        *place = value.into();
        self
    }

    fn gi(self, gi: u32) -> Self {
        let pointer = match self["kind"].as_str() {
            Some("PersistentVolume") => "/spec/capacity/storage",
            Some("PersistentVolumeClaim") => "/spec/resources/requests/storage",
            Some("CSIStorageCapacity") => "/capacity",
            kind => panic!("{kind:?} has no size"),
        };
        self.with(pointer, format!("{gi}Gi"))
    }

    fn on(mut self, node: &str) -> Self {
        match self["kind"].as_str() {
            Some("Pod") => self.with("/spec/nodeName", node),
            Some("PersistentVolume") => {
                if let Some(disk) = self["spec"].as_object_mut().and_then(|spec| spec.remove("hostPath")) {
                    self["spec"]["local"] = disk;
                }
                self.reached_by(names::HOSTNAME, &[node])
            }
            Some("CSIStorageCapacity") => self.with("/nodeTopology", json!({"matchLabels": {names::HOSTNAME: node}})),
            kind => panic!("{kind:?} is on no node"),
        }
    }

    fn decoded(&self) -> Object {
        let object = Object::decode(self).unwrap_or_else(|error| panic!("{error}: {self}"));
        object.expect("a kind that Berth reads")
    }

    fn read<T: DeserializeOwned>(&self) -> T {
        serde_json::from_value(self.clone()).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}
