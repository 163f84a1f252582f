//! Draws stories from seeds.
//!
//! Most stories have a theme: a race needs its few steps close to each other, about the same objects, and nothing that
//! hides it.

use super::{Action, CLAIMS, CLASSES, DriverFault, Moment, NODES, NetFault, PODS, Step, Story, VOLUMES};
use crate::chance::Dice;
use crate::process::Role;
use crate::world::kind_number;

/// What users focus on.
#[derive(Clone, Copy, Debug)]
enum Theme {
    /// Everything.
    Everything,
    /// Existing volumes: claimed, reserved, released.
    Existing,
    /// Provisioned volumes: capacity, drivers, reclaim policies.
    Made,
    /// Room for pods: priorities, nodes that are added and removed.
    Room,
    /// Pods that controllers create, and recreate under the same name.
    Replicas,
    /// Volumes that nodes can attach.
    Slots,
    /// Claims that no pod has used yet, and nodes that are of no use any more.
    Unused,
    /// Volumes whose claims are deleted while their reclaim policy changes, with a backend that takes its time.
    Reclaimed,
    /// Pods with several claims, which are bound together, and which change meanwhile.
    Several,
}

/// Processes that faults hit: leaders more often than standbys, and writers more often than others.
const TARGETS: [usize; 14] = [0, 0, 0, 1, 2, 2, 2, 3, 4, 5, 5, 5, 6, 7];

/// The provisioner that calls the driver, among the processes.
const CSI_PROVISIONER: usize = 5;

const THEMES: [Theme; 11] = [
    Theme::Everything,
    Theme::Everything,
    Theme::Existing,
    Theme::Existing,
    Theme::Made,
    Theme::Room,
    Theme::Replicas,
    Theme::Slots,
    Theme::Unused,
    Theme::Reclaimed,
    Theme::Several,
];

pub(super) fn story(seed: u64) -> Story {
    let mut dice = Dice::new(seed);
    let mut at = 0;
    let hurry = dice.one_of(&[200, 1_000, 4_000]).unwrap_or(1_000);
    let faults = dice.one_of(&[2, 3, 6, 100]).unwrap_or(3);
    let theme = dice.one_of(&THEMES).unwrap_or(Theme::Everything);
    let count = dice.between(8, 50);
    let mut steps = Vec::new();
    for _ in 0..count {
        at += dice.between(1, hurry);
        let action = if dice.once_in(faults) {
            fault(&mut dice)
        } else {
            user(&mut dice, theme)
        };
        let moment = moment(&mut dice, action);
        steps.push(Step { at, moment, action });
    }
    Story { jitter: seed, steps }
}

/// When a step happens: usually at its time, and occasionally around a write that it may race with.
fn moment(dice: &mut Dice, action: Action) -> Moment {
    let process = one_of(dice, &[0, 0, 0, 2, 2, 5]);
    match (dice.below(6), action.kind()) {
        (0, Some(_)) => Moment::BeforeWrite { process },
        (1, Some(_)) => Moment::AfterWrite { process },
        _ => Moment::AtOnce,
    }
}

fn user(dice: &mut Dice, theme: Theme) -> Action {
    match theme {
        Theme::Everything => anything(dice),
        Theme::Existing => existing(dice),
        Theme::Made => made(dice),
        Theme::Room => room(dice),
        Theme::Replicas => replicas(dice),
        Theme::Slots => slots(dice),
        Theme::Unused => unused(dice),
        Theme::Reclaimed => reclaimed(dice),
        Theme::Several => several(dice),
    }
}

fn one_of(dice: &mut Dice, of: &[usize]) -> usize {
    dice.one_of(of).unwrap_or_default()
}

