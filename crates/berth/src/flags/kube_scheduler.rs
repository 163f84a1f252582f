//! The flags of kube-scheduler that `berth scheduler` supports in addition to its own, and those that it accepts.

use super::accepted::{Accepted, Flag, Table};
use super::generic::{self, GenericArgs};
use super::logging;
use crate::duration::duration;
use clap::Args;
use std::time::Duration;

/// Flags of kube-scheduler.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flags of kube-scheduler")]
pub struct KubeSchedulerArgs {
    /// Flags that kube-controller-manager has, too.
    #[command(flatten)]
    pub generic: GenericArgs,
    /// How long an unschedulable pod waits before it is retried without an event.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// Name of the lease if neither a flag nor the configuration has one.
    #[arg(long, hide = true, value_name = "NAME", default_value = "berth-scheduler")]
    pub usual_lease: String,
    /// Flags that have no effect.
    #[command(flatten)]
    pub unused: Accepted<Unused>,
}

/// Flags of kube-scheduler that have no effect here.
#[derive(Clone, Copy, Debug)]
pub struct Unused;

impl Table for Unused {
    const FLAGS: &'static [&'static [Flag]] = &[
        generic::FLAGS,
        &[Flag::value("write-config-to", "/configz shows the configuration")],
        logging::FLAGS,
    ];
}
