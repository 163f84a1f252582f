//! Simulated CSI drivers: the volumes that missing drivers would create, and the capacity they would use.
//!
//! A driver's CSINode objects determine where its volumes can be used: by its topology labels on the selected node. A
//! driver without topology keys creates volumes that every node can use, and one that is not installed on a node creates
//! none there. Nothing is known about a driver without any CSINode entry. Most such drivers belong to clouds, so their
//! disks are in a zone, or usable everywhere if nodes have no zones.
//!
//! Nothing is written here: changes of published capacity are returned as effects.

mod pools;

use crate::View;
use berth_core::api::{CsiNode, Node, StorageClass};
use berth_core::effect::Effect;
use berth_core::migration::InTreePlugin;
use berth_core::names::{NO_PROVISIONER, ZONE, ZONE_BETA, driver_object};
use berth_provisioner::answer::Answer;
use berth_provisioner::builtin::{Builtin, PROVISIONERS};
use berth_provisioner::request::{Failure, Place, Request, Source, Volume, places};
use berth_provisioner::settings::Settings;
use berth_provisioner::topology::{Policy, Question, Segment, requirement, topology_keys};
use pools::Pools;
use serde_json::Value;
use std::collections::BTreeMap;

/// The provisioner that simulates unknown drivers.
const ZONAL: &str = "berth.dev/zonal";

/// The simulated drivers.
#[derive(Debug, Default)]
pub struct Drivers {
    zonal: Builtin,
    pools: Pools,
}

/// The nodes of a cluster, and their registered drivers.
#[derive(Clone, Copy, Debug)]
pub struct Topology<'a> {
    /// Nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// Registered drivers by node.
    pub csi_nodes: &'a BTreeMap<String, CsiNode>,
}

impl Drivers {
    /// Creates a volume as the driver of its class would. The effects take its space from pools, and must be carried
    /// out before the result counts.
    pub fn provision(&mut self, view: &dyn View, topology: Topology<'_>, request: &Request) -> (Answer, Vec<Effect>) {
        let class = &request.class.metadata.name;
        if request.selected_node.is_none() && pools::is_published(view, &driver_of(&request.class), class) {
            return self.provision_anywhere(view, topology, request);
        }
        let drawn = match self.pools.draw(view, request) {
            Ok(drawn) => drawn,
            Err(failure) => return (Err(failure), Vec::new()),
        };
        let answer = self.make(topology, request);
        if answer.is_ok() {
            return (answer, drawn);
        }
        // Nothing was taken: there is nothing to write.
        self.pools.forget(&request.name);
        (answer, Vec::new())
    }

    /// Creates a volume without a selected node where there is space for it: preferably where the driver would create it
    /// without regard to space.
    fn provision_anywhere(
        &mut self,
        view: &dyn View,
        topology: Topology<'_>,
        request: &Request,
    ) -> (Answer, Vec<Effect>) {
        let preferred = match self.make(topology, request) {
            Ok(volume) => volume,
            Err(failure) => return (Err(failure), Vec::new()),
        };
        self.zonal.delete(&request.name);
        let is_near = |node: &&Node| is_reached(&preferred.accessible, node);
        let (near, far): (Vec<&Node>, Vec<&Node>) = topology.nodes.values().partition(is_near);
        let mut first_failure = None;
        for node in near.into_iter().chain(far) {
            let on_node = Request {
                selected_node: Some(node.clone()),
                ..request.clone()
            };
            match self.provision(view, topology, &on_node) {
                (Ok(volume), drawn) => return (Ok(volume), drawn),
                (Err(failure), _) => {
                    first_failure.get_or_insert(failure);
                }
            }
        }
        // Without nodes there are no pools either.
        (first_failure.map_or(Ok(preferred), Err), Vec::new())
    }

    /// Forgets a volume whose space could not be taken.
    pub fn forget(&mut self, handle: &str) {
        self.zonal.delete(handle);
        self.pools.forget(handle);
    }

    /// Deletes a volume, and returns its space.
    pub fn delete(&mut self, view: &dyn View, handle: &str) -> Vec<Effect> {
        self.zonal.delete(handle);
        self.pools.give_back(view, handle)
    }

    /// Takes the space for the inline volumes of a pod when it has a node, and returns it when the pod has ended. One volume
    /// at a time: repeat after carrying out the effects, until there are none.
    pub fn pod_changed(&mut self, view: &dyn View, pod: &Value) -> Vec<Effect> {
        self.pools.pod_changed(view, pod)
    }

    /// Returns the space of the inline volumes of a deleted pod, also one volume at a time.
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
        filled: false,
    }
}

/// Whether a node can use a volume that is accessible from these places.
fn is_reached(accessible: &[Place], node: &Node) -> bool {
    let labels = &node.metadata.labels;
    let has = |(key, values): (&String, &Vec<String>)| labels.get(key).is_some_and(|value| values.contains(value));
    accessible.is_empty() || accessible.iter().any(|place| place.iter().all(has))
}

/// Whether a volume would be in a zone: the selected node is in one, or any node is, or the class sets topologies.
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

/// The settings for a class whose provisioner is simulated: neither built in, nor one that provisions nothing.
#[must_use]
pub fn settings(provisioner: &str) -> Option<Settings> {
    let is_other = provisioner != NO_PROVISIONER && !PROVISIONERS.contains(&provisioner);
    is_other.then(|| Settings::builtin(provisioner))
}

/// The driver that serves a class: in-tree plugins are served by the drivers that replace them.
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
