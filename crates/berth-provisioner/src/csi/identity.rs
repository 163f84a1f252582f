//! What a driver's responses say about itself and its nodes. Names become part of objects, leases and labels, so those that Kubernetes refuses are
//! errors here, with the driver's own words.

use super::proto;
use crate::labels;
use crate::settings::Abilities;
use crate::topology::Segment;
use proto::controller_service_capability::Type as ControllerCapability;
use proto::controller_service_capability::rpc::Type as Rpc;
use proto::plugin_capability::Type as PluginCapability;
use proto::plugin_capability::service::Type as Service;

/// The longest name of a driver, by CSI and by Kubernetes.
const NAME_BYTES_MAX: usize = 63;
/// The longest ID of a node that Kubernetes stores.
const NODE_ID_BYTES_MAX: usize = 256;

/// The name and capabilities of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its volumes are not reachable from every node.
    pub topology: bool,
    /// It creates and deletes volumes.
    pub creates: bool,
    /// It attaches volumes to nodes.
    pub attaches: bool,
    /// It reports free space.
    pub capacity: bool,
    /// It distinguishes pods on the same node.
    pub tells_pods_apart: bool,
    /// What it can do beyond creating empty volumes.
    pub abilities: Abilities,
}

/// What a driver reports about itself and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// The driver's name.
    pub driver: String,
    /// The driver's ID for the node.
    pub node_id: String,
    /// The attach limit of the node; `None` means no limit.
    pub most_volumes: Option<i32>,
    /// Where the node is.
    pub segment: Segment,
}

/// What a driver's responses say about it.
///
/// # Errors
/// If it has no name that Kubernetes accepts.
pub fn identity_of(
    plugin: proto::GetPluginInfoResponse,
    services: &proto::GetPluginCapabilitiesResponse,
    calls: &proto::ControllerGetCapabilitiesResponse,
) -> Result<Identity, String> {
    let has_call = |call: Rpc| {
        let mut known = calls.capabilities.iter().filter_map(|ability| ability.r#type.as_ref());
        known.any(|ControllerCapability::Rpc(rpc)| rpc.r#type == i32::from(call))
    };
    Ok(Identity {
        name: checked_name(plugin.name)?,
        version: plugin.vendor_version,
        topology: has_service(services, Service::VolumeAccessibilityConstraints),
        creates: has_call(Rpc::CreateDeleteVolume),
        attaches: has_call(Rpc::PublishUnpublishVolume),
        capacity: has_call(Rpc::GetCapacity),
        tells_pods_apart: has_call(Rpc::SingleNodeMultiWriter),
        abilities: Abilities {
            snapshots: has_call(Rpc::CreateDeleteSnapshot),
            clones: has_call(Rpc::CloneVolume),
            attributes: has_call(Rpc::ModifyVolume),
            capacity: has_call(Rpc::GetCapacity),
        },
    })
}

/// Whether a driver has a service.
pub(super) fn has_service(services: &proto::GetPluginCapabilitiesResponse, service: Service) -> bool {
    let mut known = services.capabilities.iter().filter_map(|one| one.r#type.as_ref());
    known.any(|PluginCapability::Service(one)| one.r#type == i32::from(service))
}

/// What a driver's responses say about the node that it runs on.
///
/// # Errors
/// If the driver's name or its ID or labels for the node cannot be stored.
pub fn node_identity_of(
    plugin: proto::GetPluginInfoResponse,
    node: proto::NodeGetInfoResponse,
) -> Result<NodeIdentity, String> {
    let segment = node.accessible_topology.unwrap_or_default().segments;
    if let Some(problem) = segment
        .iter()
        .find_map(|(key, value)| labels::problem(key, std::slice::from_ref(value)))
    {
        return Err(format!("the topology is one that no node can have: {problem}"));
    }
    let length = node.node_id.len();
    if !(1..=NODE_ID_BYTES_MAX).contains(&length) {
        return Err(format!(
            "the node has an ID of {length} bytes, expected 1 to {NODE_ID_BYTES_MAX}"
        ));
    }
    Ok(NodeIdentity {
        driver: checked_name(plugin.name)?,
        node_id: node.node_id,
        // Kubernetes has 32 bits for it, and nobody reaches that limit.
        most_volumes: i32::try_from(node.max_volumes_per_node.clamp(0, i32::MAX.into()))
            .ok()
            .filter(|most| *most > 0),
        segment,
    })
}

/// The name of a driver, which CSI limits to letters, digits, dashes and dots.
fn checked_name(name: String) -> Result<String, String> {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_part = |part: &str| {
        ends(part.as_bytes().first())
            && ends(part.as_bytes().last())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if name.len() <= NAME_BYTES_MAX && name.split('.').all(is_part) {
        return Ok(name);
    }
    let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
    Err(format!(
        "the driver calls itself {shown:?}: a name has parts of letters, digits and dashes, with dots in between, and at most {NAME_BYTES_MAX} \
         characters"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str) -> proto::GetPluginInfoResponse {
        proto::GetPluginInfoResponse {
            name: name.to_owned(),
            ..Default::default()
        }
    }

    fn named(name: &str) -> Result<Identity, String> {
        identity_of(plugin(name), &Default::default(), &Default::default())
    }

    #[test]
    fn a_driver_needs_a_name_that_kubernetes_accepts() {
        for name in ["disk.example.com", "D", "io.kubernetes.storage.mock"] {
            assert_eq!(named(name).unwrap().name, name);
        }
        for name in [
            "",
            "-a",
            "a.",
            "a..b",
            "a_b",
            "a/b",
            "\u{1b}[2J",
            "a\nb",
            &"x".repeat(64),
        ] {
            let problem = named(name).unwrap_err();
            assert!(problem.starts_with("the driver calls itself"), "{problem}");
            assert!(!problem.contains('\u{1b}') && !problem.contains('\n'), "{problem:?}");
        }
        assert!(named(&"x".repeat(1 << 20)).unwrap_err().len() < 400);
    }

    #[test]
    fn a_node_is_described_by_what_can_be_stored() {
        let node = |id: &str, most: i64, key: &str, value: &str| {
            let node = proto::NodeGetInfoResponse {
                node_id: id.to_owned(),
                max_volumes_per_node: most,
                accessible_topology: Some(proto::Topology {
                    segments: [(key.to_owned(), value.to_owned())].into(),
                }),
            };
            node_identity_of(plugin("disk.example.com"), node)
        };
        for (most, limit) in [
            (0, None),
            (-5, None),
            (i64::MIN, None),
            (8, Some(8)),
            (i64::MAX, Some(i32::MAX)),
        ] {
            assert_eq!(node("n1", most, "zone", "a").unwrap().most_volumes, limit);
        }
        assert!(
            node("n1", 0, "zone", "a b")
                .unwrap_err()
                .contains("\"a b\" is no value")
        );
        assert!(node("", 0, "zone", "a").unwrap_err().contains("0 bytes"));
        assert!(node(&"x".repeat(257), 0, "zone", "a").is_err());
    }
}
