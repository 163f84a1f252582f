//! An embedded cluster with all components on it.

use crate::common::{Cluster, Running, eventually};
use berth_controller::Settings;
use berth_core::api::Kind;
use berth_kube::component::RunError;
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client, controller, provisioner, scheduler};
use berth_scheduler::queue::QueueTimes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout for a pod to get a node. Shorter than the timeout of tests, so that they report what is wrong.
const PATIENCE: Duration = Duration::from_secs(45);

/// Runs a component on a client.
fn spawn<F>(run: impl FnOnce(CancellationToken) -> F) -> Running
where
    F: Future<Output = Result<(), RunError>> + Send + 'static,
{
    let cancel = CancellationToken::new();
    let task = tokio::spawn(run(cancel.clone()));
    Running { cancel, task }
}

/// A scheduler with short backoffs.
pub(crate) fn quick() -> scheduler::Options {
    let mut options = scheduler::Options::default();
    options.settings.times = QueueTimes {
        initial_backoff: Duration::from_millis(20),
        max_backoff: Duration::from_millis(100),
        ..QueueTimes::default()
    };
    options
}

/// A running scheduler.
pub(crate) struct Scheduler {
    pub(crate) running: Running,
    pub(crate) metrics: scheduler::Metrics,
}

impl Scheduler {
    pub(crate) fn start(client: Client, options: scheduler::Options) -> Self {
        let metrics = options.metrics.clone();
        let running = spawn(|cancel| scheduler::run(client, options, cancel));
        Self { running, metrics }
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await;
    }
}

/// The cluster, with a volume controller and a provisioner.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    running: Vec<Running>,
}

impl World {
    /// Creates objects, and waits for the controller to process the volumes.
    pub(crate) async fn of(objects: impl IntoIterator<Item = Value>) -> Self {
        Self::through(objects, |cluster| cluster.client.clone()).await
    }

    /// [`Self::of`] with controller and provisioner on a separate client.
    pub(crate) async fn through(
        objects: impl IntoIterator<Item = Value>,
        client: impl FnOnce(&Cluster) -> Client,
    ) -> Self {
        let cluster = Cluster::new();
        let client = client(&cluster);
        let options = controller::Options {
            settings: Settings::embedded(),
            resync: Duration::from_secs(1),
            ..controller::Options::default()
        };
        let (of_controller, of_provisioner) = (client.clone(), client);
        let running = vec![
            spawn(|cancel| controller::run(of_controller, options, cancel)),
            spawn(|cancel| provisioner::run(of_provisioner, provisioner::Options::builtin(), cancel)),
        ];
        let world = Self { cluster, running };
        world.create(objects).await;
        eventually("all volumes are available", || async {
            let volumes = world.cluster.list(Resource::of(Kind::PersistentVolume)).await;
            volumes.iter().all(|volume| volume["status"]["phase"] == "Available")
        })
        .await;
        world
    }

    pub(crate) fn scheduler(&self) -> Scheduler {
        Scheduler::start(self.cluster.client.clone(), quick())
    }

    pub(crate) async fn stop(self) {
        for running in self.running {
            running.stop().await;
        }
    }

    pub(crate) async fn create(&self, objects: impl IntoIterator<Item = Value>) {
        for object in objects {
            self.cluster.create(&object).await;
        }
    }

    pub(crate) async fn node_of(&self, pod: &str) -> String {
        let pod = self.cluster.get(Kind::Pod, "default", pod).await.unwrap();
        pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()
    }

    /// The pod's message about why it has no node.
    pub(crate) async fn message_of(&self, pod: &str) -> String {
        let pod = self.cluster.get(Kind::Pod, "default", pod).await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let scheduled = conditions.iter().find(|one| one["type"] == "PodScheduled");
        let message = scheduled.and_then(|one| one["message"].as_str());
        message.unwrap_or_default().to_owned()
    }

    pub(crate) async fn placed(&self, pod: &str) -> String {
        let placed = eventually("it has a node", || async { !self.node_of(pod).await.is_empty() });
        if timeout(PATIENCE, placed).await.is_err() {
            panic!("{pod} has no node:\n{}", self.describe().await);
        }
        self.node_of(pod).await
    }

    /// The relevant state, for debugging.
    async fn describe(&self) -> String {
        let mut lines = Vec::new();
        for kind in [Kind::Pod, Kind::PersistentVolumeClaim, Kind::PersistentVolume] {
            for object in self.cluster.list(Resource::of(kind)).await {
                let (meta, spec) = (&object["metadata"], &object["spec"]);
                lines.push(format!(
                    "{kind} {} {} node {} volume {} claim {} {}",
                    meta["name"],
                    meta["annotations"],
                    spec["nodeName"],
                    spec["volumeName"],
                    spec["claimRef"]["name"],
                    object["status"]
                ));
            }
        }
        for event in self.cluster.list(Resource::EVENTS).await {
            let about = &event["involvedObject"]["name"];
            lines.push(format!(
                "{about} {} {} {}",
                event["reason"], event["message"], event["count"]
            ));
        }
        lines.join("\n")
    }

    pub(crate) async fn waits(&self, pod: &str, because: &str) {
        eventually(&format!("{pod} waits because {because}"), || async {
            self.message_of(pod).await.contains(because)
        })
        .await;
        assert_eq!(self.node_of(pod).await, "");
    }

    /// No volume is claimed twice, and claims and volumes agree.
    pub(crate) async fn check(&self) {
        // In the order of their dependencies, because the cluster changes meanwhile.
        let pods = self.cluster.list(Resource::of(Kind::Pod)).await;
        let claims = self.cluster.list(Resource::of(Kind::PersistentVolumeClaim)).await;
        let volumes = self.cluster.list(Resource::of(Kind::PersistentVolume)).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let by_name: BTreeMap<_, _> = volumes
            .iter()
            .map(|volume| (text(&volume["metadata"]["name"]), volume))
            .collect();
        let mut taken = BTreeSet::new();
        for claim in claims.iter().filter(|claim| claim["spec"]["volumeName"].is_string()) {
            let volume = text(&claim["spec"]["volumeName"]);
            assert!(taken.insert(volume.clone()), "{volume} is bound twice");
            let reference = &by_name[&volume]["spec"]["claimRef"];
            assert_eq!(
                reference["uid"], claim["metadata"]["uid"],
                "{volume} and its claim agree"
            );
        }
        for event in self.cluster.list(Resource::EVENTS).await {
            let reason = event["reason"].as_str().unwrap();
            assert!(!["ClaimLost", "ClaimMisbound"].contains(&reason), "{event:#}");
        }
        for pod in &pods {
            check_pod(pod, &claims, &by_name);
        }
    }
}

/// A pod with a node has its claims bound to volumes that the node can reach.
fn check_pod(pod: &Value, claims: &[Value], volumes: &BTreeMap<String, &Value>) {
    let Some(node) = pod["spec"]["nodeName"].as_str() else {
        return;
    };
    for source in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let Some(name) = source["persistentVolumeClaim"]["claimName"].as_str() else {
            continue;
        };
        let claim = claims.iter().find(|claim| claim["metadata"]["name"] == name).unwrap();
        let volume = &volumes[claim["spec"]["volumeName"].as_str().unwrap()];
        let term = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
        assert_eq!(term["matchExpressions"][0]["values"][0], node, "{name} can be reached");
    }
}
