//! Converts requests to CSI messages, and responses from them.

use super::proto;
use crate::capacity::Available;
use crate::node_volume::NodeVolume;
use crate::request::{Failure, Request, Source, Volume, places};
use crate::source::{Content, ContentKind};
use crate::topology::{Requirement, Segment};
use berth_core::names::CSI_PREFIX;
use proto::volume_capability::access_mode::Mode;
use proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use proto::volume_content_source::{SnapshotSource, Type as ContentType, VolumeSource};
use std::collections::BTreeMap;

fn topology(segment: &Segment) -> proto::Topology {
    proto::Topology {
        segments: segment.clone(),
    }
}

fn topology_requirement(requirement: &Requirement) -> proto::TopologyRequirement {
    proto::TopologyRequirement {
        requisite: requirement.requisite.iter().map(topology).collect(),
        preferred: requirement.preferred.iter().map(topology).collect(),
    }
}

/// The CSI name of an access mode. Only some drivers distinguish pods on the same node.
fn mode(access_mode: &str, tells_pods_apart: bool) -> Result<Mode, Failure> {
    match access_mode {
        "ReadWriteMany" => Ok(Mode::MultiNodeMultiWriter),
        "ReadOnlyMany" => Ok(Mode::MultiNodeReaderOnly),
        "ReadWriteOnce" if tells_pods_apart => Ok(Mode::SingleNodeMultiWriter),
        "ReadWriteOnce" => Ok(Mode::SingleNodeWriter),
        "ReadWriteOncePod" if tells_pods_apart => Ok(Mode::SingleNodeSingleWriter),
        "ReadWriteOncePod" => Err(Failure::last(
            "access mode ReadWriteOncePod needs a driver with the capability SINGLE_NODE_MULTI_WRITER",
        )),
        other => Err(Failure::last(format!("access mode {other:?} is not known"))),
    }
}

fn access_type(is_block: bool, fs_type: &str, mount_flags: &[String]) -> AccessType {
    if is_block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: mount_flags.to_vec(),
        })
    }
}

fn capabilities(request: &Request, tells_pods_apart: bool) -> Result<Vec<proto::VolumeCapability>, Failure> {
    let fs_type = request.parameters.fs_type.as_deref().unwrap_or_default();
    let access_type = access_type(request.is_block(), fs_type, &request.class.mount_options);
    let one = |access_mode: &String| {
        Ok(proto::VolumeCapability {
            access_type: Some(access_type.clone()),
            access_mode: Some(AccessMode {
                mode: mode(access_mode, tells_pods_apart)?.into(),
            }),
        })
    };
    request.claim.spec.access_modes.iter().map(one).collect()
}

/// How a pod uses a volume on its node.
pub(super) fn use_on_node(volume: &NodeVolume, tells_pods_apart: bool) -> Result<proto::VolumeCapability, Failure> {
    Ok(proto::VolumeCapability {
        access_type: Some(access_type(volume.is_block, &volume.fs_type, &volume.mount_options)),
        access_mode: Some(AccessMode {
            mode: mode(&volume.access_mode, tells_pods_apart)?.into(),
        }),
    })
}

pub(super) fn create_volume(
    request: &Request,
    secrets: BTreeMap<String, String>,
    tells_pods_apart: bool,
) -> Result<proto::CreateVolumeRequest, Failure> {
    Ok(proto::CreateVolumeRequest {
        name: request.name.clone(),
        capacity_range: Some(proto::CapacityRange {
            required_bytes: request.bytes,
            limit_bytes: 0,
        }),
        volume_capabilities: capabilities(request, tells_pods_apart)?,
        parameters: request.parameters.for_driver.clone(),
        secrets,
        volume_content_source: request.content.as_ref().map(content_source),
        accessibility_requirements: request.requirement.as_ref().map(topology_requirement),
        mutable_parameters: request.mutable_parameters.clone(),
    })
}

fn content_source(content: &Content) -> proto::VolumeContentSource {
    let handle = content.handle.clone();
    let source = match content.kind {
        ContentKind::Snapshot => ContentType::Snapshot(SnapshotSource { snapshot_id: handle }),
        ContentKind::Volume => ContentType::Volume(VolumeSource { volume_id: handle }),
    };
    proto::VolumeContentSource { r#type: Some(source) }
}

pub(super) fn created_volume(driver: &str, volume: proto::Volume, with_topology: bool) -> Volume {
    let segments = volume.accessible_topology.into_iter().map(|topology| topology.segments);
    Volume {
        handle: volume.volume_id,
        bytes: volume.capacity_bytes,
        source: Source::Csi {
            driver: driver.to_owned(),
            attributes: volume.volume_context,
        },
        accessible: if with_topology { places(segments) } else { Vec::new() },
        filled: volume.content_source.is_some(),
    }
}

/// Asks for the free space of a class in a segment. `None` asks for the total.
pub(super) fn get_capacity(
    parameters: &BTreeMap<String, String>,
    segment: Option<&Segment>,
) -> proto::GetCapacityRequest {
    let own = parameters.iter().filter(|(key, _)| !key.starts_with(CSI_PREFIX));
    proto::GetCapacityRequest {
        volume_capabilities: Vec::new(),
        parameters: own.map(|(key, value)| (key.clone(), value.clone())).collect(),
        accessible_topology: segment.map(topology),
    }
}

pub(super) fn available(response: &proto::GetCapacityResponse) -> Available {
    Available {
        bytes: response.available_capacity,
        maximum_volume_size: response.maximum_volume_size,
    }
}
