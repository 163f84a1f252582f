//! The isolated part of a test: a namespace, a storage class, nodes and volumes. All of it is removed when the test is
//! over.

use super::world::World;
use anyhow::{Context as _, bail};
use berth_e2e::kube::{Kube, path_of};
use berth_e2e::objects;
use berth_e2e::wait::eventually;
use berth_provisioner::driver::{NAME, NODE_KEY};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

static NUMBER: AtomicUsize = AtomicUsize::new(1);
/// Timeout for something that usually takes a second: machines that run tests are busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// One test's part of the cluster.
pub(crate) struct Scenario {
    pub(crate) kube: Kube,
    pub(crate) namespace: String,
    pub(crate) class: String,
    /// Paths of cluster-scoped objects, in creation order.
    outside: Vec<String>,
}

impl Scenario {
    pub(crate) async fn new(world: &World, name: &str) -> anyhow::Result<Self> {
        let kube = world.kube.clone();
        // Namespaces are deleted slowly, and a test may be played more than once.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("e2e-{number}-{name}");
        kube.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .await?;
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        eventually("the namespace has its service account", SOON, async || {
            kube.get(&account).await
        })
        .await?;
        Ok(Self {
            kube,
            class: namespace.clone(),
            namespace,
            outside: Vec::new(),
        })
    }

    /// Creates an object.
    pub(crate) async fn add(&mut self, object: &Value) -> anyhow::Result<Value> {
        let created = self.kube.create(object).await?;
        if object.pointer("/metadata/namespace").is_none() {
            self.outside.push(path_of(object));
        }
        Ok(created)
    }

