//! Registers a driver on a node: writes what a kubelet writes.

use berth_core::api::Kind;
use berth_core::backoff::Backoff;
use berth_kube::api::{Api, ApiError};
use berth_kube::backoff::jittered;
use berth_kube::resource::Resource;
use berth_provisioner::csi::{ClientSettings, NodeClient, NodeIdentity};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a driver may take to become ready before that is reported.
const READY: Duration = Duration::from_secs(10);

/// Waits for a driver, and writes what it reports about the node: labels of its segment, and its entry in the
/// `CSINode`.
pub(super) async fn register(api: &Api, node: &str, address: &str) -> NodeClient {
    let settings = ClientSettings {
        ready_timeout: READY,
        ..ClientSettings::default()
    };
    let mut failures = 0;
    loop {
        match NodeClient::connect(address, settings).await {
            Err(error) => tracing::warn!(node, %error, "no driver yet"),
            Ok(client) => match write(api, node, client.identity()).await {
                Ok(()) => {
                    tracing::info!(node, driver = client.identity().driver, "driver registered");
                    return client;
                }
                Err(error) if error.is_conflict() => {}
                Err(error) => tracing::warn!(node, %error, "the driver is not registered yet"),
            },
        }
        failures += 1;
        tokio::time::sleep(jittered(Backoff::WATCH, failures)).await;
    }
}

async fn write(api: &Api, node: &str, identity: &NodeIdentity) -> Result<(), ApiError> {
    let (nodes, csi_nodes) = (Resource::of(Kind::Node), Resource::of(Kind::CsiNode));
    let labels = json!({"metadata": {"labels": identity.segment}});
    let written = api.merge_patch(nodes, "", node, None, &labels).await?;
    let of: Value = serde_json::from_slice(&written).unwrap_or_default();
    let keys: Vec<&String> = identity.segment.keys().collect();
    let mut entry = json!({"name": identity.driver, "nodeID": identity.node_id, "topologyKeys": keys});
    if let Some(most) = identity.most_volumes {
        entry["allocatable"] = json!({"count": most});
    }
    let Some(bytes) = api.get(csi_nodes, "", node).await? else {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": of["metadata"]["uid"]});
        let fresh = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": node, "ownerReferences": [owner]}, "spec": {"drivers": [entry]}});
        api.create(csi_nodes, "", &fresh).await?;
        return Ok(());
    };
    let mut found: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut drivers = found["spec"]["drivers"].as_array().cloned().unwrap_or_default();
    if drivers.contains(&entry) {
        return Ok(());
    }
    drivers.retain(|driver| driver["name"] != identity.driver.as_str());
    drivers.push(entry);
    found["spec"] = json!({"drivers": drivers});
    api.replace(csi_nodes, "", node, &found).await?;
    Ok(())
}
