//! Flags and gates of Kubernetes programs, with what Berth does about each.

use crate::facts;
use berth::cli::Cli;
use berth::config::{
    CONTROLLER_GATES, FEATURE_GATES, FixedGate, OBEYED_PROVISIONER_GATES, PROVISIONER_GATES, SCHEDULER_GATES,
};
use berth::flags::accepted::{Flag, flags};
use berth::flags::{kube_scheduler, storage_controllers};
use berth::provisioner;
use clap::CommandFactory as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The flags of kube-scheduler that `berth scheduler` supports.
const OF_SCHEDULER: &[&str] = &[
    "authorization-always-allow-paths",
    "bind-address",
    "config",
    "feature-gates",
    "help",
    "kubeconfig",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "pod-max-in-unschedulable-pods-duration",
    "secure-port",
    "tls-cert-file",
    "tls-private-key-file",
    "v",
    "version",
];

/// The flags of the external-provisioner that `berth provisioner` supports.
const OF_PROVISIONER: &[&str] = &[
    "capacity-for-immediate-binding",
    "capacity-ownerref-level",
    "capacity-poll-interval",
    "controller-publish-readonly",
    "csi-address",
    "default-fstype",
    "enable-capacity",
    "extra-create-metadata",
    "feature-gates",
    "help",
    "http-endpoint",
    "immediate-topology",
    "kubeconfig",
    "leader-election",
    "leader-election-labels",
    "leader-election-lease-duration",
    "leader-election-namespace",
    "leader-election-renew-deadline",
    "leader-election-retry-period",
    "metrics-address",
    "node-deployment",
    "node-deployment-base-delay",
    "node-deployment-immediate-binding",
    "node-deployment-max-delay",
    "prevent-volume-mode-conversion",
    "retry-interval-max",
    "retry-interval-start",
    "strict-topology",
    "timeout",
    "v",
    "version",
    "volume-name-prefix",
    "volume-name-uuid-length",
    "worker-threads",
];

/// The flags of kube-controller-manager that `berth controller` supports.
const OF_CONTROLLER: &[&str] = &[
    "authorization-always-allow-paths",
    "bind-address",
    "feature-gates",
    "help",
    "kubeconfig",
    "leader-elect",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "secure-port",
    "tls-cert-file",
    "tls-private-key-file",
    "v",
    "version",
];

fn of(program: &str) -> (&'static [&'static str], Vec<&'static Flag>, &'static [FixedGate]) {
    match program {
        "scheduler" => (
            OF_SCHEDULER,
            flags::<kube_scheduler::Unused>().collect(),
            SCHEDULER_GATES,
        ),
        "provisioner" => (
            OF_PROVISIONER,
            flags::<provisioner::Unused>().collect(),
            PROVISIONER_GATES,
        ),
        "controller" => (
            OF_CONTROLLER,
            flags::<storage_controllers::Unused>().collect(),
            CONTROLLER_GATES,
        ),
        _ => panic!("nothing is known of {program}"),
    }
}

/// The flags of a program.
pub(crate) fn table(program: &str) -> String {
    let (obeyed, unused, _) = of(program);
    let mut rows: BTreeMap<&str, String> = obeyed.iter().map(|name| (*name, "supported".to_owned())).collect();
    rows.extend(
        unused
            .iter()
            .map(|flag| (flag.name, format!("no effect: {}", flag.instead))),
    );
    let mut out = "| flag | Berth |\n|---|---|\n".to_owned();
    for (name, what) in rows {
        let _ = writeln!(out, "| `--{name}` | {what} |");
    }
    out
}

/// The names of all flags in the table of a program.
pub(crate) fn names(program: &str) -> impl Iterator<Item = &'static str> {
    let (obeyed, unused, _) = of(program);
    obeyed.iter().copied().chain(unused.into_iter().map(|flag| flag.name))
}

/// The gates of a program.
pub(crate) fn gates(program: &str) -> String {
    let facts = facts::gates();
    let fixed = of(program).2.iter().map(|gate| (gate.name, gate.on.to_string()));
    let reader = if program == "controller" { "volumes" } else { program };
    let own = FEATURE_GATES.iter().filter(|(name, _)| {
        let fact = facts.get(name);
        fact.is_some_and(|gate| gate.programs.contains(reader))
    });
    let own = own.map(|(name, default)| (*name, format!("set; {default} by default")));
    let obeyed = OBEYED_PROVISIONER_GATES.iter().filter(|_| program == "provisioner");
    let obeyed = obeyed.map(|(name, default)| (*name, format!("set; {default} by default")));
    let rows: BTreeMap<&str, String> = fixed.chain(own).chain(obeyed).collect();
    if program == "provisioner" {
        let mut out = "| gate | Berth works as if it were |\n|---|---|\n".to_owned();
        for (name, what) in rows {
            let _ = writeln!(out, "| `{name}` | {what} |");
        }
        return out;
    }
    let mut out = "| gate | default in Kubernetes 1.37 | Berth works as if it were |\n|---|---|---|\n".to_owned();
    for (name, what) in rows {
        let default = facts.get(name).and_then(|gate| *gate.defaults.last()?);
        let default = default.map_or("removed".to_owned(), |on| on.to_string());
        let _ = writeln!(out, "| `{name}` | {default} | {what} |");
    }
    out
}

#[test]
fn flags_that_are_said_to_be_obeyed_are_there_and_not_among_those_without_effect() {
    let mut command = Cli::command();
    command.build();
    for program in ["scheduler", "provisioner", "controller"] {
        let component = command.find_subcommand(program).unwrap();
        let (obeyed, unused, _) = of(program);
        for name in obeyed {
            let mut arguments = component.get_arguments();
            let is_there = arguments.any(|argument| {
                let aliases = argument.get_all_aliases().unwrap_or_default();
                argument.get_long() == Some(name) || aliases.contains(name)
            });
            assert!(is_there, "{program} has no --{name}");
            assert!(unused.iter().all(|flag| flag.name != *name), "{name}");
        }
    }
}
