//! Tries advice: follows it on a copy of the cluster in memory, and checks where the pod then fits.

use super::needs::{Need, VolumeFix};
use crate::explain::cause::Cause;
use crate::explain::demands::{Demand, Label};
use crate::explain::report::Report;
use crate::explain::world::{Objects, World};
use berth_core::api::{self, Kind, NodeSelector, NodeSelectorTerm, Object, Requirement, VolumeNodeAffinity};
use berth_core::names;
use berth_core::quantity::Quantity;
use berth_core::reason::VolumeReason;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::examine::examine;
use berth_scheduler::profile::Profile;
use berth_scheduler::reason::Reason;
use std::collections::{BTreeMap, BTreeSet};

/// More volumes or pods than any node holds.
const NO_LIMIT: i32 = 1_000_000;
/// A label value or name that nothing else has.
const NEW: &str = "new";

/// A copy of the cluster on which advice is followed.
pub(super) struct Trial<'w> {
    objects: &'w Objects,
    report: &'w Report,
    /// Objects that were changed or added here.
    changed: Objects,
    cluster: Cluster,
    pod: api::Pod,
    volumes: usize,
}

impl<'w> Trial<'w> {
    pub(super) fn new(world: &'w World, pod: &api::Pod, report: &'w Report) -> Self {
        let mut pod = pod.clone();
        // A pod of a manifest has no UID yet, and its claims are identified by it.
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = format!("{NEW}-pod");
        }
        Self {
            objects: &world.objects,
            report,
            changed: Objects::default(),
            cluster: world.cluster.clone(),
            pod,
            volumes: 0,
        }
    }

    /// The nodes that accept the pod now.
    pub(super) fn fitting(mut self, profile: &Profile) -> BTreeSet<String> {
        let compiled = self.cluster.compile(&profile.adapt(&self.pod));
        let examination = examine(&mut self.cluster, &compiled, profile);
        let fitting = examination.nodes.into_iter().filter(|node| node.fits);
        fitting.map(|node| node.name).collect()
    }

    /// Resolves a need on a node. Returns `false` if that is not possible here.
    pub(super) fn meet(&mut self, need: &Need, node: &str) -> bool {
        match need {
            Need::Claim(index) => self.bind(*index),
            Need::TooLarge(resource) | Need::SmallerPod(resource) | Need::Room(resource) => {
                self.ask_for_none_of(resource);
                true
            }
            Need::Storage(index) => self.provide(*index, node),
            Need::StorageTogether | Need::StorageForSome => {
                self.drop_inline_sizes();
                let mut all = true;
                // Every claim gets storage, even if one of them cannot.
                for index in 0..self.report.claims.len() {
                    all &= self.provide(index, node);
                }
                all
            }
            Need::Inline(_) => {
                self.drop_inline_sizes();
                true
            }
            Need::SelectedElsewhere(index) => self.edit_claim(*index, |claim| {
                claim.metadata.annotations.remove(names::SELECTED_NODE);
                claim.metadata.annotations.remove(names::SELECTED_NODE_ALPHA);
            }),
            Need::AttachLimit => false,
            Need::Move(index) => self.reach_volume(*index),
            Need::OwnVolume(index) => self.own_volume(*index),
            Need::Cordoned => self.edit_node(node, |node| {
                node.spec.unschedulable = false;
                node.spec.taints.retain(|taint| taint.key != names::TAINT_UNSCHEDULABLE);
            }),
            Need::NodeDown(taints) | Need::NodeState(taints) => self.edit_node(node, |node| {
                let is_gone = |taint: &api::Taint| taints.iter().any(|gone| gone.key == taint.key);
                node.spec.taints.retain(|taint| !is_gone(taint));
            }),
            Need::Taints(taints) => {
                let tolerations = taints.iter().map(|taint| api::Toleration {
                    key: taint.key.clone(),
                    operator: "Exists".to_owned(),
                    effect: taint.effect.to_owned(),
                    ..api::Toleration::default()
                });
                self.pod.spec.tolerations.extend(tolerations);
                true
            }
            Need::OtherNodes(demands) => self.satisfy(demands, node),
            Need::Volume(claim, fix) => self.mend_volume(*claim, fix, node),
            Need::Reason(reason) => self.meet_reason(reason, node),
        }
    }

    fn meet_reason(&mut self, reason: &Reason, node: &str) -> bool {
        let affinity = |pod: &mut api::Pod, change: fn(&mut api::Affinity)| {
            pod.spec.affinity.iter_mut().for_each(change);
        };
        match reason {
            Reason::OtherNodeName => self.pod.spec.node_name.clear(),
            Reason::ConflictingAffinityTerms => self.ask_for_any_node(),
            Reason::PortsTaken => self.use_no_host_ports(),
            Reason::TooManyPods => {
                return self.edit_node(node, |node| {
                    let pods = Quantity::from_units(NO_LIMIT.into());
                    node.status.allocatable.insert("pods".to_owned(), pods);
                });
            }
            Reason::DiskConflict => return self.stop(|pod| pod.spec.node_name == node),
            Reason::ClaimInUse => return self.stop_users_of_claims(),
            Reason::TooManyVolumes => {
                return self.edit_csi_node(node, |csi_node| {
                    for driver in &mut csi_node.spec.drivers {
                        driver.allocatable = Some(api::VolumeNodeResources { count: Some(NO_LIMIT) });
                    }
                });
            }
            Reason::DriverNotInstalled { driver } => {
                return self.edit_csi_node(node, |csi_node| {
                    csi_node.spec.drivers.push(api::CsiNodeDriver {
                        name: driver.to_string(),
                        ..api::CsiNodeDriver::default()
                    });
                });
            }
            Reason::Volume(VolumeReason::NodeConflict) | Reason::ZoneConflict => return self.reach_volumes(),
            Reason::SpreadLabelMissing => {
                let constraints = &self.pod.spec.topology_spread_constraints;
                let keys: Vec<String> = constraints.iter().map(|one| one.topology_key.clone()).collect();
                return self.edit_node(node, |node| {
                    for key in keys {
                        node.metadata.labels.entry(key).or_insert_with(|| NEW.to_owned());
                    }
                });
            }
            Reason::SpreadTooUneven => {
                let constraints = &mut self.pod.spec.topology_spread_constraints;
                constraints.iter_mut().for_each(|one| one.max_skew = i32::MAX);
            }
            Reason::PodAffinity => affinity(&mut self.pod, |all| all.pod_affinity = None),
            Reason::PodAntiAffinity => {
                affinity(&mut self.pod, |all| all.pod_anti_affinity = None);
                self.relax_siblings();
            }
            Reason::ExistingPodsAntiAffinity => {
                let avoids = |pod: &api::Pod| {
                    let affinity = pod.spec.affinity.as_ref();
                    affinity.is_some_and(|all| {
                        all.pod_anti_affinity
                            .as_ref()
                            .is_some_and(|anti| !anti.required.is_empty())
                    })
                };
                return self.stop(avoids);
            }
            Reason::ResourceClaims => self.pod.spec.resource_claims.clear(),
            Reason::Gang => {
                self.pod.spec.workload_ref = None;
                self.pod.spec.scheduling_group = None;
            }
            _ => return false,
        }
        true
    }

    /// Lowers the request of a claim.
    pub(super) fn shrink(&mut self, claim: usize, bytes: i64) -> bool {
        self.edit_claim(claim, |claim| {
            let size = Quantity::from_units(bytes);
            claim.spec.resources.requests.insert("storage".to_owned(), size);
        })
    }

    /// Adds an empty node with room for the pod, like another one, in its own topology domains, with storage for the claims
    /// that have no volume yet. Of the existing volumes it reaches those of the other one's zone, not its local ones. Returns
    /// its name.
    pub(super) fn add_node_like(&mut self, node: &str, apart_by: &[String]) -> Option<String> {
        let mut new = self.objects.nodes.get(node)?.clone();
        let name = format!("{NEW}-node");
        new.metadata.name.clone_from(&name);
        // Drivers of local volumes label nodes with their names, each with its own key.
        for value in new.metadata.labels.values_mut().filter(|value| value.as_str() == node) {
            value.clone_from(&name);
        }
        new.metadata.labels.insert(names::HOSTNAME.to_owned(), name.clone());
        for key in apart_by {
            new.metadata.labels.insert(key.clone(), NEW.to_owned());
        }
        new.spec = api::NodeSpec::default();
        let containers = self.pod.spec.containers.iter().chain(&self.pod.spec.init_containers);
        let lists = containers.map(|container| &container.resources.requests);
        let own = self.pod.spec.resources.as_ref().map(|resources| &resources.requests);
        let wanted = lists.chain(own).chain([&self.pod.spec.overhead]).flatten();
        for (resource, amount) in wanted {
            let has = new.status.allocatable.entry(resource.clone()).or_default();
            *has = Quantity::from_milli(has.milli_value().saturating_add(amount.milli_value()));
        }
        new.status
            .allocatable
            .insert("pods".to_owned(), Quantity::from_units(110));
        let csi_node = self.objects.csi_nodes.get(node).cloned();
        self.put(Object::Node(Box::new(new)));
        if let Some(mut csi_node) = csi_node {
            csi_node.metadata.name.clone_from(&name);
            self.put(Object::CsiNode(Box::new(csi_node)));
        }
        self.ask_for_any_node();
        let claims = 0..self.report.claims.len();
        claims.for_each(|index| {
            self.provide(index, &name);
        });
        self.drop_inline_sizes();
        Some(name)
    }

    fn put(&mut self, object: Object) {
        self.cluster.upsert(&object);
        self.changed.keep(object);
    }

    fn ask_for_none_of(&mut self, resource: &str) {
        let spec = &mut self.pod.spec;
        let containers = spec.containers.iter_mut().chain(&mut spec.init_containers);
        for resources in containers
            .map(|container| &mut container.resources)
            .chain(&mut spec.resources)
        {
            resources.requests.remove(resource);
            resources.limits.remove(resource);
        }
        spec.overhead.remove(resource);
    }

    /// Removes the anti-affinity of the other pods of the pod's workload: they have the rule from the same template.
    fn relax_siblings(&mut self) {
        let controller = |pod: &api::Pod| {
            let mut owners = pod.metadata.owner_references.iter();
            let owner = owners.find(|owner| owner.controller == Some(true))?;
            Some((pod.metadata.namespace.clone(), owner.kind.clone(), owner.name.clone()))
        };
        let Some(own) = controller(&self.pod) else {
            return;
        };
        let siblings: Vec<api::Pod> = self
            .objects
            .pods
            .values()
            .filter(|pod| pod.spec.affinity.is_some() && controller(pod).as_ref() == Some(&own))
            .cloned()
            .collect();
        for mut pod in siblings {
            pod.spec
                .affinity
                .iter_mut()
                .for_each(|all| all.pod_anti_affinity = None);
            self.put(Object::Pod(Box::new(pod)));
        }
    }

    fn ask_for_any_node(&mut self) {
        self.pod.spec.node_selector.clear();
        if let Some(affinity) = &mut self.pod.spec.affinity {
            affinity.node_affinity = None;
        }
    }

    /// Labels the node as the pod requires; if labels describe the node itself, the pod accepts any node instead.
    fn satisfy(&mut self, demands: &[Demand], node: &str) -> bool {
        let labels: Option<Vec<Label<'_>>> = demands.iter().map(Demand::label).collect();
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else {
            self.ask_for_any_node();
            return true;
        };
        self.edit_node(node, |node| {
            for label in labels {
                match label {
                    Label::Set(key, value) => {
                        node.metadata.labels.insert(key.to_owned(), value.to_owned());
                    }
                    Label::Remove(key) => {
                        node.metadata.labels.remove(key);
                    }
                }
            }
        })
    }

    /// Removes the obstacle between a volume and a claim.
    fn mend_volume(&mut self, claim: usize, fix: &VolumeFix, node: &str) -> bool {
        let (Some(claim), Some(volume)) = (self.claim(claim), self.objects.volumes.get(&fix.volume)) else {
            return false;
        };
        let mut volume = volume.clone();
        match fix.cause {
            Cause::VolumeReleased | Cause::VolumeFailed | Cause::VolumeReserved => {
                volume.spec.claim_ref = None;
                "Available".clone_into(&mut volume.status.phase);
            }
            Cause::VolumeNodeMissing => volume.spec.node_affinity = Some(affinity_to(node)),
            Cause::VolumeMode => volume.spec.volume_mode.clone_from(&claim.spec.volume_mode),
            Cause::VolumeLabels => volume.metadata.labels.extend(selected_labels(&claim)),
            Cause::VolumeAccessModes => {
                let mut claim = claim;
                claim.spec.access_modes.clone_from(&volume.spec.access_modes);
                self.put(Object::PersistentVolumeClaim(Box::new(claim)));
                return true;
            }
            _ => return false,
        }
        self.put(Object::PersistentVolume(Box::new(volume)));
        true
    }

    fn use_no_host_ports(&mut self) {
        let spec = &mut self.pod.spec;
        spec.host_network = false;
        let containers = spec.containers.iter_mut().chain(&mut spec.init_containers);
        for port in containers.flat_map(|container| &mut container.ports) {
            port.host_port = 0;
        }
    }

    fn drop_inline_sizes(&mut self) {
        for source in self
            .pod
            .spec
            .volumes
            .iter_mut()
            .filter_map(|volume| volume.csi.as_mut())
        {
            source.volume_attributes.clear();
        }
    }

    /// Stops running pods. Returns `false` if there are none.
    fn stop(&mut self, which: impl Fn(&api::Pod) -> bool) -> bool {
        let found = self
            .objects
            .pods
            .values()
            .filter(|pod| which(pod) && !pod.spec.node_name.is_empty());
        let mut stopped = false;
        for pod in found {
            self.cluster
                .remove(Kind::Pod, &pod.metadata.namespace, &pod.metadata.name);
            stopped = true;
        }
        stopped
    }

    fn stop_users_of_claims(&mut self) -> bool {
        let claims: BTreeSet<String> = self.claim_names().collect();
        let namespace = self.pod.metadata.namespace.clone();
        self.stop(|pod| {
            let mut volumes = pod.spec.volumes.iter();
            let mut uses = || {
                volumes.any(|volume| {
                    let claim = volume.claim_name(&pod.metadata.name);
                    claim.is_some_and(|claim| claims.contains(&claim))
                })
            };
            pod.metadata.namespace == namespace && uses()
        })
    }

    fn claim_names(&self) -> impl Iterator<Item = String> + '_ {
        let volumes = self.pod.spec.volumes.iter();
        volumes.filter_map(|volume| volume.claim_name(&self.pod.metadata.name))
    }

    fn edit_node(&mut self, name: &str, change: impl FnOnce(&mut api::Node)) -> bool {
        let found = self.changed.nodes.get(name).or_else(|| self.objects.nodes.get(name));
        let Some(mut node) = found.cloned() else {
            return false;
        };
        change(&mut node);
        self.put(Object::Node(Box::new(node)));
        true
    }

    fn edit_csi_node(&mut self, name: &str, change: impl FnOnce(&mut api::CsiNode)) -> bool {
        let found = self
            .changed
            .csi_nodes
            .get(name)
            .or_else(|| self.objects.csi_nodes.get(name));
        let mut node = found.cloned().unwrap_or_default();
        name.clone_into(&mut node.metadata.name);
        change(&mut node);
        self.put(Object::CsiNode(Box::new(node)));
        true
    }

    /// A claim of the report, in its state here.
    fn claim(&self, index: usize) -> Option<api::PersistentVolumeClaim> {
        let name = format!(
            "{}/{}",
            self.pod.metadata.namespace,
            self.report.claims.get(index)?.claim
        );
        let found = self
            .changed
            .claims
            .get(&name)
            .or_else(|| self.objects.claims.get(&name));
        found.cloned()
    }

    fn edit_claim(&mut self, index: usize, change: impl FnOnce(&mut api::PersistentVolumeClaim)) -> bool {
        let Some(mut claim) = self.claim(index) else {
            return false;
        };
        change(&mut claim);
        self.put(Object::PersistentVolumeClaim(Box::new(claim)));
        true
    }

    /// Binds a claim to a volume that every node can reach; creates it if it does not exist.
    fn bind(&mut self, index: usize) -> bool {
        let Some(report) = self.report.claims.get(index) else {
            return false;
        };
        let mut claim = self.claim(index).unwrap_or_default();
        report.claim.clone_into(&mut claim.metadata.name);
        self.pod.metadata.namespace.clone_into(&mut claim.metadata.namespace);
        claim.metadata.deletion_timestamp = None;
        if claim.metadata.uid.is_empty() {
            claim.metadata.uid = format!("{NEW}-claim-{index}");
        }
        let volumes = self.pod.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some());
        let mut ephemeral = volumes.filter_map(|volume| volume.claim_name(&self.pod.metadata.name));
        if ephemeral.any(|name| name == report.claim) {
            claim.metadata.owner_references = vec![api::OwnerReference {
                kind: "Pod".to_owned(),
                name: self.pod.metadata.name.clone(),
                uid: self.pod.metadata.uid.clone(),
                controller: Some(true),
                ..api::OwnerReference::default()
            }];
        }
        let mut volume = self.new_volume(&claim);
        volume.spec.claim_ref = Some(api::ObjectReference {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            ..api::ObjectReference::default()
        });
        "Bound".clone_into(&mut volume.status.phase);
        claim.spec.volume_name.clone_from(&volume.metadata.name);
        "Bound".clone_into(&mut claim.status.phase);
        let yes = (names::BIND_COMPLETED.to_owned(), "yes".to_owned());
        claim.metadata.annotations.extend([yes]);
        self.put(Object::PersistentVolume(Box::new(volume)));
        self.put(Object::PersistentVolumeClaim(Box::new(claim)));
        true
    }

    /// Adds a free volume for an unbound claim on a node.
    fn provide(&mut self, index: usize, node: &str) -> bool {
        let Some(claim) = self.claim(index) else {
            return false;
        };
        if !claim.spec.volume_name.is_empty() {
            return true;
        }
        self.put_volume(&claim, node);
        true
    }

    fn put_volume(&mut self, claim: &api::PersistentVolumeClaim, node: &str) {
        let mut volume = self.new_volume(claim);
        "Available".clone_into(&mut volume.status.phase);
        volume.spec.node_affinity = Some(affinity_to(node));
        self.put(Object::PersistentVolume(Box::new(volume)));
    }

    /// A volume that suits a claim.
    fn new_volume(&mut self, claim: &api::PersistentVolumeClaim) -> api::PersistentVolume {
        self.volumes += 1;
        let mut volume = api::PersistentVolume::default();
        volume.metadata.name = format!("{NEW}-volume-{}", self.volumes);
        let size = claim.spec.resources.requests.get("storage").copied();
        let size = size.unwrap_or_else(|| Quantity::from_units(1));
        volume.spec.capacity.insert("storage".to_owned(), size);
        volume.spec.access_modes.clone_from(&claim.spec.access_modes);
        volume.spec.volume_mode.clone_from(&claim.spec.volume_mode);
        volume
            .spec
            .volume_attributes_class_name
            .clone_from(&claim.spec.volume_attributes_class_name);
        claim
            .class_name()
            .unwrap_or_default()
            .clone_into(&mut volume.spec.storage_class_name);
        volume.metadata.labels.extend(selected_labels(claim));
        volume
    }

    /// Makes the bound volumes of the pod's claims reachable from every node.
    fn reach_volumes(&mut self) -> bool {
        let mut reached = false;
        for index in 0..self.report.claims.len() {
            reached |= self.reach_volume(index);
        }
        reached
    }

    /// Makes the bound volume of a claim reachable from every node.
    fn reach_volume(&mut self, index: usize) -> bool {
        let name = self.claim(index).map(|claim| claim.spec.volume_name);
        let found = name.and_then(|name| self.objects.volumes.get(&name));
        let Some(mut volume) = found.cloned() else {
            return false;
        };
        volume.spec.node_affinity = None;
        let zoned = [names::ZONE, names::REGION, names::ZONE_BETA, names::REGION_BETA];
        volume.metadata.labels.retain(|key, _| !zoned.contains(&key.as_str()));
        self.put(Object::PersistentVolume(Box::new(volume)));
        true
    }

    /// Gives the pod its own claim instead of a shared one.
    fn own_volume(&mut self, index: usize) -> bool {
        let Some(mut claim) = self.claim(index) else {
            return false;
        };
        let (shared, own) = (claim.metadata.name.clone(), format!("{}-{NEW}", claim.metadata.name));
        claim.metadata.name.clone_from(&own);
        claim.metadata.uid = format!("{NEW}-claim-{index}");
        claim.metadata.annotations.clear();
        claim.spec.volume_name.clear();
        claim.status = api::PersistentVolumeClaimStatus::default();
        for source in self
            .pod
            .spec
            .volumes
            .iter_mut()
            .filter_map(|volume| volume.persistent_volume_claim.as_mut())
        {
            if source.claim_name == shared {
                source.claim_name.clone_from(&own);
            }
        }
        self.put(Object::PersistentVolumeClaim(Box::new(claim)));
        true
    }

    /// Adds a free volume for the claim that replaced a shared one.
    pub(super) fn provide_own(&mut self, index: usize, node: &str) -> bool {
        let Some(report) = self.report.claims.get(index) else {
            return false;
        };
        let name = format!("{}/{}-{NEW}", self.pod.metadata.namespace, report.claim);
        let Some(claim) = self.changed.claims.get(&name).cloned() else {
            return false;
        };
        self.put_volume(&claim, node);
        true
    }
}

/// The affinity of a volume that only one node can reach.
fn affinity_to(node: &str) -> VolumeNodeAffinity {
    let by_name = Requirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: vec![node.to_owned()],
    };
    VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Vec::new(),
                match_fields: vec![by_name],
            }],
        }),
    }
}

/// Labels that a claim's selector requires.
pub(super) fn selected_labels(claim: &api::PersistentVolumeClaim) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if let Some(selector) = &claim.spec.selector {
        labels.extend(selector.match_labels.clone());
        let asks = |one: &&Requirement| matches!(one.operator.as_str(), "In" | "Exists");
        for requirement in selector.match_expressions.iter().filter(asks) {
            let value = requirement.values.first().cloned().unwrap_or_else(|| NEW.to_owned());
            labels.insert(requirement.key.clone(), value);
        }
    }
    labels
}