fn anything(dice: &mut Dice) -> Action {
    let (pod, claim, node) = (
        dice.below(PODS.len()),
        dice.below(CLAIMS.len()),
        dice.below(NODES.len()),
    );
    let (volume, class) = (dice.below(VOLUMES.len() - 1), dice.below(CLASSES.len()));
    let replicas = dice.between(0, 3);
    match dice.below(100) {
        0..=21 => Action::CreatePod { pod },
        22..=37 => Action::CreateClaim { claim },
        38..=42 => Action::DeletePod { pod },
        43 => Action::ReplacePod { pod },
        44 => Action::NameNode { pod, node },
        45 => Action::DeletePodInForeground { pod },
        46..=48 => Action::LabelPod { pod },
        49..=53 => Action::DeleteClaim { claim },
        54..=55 => Action::SelectNode { claim, node },
        56..=57 => Action::CreateVolume { volume },
        58..=60 => Action::DeleteVolume { volume: dice.below(6) },
        61..=62 => Action::Prebind { volume, claim },
        63 => Action::ReleaseVolume { volume: dice.below(6) },
        64..=65 => Action::Retain { volume: dice.below(6) },
        66 => Action::DeleteOnRelease { volume: dice.below(6) },
        67 => Action::CreateClass { class },
        68 => Action::DeleteClass { class },
        69..=71 => limit(dice),
        72 => Action::FreeCapacity { node },
        73 => Action::RemoveDriver { node },
        74 => Action::AddDriver { node },
        75..=86 => of_nodes(dice, node),
        87..=88 => Action::CreateSet,
        89 => Action::DeleteSet,
        90 => Action::DeleteReplica { replica: dice.below(2) },
        91..=94 => Action::ScaleSet { replicas },
        95..=96 => Action::RollOut,
        _ => Action::ScaleDeployment { replicas },
    }
}

/// The capacity that the driver reports.
fn limit(dice: &mut Dice) -> Action {
    // One more than the number of nodes means all of them.
    let (node, gi) = (dice.below(NODES.len() + 1), dice.between(0, 12));
    match dice.below(3) {
        0 => Action::LimitSize { node, gi },
        _ => Action::LimitCapacity { node, gi },
    }
}

fn of_nodes(dice: &mut Dice, node: usize) -> Action {
    match dice.below(12) {
        0..=1 => Action::Cordon { node },
        2 => Action::Uncordon { node },
        3 => Action::Drain { node },
        4..=5 => Action::LoseNode { node },
        6..=7 => Action::NodeBack { node },
        8..=9 => Action::DeleteNode { node },
        _ => Action::AddNode { node },
    }
}

fn existing(dice: &mut Dice) -> Action {
    let (pod, claim) = (one_of(dice, &[0, 1, 3]), one_of(dice, &[0, 4]));
    let (volume, node) = (dice.below(VOLUMES.len() - 1), dice.below(NODES.len()));
    match dice.below(100) {
        0..=22 => Action::CreatePod { pod },
        23..=24 => Action::ReplacePod { pod },
        25..=39 => Action::CreateClaim { claim },
        // Their pods use others, too.
        40..=42 => Action::CreateClaim {
            claim: one_of(dice, &[1, 3]),
        },
        43..=52 => Action::DeletePod { pod },
        53..=60 => Action::DeleteClaim { claim },
        61..=74 => Action::Prebind { volume, claim },
        75..=80 => Action::CreateVolume { volume },
        81..=85 => Action::DeleteVolume { volume },
        86..=91 => Action::ReleaseVolume { volume },
        92..=93 => Action::Retain { volume },
        94..=95 => Action::LabelPod { pod },
        96..=97 => Action::Cordon { node },
        _ => Action::Uncordon { node },
    }
}

