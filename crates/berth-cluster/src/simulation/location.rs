//! The location of nodes and volumes: zones, racks, nodes. Read from labels and node affinities for reports only;
//! decisions do not use it.

use crate::field;
use crate::names::RACK;
use berth_core::names::{ZONE, ZONE_BETA};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Where a volume can be used, as far as its node affinity is simple enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumePlace {
    /// Its nodes; empty if it is not tied to any.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<String>,
    /// Its racks.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub racks: BTreeSet<String>,
    /// Its zones.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub zones: BTreeSet<String>,
}

impl VolumePlace {
    /// Reads the node affinity of a volume. Drivers have their own topology keys, which end like those of Kubernetes:
    /// `topology.ebs.csi.aws.com/zone`, `topology.topolvm.io/node`.
    #[must_use]
    pub fn of(volume: &Value) -> Self {
        let mut place = Self::default();
        for term in field::items(volume, "/spec/nodeAffinity/required/nodeSelectorTerms") {
            let parts = ["/matchExpressions", "/matchFields"];
            for requirement in parts.iter().flat_map(|part| field::items(term, part)) {
                if requirement["operator"] != "In" {
                    continue;
                }
                let values = field::items(requirement, "/values").iter().filter_map(Value::as_str);
                let key = field::text(requirement, "/key");
                let among = match key.rsplit('/').next().unwrap_or(key) {
                    "hostname" | "node" | "metadata.name" => &mut place.nodes,
                    "rack" => &mut place.racks,
                    "zone" => &mut place.zones,
                    _ => continue,
                };
                among.extend(values.map(str::to_owned));
            }
        }
        place
    }
}

/// The zone of a node, from the current label or the older one; empty if it has none.
#[must_use]
pub fn zone_of(node: &Value) -> &str {
    match field::label(node, ZONE) {
        "" => field::label(node, ZONE_BETA),
        zone => zone,
    }
}

/// The rack of a node; empty if it has none.
#[must_use]
pub fn rack_of(node: &Value) -> &str {
    let own = field::label(node, RACK);
    if !own.is_empty() {
        return own;
    }
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut racks = labels.filter(|(key, _)| *key == "rack" || key.ends_with("/rack"));
    racks.find_map(|(_, rack)| rack.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_is_where_its_affinity_says() {
        let volume = |key: &str, values: &[&str]| {
            let requirement = json!({"key": key, "operator": "In", "values": values});
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}})
        };
        let texts = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(
            texts(&VolumePlace::of(&volume("kubernetes.io/hostname", &["n1"])).nodes),
            "n1"
        );
        assert_eq!(
            texts(&VolumePlace::of(&volume("topology.topolvm.io/node", &["n2"])).nodes),
            "n2"
        );
        assert_eq!(texts(&VolumePlace::of(&volume(ZONE, &["b", "a"])).zones), "a b");
        assert_eq!(texts(&VolumePlace::of(&volume(RACK, &["r1"])).racks), "r1");
        assert_eq!(VolumePlace::of(&volume("disk", &["ssd"])), VolumePlace::default());
        assert_eq!(VolumePlace::of(&json!({})), VolumePlace::default());
    }

    #[test]
    fn zones_and_racks_are_read_from_labels() {
        let node = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
        assert_eq!(
            [ZONE, ZONE_BETA, "zone"].map(|key| zone_of(&node(key)).to_owned()),
            ["x", "x", ""]
        );
        assert_eq!(
            [RACK, "example.com/rack", "rack", "racks"].map(|key| rack_of(&node(key)).to_owned()),
            ["x", "x", "x", ""]
        );
    }
}
