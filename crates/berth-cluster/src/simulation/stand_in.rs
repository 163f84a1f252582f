//! Stands in for CSI drivers that are not here: makes the volumes that they would make.
//!
//! Where a driver's volumes can be used, its own words in CSINode objects say: the labels that it names there, of the
//! selected node. A driver that names none makes volumes that every node can use, and one that is not on a node makes none
//! there. Only of a driver that no CSINode tells of nothing is known; most such drivers are those of clouds, whose disks
//! are in a zone.

use super::pools::driver_of;
use super::volumes::ProvisionerRun;
use berth_provisioner::answer::Answer;
use berth_provisioner::request::{Failure, Request, Source, Volume, places};
use berth_provisioner::topology::{Policy, Question, requirement, topology_keys};
use std::collections::BTreeMap;

/// The provisioner that stands in for drivers of which nothing is known.
const ZONAL: &str = "berth.dev/zonal";

impl ProvisionerRun {
    /// Makes a volume as the driver of its class would.
    pub(super) fn stand_in(&mut self, request: &Request) -> Answer {
        let driver = driver_of(&request.class);
        let csi_nodes = self.state.csi_nodes();
        let is_on = |node: &str| {
            let drivers = csi_nodes.get(node).map(|csi_node| csi_node.spec.drivers.as_slice());
            drivers.unwrap_or_default().iter().any(|found| found.name == driver)
        };
        if !csi_nodes.keys().any(|node| is_on(node)) {
            return self.zonal(request, driver);
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
                nodes: self.state.nodes(),
                csi_nodes,
            })
            .map_err(|error| Failure::last(error.to_string()))?,
            false => None,
        };
        let segment = requirement.and_then(|requirement| requirement.preferred.into_iter().next());
        Ok(Volume {
            handle: request.name.clone(),
            bytes: request.bytes,
            source: csi(driver),
            accessible: places(segment),
        })
    }

    fn zonal(&mut self, request: &Request, driver: String) -> Answer {
        let mut request = request.clone();
        ZONAL.clone_into(&mut request.class.provisioner);
        let volume = self.builtin.provision(&request, self.state.nodes())?;
        Ok(Volume {
            source: csi(driver),
            ..volume
        })
    }
}

fn csi(driver: String) -> Source {
    Source::Csi {
        driver,
        attributes: BTreeMap::new(),
    }
}
