//! NodeVolumeLimits: attach limits of drivers on nodes.

use crate::cluster::{Attached, Cluster, Counted, VolumeKey, count_disk, count_volume};
use crate::framework::{Code, PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::binder::PreparedPod;
use berth_core::mask::NodeMask;
use berth_core::model::ClaimId;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Up to this many volumes of a pod, duplicates are found by a linear scan.
const FEW_VOLUMES: usize = 16;

/// What the pod's volumes count as.
#[derive(Clone, Debug)]
pub struct State {
    /// On nodes without a CSINode.
    plain: Outcome,
    /// On nodes with a CSINode, where in-tree volumes count as their drivers'.
    with_csi_node: Outcome,
    /// Claims that would use several counted volumes, different ones on each node.
    later: Option<Box<PreparedPod>>,
}

/// What the pod's volumes count as on a group of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// These volumes, without duplicates.
    Counted {
        volumes: SmallVec<[VolumeKey; 2]>,
        /// Drivers of these volumes that must be installed on a node.
        must_be_installed: SmallVec<[Symbol; 1]>,
    },
    /// A volume causes the refusal of every such node.
    Refused(Refusal),
}

/// Skips pods without attached volumes.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod, profile: &Profile) -> PreFilter<State> {
    if pod.footprint.volumes.is_empty() {
        return PreFilter::Skip;
    }
    let counted: Vec<_> = pod
        .footprint
        .volumes
        .iter()
        .map(|volume| count_volume(cluster.binder(), &pod.footprint, volume))
        .collect();
    let mut state = State {
        plain: outcome(cluster, profile, &counted, false),
        with_csi_node: outcome(cluster, profile, &counted, true),
        later: None,
    };
    let nothing = |outcome: &Outcome| matches!(outcome, Outcome::Counted { volumes, .. } if volumes.is_empty());
    if nothing(&state.plain) && nothing(&state.with_csi_node) {
        return PreFilter::Skip;
    }
    cluster.refresh_attached();
    state.later = chosen_later(cluster, pod, &state);
    if state.is_unlimited(cluster) {
        return PreFilter::Skip;
    }
    PreFilter::ready(state)
}

/// The pod's claims, if they may add more than one volume of a driver with limits, besides known ones. A class without a provisioner
/// does not determine the driver of its volumes. A single one does not matter: it is not chosen where there is no room for it.
fn chosen_later(cluster: &mut Cluster, pod: &Pod, state: &State) -> Option<Box<PreparedPod>> {
    let (binder, attached) = (cluster.binder(), cluster.attached());
    let claims = binder.claims(&pod.volumes).ok()?;
    let limited = |driver: Symbol| attached.column(driver).is_some();
    let may_count = |claim: &&ClaimId| {
        let class = binder.claim(**claim).and_then(|claim| claim.class);
        class.is_some_and(|class| {
            binder.class(class).is_some_and(|class| !class.provisions) && binder.free_drivers(class).any(limited)
        })
    };
    let later = claims.delayed.iter().filter(may_count).count();
    let known = match &state.with_csi_node {
        Outcome::Counted { volumes, .. } => volumes.iter().filter(|key| limited(key.driver)).count(),
        Outcome::Refused(_) => 0,
    };
    (later > 0 && later + known > 1).then(|| Box::new(cluster.binder_mut().prepare(&claims)))
}

