//! CSI drivers that are not here, simulated: the volumes that they would make, and the room that these would take.
//!
//! Where a driver's volumes can be used, its own words in CSINode objects say: the labels that it names there, of the
//! selected node. A driver that names none makes volumes that every node can use, and one that is not on a node makes none
//! there. Only of a driver that no CSINode tells of nothing is known; most such drivers are those of clouds, whose disks
//! are in a zone, or can be used everywhere where nodes are in none.
//!
//! Nothing is written here: what changes in published capacity comes back as effects.

mod pools;

use crate::View;
use berth_core::api::{CsiNode, Node, StorageClass};
use berth_core::effect::Effect;
use berth_core::migration::InTreePlugin;
use berth_core::names::{NO_PROVISIONER, ZONE, ZONE_BETA, driver_object};
use berth_provisioner::answer::Answer;
use berth_provisioner::builtin::{Builtin, PROVISIONERS};
use berth_provisioner::request::{Failure, Request, Source, Volume, places};
use berth_provisioner::settings::Settings;
use berth_provisioner::topology::{Policy, Question, Segment, requirement, topology_keys};
use pools::Pools;
use serde_json::Value;
use std::collections::BTreeMap;

/// The provisioner that simulates drivers of which nothing is known.
const ZONAL: &str = "berth.dev/zonal";

/// The drivers that are not here.
#[derive(Debug, Default)]
pub struct Drivers {
    zonal: Builtin,
    pools: Pools,
}

/// The nodes of a cluster, and what drivers say of them.
#[derive(Clone, Copy, Debug)]
pub struct Topology<'a> {
    /// Nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// What is registered on them.
    pub csi_nodes: &'a BTreeMap<String, CsiNode>,
}

impl Drivers {
    /// Makes a volume as the driver of its class would. The effects take its room from pools, and come before the answer counts.
    pub fn provision(&mut self, view: &dyn View, topology: Topology<'_>, request: &Request) -> (Answer, Vec<Effect>) {
        let drawn = match self.pools.draw(view, request) {
            Ok(drawn) => drawn,
            Err(failure) => return (Err(failure), Vec::new()),
        };
        let answer = self.make(topology, request);
        if answer.is_ok() {
            return (answer, drawn);
        }
        // What was to be taken is not: there is nothing to write.
        self.pools.forget(&request.name);
        (answer, Vec::new())
    }

    /// Forgets a volume whose room could not be taken.
    pub fn forget(&mut self, handle: &str) {
        self.zonal.delete(handle);
        self.pools.forget(handle);
    }

    /// Deletes a volume, and gives its room back.
    pub fn delete(&mut self, view: &dyn View, handle: &str) -> Vec<Effect> {
        self.zonal.delete(handle);
        self.pools.give_back(view, handle)
    }

    /// Takes the room for the inline volumes of a pod when it has a node, and gives it back when it has ended. One volume at a
    /// time: ask again when the effects are carried out, until there are none.
    pub fn pod_changed(&mut self, view: &dyn View, pod: &Value) -> Vec<Effect> {
        self.pools.pod_changed(view, pod)
    }

    /// Gives back what the inline volumes of a pod took that is gone. One volume at a time, too.
    pub fn pod_gone(&mut self, view: &dyn View, pod: &Value) -> Vec<Effect> {
        self.pools.pod_gone(view, pod)
    }

    fn make(&mut self, topology: Topology<'_>, request: &Request) -> Answer {
        let driver = driver_of(&request.class);
        let csi_nodes = topology.csi_nodes;
        let is_on = |node: &str| {
            let drivers = csi_nodes.get(node).map(|csi_node| csi_node.spec.drivers.as_slice());
            drivers.unwrap_or_default().iter().any(|found| found.name == driver)
        };
        if !csi_nodes.keys().any(|node| is_on(node)) {
            return match has_zone(topology.nodes, request) {
                true => self.make_zonal(topology, request, driver),
                false => Ok(volume(request, driver, None)),
            };
        }
        let selected = request.selected_node.as_ref().map(|node| node.metadata.name.as_str());
        if let Some(node) = selected.filter(|node| !is_on(node)) {
            let message = format!("driver {driver:?} is not registered on node {node:?}: its CSINode does not name it");
            return Err(Failure::last(message));
        }
        let knows_topology = csi_nodes
            .values()
            .any(|csi_node| !topology_keys(csi_node, &driver).is_empty());
        let requirement = match knows_topology {
            true => requirement(&Question {
                driver: &driver,
                claim: &request.claim.metadata.name,
                selected_node: selected,
                allowed: &request.class.allowed_topologies,
                policy: Policy::default(),
                nodes: topology.nodes,
                csi_nodes,
            })
            .map_err(|error| Failure::last(error.to_string()))?,
            false => None,
        };
        let segment = requirement.and_then(|requirement| requirement.preferred.into_iter().next());
        Ok(volume(request, driver, segment))
    }

    fn make_zonal(&mut self, topology: Topology<'_>, request: &Request, driver: String) -> Answer {
        let mut request = request.clone();
        ZONAL.clone_into(&mut request.class.provisioner);
        let volume = self.zonal.provision(&request, topology.nodes)?;
        Ok(Volume {
            source: csi(driver),
            ..volume
        })
    }
}

/// A volume in a segment of the cluster, or everywhere.
fn volume(request: &Request, driver: String, segment: Option<Segment>) -> Volume {
    Volume {
        handle: request.name.clone(),
        bytes: request.bytes,
        source: csi(driver),
        accessible: places(segment),
    }
}

/// Whether a volume would be in a zone: the selected node is, or any is, or the class says in which topologies.
fn has_zone(nodes: &BTreeMap<String, Node>, request: &Request) -> bool {
    let has = |node: &Node| {
        [ZONE, ZONE_BETA]
            .iter()
            .any(|key| node.metadata.labels.contains_key(*key))
    };
    !request.class.allowed_topologies.is_empty()
        || match &request.selected_node {
            Some(node) => has(node),
            None => nodes.values().any(has),
        }
}

/// How volumes of a class are provisioned whose provisioner is simulated: neither built in, nor one that makes none.
#[must_use]
pub fn settings(provisioner: &str) -> Option<Settings> {
    let is_other = provisioner != NO_PROVISIONER && !PROVISIONERS.contains(&provisioner);
    is_other.then(|| Settings::builtin(provisioner))
}

/// The driver that serves a class: what once was part of Kubernetes is served by the driver that took over.
fn driver_of(class: &StorageClass) -> String {
    match InTreePlugin::from_name(&class.provisioner) {
        Some(plugin) => plugin.driver().to_owned(),
        None => driver_object(&class.provisioner).into_owned(),
    }
}

fn csi(driver: String) -> Source {
    Source::Csi {
        driver,
        attributes: BTreeMap::new(),
    }
}