fn made(dice: &mut Dice) -> Action {
    let (pod, claim) = (one_of(dice, &[0, 2, 5, 6, 7]), one_of(dice, &[1, 2, 5]));
    let (volume, node) = (3 + dice.below(3), dice.below(NODES.len()));
    match dice.below(100) {
        0..=22 => Action::CreatePod { pod },
        23..=40 => Action::CreateClaim { claim },
        41..=48 => Action::DeletePod { pod },
        49 => Action::DeletePodInForeground { pod },
        50..=57 => Action::DeleteClaim { claim },
        58..=62 => Action::SelectNode { claim, node },
        63..=68 => Action::Retain { volume },
        69..=71 => Action::DeleteOnRelease { volume },
        72..=75 => Action::DeleteVolume { volume },
        76..=83 => limit(dice),
        84..=86 => Action::FreeCapacity {
            node: dice.below(NODES.len() + 1),
        },
        87..=90 => Action::RemoveDriver { node },
        91..=94 => Action::AddDriver { node },
        95..=96 => Action::DeleteNode { node },
        97..=98 => Action::AddNode { node },
        _ => Action::CreateClaim { claim: 0 },
    }
}

fn room(dice: &mut Dice) -> Action {
    let (pod, node) = (dice.below(PODS.len()), dice.below(NODES.len()));
    let claim = one_of(dice, &[0, 1, 2, 5]);
    match dice.below(100) {
        0..=32 => Action::CreatePod { pod },
        33..=34 => Action::ReplacePod { pod },
        35..=44 => Action::CreateClaim { claim },
        45..=49 => Action::NameNode { pod, node },
        50..=56 => Action::DeletePod { pod },
        57..=59 => Action::LabelPod { pod },
        60..=71 => Action::ScaleDeployment {
            replicas: dice.between(0, 5),
        },
        72..=75 => Action::DeleteClaim { claim },
        _ => of_nodes(dice, node),
    }
}

fn replicas(dice: &mut Dice) -> Action {
    let (pod, node) = (dice.below(PODS.len()), dice.below(NODES.len()));
    let replica = dice.below(2);
    match dice.below(100) {
        0..=14 => Action::CreateSet,
        15..=34 => Action::ScaleSet {
            replicas: dice.between(0, 3),
        },
        35..=46 => Action::DeleteReplica { replica },
        47..=56 => Action::RollOut,
        57..=60 => Action::DeleteSet,
        61..=70 => Action::ScaleDeployment {
            replicas: dice.between(0, 3),
        },
        71..=82 => Action::CreatePod { pod },
        83..=88 => Action::DeletePod { pod },
        89..=92 => Action::CreateClaim {
            claim: dice.below(CLAIMS.len()),
        },
        _ => of_nodes(dice, node),
    }
}

fn slots(dice: &mut Dice) -> Action {
    let (pod, claim) = (one_of(dice, &[2, 5, 6, 7]), one_of(dice, &[1, 2, 5]));
    // One node is left for most pods.
    let node = one_of(dice, &[0, 2]);
    match dice.below(100) {
        0..=29 => Action::CreatePod { pod },
        30..=51 => Action::CreateClaim { claim },
        52..=57 => Action::DeletePod { pod },
        58..=61 => Action::DeleteClaim { claim },
        62..=77 => Action::Cordon { node },
        78 => Action::Uncordon { node },
        79..=85 => Action::CreateVolume { volume: 3 },
        86..=92 => Action::Prebind { volume: 3, claim: 1 },
        93..=94 => Action::DeleteVolume { volume: dice.below(6) },
        _ => Action::Driver {
            fault: DriverFault::Hangs,
            calls: 40,
        },
    }
}

fn unused(dice: &mut Dice) -> Action {
    let (node, replica) = (dice.below(NODES.len()), dice.below(2));
    let ephemeral = PODS.len() - 1;
    match dice.below(100) {
        0..=14 => Action::CreateSet,
        15..=24 => Action::CreatePod { pod: ephemeral },
        25..=34 => Action::ScaleSet {
            replicas: dice.between(0, 3),
        },
        35..=46 => Action::Refuse { node },
        47..=54 => Action::Admit { node },
        55..=66 => Action::Cordon { node },
        67..=74 => Action::Uncordon { node },
        75..=80 => Action::DeleteReplica { replica },
        81..=85 => Action::DeletePod { pod: ephemeral },
        86..=91 => Action::PlaceReplica { replica, node },
        92..=93 => Action::CreatePod { pod: 4 },
        _ => of_nodes(dice, node),
    }
}

