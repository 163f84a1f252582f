//! Tries advice: follows it on a copy of the cluster in memory, and checks where the pod then fits.

mod nodes;
mod storage;

pub(super) use storage::selected_labels;

use super::needs::Need;
use crate::explain::neighbours::share_a_port;
use crate::explain::report::Report;
use crate::explain::world::{Objects, World};
use berth_core::api::{self, Kind, Object};
use berth_core::names;
use berth_core::quantity::Quantity;
use berth_core::reason::VolumeReason;
use berth_scheduler::cluster::Cluster;
use berth_scheduler::examine::{Examination, examine};
use berth_scheduler::profile::Profile;
use berth_scheduler::reason::Reason;
use std::collections::{BTreeSet, HashSet};

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
    /// Pods that were stopped here.
    stopped: HashSet<&'w String>,
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
            stopped: HashSet::new(),
            cluster: world.cluster.clone(),
            pod,
            volumes: 0,
        }
    }

    /// The nodes that accept the pod now.
    pub(super) fn fitting(self, profile: &Profile) -> BTreeSet<String> {
        let fitting = self.examined(profile).nodes.into_iter().filter(|node| node.fits);
        fitting.map(|node| node.name).collect()
    }

    /// What every plugin says about every node now.
    pub(super) fn examined(mut self, profile: &Profile) -> Examination {
        let compiled = self.cluster.compile(&profile.adapt(&self.pod));
        examine(&mut self.cluster, &compiled, profile)
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
            Need::Inline(_) | Need::InlinePool(_) => {
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
            // Their other rules, and what they use, stay.
            Reason::ExistingPodsAntiAffinity => self.relax(|pod| !pod.spec.node_name.is_empty()),
            Reason::ResourceClaims => self.pod.spec.resource_claims.clear(),
            Reason::Gang => {
                self.pod.spec.workload_ref = None;
                self.pod.spec.scheduling_group = None;
            }
            _ => return false,
        }
        true
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
        if let Some(own) = controller(&self.pod) {
            self.relax(|pod| controller(pod).as_ref() == Some(&own));
        }
    }

    /// Removes the anti-affinity of other pods.
    fn relax(&mut self, which: impl Fn(&api::Pod) -> bool) {
        let avoids = |pod: &api::Pod| {
            let affinity = pod.spec.affinity.as_ref();
            affinity.is_some_and(|all| all.pod_anti_affinity.is_some())
        };
        let pods = self.objects.pods.iter();
        let avoiding = pods.filter(|(name, pod)| avoids(pod) && which(pod) && !self.stopped.contains(*name));
        let avoiding: Vec<api::Pod> = avoiding.map(|(_, pod)| pod.clone()).collect();
        for mut pod in avoiding {
            pod.spec
                .affinity
                .iter_mut()
                .for_each(|all| all.pod_anti_affinity = None);
            self.put(Object::Pod(Box::new(pod)));
        }
    }

    pub(super) fn ask_for_any_node(&mut self) {
        self.pod.spec.node_selector.clear();
        if let Some(affinity) = &mut self.pod.spec.affinity {
            affinity.node_affinity = None;
        }
    }

    fn use_no_host_ports(&mut self) {
        let spec = &mut self.pod.spec;
        spec.host_network = false;
        let containers = spec.containers.iter_mut().chain(&mut spec.init_containers);
        for port in containers.flat_map(|container| &mut container.ports) {
            port.host_port = 0;
        }
    }

    /// Stops the pods on a node that use host ports of the pod. Returns `false` if there are none.
    pub(super) fn stop_users_of_ports(&mut self, node: &str) -> bool {
        let own = self.pod.clone();
        self.stop(|pod| pod.spec.node_name == node && share_a_port(&own, pod))
    }

    /// Stops some of the pods on a node: so many, by name, from a place in their list on. Returns `false` if there are fewer.
    pub(super) fn stop_pods_on(&mut self, node: &str, from: usize, count: usize) -> bool {
        let pods = self.objects.pods.iter();
        let there = pods.filter(|(_, pod)| pod.spec.node_name == node && !pod.is_finished());
        let chosen: BTreeSet<&String> = there.map(|(name, _)| name).skip(from).take(count).collect();
        chosen.len() == count && self.stop(|pod| chosen.contains(&pod.metadata.full_name()))
    }

    /// Stops running pods. Returns `false` if there are none.
    fn stop(&mut self, which: impl Fn(&api::Pod) -> bool) -> bool {
        let found = self
            .objects
            .pods
            .iter()
            .filter(|(_, pod)| which(pod) && !pod.spec.node_name.is_empty());
        let mut stopped = false;
        for (name, pod) in found {
            self.cluster
                .remove(Kind::Pod, &pod.metadata.namespace, &pod.metadata.name);
            self.stopped.insert(name);
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
}
