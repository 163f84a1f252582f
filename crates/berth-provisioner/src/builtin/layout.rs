//! Where the volumes of a class can be: possible layouts, best first.

use crate::request::Request;
use crate::topology::{Segment, allowed_segments, describe, spread};
use berth_core::api::{Node, StorageClass};
use berth_core::migration::allowed_topologies;
use berth_core::names::{HOSTNAME, RACK, REGION, REGION_BETA, ZONE, ZONE_BETA};
use std::collections::{BTreeMap, BTreeSet};

/// The provisioner of Google's disks: zonal or regional.
pub(super) const GCE_PD: &str = "kubernetes.io/gce-pd";

const TOPOLOGY_KEYS: &str = "berth.dev/topology-keys";
const REPLICATION: &str = "replication-type";

/// The names of the built-in provisioners.
pub const PROVISIONERS: [&str; 6] = [
    GCE_PD,
    "berth.dev/zonal",
    "berth.dev/regional",
    "berth.dev/local",
    "berth.dev/rack",
    "rack-based-provisioner",
];

/// How the volumes of a class are spread over the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one zone.
    Zonal,
    /// In two zones of one region.
    Regional,
    /// On one node.
    Local,
    /// In one rack, which may be identified by several labels.
    Rack,
}

impl Layout {
    /// The layout of a class; `None` if its provisioner is not built in.
    #[must_use]
    pub fn of(class: &StorageClass) -> Option<Self> {
        let regional = class.parameters.get(REPLICATION).map(String::as_str) == Some("regional-pd");
        Some(match class.provisioner.as_str() {
            GCE_PD | "berth.dev/zonal" if regional => Self::Regional,
            GCE_PD | "berth.dev/zonal" => Self::Zonal,
            "berth.dev/regional" => Self::Regional,
            "berth.dev/local" => Self::Local,
            "berth.dev/rack" | "rack-based-provisioner" => Self::Rack,
            _ => return None,
        })
    }
}

/// Why a volume has no possible location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LayoutError {
    #[error("node {node:?} has no label {key:?}, by which its volumes are placed")]
    Unlabelled { node: String, key: String },
    #[error("node {node:?} is in none of the allowed topologies of the class: {allowed}")]
    NotAllowed { node: String, allowed: String },
    #[error("no node has the labels {keys}{within}, by which volumes are placed")]
    Nowhere { keys: String, within: String },
    #[error("a regional volume needs two zones of one region, but {found}")]
    OneZone { found: String },
}

/// Possible layouts of a volume, best first. Each lists all segments in which the volume takes space.
pub(super) fn options(
    layout: Layout,
    request: &Request,
    nodes: &BTreeMap<String, Node>,
) -> Result<Vec<Vec<Segment>>, LayoutError> {
    let allowed = allowed_segments(&request.class.allowed_topologies);
    let keys = keys(layout, &request.class, &allowed, request.selected_node.as_ref(), nodes);
    let selected = request
        .selected_node
        .as_ref()
        .map(|node| selected_segment(node, &keys, &allowed))
        .transpose()?;
    let segments = || {
        let mut segments = cluster_segments(&keys, &allowed, nodes);
        if !segments.is_empty() {
            let first = spread(&request.claim.metadata.name) as usize % segments.len();
            segments.rotate_left(first);
        }
        segments
    };
    match (layout, selected) {
        (Layout::Zonal | Layout::Local | Layout::Rack, Some(selected)) => Ok(vec![vec![selected]]),
        (Layout::Zonal | Layout::Local | Layout::Rack, None) => match segments() {
            none if none.is_empty() => Err(nowhere(&keys, &allowed)),
            segments => Ok(segments.into_iter().map(|segment| vec![segment]).collect()),
        },
        (Layout::Regional, selected) => pairs(selected, &segments(), &allowed, nodes),
    }
}

/// The segments that volumes of a class can be in.
pub(super) fn segments(class: &StorageClass, nodes: &BTreeMap<String, Node>) -> Vec<Segment> {
    let Some(layout) = Layout::of(class) else {
        return Vec::new();
    };
    let Ok(allowed) = allowed_topologies(class) else {
        return Vec::new();
    };
    let allowed = allowed_segments(&allowed);
    cluster_segments(&keys(layout, class, &allowed, None, nodes), &allowed, nodes)
}

