//! The calls of a node agent: what a kubelet asks of a driver before a pod's containers start, and after they have
//! ended.

use super::calls::use_on_node;
use super::client::{CallError, ClientSettings, ConnectError, call_error, open};
use super::identity::{NodeIdentity, node_identity_of};
use super::proto;
use crate::node_volume::NodeVolume;
use proto::identity_client::IdentityClient;
use proto::node_client::NodeClient as Calls;
use proto::node_service_capability::Type as Ability;
use proto::node_service_capability::rpc::Type as Rpc;
use std::collections::BTreeMap;
use std::future::Future;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// A connection to a driver's node service.
#[derive(Clone, Debug)]
pub struct NodeClient {
    channel: Channel,
    settings: ClientSettings,
    identity: NodeIdentity,
    stages: bool,
    tells_pods_apart: bool,
}

impl NodeClient {
    /// Connects, waits until the driver is ready, and asks for its identity and topology.
    ///
    /// # Errors
    /// If the driver is not ready in time or does not report its identity and topology.
    pub async fn connect(address: &str, settings: ClientSettings) -> Result<Self, ConnectError> {
        let channel = open(address, settings).await?;
        let refused = |call: &'static str| {
            move |error: CallError| ConnectError::Refused {
                address: address.to_owned(),
                call,
                problem: error.message,
            }
        };
        let (mut identity, mut node) = (IdentityClient::new(channel.clone()), Calls::new(channel.clone()));
        let plugin = within(settings, identity.get_plugin_info(proto::GetPluginInfoRequest {}))
            .await
            .map_err(refused("GetPluginInfo"))?;
        let abilities = within(
            settings,
            node.node_get_capabilities(proto::NodeGetCapabilitiesRequest {}),
        )
        .await
        .map_err(refused("NodeGetCapabilities"))?;
        let place = within(settings, node.node_get_info(proto::NodeGetInfoRequest {}))
            .await
            .map_err(refused("NodeGetInfo"))?;
        let has = |call: Rpc| {
            let mut known = abilities.capabilities.iter().filter_map(|one| one.r#type.as_ref());
            known.any(|Ability::Rpc(rpc)| rpc.r#type == i32::from(call))
        };
        Ok(Self {
            stages: has(Rpc::StageUnstageVolume),
            tells_pods_apart: has(Rpc::SingleNodeMultiWriter),
            identity: node_identity_of(plugin, place)
                .map_err(|message| refused("NodeGetInfo")(CallError { message }))?,
            channel,
            settings,
        })
    }

    /// What the driver reports about itself and its node.
    #[must_use]
    pub fn identity(&self) -> &NodeIdentity {
        &self.identity
    }

    /// Makes a volume available to a pod, staging it first if the driver supports that. Idempotent.
    ///
    /// # Errors
    /// If the driver refuses or does not respond.
    pub async fn publish(&self, volume: &NodeVolume) -> Result<(), CallError> {
        let used = use_on_node(volume, self.tells_pods_apart).map_err(|failure| CallError {
            message: failure.message,
        })?;
        let mut calls = Calls::new(self.channel.clone());
        let staging_path = volume.staging_path.as_deref().filter(|_| self.stages);
        if let Some(path) = staging_path {
            let call = proto::NodeStageVolumeRequest {
                volume_id: volume.handle.clone(),
                publish_context: BTreeMap::new(),
                staging_target_path: path.to_owned(),
                volume_capability: Some(used.clone()),
                secrets: volume.stage_secrets.clone(),
                volume_context: volume.volume_context.clone(),
            };
            within(self.settings, calls.node_stage_volume(call)).await?;
        }
        let call = proto::NodePublishVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: volume.publish_context.clone(),
            staging_target_path: staging_path.unwrap_or_default().to_owned(),
            target_path: volume.target_path.clone(),
            volume_capability: Some(used),
            readonly: volume.read_only,
            secrets: volume.publish_secrets.clone(),
            volume_context: volume.volume_context.clone(),
        };
        within(self.settings, calls.node_publish_volume(call)).await?;
        Ok(())
    }

    /// Removes a volume from a pod. Idempotent.
    ///
    /// # Errors
    /// If the driver refuses or does not respond.
    pub async fn unpublish(&self, handle: &str, target_path: &str) -> Result<(), CallError> {
        let call = proto::NodeUnpublishVolumeRequest {
            volume_id: handle.to_owned(),
            target_path: target_path.to_owned(),
        };
        let mut calls = Calls::new(self.channel.clone());
        within(self.settings, calls.node_unpublish_volume(call)).await?;
        Ok(())
    }

    /// Unstages a volume that no pod of the node uses any more, if the driver stages volumes.
    ///
    /// # Errors
    /// If the driver refuses or does not respond.
    pub async fn unstage(&self, handle: &str, staging_path: &str) -> Result<(), CallError> {
        if !self.stages {
            return Ok(());
        }
        let call = proto::NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: staging_path.to_owned(),
        };
        let mut calls = Calls::new(self.channel.clone());
        within(self.settings, calls.node_unstage_volume(call)).await?;
        Ok(())
    }
}

async fn within<T>(
    settings: ClientSettings,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    let limit = settings.call_timeout;
    match timeout(limit, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(call_error(&status)),
        Err(_) => Err(CallError {
            message: format!("no response within {limit:?}"),
        }),
    }
}
