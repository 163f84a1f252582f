//! What Kubernetes and the external-provisioner have, as files of facts, and that Berth knows all of it.

use crate::flags;
use berth::config::{
    CONTROLLER_GATES, FEATURE_GATES, FixedGate, OBEYED_PROVISIONER_GATES, OTHER_GATES, PROVISIONER_GATES,
    SCHEDULER_GATES, feature_gates,
};
use std::collections::{BTreeMap, BTreeSet};

const GATES: &str = include_str!("facts/gates.txt");
const FLAGS: &str = include_str!("facts/flags.txt");

/// The versions that the facts are about.
const VERSIONS: usize = 8;

/// A feature gate of Kubernetes.
pub(crate) struct Gate {
    /// The programs that read it: `scheduler`, `volumes`.
    pub(crate) programs: BTreeSet<&'static str>,
    /// Its default in each version that has it, from 1.30 on.
    pub(crate) defaults: Vec<Option<bool>>,
}

/// The gates by name.
pub(crate) fn gates() -> BTreeMap<&'static str, Gate> {
    let lines = GATES.lines().filter(|line| !line.starts_with('#')).skip(1);
    let gates = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, programs, defaults @ ..] = &words[..] else {
            panic!("{line:?}")
        };
        assert_eq!(defaults.len(), VERSIONS, "{line:?}");
        let defaults = defaults.iter().map(|word| match *word {
            "." => None,
            word => Some(word.parse().unwrap()),
        });
        let programs = programs.split(',').filter(|program| *program != "-");
        let gate = Gate {
            programs: programs.collect(),
            defaults: defaults.collect(),
        };
        (*name, gate)
    });
    gates.collect()
}

/// The flags of each program.
fn program_flags() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut programs = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut program = "";
    for line in FLAGS.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) => program = name,
            None => drop(
                programs
                    .entry(program)
                    .or_default()
                    .insert(line.split(' ').next().unwrap()),
            ),
        }
    }
    programs
}

fn names(fixed: &[FixedGate]) -> impl Iterator<Item = &str> {
    fixed.iter().map(|gate| gate.name)
}

#[test]
fn every_gate_of_kubernetes_is_accepted_and_every_accepted_one_exists() {
    let gates = gates();
    for name in gates.keys() {
        feature_gates(&format!("{name}=true")).unwrap_or_else(|error| panic!("{error}"));
        feature_gates(&format!("kube:{name}=false")).unwrap_or_else(|error| panic!("{error}"));
    }
    // Those of all gates of a stage and of logging, of the external-provisioner, and of Kubernetes before 1.30.
    let others = [
        "AllAlpha",
        "AllBeta",
        "LoggingStableOptions",
        "CSIStorageCapacity",
        "VolumeScheduling",
        "Topology",
        "ReleaseLeaderElectionOnExit",
    ];
    let fixed = [SCHEDULER_GATES, CONTROLLER_GATES, PROVISIONER_GATES];
    let own = FEATURE_GATES.iter().map(|(name, _)| *name);
    let obeyed = OBEYED_PROVISIONER_GATES.iter().map(|(name, _)| *name);
    let known = fixed.into_iter().flat_map(names).chain(OTHER_GATES.iter().copied());
    let invented: Vec<&str> = known
        .chain(own)
        .chain(obeyed)
        .filter(|name| !gates.contains_key(name) && !others.contains(name))
        .collect();
    assert!(
        invented.is_empty(),
        "{invented:?} are no gates of Kubernetes 1.30 to 1.37"
    );
}

#[test]
fn gates_that_a_program_reads_are_in_its_table() {
    for (program, reader, fixed) in [
        ("scheduler", "scheduler", SCHEDULER_GATES),
        ("controller", "volumes", CONTROLLER_GATES),
    ] {
        for (name, gate) in gates() {
            let is_fixed = names(fixed).any(|known| known == name);
            let is_obeyed = FEATURE_GATES.iter().any(|(known, _)| *known == name);
            assert!(
                !gate.programs.contains(reader) || is_fixed || is_obeyed,
                "the {program} says nothing about {name}"
            );
        }
    }
}

#[test]
fn every_flag_of_a_program_is_accepted() {
    let facts = program_flags();
    for (of, program) in [
        ("kube-scheduler", "scheduler"),
        ("kube-controller-manager", "controller"),
        ("external-provisioner", "provisioner"),
    ] {
        let known: BTreeSet<&str> = flags::names(program).collect();
        let missing: Vec<&&str> = facts[of].iter().filter(|flag| !known.contains(*flag)).collect();
        assert!(missing.is_empty(), "berth {program} has no {missing:?} of {of}");
    }
}
