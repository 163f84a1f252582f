//! Details that kube-scheduler's messages omit: which taint, how much is left.

use super::demands::Unmet;
use super::layout::names;
use super::report::TooSmall;
use berth_core::nodes::NodeId;
use berth_core::quantity::Bytes;
use berth_core::symbols::Symbol;
use berth_scheduler::cluster::{Cluster, Column};
use berth_scheduler::pod::{self, Effect, Pod};
use berth_scheduler::profile::Profile;
use berth_scheduler::reason::Reason;
use std::fmt;

/// Maximum number of pods named.
const NAMES_SHOWN: usize = 3;

/// The missing details of a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Nothing.
    #[default]
    Nothing,
    /// How much of a resource is left.
    Left {
        /// The request of the pod.
        wants: String,
        /// What is free.
        free: String,
        /// The total of the node.
        all: String,
    },
    /// The taints that the pod does not tolerate.
    Taints(Vec<Taint>),
    /// Number of pods on the node.
    Pods {
        /// The number of pods.
        runs: i64,
        /// The limit.
        of: i64,
    },
    /// Pods from which the pod must be separated.
    ApartBy {
        /// The labels that define which nodes are near each other.
        keys: Vec<String>,
        /// The avoided pods near the node.
        from: Vec<String>,
    },
    /// Further information, as text that no code reads.
    Text(String),
    /// What the pod's node selector and affinity require and the node lacks.
    Demands(Vec<Unmet>),
    /// The pods that hold a claim that only one pod may use.
    HeldBy(Vec<String>),
    /// The volumes of a driver that are attached to the node.
    Attached {
        /// The driver.
        driver: String,
        /// The number of volumes.
        count: usize,
        /// The limit.
        of: i32,
        /// How many of them have to go before the pod fits.
        excess: usize,
        /// The pods that use them.
        pods: Vec<String>,
    },
}

impl Detail {
    /// What two nodes have in common: the pods on them may differ where the rule does not.
    pub(super) fn in_common_with(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::ApartBy { keys, .. }, Self::ApartBy { keys: others, .. }) if keys == others => {
                Self::ApartBy { keys, from: Vec::new() }
            }
            (
                Self::Attached {
                    driver,
                    count,
                    of,
                    excess,
                    ..
                },
                Self::Attached {
                    driver: other_driver,
                    count: other_count,
                    of: other_of,
                    excess: other_excess,
                    ..
                },
            ) if (&driver, count, of, excess) == (&other_driver, other_count, other_of, other_excess) => {
                Self::Attached {
                    driver,
                    count,
                    of,
                    excess,
                    pods: Vec::new(),
                }
            }
            _ => Self::Nothing,
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Left { wants, free, all } => write!(f, "wants {wants}, has {free} of {all} left"),
            Self::Taints(taints) => {
                let taints: Vec<String> = taints.iter().map(Taint::to_string).collect();
                f.write_str(&taints.join(", "))
            }
            Self::Demands(unmet) => {
                let unmet: Vec<String> = unmet.iter().map(Unmet::to_string).collect();
                f.write_str(&unmet.join("; "))
            }
            Self::Pods { runs, of } => write!(f, "runs {runs} of {of}"),
            Self::HeldBy(pods) => write!(f, "held by {}", names(pods, NAMES_SHOWN)),
            Self::Attached {
                driver,
                count,
                of,
                pods,
                excess: _,
            } => {
                write!(f, "{driver}: {count} of {of} attached")?;
                match pods.as_slice() {
                    [] => Ok(()),
                    pods => write!(f, ", for {}", names(pods, NAMES_SHOWN)),
                }
            }
            Self::ApartBy { keys, from } => {
                write!(f, "apart by {}", keys.join(", "))?;
                match from.as_slice() {
                    [] => Ok(()),
                    from => write!(f, " from {}", names(from, NAMES_SHOWN)),
                }
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, possibly empty.
    pub value: String,
    /// Its effect.
    pub effect: &'static str,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, effect } = self;
        match value.as_str() {
            "" => write!(f, "{key}:{effect}"),
            value => write!(f, "{key}={value}:{effect}"),
        }
    }
}

/// The resource in a reason about insufficient resources.
pub(super) fn resource_of(reason: &Reason) -> Option<&str> {
    Some(match reason {
        Reason::InsufficientCpu => "cpu",
        Reason::InsufficientMemory => "memory",
        Reason::InsufficientEphemeralStorage => "ephemeral-storage",
        Reason::InsufficientResource { resource } => resource,
        _ => return None,
    })
}

