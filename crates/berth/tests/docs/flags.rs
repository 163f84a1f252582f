//! Flags and gates of Kubernetes programs, with what Berth does about each.

use berth::cli::Cli;
use berth::config::{FixedGate, PROVISIONER_GATES, SCHEDULER_GATES};
use berth::flags::accepted::{Flag, flags};
use berth::flags::kube_scheduler;
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
    "retry-interval-max",
    "retry-interval-start",
    "strict-topology",
    "timeout",
    "v",
    "version",
    "worker-threads",
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
        _ => panic!("nothing is known of {program}"),
    }
}

/// The flags of a program.
pub(crate) fn table(program: &str) -> String {
    let (obeyed, unused, _) = of(program);
    let mut rows: BTreeMap<&str, String> = obeyed.iter().map(|name| (*name, "obeyed".to_owned())).collect();
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

/// The gates of a program with a fixed value.
pub(crate) fn gates(program: &str) -> String {
    let mut out = "| gate | Berth works as if it were |\n|---|---|\n".to_owned();
    for gate in of(program).2 {
        let _ = writeln!(out, "| `{}` | {} |", gate.name, gate.on);
    }
    out
}

#[test]
fn flags_that_are_said_to_be_obeyed_are_there_and_not_among_those_without_effect() {
    let mut command = Cli::command();
    command.build();
    for program in ["scheduler", "provisioner"] {
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
