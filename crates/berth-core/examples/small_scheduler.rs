//! A small scheduler that uses the volume binder directly: find, choose, assume, write, wait, and revert if binding fails.
//!
//! `cargo run -p berth-core --example small_scheduler`

use berth_core::api::{Kind, Object, Pod};
use berth_core::binder::{Assumption, BindingError, PodVolumes, Progress, VolumeBinder, VolumeWrite};
use serde_json::{Value, json};
use std::error::Error;

/// A scheduler that considers only volumes: it picks the first fitting node by name.
#[derive(Default)]
pub struct SmallScheduler {
    binder: VolumeBinder,
}

/// Where a pod goes. The assumption holds the volumes until the pod's claims are bound.
pub struct Placement {
    /// The node.
    pub node: String,
    /// Claims with the volumes that exist for them.
    pub static_volumes: Vec<(String, String)>,
    /// Claims that need a new volume.
    pub to_provision: Vec<String>,
    /// Holds the volumes for these claims.
    pub assumption: Assumption,
}

impl SmallScheduler {
    /// Applies an object from a watch. Kinds that are irrelevant to volumes are ignored.
    pub fn watch(&mut self, object: Value) -> Result<(), Box<dyn Error>> {
        if let Some(object) = Object::decode(&object)? {
            self.binder.upsert(&object);
        }
        Ok(())
    }

    /// Applies the deletion of an object.
    pub fn gone(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.binder.remove(kind, namespace, name);
    }

    /// Finds a node for a pod and takes its volumes, or returns why there is none.
    pub fn place(&mut self, pod: &Pod) -> Result<Placement, String> {
        let volumes = PodVolumes::new(self.binder.symbols_mut(), pod);
        // An error here applies to every node, for example a missing claim.
        let claims = self.binder.claims(&volumes).map_err(|reason| reason.to_string())?;
        let prepared = self.binder.prepare(&claims);
        let (nodes, symbols) = (self.binder.nodes(), self.binder.symbols());
        let mut nodes: Vec<_> = nodes
            .ids()
            .map(|id| (symbols.text(nodes.name(id)).to_owned(), id))
            .collect();
        nodes.sort();
        let mut refusals = Vec::new();
        for (name, node) in nodes {
            let found = match self.binder.on_node(&prepared, node) {
                Ok(found) => found,
                Err(reasons) => {
                    let words: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                    refusals.push(format!("{name}: {}", words.join(", ")));
                    continue;
                }
            };
            let (bindings, provisions) = self.binder.describe(&found);
            let static_volumes = bindings
                .into_iter()
                .map(|(claim, volume)| (claim.to_owned(), volume.to_owned()))
                .collect();
            let to_provision = provisions.into_iter().map(str::to_owned).collect();
            // From here on no other pod gets these volumes.
            let assumption = self.binder.assume(node, &found).map_err(|error| error.to_string())?;
            return Ok(Placement {
                node: name,
                static_volumes,
                to_provision,
                assumption,
            });
        }
        Err(refusals.join("; "))
    }

    /// Sends the writes of a placement: all reservations first, then all selections. `send` writes to the API server and
    /// returns the object's new version. A production scheduler sends the writes of one round concurrently.
    pub fn write(
        &self,
        placement: &mut Placement,
        mut send: impl FnMut(&VolumeWrite) -> Result<u64, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        loop {
            let writes = self.binder.writes(&placement.assumption)?;
            if writes.is_empty() {
                return Ok(());
            }
            for (target, write) in writes {
                let version = send(&write)?;
                placement.assumption.written(target, version);
            }
        }
    }

    /// Whether the pod may be bound. Call it again whenever a watch shows one of its claims or volumes.
    pub fn progress(&self, placement: &Placement) -> Result<Progress, BindingError> {
        self.binder.progress(&placement.assumption)
    }

    /// Binding failed: releases everything that was not written.
    pub fn give_back(&mut self, placement: Placement) {
        self.binder.revert(placement.assumption);
    }
}

/// A minimal API server with a volume controller that completes bindings at once.
#[derive(Default)]
struct Server {
    version: u64,
    changed: Vec<Value>,
}

impl Server {
    fn put(&mut self, mut object: Value) -> u64 {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.changed.push(object);
        self.version
    }

