//! The events of one run: a list of steps, drawn from a seed, that can be read, shortened and played again.

mod draw;
mod words;

use crate::world::Millis;
use serde::{Deserialize, Serialize};

/// The nodes.
pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The volumes that users create. The last one does not exist initially.
pub(crate) const VOLUMES: [&str; 4] = ["pv1", "pv2", "pv3", "pv4"];
/// The claims that users create.
pub(crate) const CLAIMS: [&str; 6] = ["c1", "c2", "c3", "c4", "c5", "c6"];
/// The pods that users create.
pub(crate) const PODS: [&str; 8] = ["p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"];
/// The storage classes.
pub(crate) const CLASSES: [&str; 4] = ["local", "disk", "now", "node-local"];
/// The processes.
pub(crate) const PROCESSES: [&str; 8] = [
    "scheduler-a",
    "scheduler-b",
    "controller-a",
    "controller-b",
    "provisioner",
    "csi-provisioner",
    "workloads",
    "agents",
];

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetFault {
    /// It never arrives, and there is no response.
    LostBefore,
    /// It is carried out, and the response is lost.
    LostAfter,
    /// It is refused as a conflict.
    Conflict,
    /// The server is too busy.
    Busy,
    /// The server fails after carrying it out.
    Failed,
    /// It arrives late.
    Late,
}

impl NetFault {
    pub(crate) const ALL: [Self; 6] = [
        Self::LostBefore,
        Self::LostAfter,
        Self::Conflict,
        Self::Busy,
        Self::Failed,
        Self::Late,
    ];
}

/// How a storage backend fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DriverFault {
    /// It creates the volume, and its response is lost.
    Forgets,
    /// It neither creates the volume nor responds.
    Hangs,
    /// It reports that it has no space.
    NoRoom,
    /// It fails with an inconclusive error.
    Unclear,
    /// It carries out the request twice.
    Twice,
    /// It is slow.
    Slow,
}

impl DriverFault {
    pub(crate) const ALL: [Self; 6] = [
        Self::Forgets,
        Self::Hangs,
        Self::NoRoom,
        Self::Unclear,
        Self::Twice,
        Self::Slow,
    ];
}

/// One event. A step with a nonexistent name does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    CreatePod {
        pod: usize,
    },
    DeletePod {
        pod: usize,
    },
    DeletePodInForeground {
        pod: usize,
    },
    /// Deletes a pod without grace, and creates one with its name.
    ReplacePod {
        pod: usize,
    },
    /// Nominates a node for a pod, as another scheduler or an autoscaler does.
    NameNode {
        pod: usize,
        node: usize,
    },
    LabelPod {
        pod: usize,
    },
    CreateClaim {
        claim: usize,
    },
    DeleteClaim {
        claim: usize,
    },
    SelectNode {
        claim: usize,
        node: usize,
    },
    CreateVolume {
        volume: usize,
    },
    /// One of all existing volumes, whoever created it.
    DeleteVolume {
        volume: usize,
    },
    Prebind {
        volume: usize,
        claim: usize,
    },
    ReleaseVolume {
        volume: usize,
    },
    Retain {
        volume: usize,
    },
    DeleteOnRelease {
        volume: usize,
    },
    CreateClass {
        class: usize,
    },
    DeleteClass {
        class: usize,
    },
    /// The last node and one more means all of them.
    LimitCapacity {
        node: usize,
        gi: u64,
    },
    LimitSize {
        node: usize,
        gi: u64,
    },
    FreeCapacity {
        node: usize,
    },
    RemoveDriver {
        node: usize,
    },
    AddDriver {
        node: usize,
    },
    Cordon {
        node: usize,
    },
    Uncordon {
        node: usize,
    },
    Drain {
        node: usize,
    },
    LoseNode {
        node: usize,
    },
    NodeBack {
        node: usize,
    },
    /// A node admits no pods any more.
    Refuse {
        node: usize,
    },
    /// It does again.
    Admit {
        node: usize,
    },
    /// Another scheduler puts a replica on a node.
    PlaceReplica {
        replica: usize,
        node: usize,
    },
    DeleteNode {
        node: usize,
    },
    AddNode {
        node: usize,
    },
    CreateSet,
    DeleteSet,
    DeleteReplica {
        replica: usize,
    },
    ScaleSet {
        replicas: u64,
    },
    RollOut,
    ScaleDeployment {
        replicas: u64,
    },
    /// A watch delivers nothing for a while.
    Hold {
        process: usize,
        kind: usize,
        millis: Millis,
    },
    /// A watch gets the error that its version is too old, and lists again.
    Relist {
        process: usize,
        kind: usize,
    },
    /// A watch is cut. Afterwards it has to list again.
    Cut {
        process: usize,
        kind: usize,
        millis: Millis,
    },
    /// A watch delivers its next change twice.
    Double {
        process: usize,
        kind: usize,
    },
    Kill {
        process: usize,
    },
    Pause {
        process: usize,
        millis: Millis,
    },
    /// The next requests of a process fail.
    Net {
        process: usize,
        fault: NetFault,
        requests: usize,
    },
    /// The wall clock of a process jumps.
    Jump {
        process: usize,
        seconds: i64,
    },
    /// The next calls to the storage backend fail.
    Driver {
        fault: DriverFault,
        calls: usize,
    },
}

/// When a step happens, from its time on. A user hits the moment between a decision and its write only by chance, once
/// in thousands of stories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Moment {
    /// At that time.
    #[default]
    AtOnce,
    /// Just before a process's next write to an object of the step's kind.
    BeforeWrite { process: usize },
    /// Just after it.
    AfterWrite { process: usize },
}

/// A step and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) at: Millis,
    #[serde(default)]
    pub(crate) moment: Moment,
    pub(crate) action: Action,
}

impl Action {
    /// The kind of object that a user changes by it, if its changes race with others.
    pub(crate) fn kind(self) -> Option<&'static str> {
        match self {
            Self::DeletePod { .. }
            | Self::DeletePodInForeground { .. }
            | Self::ReplacePod { .. }
            | Self::LabelPod { .. }
            | Self::PlaceReplica { .. }
            | Self::NameNode { .. } => Some("Pod"),
            Self::DeleteClaim { .. } | Self::SelectNode { .. } => Some("PersistentVolumeClaim"),
            Self::DeleteVolume { .. }
            | Self::Prebind { .. }
            | Self::ReleaseVolume { .. }
            | Self::Retain { .. }
            | Self::DeleteOnRelease { .. } => Some("PersistentVolume"),
            _ => None,
        }
    }
}

/// What happens in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Story {
    /// Seed for the delays of messages.
    pub(crate) jitter: u64,
    pub(crate) steps: Vec<Step>,
}

impl Story {
    /// The story of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        draw::story(seed)
    }

    /// Number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

fn name<'a>(of: &[&'a str], index: usize) -> &'a str {
    of.get(index % of.len().max(1)).copied().unwrap_or_default()
}

/// The name of a node.
pub(crate) fn node(index: usize) -> &'static str {
    name(&NODES, index)
}

/// The name of a pod.
pub(crate) fn pod(index: usize) -> &'static str {
    name(&PODS, index)
}

/// The name of a claim.
pub(crate) fn claim(index: usize) -> &'static str {
    name(&CLAIMS, index)
}