fn outcome(cluster: &Cluster, profile: &Profile, counted: &[Counted], csi_node: bool) -> Outcome {
    let refused =
        |code, reason: &Reason| Outcome::Refused(Refusal::of(PluginName::NodeVolumeLimits, code, reason.clone()));
    let mut volumes: SmallVec<[VolumeKey; 2]> = SmallVec::new();
    let mut among_many = FxHashSet::default();
    for volume in counted {
        match volume {
            Counted::Missing(reason) => return refused(Code::UnschedulableAndUnresolvable, reason),
            Counted::Broken(reason) => return refused(Code::Error, reason),
            Counted::MigratedBroken(reason) if csi_node => return refused(Code::Error, reason),
            Counted::Migrated(_) if !csi_node => {}
            Counted::Volume(key) | Counted::Migrated(key) => {
                // For a few volumes, a scan is faster than building a set.
                let is_new = if counted.len() <= FEW_VOLUMES {
                    !volumes.contains(key)
                } else {
                    among_many.insert(key)
                };
                if is_new {
                    volumes.push(key.clone());
                }
            }
            Counted::Nothing | Counted::MigratedBroken(_) => {}
        }
    }
    let mut must_be_installed: SmallVec<[Symbol; 1]> = SmallVec::new();
    if profile.gates.volume_limit_scaling {
        let drivers = volumes.iter().map(|key| key.driver);
        must_be_installed.extend(drivers.filter(|driver| cluster.binder().must_be_installed(*driver)));
        must_be_installed.sort_by_key(|driver| cluster.symbols().text(*driver));
        must_be_installed.dedup();
    }
    Outcome::Counted {
        volumes,
        must_be_installed,
    }
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let plugin = PluginName::NodeVolumeLimits;
        let csi_node = cluster.binder().csi_node(cluster.nodes().name(node));
        let outcome = if csi_node.is_some() {
            &self.with_csi_node
        } else {
            &self.plain
        };
        let (volumes, must_be_installed) = match outcome {
            Outcome::Refused(refusal) => return Some(refusal.clone()),
            Outcome::Counted {
                volumes,
                must_be_installed,
            } => (volumes, must_be_installed),
        };
        let installed = csi_node.map_or(&[][..], |node| &node.drivers);
        if let Some(driver) = must_be_installed.iter().find(|driver| !installed.contains(driver)) {
            let driver = cluster.symbols().text(*driver).into();
            return Some(Refusal::unschedulable(plugin, Reason::DriverNotInstalled { driver }));
        }
        if volumes.is_empty() || csi_node.is_none_or(|node| node.limits.is_empty()) {
            return None;
        }
        if let Some(reason) = cluster.attached().broken().get(&node) {
            return Some(Refusal::of(plugin, Code::Error, reason.clone()));
        }
        let mut volumes = volumes.clone();
        volumes.extend(self.chosen_on(cluster, node));
        exceeds(cluster.attached(), &volumes, node).then(|| Refusal::unschedulable(plugin, Reason::TooManyVolumes))
    }

    /// What the volumes that claims would use on a node count as.
    fn chosen_on(&self, cluster: &Cluster, node: NodeId) -> SmallVec<[VolumeKey; 2]> {
        let binder = cluster.binder();
        let chosen = self
            .later
            .as_ref()
            .and_then(|prepared| binder.on_node(prepared, node).ok());
        let volumes = chosen.into_iter().flat_map(|chosen| chosen.bindings);
        let counted = volumes.filter_map(|(_, id)| match count_disk(binder, binder.volume(id)?) {
            Counted::Volume(key) | Counted::Migrated(key) => Some(key),
            Counted::Nothing | Counted::Missing(_) | Counted::Broken(_) | Counted::MigratedBroken(_) => None,
        });
        counted.collect()
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        let Some(volumes) = self.quick() else {
            mask.retain(|node| self.filter(cluster, node).is_none());
            return;
        };
        let attached = cluster.attached();
        // Nodes where running pods use one of the volumes are counted one by one.
        let mut special: Vec<NodeId> = attached.broken().keys().copied().collect();
        special.extend(volumes.iter().flat_map(|key| attached.holders(key)));
        special.retain(|node| mask.contains(*node));
        for (driver, new) in by_driver(volumes.iter()) {
            let Some(column) = attached.column(driver) else {
                continue;
            };
            let columns = column.limit.chunks(64).zip(column.attached.chunks(64));
            for (word, (limits, attached)) in mask.words_mut().iter_mut().zip(columns) {
                let mut room = u64::MAX;
                for (bit, (limit, attached)) in limits.iter().zip(attached).enumerate() {
                    room &= !(u64::from(attached + new > *limit) << bit);
                }
                *word &= room;
            }
        }
        for node in special {
            if self.filter(cluster, node).is_some() {
                mask.remove(node);
            } else {
                mask.insert(node);
            }
        }
    }

    /// Whether no node limits volumes of these drivers, and only limits matter: then no node is refused.
    fn is_unlimited(&self, cluster: &Cluster) -> bool {
        let attached = cluster.attached();
        let unlimited = |outcome: &Outcome| match outcome {
            Outcome::Counted {
                volumes,
                must_be_installed,
            } => must_be_installed.is_empty() && volumes.iter().all(|key| attached.column(key.driver).is_none()),
            Outcome::Refused(_) => false,
        };
        attached.broken().is_empty() && self.later.is_none() && unlimited(&self.plain) && unlimited(&self.with_csi_node)
    }

    /// The counted volumes where there are limits, if only limits matter.
    fn quick(&self) -> Option<&[VolumeKey]> {
        match &self.with_csi_node {
            Outcome::Counted {
                volumes,
                must_be_installed,
            } if must_be_installed.is_empty() && self.later.is_none() => Some(volumes),
            Outcome::Counted { .. } | Outcome::Refused(_) => None,
        }
    }
}