    /// Carries out a write. The result arrives through the watch.
    fn send(&mut self, write: &VolumeWrite) -> u64 {
        match write {
            VolumeWrite::ReserveVolume {
                volume,
                namespace,
                claim: name,
                uid,
                ..
            } => {
                let mut reserved = disk(volume, "n2", "100Gi");
                reserved["spec"]["claimRef"] = json!({"namespace": namespace, "name": name, "uid": uid});
                let version = self.put(reserved);
                let mut bound = claim(name, "50Gi");
                bound["spec"]["volumeName"] = json!(volume);
                bound["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
                self.put(bound);
                version
            }
            VolumeWrite::SelectNode { claim: name, node, .. } => {
                let mut selected = claim(name, "50Gi");
                selected["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": node});
                self.put(selected)
            }
        }
    }
}

fn disk(name: &str, node: &str, size: &str) -> Value {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}},
        "status": {"phase": "Available"}})
}

fn claim(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "resources": {"requests": {"storage": size}}}})
}

fn pod(name: &str, claims: &[&str]) -> Result<Pod, serde_json::Error> {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let volumes: Vec<Value> = claims.iter().map(volume).collect();
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"volumes": volumes}}))
}

/// Runs the example and returns what happened.
pub fn play() -> Result<Vec<String>, Box<dyn Error>> {
    let mut scheduler = SmallScheduler::default();
    for node in ["n1", "n2"] {
        let labels = json!({"kubernetes.io/hostname": node});
        scheduler.watch(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}}))?;
    }
    scheduler.watch(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}),
    )?;
    for volume in [
        disk("n1-small", "n1", "10Gi"),
        disk("n2-small", "n2", "10Gi"),
        disk("n2-large", "n2", "100Gi"),
    ] {
        scheduler.watch(volume)?;
    }
    for claim in [
        claim("data", "50Gi"),
        claim("log", "5Gi"),
        claim("cache", "5Gi"),
        claim("other", "5Gi"),
    ] {
        scheduler.watch(claim)?;
    }

    let mut told = Vec::new();
    // Both claims must fit on one node: n1 has a disk for the log but none for the data.
    let placement = scheduler.place(&pod("db", &["data", "log"])?)?;
    told.push(format!(
        "db runs on {} with {:?}",
        placement.node, placement.static_volumes
    ));
    // The disks of n2 are taken, though nothing was written yet.
    let cache = scheduler.place(&pod("cache", &["cache"])?)?;
    told.push(format!("cache runs on {} with {:?}", cache.node, cache.static_volumes));
    if let Err(refusal) = scheduler.place(&pod("other", &["other"])?) {
        told.push(format!("other waits: {refusal}"));
    }
    // Binding the database fails, so its disks are free again.
    scheduler.give_back(placement);
    let other = scheduler.place(&pod("other", &["other"])?)?;
    told.push(format!("other runs on {} with {:?}", other.node, other.static_volumes));
    scheduler.give_back(other);
    told.extend(bind(&mut scheduler)?);
    // A node is deleted while the cache is being bound to it: binding fails, and the pod must be placed again.
    scheduler.gone(Kind::Node, "", &cache.node);
    if let Err(problem) = scheduler.progress(&cache) {
        told.push(format!("cache is placed again: {problem}"));
    }
    scheduler.give_back(cache);
    Ok(told)
}

/// Places the database again and completes its binding.
fn bind(scheduler: &mut SmallScheduler) -> Result<Vec<String>, Box<dyn Error>> {
    let mut server = Server::default();
    let mut told = Vec::new();
    let mut placement = scheduler.place(&pod("db", &["data"])?)?;
    scheduler.write(&mut placement, |write| {
        if let VolumeWrite::ReserveVolume { volume, claim, .. } = write {
            told.push(format!("{volume} is reserved for {claim}"));
        }
        Ok(server.send(write))
    })?;
    told.push(format!("db is {:?}", scheduler.progress(&placement)?));
    // The watch shows the result of the writes, and that the volume controller completed the binding.
    for object in server.changed.drain(..) {
        scheduler.watch(object)?;
    }
    told.push(format!("db is {:?}", scheduler.progress(&placement)?));
    // Everything is written and observed: there is nothing to revert. The pod can now be bound to its node.
    placement.assumption.keep();
    Ok(told)
}

#[allow(clippy::print_stdout, reason = "it is what an example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    for line in play()? {
        println!("{line}");
    }
    Ok(())
}