/// The first zone of a pair is the selected one; without it, each zone in turn.
fn pairs(
    selected: Option<Segment>,
    segments: &[Segment],
    allowed: &[Segment],
    nodes: &BTreeMap<String, Node>,
) -> Result<Vec<Vec<Segment>>, LayoutError> {
    let regions = regions(nodes);
    let region = |segment: &Segment| segment.values().next().and_then(|zone| regions.get(zone.as_str()));
    let together = |a: &Segment, b: &Segment| match (region(a), region(b)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    let firsts = selected.map_or_else(|| segments.to_vec(), |selected| vec![selected]);
    let options: Vec<_> = firsts
        .iter()
        .flat_map(|first| {
            let others = segments.iter().filter(move |other| *other != first);
            others
                .filter(|other| together(first, other))
                .map(|other| vec![first.clone(), other.clone()])
        })
        .collect();
    if !options.is_empty() {
        return Ok(options);
    }
    let who = if allowed.is_empty() {
        "the cluster has"
    } else {
        "the class allows"
    };
    let zones: BTreeSet<String> = firsts.iter().chain(segments).map(describe).collect();
    let zones: Vec<_> = zones.into_iter().collect();
    Err(LayoutError::OneZone {
        found: match zones.as_slice() {
            [] => format!("{who} none"),
            [zone] => format!("{who} only {zone}"),
            _ => format!("{who} no two in one region: {}", zones.join(", ")),
        },
    })
}

fn regions(nodes: &BTreeMap<String, Node>) -> BTreeMap<&str, &str> {
    nodes
        .values()
        .filter_map(|node| Some((label(node, ZONE)?, label(node, REGION)?)))
        .collect()
}

/// The labels by which volumes of the class are placed.
fn keys(
    layout: Layout,
    class: &StorageClass,
    allowed: &[Segment],
    selected: Option<&Node>,
    nodes: &BTreeMap<String, Node>,
) -> Vec<String> {
    let named = || allowed.iter().flat_map(Segment::keys).cloned().collect::<BTreeSet<_>>();
    match layout {
        Layout::Local => vec![HOSTNAME.to_owned()],
        Layout::Zonal | Layout::Regional => {
            // The zone uses the label name that the nodes have, or the volume would be unreachable.
            let named = named();
            let mut candidates = [ZONE, ZONE_BETA];
            candidates.sort_by_key(|key| !named.contains(*key));
            let has = |key: &&str| match selected {
                Some(node) => node.metadata.labels.contains_key(*key),
                None => nodes.values().any(|node| node.metadata.labels.contains_key(*key)),
            };
            let key = candidates.iter().copied().find(has).unwrap_or(candidates[0]);
            vec![key.to_owned()]
        }
        Layout::Rack => {
            if let Some(list) = class.parameters.get(TOPOLOGY_KEYS) {
                let parts = list.split(',').map(str::trim).filter(|key| !key.is_empty());
                return parts.map(str::to_owned).collect();
            }
            let named = named();
            if named.is_empty() {
                vec![ZONE.to_owned(), RACK.to_owned()]
            } else {
                named.into_iter().collect()
            }
        }
    }
}

/// A label of a node; zone and region also match under their older names.
fn label<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    let twin = match key {
        ZONE => ZONE_BETA,
        ZONE_BETA => ZONE,
        REGION => REGION_BETA,
        REGION_BETA => REGION,
        _ => key,
    };
    let labels = &node.metadata.labels;
    labels.get(key).or_else(|| labels.get(twin)).map(String::as_str)
}

fn is_allowed(node: &Node, allowed: &[Segment]) -> bool {
    let matches = |segment: &Segment| segment.iter().all(|(key, value)| label(node, key) == Some(value));
    allowed.is_empty() || allowed.iter().any(matches)
}

fn segment_of(node: &Node, keys: &[String]) -> Result<Segment, LayoutError> {
    let pair = |key: &String| match node.metadata.labels.get(key) {
        Some(value) => Ok((key.clone(), value.clone())),
        None => Err(LayoutError::Unlabelled {
            node: node.metadata.name.clone(),
            key: key.clone(),
        }),
    };
    keys.iter().map(pair).collect()
}

fn selected_segment(node: &Node, keys: &[String], allowed: &[Segment]) -> Result<Segment, LayoutError> {
    if !is_allowed(node, allowed) {
        return Err(LayoutError::NotAllowed {
            node: node.metadata.name.clone(),
            allowed: list(allowed),
        });
    }
    segment_of(node, keys)
}

/// The allowed segments that have nodes, in order. If none has, all allowed ones: nodes may be added.
fn cluster_segments(keys: &[String], allowed: &[Segment], nodes: &BTreeMap<String, Node>) -> Vec<Segment> {
    let populated: BTreeSet<Segment> = nodes
        .values()
        .filter(|node| is_allowed(node, allowed))
        .filter_map(|node| segment_of(node, keys).ok())
        .collect();
    if !populated.is_empty() {
        return populated.into_iter().collect();
    }
    let complete = |segment: &&Segment| keys.iter().all(|key| segment.contains_key(key));
    let only_keys = |segment: &Segment| {
        let pairs = segment.iter().filter(|(key, _)| keys.contains(key));
        pairs.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let distinct: BTreeSet<Segment> = allowed.iter().filter(complete).map(only_keys).collect();
    distinct.into_iter().collect()
}

fn list(segments: &[Segment]) -> String {
    let described: Vec<_> = segments.iter().map(describe).collect();
    described.join(" or ")
}

fn nowhere(keys: &[String], allowed: &[Segment]) -> LayoutError {
    LayoutError::Nowhere {
        keys: keys.join(", "),
        within: if allowed.is_empty() {
            String::new()
        } else {
            format!(" within the allowed topologies of the class ({})", list(allowed))
        },
    }
}
