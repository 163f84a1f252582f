//! Builders for the objects of a story.

#![allow(dead_code, reason = "every test file uses some of the builders")]
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot be told is a failed test"
)]

use berth_core::api::{self, Object};
use berth_core::binder::{NodeVolumes, PodVolumes, PreparedPod, VolumeBinder};
use berth_core::reason::VolumeReason;
use serde_json::{Value, json};

/// An object under construction.
#[derive(Clone, Debug)]
pub struct Made(pub Value);

impl Made {
    fn set(mut self, pointer: &[&str], value: Value) -> Self {
        let mut at = &mut self.0;
        for key in pointer {
            at = &mut at[*key];
        }
        *at = value;
        self
    }

    pub fn label(self, key: &str, value: &str) -> Self {
        self.set(&["metadata", "labels", key], json!(value))
    }

    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.set(&["metadata", "annotations", key], json!(value))
    }

    pub fn version(self, version: u64) -> Self {
        self.set(&["metadata", "resourceVersion"], json!(version.to_string()))
    }

    pub fn class(self, class: &str) -> Self {
        self.set(&["spec", "storageClassName"], json!(class))
    }

    pub fn modes(self, modes: &[&str]) -> Self {
        self.set(&["spec", "accessModes"], json!(modes))
    }

    /// The size of a volume, or the request of a claim.
    pub fn gi(self, gi: u32) -> Self {
        let size = json!(format!("{gi}Gi"));
        if self.0["kind"] == "PersistentVolume" {
            self.set(&["spec", "capacity", "storage"], size)
        } else {
            self.set(&["spec", "resources", "requests", "storage"], size)
        }
    }

    /// A volume that only nodes with this label reach.
    pub fn reached_by(self, key: &str, values: &[&str]) -> Self {
        let expression = json!({"key": key, "operator": "In", "values": values});
        let terms = json!([{"matchExpressions": [expression]}]);
        self.set(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"], terms)
    }

    /// A volume on one node.
    pub fn local(self, node: &str) -> Self {
        self.reached_by("kubernetes.io/hostname", &[node])
    }

    /// A volume that is reserved for a claim, or bound to it.
    pub fn claimed_by(self, claim: &str) -> Self {
        self.set(&["spec", "claimRef"], json!({"namespace": "default", "name": claim}))
    }

    /// A claim that is bound to a volume for good.
    pub fn bound_to(self, volume: &str) -> Self {
        self.set(&["spec", "volumeName"], json!(volume))
            .annotation("pv.kubernetes.io/bind-completed", "yes")
    }

    pub fn provisioner(self, provisioner: &str) -> Self {
        self.set(&["provisioner"], json!(provisioner))
    }

    pub fn object(&self) -> Object {
        Object::decode(self.0.clone())
            .unwrap_or_else(|error| panic!("{error}"))
            .expect("a kind that is read")
    }
}

pub fn mk_node(name: &str) -> Made {
    Made(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).label("kubernetes.io/hostname", name)
}

pub fn mk_volume(name: &str) -> Made {
    Made(
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "status": {"phase": "Available"}}),
    )
    .class("local")
    .modes(&["ReadWriteOnce"])
    .gi(10)
}

pub fn mk_claim(name: &str) -> Made {
    Made(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "uid": format!("uid-{name}")}, "status": {"phase": "Pending"}}))
    .class("local")
    .modes(&["ReadWriteOnce"])
    .gi(10)
}

/// A class that waits for the first consumer and only takes existing volumes.
pub fn mk_class(name: &str) -> Made {
    Made(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "volumeBindingMode": "WaitForFirstConsumer"}),
    )
    .provisioner("kubernetes.io/no-provisioner")
}

pub fn mk_pod(claims: &[&str]) -> api::Pod {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    serde_json::from_value(
        json!({"metadata": {"name": "pod", "namespace": "default", "uid": "uid-pod"},
                                  "spec": {"volumes": volumes}}),
    )
    .expect("a pod")
}

pub fn binder_of(objects: &[Made]) -> VolumeBinder {
    let mut binder = VolumeBinder::default();
    for object in objects {
        binder.upsert(&object.object());
    }
    binder
}

pub fn prepare(binder: &mut VolumeBinder, pod: &api::Pod) -> Result<PreparedPod, VolumeReason> {
    let pod = PodVolumes::new(binder.symbols_mut(), pod);
    let claims = binder.claims(&pod)?;
    Ok(binder.prepare(&claims))
}

pub fn on_node(binder: &mut VolumeBinder, pod: &api::Pod, node: &str) -> Result<NodeVolumes, Vec<VolumeReason>> {
    let prepared = prepare(binder, pod).map_err(|reason| vec![reason])?;
    binder.on_node(&prepared, binder.node(node).expect("the node is there"))
}

/// `claim=volume` for each binding and `claim=new` for each claim to provision for, or the reasons.
pub fn outcome(binder: &mut VolumeBinder, pod: &api::Pod, node: &str) -> Vec<String> {
    match on_node(binder, pod, node) {
        Ok(volumes) => {
            let (bindings, provisions) = binder.describe(&volumes);
            let bound = bindings.iter().map(|(claim, volume)| format!("{claim}={volume}"));
            bound
                .chain(provisions.iter().map(|claim| format!("{claim}=new")))
                .collect()
        }
        Err(reasons) => reasons
            .iter()
            .map(|reason| reason.code().trim_start_matches("VolumeBinding.").to_owned())
            .collect(),
    }
}