fn reclaimed(dice: &mut Dice) -> Action {
    let (pod, claim) = (one_of(dice, &[2, 6]), one_of(dice, &[2, 5]));
    let volume = 3 + dice.below(3);
    match dice.below(100) {
        0..=15 => Action::CreatePod { pod },
        16..=33 => Action::CreateClaim { claim },
        34..=45 => Action::DeletePod { pod },
        46..=61 => Action::DeleteClaim { claim },
        62..=77 => Action::Retain { volume },
        78..=83 => Action::DeleteOnRelease { volume },
        84..=92 => Action::Driver {
            fault: dice.one_of(&DriverFault::ALL).unwrap_or(DriverFault::Slow),
            calls: dice.below(4) + 1,
        },
        _ => Action::Hold {
            process: CSI_PROVISIONER,
            kind: kind_number("PersistentVolume").unwrap_or_default(),
            millis: a_while(dice),
        },
    }
}

fn several(dice: &mut Dice) -> Action {
    let (pod, claim) = (one_of(dice, &[0, 3, 7]), one_of(dice, &[0, 1, 3, 4]));
    let (node, volume) = (dice.below(NODES.len()), dice.below(VOLUMES.len() - 1));
    match dice.below(100) {
        0..=21 => Action::CreatePod { pod },
        22..=41 => Action::CreateClaim { claim },
        42..=47 => Action::DeletePod { pod },
        48..=51 => Action::ReplacePod { pod },
        52..=59 => Action::LabelPod { pod },
        60..=64 => Action::DeleteClaim { claim },
        65..=69 => Action::Prebind { volume, claim },
        70..=75 => Action::Driver {
            fault: dice.one_of(&DriverFault::ALL).unwrap_or(DriverFault::NoRoom),
            calls: dice.below(3) + 1,
        },
        76..=81 => limit(dice),
        82..=87 => Action::CreateSet,
        88..=91 => Action::ScaleSet {
            replicas: dice.between(0, 3),
        },
        _ => of_nodes(dice, node),
    }
}

fn fault(dice: &mut Dice) -> Action {
    let process = one_of(dice, &TARGETS);
    let kind = watched_kind(dice, process);
    match dice.below(20) {
        0..=5 => Action::Hold {
            process,
            kind,
            millis: a_while(dice),
        },
        6 => Action::Relist { process, kind },
        7..=8 => Action::Cut {
            process,
            kind,
            millis: a_while(dice),
        },
        9 => Action::Double { process, kind },
        10..=11 => Action::Kill { process },
        12 => Action::Pause {
            process,
            millis: dice.one_of(&[500, 4_000, 12_000, 30_000]).unwrap_or(4_000),
        },
        13..=16 => Action::Net {
            process,
            fault: dice.one_of(&NetFault::ALL).unwrap_or(NetFault::LostAfter),
            requests: dice.below(3) + 1,
        },
        17 => Action::Jump {
            process,
            seconds: dice.one_of(&[-3_600, -20, 20, 3_600]).unwrap_or(20),
        },
        _ => Action::Driver {
            fault: dice.one_of(&DriverFault::ALL).unwrap_or(DriverFault::Forgets),
            // Some faults last.
            calls: dice.one_of(&[1, 1, 2, 40]).unwrap_or(1),
        },
    }
}

fn a_while(dice: &mut Dice) -> u64 {
    dice.one_of(&[50, 300, 1_000, 5_000, 20_000]).unwrap_or(300)
}

/// A kind that a process watches. Those that decisions read most come first.
fn watched_kind(dice: &mut Dice, process: usize) -> usize {
    let kinds = Role::ALL.get(process).map_or(&[][..], |role| role.kinds());
    let few = dice.once_in(4);
    let count = if few { kinds.len() } else { kinds.len().min(5) };
    let kind = kinds.get(dice.below(count)).and_then(|kind| kind_number(kind));
    kind.unwrap_or_default()
}
