//! Stories as text.

use super::{Action, CLASSES, Moment, NODES, PROCESSES, Step, VOLUMES, claim, name, node, pod};
use std::fmt;

/// A node, or all of them.
fn places(index: usize) -> String {
    match index < NODES.len() {
        true => format!("node {}", node(index)),
        false => "all nodes".to_owned(),
    }
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
            Self::ReplacePod { pod: index } => write!(f, "user replaces pod {} by another of its name", pod(index)),
            Self::NameNode { pod: index, node: at } => {
                write!(f, "node {} is nominated for pod {}", node(at), pod(index))
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
            Self::LimitCapacity { node, gi } => write!(f, "driver reports {gi} GiB free on {}", places(node)),
            Self::LimitSize { node, gi } => {
                write!(
                    f,
                    "driver reports that it makes volumes of {gi} GiB at most on {}",
                    places(node)
                )
            }
            Self::FreeCapacity { node } => write!(f, "driver reports all free on {}", places(node)),
            Self::RemoveDriver { node: at } => write!(f, "user removes the driver from node {}", node(at)),
            Self::AddDriver { node: at } => write!(f, "user installs the driver on node {}", node(at)),
            Self::Cordon { node: at } => write!(f, "user cordons node {}", node(at)),
            Self::Uncordon { node: at } => write!(f, "user uncordons node {}", node(at)),
            Self::Drain { node: at } => write!(f, "user drains node {}", node(at)),
            Self::LoseNode { node: at } => write!(f, "node {} falls silent", node(at)),
            Self::NodeBack { node: at } => write!(f, "node {} is back", node(at)),
            Self::Refuse { node: at } => write!(f, "node {} admits no pods", node(at)),
            Self::Admit { node: at } => write!(f, "node {} admits pods again", node(at)),
            Self::PlaceReplica { replica, node: at } => {
                write!(f, "another scheduler puts pod db-{replica} on node {}", node(at))
            }
            Self::DeleteNode { node: at } => write!(f, "user deletes node {}", node(at)),
            Self::AddNode { node: at } => write!(f, "user adds node {}", node(at)),
            Self::CreateSet => write!(f, "user creates StatefulSet db"),
            Self::DeleteReplica { replica } => write!(f, "user deletes pod db-{replica}"),
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
            Self::Cut {
                process: who,
                kind: what,
                millis,
            } => write!(
                f,
                "the {} watch of {} is cut for {millis} ms, and lists again",
                kind(what),
                process(who)
            ),
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
        let process = |index: usize| name(&PROCESSES, index);
        match self.moment {
            Moment::AtOnce => {}
            Moment::BeforeWrite { process: who } => write!(f, "before the next write of {}: ", process(who))?,
            Moment::AfterWrite { process: who } => write!(f, "after the next write of {}: ", process(who))?,
        }
        write!(f, "{}", self.action)
    }
}
