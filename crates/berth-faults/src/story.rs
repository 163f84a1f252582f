//! What happens in one run: a list of steps, drawn from a seed, that can be read, shortened and played again.

use crate::chance::Dice;
use crate::world::Millis;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The nodes.
pub(crate) const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The volumes that exist from the beginning.
pub(crate) const VOLUMES: [&str; 3] = ["pv1", "pv2", "pv3"];
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
    LimitCapacity {
        node: usize,
        gi: u64,
    },
    FreeCapacity {
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

/// A step and when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) at: Millis,
    pub(crate) action: Action,
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
        let mut dice = Dice::new(seed);
        let mut at = 0;
        // Most stories have a theme: a race needs its few steps close to each other, and nothing that hides it.
        let hurry = dice.one_of(&[200, 1_000, 4_000]).unwrap_or(1_000);
        let faults = dice.one_of(&[2, 3, 6, 100]).unwrap_or(3);
        let count = dice.between(8, 50);
        let mut steps = Vec::new();
        for _ in 0..count {
            at += dice.between(1, hurry);
            let action = if dice.once_in(faults) {
                fault(&mut dice)
            } else {
                user(&mut dice)
            };
            steps.push(Step { at, action });
        }
        Self { jitter: seed, steps }
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

fn user(dice: &mut Dice) -> Action {
    let (pod, claim, node) = (
        dice.below(PODS.len()),
        dice.below(CLAIMS.len()),
        dice.below(NODES.len()),
    );
    let (volume, class) = (dice.below(VOLUMES.len()), dice.below(CLASSES.len()));
    let replicas = dice.between(0, 3);
    match dice.below(100) {
        0..=22 => Action::CreatePod { pod },
        23..=38 => Action::CreateClaim { claim },
        39..=46 => Action::DeletePod { pod },
        47 => Action::DeletePodInForeground { pod },
        48..=50 => Action::LabelPod { pod },
        51..=55 => Action::DeleteClaim { claim },
        56..=57 => Action::SelectNode { claim, node },
        58..=59 => Action::CreateVolume { volume },
        60..=62 => Action::DeleteVolume { volume: dice.below(6) },
        63..=64 => Action::Prebind { volume, claim },
        65 => Action::ReleaseVolume { volume: dice.below(6) },
        66..=67 => Action::Retain { volume: dice.below(6) },
        68 => Action::DeleteOnRelease { volume: dice.below(6) },
        69 => Action::CreateClass { class },
        70 => Action::DeleteClass { class },
        71..=72 => Action::LimitCapacity {
            node,
            gi: dice.between(0, 12),
        },
        73 => Action::FreeCapacity { node },
        74..=75 => Action::Cordon { node },
        76 => Action::Uncordon { node },
        77..=78 => Action::Drain { node },
        79..=80 => Action::LoseNode { node },
        81..=82 => Action::NodeBack { node },
        83..=84 => Action::DeleteNode { node },
        85..=86 => Action::AddNode { node },
        87..=89 => Action::CreateSet,
        90 => Action::DeleteSet,
        91..=94 => Action::ScaleSet { replicas },
        95..=96 => Action::RollOut,
        _ => Action::ScaleDeployment { replicas },
    }
}

fn fault(dice: &mut Dice) -> Action {
    let (process, kind) = (dice.below(PROCESSES.len()), dice.below(crate::world::KINDS.len()));
    // The kinds that decisions read most are the first ones.
    let kind = if dice.once_in(4) { kind } else { kind % 6 };
    match dice.below(20) {
        0..=6 => Action::Hold {
            process,
            kind,
            millis: dice.one_of(&[50, 300, 1_000, 5_000, 20_000]).unwrap_or(300),
        },
        7..=8 => Action::Relist { process, kind },
        9 => Action::Double { process, kind },
        10..=11 => Action::Kill { process },
        12 => Action::Pause {
            process,
            millis: dice.one_of(&[500, 4_000, 12_000, 30_000]).unwrap_or(4_000),
        },
        13..=16 => {
            let all = [
                NetFault::LostBefore,
                NetFault::LostAfter,
                NetFault::Conflict,
                NetFault::Busy,
                NetFault::Failed,
                NetFault::Late,
            ];
            Action::Net {
                process,
                fault: dice.one_of(&all).unwrap_or(NetFault::LostAfter),
                requests: dice.below(3) + 1,
            }
        }
        17 => Action::Jump {
            process,
            seconds: dice.one_of(&[-3_600, -20, 20, 3_600]).unwrap_or(20),
        },
        _ => {
            let all = [
                DriverFault::Forgets,
                DriverFault::Hangs,
                DriverFault::NoRoom,
                DriverFault::Unclear,
                DriverFault::Twice,
                DriverFault::Slow,
            ];
            Action::Driver {
                fault: dice.one_of(&all).unwrap_or(DriverFault::Forgets),
                calls: dice.below(2) + 1,
            }
        }
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

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = |index: usize| name(&PROCESSES, index);
        let kind = |index: usize| name(&crate::world::KINDS, index);
        match *self {
            Self::CreatePod { pod: index } => write!(f, "user creates pod {}", pod(index)),
            Self::DeletePod { pod: index } => write!(f, "user deletes pod {}", pod(index)),
            Self::DeletePodInForeground { pod: index } => {
                write!(f, "user deletes pod {} in the foreground", pod(index))
            }
            Self::LabelPod { pod: index } => write!(f, "user labels pod {}", pod(index)),
            Self::CreateClaim { claim: index } => write!(f, "user creates claim {}", claim(index)),
            Self::DeleteClaim { claim: index } => write!(f, "user deletes claim {}", claim(index)),
            Self::SelectNode { claim: index, node: at } => {
                write!(f, "user selects node {} for claim {}", node(at), claim(index))
            }
            Self::CreateVolume { volume } => write!(f, "user creates volume {}", name(&VOLUMES, volume)),
            Self::DeleteVolume { volume } => write!(f, "user deletes volume number {volume}"),
            Self::Prebind { volume, claim: index } => {
                write!(
                    f,
                    "user reserves volume {} for claim {}",
                    name(&VOLUMES, volume),
                    claim(index)
                )
            }
            Self::ReleaseVolume { volume } => write!(f, "user takes the claim off volume number {volume}"),
            Self::Retain { volume } => write!(f, "user sets volume number {volume} to Retain"),
            Self::DeleteOnRelease { volume } => write!(f, "user sets volume number {volume} to Delete"),
            Self::CreateClass { class } => write!(f, "user creates class {}", name(&CLASSES, class)),
            Self::DeleteClass { class } => write!(f, "user deletes class {}", name(&CLASSES, class)),
            Self::LimitCapacity { node: at, gi } => {
                write!(f, "driver reports {gi} GiB free on node {}", node(at))
            }
            Self::FreeCapacity { node: at } => write!(f, "driver reports all free on node {}", node(at)),
            Self::Cordon { node: at } => write!(f, "user cordons node {}", node(at)),
            Self::Uncordon { node: at } => write!(f, "user uncordons node {}", node(at)),
            Self::Drain { node: at } => write!(f, "user drains node {}", node(at)),
            Self::LoseNode { node: at } => write!(f, "node {} falls silent", node(at)),
            Self::NodeBack { node: at } => write!(f, "node {} is back", node(at)),
            Self::DeleteNode { node: at } => write!(f, "user deletes node {}", node(at)),
            Self::AddNode { node: at } => write!(f, "user adds node {}", node(at)),
            Self::CreateSet => write!(f, "user creates StatefulSet db"),
            Self::DeleteSet => write!(f, "user deletes StatefulSet db"),
            Self::ScaleSet { replicas } => write!(f, "user scales StatefulSet db to {replicas}"),
            Self::RollOut => write!(f, "user changes the template of StatefulSet db"),
            Self::ScaleDeployment { replicas } => write!(f, "user scales Deployment web to {replicas}"),
            Self::Hold {
                process: who,
                kind: what,
                millis,
            } => write!(
                f,
                "the {} watch of {} brings nothing for {millis} ms",
                kind(what),
                process(who)
            ),
            Self::Relist {
                process: who,
                kind: what,
            } => write!(f, "the {} watch of {} has to list again", kind(what), process(who)),
            Self::Double {
                process: who,
                kind: what,
            } => write!(
                f,
                "the {} watch of {} brings its next change twice",
                kind(what),
                process(who)
            ),
            Self::Kill { process: who } => write!(f, "{} is killed", process(who)),
            Self::Pause { process: who, millis } => write!(f, "{} stands still for {millis} ms", process(who)),
            Self::Net {
                process: who,
                fault,
                requests,
            } => write!(f, "the next {requests} requests of {}: {fault:?}", process(who)),
            Self::Jump { process: who, seconds } => {
                write!(f, "the clock of {} jumps by {seconds} s", process(who))
            }
            Self::Driver { fault, calls } => write!(f, "the next {calls} calls to the driver: {fault:?}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} s  {}", self.at as f64 / 1000.0, self.action)
    }
}