/// Whether a node would exceed the attach limit of a driver.
fn exceeds(attached: &Attached, volumes: &[VolumeKey], node: NodeId) -> bool {
    // A node that is already over its limit may keep using its volumes.
    let added = by_driver(volumes.iter().filter(|key| !attached.holders(key).contains(&node)));
    added.into_iter().any(|(driver, added)| {
        attached.column(driver).is_some_and(|column| {
            let (limit, held) = (column.limit.get(node.index()), column.attached.get(node.index()));
            limit.zip(held).is_some_and(|(limit, held)| held + added > *limit)
        })
    })
}

/// Number of volumes by driver. A cluster has few drivers.
fn by_driver<'a>(volumes: impl Iterator<Item = &'a VolumeKey>) -> SmallVec<[(Symbol, i64); 2]> {
    let mut drivers: SmallVec<[(Symbol, i64); 2]> = SmallVec::new();
    for key in volumes {
        match drivers.iter_mut().find(|(driver, _)| *driver == key.driver) {
            Some((_, count)) => *count += 1,
            None => drivers.push((key.driver, 1)),
        }
    }
    drivers
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_core::api::{Kind, Object};
    use berth_core::names::NO_PROVISIONER;
    use berth_testing::{Manifest, node, object};
    use serde_json::{Value, json};

    fn claim(index: usize) -> Object {
        let claim = berth_testing::claim(&format!("c{index}"), "disks", 1);
        claim.with("/spec/volumeName", format!("pv{index}")).decoded()
    }

    fn csi_volume(index: usize, class: &str, driver: &str) -> Value {
        let source = json!({"driver": driver, "volumeHandle": format!("h{index}")});
        let volume = berth_testing::volume(&format!("pv{index}"), class, 1);
        volume.with("/spec/hostPath", Value::Null).with("/spec/csi", source)
    }

    fn volume(index: usize, driver: &str) -> Object {
        csi_volume(index, "disks", driver).decoded()
    }

    fn class(provisioner: &str) -> Object {
        berth_testing::class("disks", provisioner).immediate().decoded()
    }

    fn csi_node(count: usize) -> Object {
        let node = berth_testing::csi_node("n1", &[("disk", &[])]);
        node.with("/spec/drivers/0/allocatable/count", count).decoded()
    }

    fn attachment(volume: usize) -> Object {
        let spec =
            json!({"attacher": "disk", "nodeName": "n1", "source": {"persistentVolumeName": format!("pv{volume}")}});
        let attachment = object("storage.k8s.io/v1", "VolumeAttachment", "va");
        attachment.with("/spec", spec).decoded()
    }

    fn pod(name: &str, claim: usize, node: &str) -> Object {
        berth_testing::pod(name, &[&format!("c{claim}")]).on(node).decoded()
    }

    /// Whether the node refuses one more pod that uses claim 1.
    fn is_full(cluster: &mut Cluster) -> bool {
        let Object::Pod(target) = pod("target", 1, "") else {
            return false;
        };
        let target = cluster.compile(&target);
        match pre_filter(cluster, &target, &Profile::default()) {
            PreFilter::Ready { state, .. } => {
                let node = cluster.binder().node("n1").unwrap();
                state.filter(cluster, node).is_some()
            }
            PreFilter::Skip | PreFilter::Refused(_) => false,
        }
    }

    #[test]
    fn the_count_follows_every_object_that_it_depends_on() {
        let mut cluster = Cluster::default();
        for object in [
            node("n1").decoded(),
            class("disk"),
            claim(0),
            claim(1),
            volume(0, "disk"),
            volume(1, "disk"),
        ] {
            cluster.upsert(&object);
        }
        let mut check = |change: &str, expected: bool, apply: fn(&mut Cluster)| {
            apply(&mut cluster);
            assert_eq!(is_full(&mut cluster), expected, "{change}");
        };
        check("no limit", false, |_| {});
        check("a limit", false, |cluster| {
            cluster.upsert(&csi_node(1));
        });
        check("a pod came", true, |cluster| {
            cluster.upsert(&pod("p", 0, "n1"));
        });
        check("its volume is another driver's", false, |cluster| {
            cluster.upsert(&volume(0, "other"));
        });
        check("its volume is gone: its class decides", true, |cluster| {
            cluster.remove(Kind::PersistentVolume, "", "pv0");
        });
        check("the class has another driver", false, |cluster| {
            cluster.upsert(&class("other"));
        });
        check("the volume is back", true, |cluster| {
            cluster.upsert(&volume(0, "disk"));
        });
        check("the claim is gone", false, |cluster| {
            cluster.remove(Kind::PersistentVolumeClaim, "default", "c0");
        });
        check("the claim is back", true, |cluster| {
            cluster.upsert(&claim(0));
        });
        check("a higher limit", false, |cluster| {
            cluster.upsert(&csi_node(2));
        });
        check("an attachment of a volume unknown", false, |cluster| {
            cluster.upsert(&attachment(2));
        });
        check("the volume is known", true, |cluster| {
            cluster.upsert(&volume(2, "disk"));
        });
        check("another one is attached, which is counted", false, |cluster| {
            cluster.upsert(&attachment(0));
        });
        check("the pod's own one is attached", true, |cluster| {
            cluster.upsert(&attachment(1));
        });
        check("nothing is attached", false, |cluster| {
            cluster.remove(Kind::VolumeAttachment, "", "va");
        });
        check("the pod's own one is in use", false, |cluster| {
            cluster.upsert(&pod("q", 1, "n1"));
        });
        check("no limit any more", false, |cluster| {
            cluster.remove(Kind::CsiNode, "", "n1");
        });
    }

    #[test]
    fn several_volumes_that_are_yet_to_be_chosen_count_together() {
        let mut cluster = Cluster::default();
        let mut objects = vec![node("n1"), berth_testing::class("static", NO_PROVISIONER)];
        for index in 0..2 {
            objects.push(csi_volume(index, "static", "disk"));
            objects.push(berth_testing::claim(&format!("c{index}"), "static", 1));
        }
        for object in objects {
            cluster.upsert(&object.decoded());
        }
        let pod = berth_testing::pod("target", &["c0", "c1"]).decoded();
        let Object::Pod(pod) = pod else { return };
        let pod = cluster.compile(&pod);
        for (limit, full) in [(0, false), (1, true), (2, false), (3, false)] {
            cluster.upsert(&csi_node(limit));
            let node = cluster.binder().node("n1").unwrap();
            let refused = match pre_filter(&mut cluster, &pod, &Profile::default()) {
                PreFilter::Ready { state, .. } => {
                    let mut mask = NodeMask::all(cluster.nodes());
                    state.narrow(&cluster, &mut mask);
                    let refused = state.filter(&cluster, node).is_some();
                    assert_eq!(mask.contains(node), !refused);
                    refused
                }
                PreFilter::Skip | PreFilter::Refused(_) => false,
            };
            assert_eq!(refused, full, "limit {limit}");
            // With no room at all there is nothing to choose from, which VolumeBinding refuses.
            let claims = cluster.binder().claims(&pod.volumes).unwrap();
            let prepared = cluster.binder_mut().prepare(&claims);
            assert_eq!(cluster.binder().on_node(&prepared, node).is_err(), limit == 0);
        }
    }
}
