//! What happens in one run: a list of steps, drawn from a seed, that can be read, shortened and played again.

mod draw;
mod words;

use crate::world::Millis;
use serde::{Deserialize, Serialize};

/// The nodes.
pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The volumes that users make. The last one does not exist from the beginning.
pub(crate) const VOLUMES: [&str; 4] = ["pv1", "pv2", "pv3", "pv4"];
/// The claims that users make.
pub(crate) const CLAIMS: [&str; 6] = ["c1", "c2", "c3", "c4", "c5", "c6"];
/// The pods that users make.
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

/// How a request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetFault {
    /// It never arrives, and nobody answers.
    LostBefore,
    /// It is carried out, and the answer is lost.
    LostAfter,
    /// It is refused as a conflict.
    Conflict,
    /// The server is too busy.
    Busy,
    /// The server fails after it carried the request out.
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

/// How a storage backend goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DriverFault {
    /// It makes the volume and its answer is lost.
    Forgets,
    /// It neither makes the volume nor answers.
    Hangs,
    /// It says that it has no room.
    NoRoom,
    /// It fails in a way that says nothing.
    Unclear,
    /// It does what it is asked for twice.
    Twice,
    /// It takes its time.
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

/// One thing that happens. Names that are not there make a step that does nothing.
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
    /// Deletes a pod without grace, and creates one of its name.
    ReplacePod {
        pod: usize,
    },
    /// Names a node for a pod, as another scheduler or an autoscaler does.
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
    /// One of all that there are, made by whomever.
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
    /// The last node and one more stand for all of them.
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
    /// A watch brings nothing for a while.
    Hold {
        process: usize,
        kind: usize,
        millis: Millis,
    },
    /// A watch is told that its place is too old, and lists again.
    Relist {
        process: usize,
        kind: usize,
    },
    /// A watch is cut. When it is back, it has to list again.
    Cut {
        process: usize,
        kind: usize,
        millis: Millis,
    },
    /// A watch brings its next change twice.
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
    /// The next requests of a process go wrong.
    Net {
        process: usize,
        fault: NetFault,
        requests: usize,
    },
    /// The clock on the wall of a process jumps.
    Jump {
        process: usize,
        seconds: i64,
    },
    /// The next calls to the storage backend go wrong.
    Driver {
        fault: DriverFault,
        calls: usize,
    },
}

/// When a step happens, from its time on. Between a decision and its write a user is quick by chance only, once in
/// thousands of stories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Moment {
    /// At that time.
    #[default]
    AtOnce,
    /// Just before a process's next write to an object of the kind that the step is about.
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
    /// The kind of object that a user changes by it, if it is one whose changes race with others.
    pub(crate) fn kind(self) -> Option<&'static str> {
        match self {
            Self::DeletePod { .. }
            | Self::DeletePodInForeground { .. }
            | Self::ReplacePod { .. }
            | Self::LabelPod { .. }
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
    /// How long messages take follows from this.
    pub(crate) jitter: u64,
    pub(crate) steps: Vec<Step>,
}

impl Story {
    /// The story of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        draw::story(seed)
    }

    /// How many steps it has.
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