    /// Creates nodes with the CSI driver.
    pub(crate) async fn add_nodes(&mut self, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            let mut node = objects::node(name);
            node["metadata"]["labels"][NODE_KEY] = json!(name);
            self.add(&node).await?;
            let driver = json!({"name": NAME, "nodeID": name, "topologyKeys": [NODE_KEY]});
            self.add(
                &json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
                "spec": {"drivers": [driver]}}),
            )
            .await?;
        }
        Ok(())
    }

    /// Creates the test's class: delayed, for existing volumes only.
    pub(crate) async fn add_local_class(&mut self) -> anyhow::Result<()> {
        let class = objects::class(&self.class, objects::NO_PROVISIONER, true);
        self.add(&class).await.map(drop)
    }

    /// Creates the test's class: the CSI driver provisions its volumes.
    pub(crate) async fn add_provisioning_class(&mut self, delayed: bool) -> anyhow::Result<()> {
        let class = objects::class(&self.class, NAME, delayed);
        self.add(&class).await.map(drop)
    }

    /// Creates a number of volumes on a node.
    pub(crate) async fn add_volumes_later(&mut self, node: &str, count: usize, size: &str) -> anyhow::Result<()> {
        for number in 0..count {
            let name = format!("{}-{node}-{number}", self.namespace);
            let volume = objects::local_volume(&name, &self.class, node, size);
            self.add(&volume).await?;
        }
        Ok(())
    }

    /// Creates a number of volumes on a node, and waits until they are available.
    pub(crate) async fn add_volumes(&mut self, node: &str, count: usize, size: &str) -> anyhow::Result<()> {
        self.add_volumes_later(node, count, size).await?;
        self.volumes_available().await
    }

    /// Waits until all volumes of the test's class are available.
    pub(crate) async fn volumes_available(&self) -> anyhow::Result<()> {
        eventually("the volumes are available", SOON, async || {
            let volumes = self.volumes().await?;
            let available = volumes.iter().all(|volume| volume["status"]["phase"] == "Available");
            Ok::<_, anyhow::Error>(available.then_some(()))
        })
        .await?;
        Ok(())
    }

    /// Creates many objects, with limited concurrency.
    pub(crate) async fn add_all(&mut self, objects: Vec<Value>, at_a_time: usize) -> anyhow::Result<()> {
        let outside = objects
            .iter()
            .filter(|object| object.pointer("/metadata/namespace").is_none());
        self.outside.extend(outside.map(path_of));
        let mut creating = JoinSet::new();
        for object in objects {
            if creating.len() >= at_a_time
                && let Some(created) = creating.join_next().await
            {
                created??;
            }
            let kube = self.kube.clone();
            creating.spawn(async move { kube.create(&object).await.map(drop) });
        }
        while let Some(created) = creating.join_next().await {
            created??;
        }
        Ok(())
    }

    pub(crate) async fn add_claim(&mut self, name: &str, size: &str) -> anyhow::Result<()> {
        let claim = objects::claim(&self.namespace, name, &self.class, size);
        self.add(&claim).await.map(drop)
    }

    pub(crate) async fn add_pod(&mut self, name: &str, claims: &[&str]) -> anyhow::Result<()> {
        let pod = objects::pod(&self.namespace, name, claims);
        self.add(&pod).await.map(drop)
    }

    /// A stateful set named `db` with a claim of 5 GiB per pod, and this affinity.
    pub(crate) async fn add_stateful_set(&mut self, replicas: usize, affinity: Value) -> anyhow::Result<()> {
        let mut spec = objects::pod_spec(&[]);
        spec["affinity"] = affinity;
        let template = objects::claim(&self.namespace, "data", &self.class, "5Gi");
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"namespace": self.namespace, "name": "db"},
            "spec": {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
                "template": {"metadata": {"labels": {"app": "db"}}, "spec": spec},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": template["spec"]}]}});
        self.add(&set).await.map(drop)
    }

    /// A path in the test's namespace.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    pub(crate) async fn pods(&self) -> anyhow::Result<Vec<Value>> {
        Ok(self.kube.list(&self.path("pods")).await?)
    }

    pub(crate) async fn claims(&self) -> anyhow::Result<Vec<Value>> {
        Ok(self.kube.list(&self.path("persistentvolumeclaims")).await?)
    }

    /// The volumes of the test's class.
    pub(crate) async fn volumes(&self) -> anyhow::Result<Vec<Value>> {
        let mut volumes = self.kube.list("/api/v1/persistentvolumes").await?;
        volumes.retain(|volume| volume["spec"]["storageClassName"] == self.class.as_str());
        Ok(volumes)
    }

    /// Waits until this many pods have a node. Returns the node of each.
    pub(crate) async fn placed(&self, count: usize) -> anyhow::Result<BTreeMap<String, String>> {
        let placed = eventually("all pods have a node", SOON, async || {
            let nodes = nodes_of(&self.pods().await?);
            Ok::<_, anyhow::Error>((nodes.len() == count).then_some(nodes))
        });
        match placed.await {
            Ok(nodes) => Ok(nodes),
            Err(error) => bail!("{error}\n{}", self.describe().await),
        }
    }

    /// Waits until a pod is reported as unschedulable. Returns the reason.
    pub(crate) async fn refused(&self, pod: &str) -> anyhow::Result<String> {
        let path = self.path(&format!("pods/{pod}"));
        let refused = eventually("the pod's condition tells why it has no node", SOON, async || {
            let pod = self.kube.get(&path).await?.unwrap_or_default();
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let condition = conditions
                .iter()
                .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
            let message = condition.and_then(|condition| condition["message"].as_str());
            Ok::<_, anyhow::Error>(message.filter(|message| !message.is_empty()).map(str::to_owned))
        });
        match refused.await {
            Ok(message) => Ok(message),
            Err(error) => bail!("{error}\n{}", self.describe().await),
        }
    }

    /// Waits until a condition is true for the claims.
    pub(crate) async fn claims_until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> anyhow::Result<()> {
        let waited = eventually(what, SOON, async || {
            let claims = self.claims().await?;
            Ok::<_, anyhow::Error>(holds(&claims).then_some(()))
        });
        match waited.await {
            Ok(()) => Ok(()),
            Err(error) => bail!("{error}\n{}", self.describe().await),
        }
    }

    /// The test's pods, claims, volumes and events, for debugging.
    pub(crate) async fn describe(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let mut lines = Vec::new();
        for pod in self.pods().await.unwrap_or_default() {
            let conditions = &pod["status"]["conditions"];
            lines.push(format!(
                "pod {} on {} {conditions}",
                text(&pod["metadata"]["name"]),
                text(&pod["spec"]["nodeName"])
            ));
        }
        for claim in self.claims().await.unwrap_or_default() {
            let (spec, metadata) = (&claim["spec"], &claim["metadata"]);
            let phase = text(&claim["status"]["phase"]);
            lines.push(format!(
                "claim {} {phase} {} {}",
                text(&metadata["name"]),
                text(&spec["volumeName"]),
                metadata["annotations"]
            ));
        }
        for volume in self.volumes().await.unwrap_or_default() {
            let claim = text(&volume["spec"]["claimRef"]["name"]);
            lines.push(format!(
                "volume {} {} for {claim}",
                text(&volume["metadata"]["name"]),
                text(&volume["status"]["phase"])
            ));
        }
        for event in self.kube.list(&self.path("events")).await.unwrap_or_default() {
            let about = text(&event["involvedObject"]["name"]);
            lines.push(format!(
                "event {about} {}: {}",
                text(&event["reason"]),
                text(&event["message"])
            ));
        }
        lines.join("\n")
    }

    /// Removes everything that the test created, and waits until it is gone.
    pub(crate) async fn finish(self) -> anyhow::Result<()> {
        let workloads = format!("/apis/apps/v1/namespaces/{}/statefulsets", self.namespace);
        for collection in [workloads, self.path("pods"), self.path("persistentvolumeclaims")] {
            self.kube.delete(&collection).await?;
        }
        let path = format!("/apis/storage.k8s.io/v1/storageclasses/{}", self.class);
        let class = self.kube.get(&path).await?.unwrap_or_default();
        let provisioned = class["provisioner"] == NAME;
        for path in self.outside.iter().filter(|path| path.contains("/persistentvolumes/")) {
            self.kube.delete(path).await?;
        }
        eventually("pods, claims and volumes are gone", SOON, async || {
            // A stateful set's controller may have created a pod while its set was being deleted.
            let pods = self.pods().await?.len();
            let claims = self.claims().await?.len();
            let volumes = if provisioned { self.volumes().await?.len() } else { 0 };
            Ok::<_, anyhow::Error>((pods + claims + volumes == 0).then_some(()))
        })
        .await
        .with_context(|| format!("cannot clean up {}", self.namespace))?;
        for path in self.outside.iter().rev() {
            self.kube.delete(path).await?;
        }
        self.kube
            .delete(&format!("/api/v1/namespaces/{}", self.namespace))
            .await?;
        Ok(())
    }
}

/// The nodes of those pods that have one.
pub(crate) fn nodes_of(pods: &[Value]) -> BTreeMap<String, String> {
    pods.iter()
        .filter_map(|pod| {
            let name = pod["metadata"]["name"].as_str()?;
            Some((name.to_owned(), pod["spec"]["nodeName"].as_str()?.to_owned()))
        })
        .collect()
}

/// Affinity or anti-affinity of the pods of a stateful set to each other.
pub(crate) fn together(kind: &str) -> Value {
    json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": objects::HOSTNAME}]}})
}