/// The details of a reason on a node.
pub(super) fn detail(cluster: &Cluster, pod: &Pod, profile: &Profile, node: NodeId, reason: &Reason) -> Detail {
    let resources = cluster.resources();
    let wanted = &pod.footprint.requests;
    match reason {
        Reason::UntoleratedTaint => untolerated_taints(cluster, pod, profile, node),
        Reason::InsufficientCpu => left(Milli(wanted.cpu_milli), &resources.cpu, node, Milli),
        Reason::InsufficientMemory => left(Bytes(wanted.memory_bytes), &resources.memory, node, Bytes),
        Reason::InsufficientEphemeralStorage => left(Bytes(wanted.ephemeral_bytes), &resources.ephemeral, node, Bytes),
        Reason::InsufficientResource { resource } => scalar_left(cluster, pod, node, resource),
        Reason::TooManyPods => Detail::Pods {
            runs: resources.pods.requested[node.index()],
            of: resources.pods.allocatable[node.index()],
        },
        _ => Detail::Nothing,
    }
}

/// Which resource is insufficient even on the empty node; `None` if it would be enough.
pub(super) fn too_small(cluster: &Cluster, pod: &Pod, node: NodeId, reason: &Reason) -> Option<TooSmall> {
    let resources = cluster.resources();
    let wanted = &pod.footprint.requests;
    let all = |column: &Column| column.allocatable[node.index()];
    let (wants, has) = match reason {
        Reason::InsufficientCpu => (wanted.cpu_milli, all(&resources.cpu)),
        Reason::InsufficientMemory => (wanted.memory_bytes, all(&resources.memory)),
        Reason::InsufficientEphemeralStorage => (wanted.ephemeral_bytes, all(&resources.ephemeral)),
        Reason::InsufficientResource { resource } => {
            let name = cluster.symbols().get(resource)?;
            (scalar_wanted(pod, name), resources.scalar(name, node).1)
        }
        _ => return None,
    };
    let text = |amount: i64| match reason {
        Reason::InsufficientCpu => Milli(amount).to_string(),
        Reason::InsufficientResource { .. } => amount.to_string(),
        _ => Bytes(amount).to_string(),
    };
    let resource = resource_of(reason)?;
    (wants > has).then(|| TooSmall {
        resource: resource.to_owned(),
        wants: text(wants),
        has: text(has),
        amount: has,
    })
}

fn left<T: fmt::Display>(wanted: T, column: &Column, node: NodeId, unit: impl Fn(i64) -> T) -> Detail {
    let (free, all) = (unit(column.free(node)), unit(column.allocatable[node.index()]));
    Detail::Left {
        wants: wanted.to_string(),
        free: free.to_string(),
        all: all.to_string(),
    }
}

fn scalar_wanted(pod: &Pod, name: Symbol) -> i64 {
    let scalars = pod.footprint.requests.scalars.iter();
    scalars
        .filter(|(scalar, _)| *scalar == name)
        .map(|(_, amount)| amount)
        .sum()
}

fn scalar_left(cluster: &Cluster, pod: &Pod, node: NodeId, resource: &str) -> Detail {
    let Some(name) = cluster.symbols().get(resource) else {
        return Detail::Nothing;
    };
    let wanted = scalar_wanted(pod, name);
    let (free, all) = cluster.resources().scalar(name, node);
    Detail::Left {
        wants: wanted.to_string(),
        free: free.to_string(),
        all: all.to_string(),
    }
}

fn untolerated_taints(cluster: &Cluster, pod: &Pod, profile: &Profile, node: NodeId) -> Detail {
    let taints = cluster.taints();
    let compare_numbers = profile.gates.taint_toleration_comparison_operators;
    let symbols = cluster.symbols();
    let tolerated = |taint: &pod::Taint| {
        let mut tolerations = pod.tolerations.iter();
        tolerations.any(|toleration| toleration.tolerates(symbols, taint, compare_numbers))
    };
    let own = taints
        .lists()
        .get(taints.list_of(node))
        .into_iter()
        .flat_map(|list| list.taints.iter());
    let untolerated = own.filter(|taint| taint.effect.is_hard() && !tolerated(taint));
    let text = |symbol: Symbol| symbols.text(symbol);
    let listed = untolerated.map(|taint| Taint {
        key: text(taint.key).to_owned(),
        value: text(taint.value).to_owned(),
        effect: match taint.effect {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
        },
    });
    Detail::Taints(listed.collect())
}

/// Millicores as Kubernetes users write them: `2`, `1500m`.
struct Milli(i64);

impl fmt::Display for Milli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            _ => write!(f, "{}m", self.0),
        }
    }
}
