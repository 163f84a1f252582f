//! Publishes volumes to pods: a symbolic link from the pod's path to the volume's directory.
//!
//! A production driver would mount. A link needs no privileges, and a process that opens files under the path sees no
//! difference. Inline volumes are created here, on the node, when their pod starts, and deleted with it.

use super::controller::{check_capabilities, lock};
use super::store::Store;
use crate::csi::proto;
use crate::topology::Segment;
use berth_core::names::CSI_PREFIX;
use berth_core::quantity::Quantity;
use proto::node_server::Node;
use proto::volume_capability::access_mode::Mode;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tonic::{Request, Response, Status};

/// The node service of one node.
#[derive(Clone, Debug)]
pub struct NodeService {
    store: Arc<Mutex<Store>>,
    node_id: String,
    segment: Segment,
    most_volumes: i64,
}

impl NodeService {
    /// A service for a node in a segment. `most_volumes` of zero means no limit.
    #[must_use]
    pub fn new(store: Arc<Mutex<Store>>, node_id: impl Into<String>, segment: Segment, most_volumes: i64) -> Self {
        Self {
            store,
            node_id: node_id.into(),
            segment,
            most_volumes,
        }
    }

    fn directory_of(&self, request: &proto::NodePublishVolumeRequest) -> Result<PathBuf, Status> {
        let id = &request.volume_id;
        let mut store = lock(&self.store);
        if let Some(volume) = store.get(id) {
            let reachable = volume
                .segment
                .iter()
                .all(|(key, value)| self.segment.get(key) == Some(value));
            return if reachable {
                Ok(store.directory(id))
            } else {
                Err(Status::failed_precondition(format!(
                    "volume {id:?} is in {} and cannot be reached from node {:?}",
                    crate::topology::describe(&volume.segment),
                    self.node_id
                )))
            };
        }
        let context = |key: &str| request.volume_context.get(&format!("{CSI_PREFIX}{key}"));
        if context("ephemeral").map(String::as_str) != Some("true") {
            return Err(Status::not_found(format!("there is no volume {id:?}")));
        }
        if Path::new(id).components().count() != 1 || id.starts_with('.') {
            return Err(Status::invalid_argument(format!("{id:?} cannot be the id of a volume")));
        }
        let bytes = inline_size(&request.volume_context, &request.publish_context)?;
        let segment = store.find_room(std::slice::from_ref(&self.segment), bytes)?;
        store.create(id, bytes, segment, true)?;
        Ok(store.directory(id))
    }
}

/// The size of an inline volume, if specified.
fn inline_size(volume: &BTreeMap<String, String>, publish: &BTreeMap<String, String>) -> Result<i64, Status> {
    let key = format!("{CSI_PREFIX}size");
    let text = publish
        .get(&key)
        .or_else(|| volume.get(&key))
        .filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(0) };
    let size: Quantity = text
        .parse()
        .map_err(|error| Status::invalid_argument(format!("{key}: {error}")))?;
    Ok(size.value())
}

/// Makes `target` a link to `directory`; succeeds if it already is one.
async fn link(directory: &Path, target: &Path) -> io::Result<()> {
    if tokio::fs::read_link(target).await.is_ok_and(|found| found == directory) {
        return Ok(());
    }
    if let Some(parent) = target.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    remove_path(target).await?;
    tokio::fs::symlink(directory, target).await
}

/// Removes a link or an empty directory, never anything that contains files.
async fn remove_path(target: &Path) -> io::Result<()> {
    let removed = match tokio::fs::symlink_metadata(target).await {
        Ok(found) if found.is_dir() => tokio::fs::remove_dir(target).await,
        Ok(_) => tokio::fs::remove_file(target).await,
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn io_status(path: &str) -> impl FnOnce(io::Error) -> Status + '_ {
    move |error| Status::internal(format!("{path}: {error}"))
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_stage_volume(
        &self,
        _: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        Err(Status::unimplemented("a directory needs no staging"))
    }

    async fn node_unstage_volume(
        &self,
        _: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        Err(Status::unimplemented("a directory needs no staging"))
    }

    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() || request.target_path.is_empty() {
            return Err(Status::invalid_argument(
                "the volume's id or the target path is missing",
            ));
        }
        check_capabilities(request.volume_capability.as_slice())?;
        let directory = self.directory_of(&request)?;
        let mode = request.volume_capability.as_ref().and_then(|one| one.access_mode);
        let alone = mode.is_some_and(|mode| mode.mode() == Mode::SingleNodeSingleWriter);
        lock(&self.store).publish(&request.volume_id, &request.target_path, alone)?;
        link(&directory, Path::new(&request.target_path))
            .await
            .map_err(io_status(&request.target_path))?;
        Ok(Response::new(proto::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() || request.target_path.is_empty() {
            return Err(Status::invalid_argument(
                "the volume's id or the target path is missing",
            ));
        }
        remove_path(Path::new(&request.target_path))
            .await
            .map_err(io_status(&request.target_path))?;
        let mut store = lock(&self.store);
        store.unpublish(&request.volume_id, &request.target_path)?;
        if store.get(&request.volume_id).is_some_and(|volume| volume.ephemeral) {
            store.delete(&request.volume_id)?;
        }
        Ok(Response::new(proto::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        use proto::node_service_capability::{Rpc, Type, rpc::Type as Call};
        let tells_pods_apart = proto::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: Call::SingleNodeMultiWriter.into(),
            })),
        };
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {
            capabilities: vec![tells_pods_apart],
        }))
    }

    async fn node_get_info(
        &self,
        _: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: self.node_id.clone(),
            max_volumes_per_node: self.most_volumes,
            accessible_topology: Some(proto::Topology {
                segments: self.segment.clone(),
            }),
        }))
    }
}
