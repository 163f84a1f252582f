//! Simulates all kubelets: reports every placed pod as running.
//!
//! Stateful sets wait for one pod to be ready before they create the next. Pods of the tests have no grace period, so
//! nothing has to terminate them.

use berth_e2e::kube::Kube;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;

const PERIOD: Duration = Duration::from_millis(100);
/// Pods that have a node but are not reported as running.
const PLACED: &str = "/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName!=,status.phase=Pending";

/// Runs until dropped.
pub(crate) struct Agent(JoinHandle<()>);

impl Agent {
    pub(crate) fn start(kube: Kube) -> Self {
        Self(tokio::spawn(async move {
            loop {
                // While the API server is unavailable there is nothing to report; the next round tries again.
                for pod in kube.list(PLACED).await.unwrap_or_default() {
                    let _ = say_that_it_runs(&kube, &pod).await;
                }
                tokio::time::sleep(PERIOD).await;
            }
        }))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn say_that_it_runs(kube: &Kube, pod: &Value) -> Option<()> {
    let metadata = &pod["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str()?, metadata["name"].as_str()?);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager=kubelet");
    let patch = json!({"metadata": {"uid": metadata["uid"]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let media_type = "application/strategic-merge-patch+json";
    kube.api().patch_path(&path, media_type, &patch).await.ok()?;
    Some(())
}
