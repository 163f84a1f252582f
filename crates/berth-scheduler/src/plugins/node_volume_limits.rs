//! NodeVolumeLimits: a node can hold so many volumes of a driver.

use crate::cluster::{Attached, Cluster, Counted, VolumeKey, count_volume};
use crate::framework::{Code, PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use smallvec::SmallVec;

/// What the pod's volumes count as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// On nodes without a CSINode.
    plain: Outcome,
    /// On nodes with a CSINode, where in-tree volumes count as their drivers'.
    with_csi_node: Outcome,
}

/// What the pod's volumes count as on some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// These volumes, each once.
    Counted {
        volumes: SmallVec<[VolumeKey; 2]>,
        /// Drivers of these volumes without which a node is no good.
        must_be_installed: SmallVec<[Symbol; 1]>,
    },
    /// A volume is the cause that every such node is refused.
    Refused(Refusal),
}

/// Skips pods without volumes that are attached.
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
    let state = State {
        plain: outcome(cluster, profile, &counted, false),
        with_csi_node: outcome(cluster, profile, &counted, true),
    };
    let nothing = |outcome: &Outcome| matches!(outcome, Outcome::Counted { volumes, .. } if volumes.is_empty());
    if nothing(&state.plain) && nothing(&state.with_csi_node) {
        return PreFilter::Skip;
    }
    cluster.refresh_attached();
    PreFilter::ready(state)
}

fn outcome(cluster: &Cluster, profile: &Profile, counted: &[Counted], csi_node: bool) -> Outcome {
    let refused =
        |code, reason: &Reason| Outcome::Refused(Refusal::of(PluginName::NodeVolumeLimits, code, reason.clone()));
    let mut volumes: SmallVec<[VolumeKey; 2]> = SmallVec::new();
    for volume in counted {
        match volume {
            Counted::Missing(reason) => return refused(Code::UnschedulableAndUnresolvable, reason),
            Counted::Broken(reason) => return refused(Code::Error, reason),
            Counted::MigratedBroken(reason) if csi_node => return refused(Code::Error, reason),
            Counted::Migrated(_) if !csi_node => {}
            Counted::Volume(key) | Counted::Migrated(key) => {
                if !volumes.contains(key) {
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
        exceeds(cluster.attached(), volumes, node).then(|| Refusal::unschedulable(plugin, Reason::TooManyVolumes))
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
        let mut drivers: SmallVec<[(Symbol, i64); 2]> = SmallVec::new();
        for key in volumes {
            match drivers.iter_mut().find(|(driver, _)| *driver == key.driver) {
                Some((_, count)) => *count += 1,
                None => drivers.push((key.driver, 1)),
            }
        }
        for (driver, new) in drivers {
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

    /// The volumes that count where there are limits, unless something but limits matters.
    fn quick(&self) -> Option<&[VolumeKey]> {
        match &self.with_csi_node {
            Outcome::Counted {
                volumes,
                must_be_installed,
            } if must_be_installed.is_empty() => Some(volumes),
            Outcome::Counted { .. } | Outcome::Refused(_) => None,
        }
    }
}

/// Whether a node would hold more volumes of a driver than it can.
fn exceeds(attached: &Attached, volumes: &[VolumeKey], node: NodeId) -> bool {
    let new = |driver: Symbol| {
        let of_driver = volumes.iter().filter(move |key| key.driver == driver);
        of_driver.filter(|key| !attached.holders(key).contains(&node)).count() as i64
    };
    volumes.iter().any(|key| {
        let column = attached.column(key.driver);
        column.is_some_and(|column| {
            let (limit, held) = (column.limit.get(node.index()), column.attached.get(node.index()));
            let added = new(key.driver);
            // A node that holds too many already may go on using those.
            added > 0 && limit.zip(held).is_some_and(|(limit, held)| held + added > *limit)
        })
    })
}
