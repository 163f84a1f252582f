//! The flags of kube-scheduler that `berth scheduler` obeys besides its own, and those that it accepts.

use super::accepted::{Accepted, Flag, Table};
use super::logging;
use crate::duration::duration;
use clap::Args;
use std::time::Duration;

/// Flags of kube-scheduler.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flags of kube-scheduler")]
pub struct KubeSchedulerArgs {
    /// Name of the lease. Defaults to what the configuration says, or to berth-scheduler.
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// How long a leader tries to renew its lease before it gives up. Defaults to what the configuration says, or to 10s.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// Interval between tries to get or renew the lease. Defaults to what the configuration says, or to 2s.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
    /// Longest time that a pod which fits nowhere waits before it is tried again without a reason.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
    /// Log level: from 4 on like --verbose.
    #[arg(long = "v", value_name = "LEVEL")]
    pub verbosity: Option<u32>,
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

const PLAIN_HTTP: &str = "metrics and health are served over plain HTTP, where --listen says";
const NOBODY_ASKED: &str = "who may read metrics is not asked: let a network policy say it";
const UNLIMITED: &str = "requests are not limited in rate, but in how many are under way at a time";
const NO_PROFILES: &str = "there is no profile to serve";
const ALL_METRICS: &str = "all metrics are served, with all of their labels";
const ONE_VERSION: &str = "Berth works as one version of it does, with any API server";

impl Table for Unused {
    const FLAGS: &'static [&'static [Flag]] = &[
        &[
            Flag::value("bind-address", PLAIN_HTTP),
            Flag::value("secure-port", PLAIN_HTTP),
            Flag::value("cert-dir", PLAIN_HTTP),
            Flag::value("tls-cert-file", PLAIN_HTTP),
            Flag::value("tls-private-key-file", PLAIN_HTTP),
            Flag::value("tls-cipher-suites", PLAIN_HTTP),
            Flag::value("tls-curve-preferences", PLAIN_HTTP),
            Flag::value("tls-min-version", PLAIN_HTTP),
            Flag::value("tls-sni-cert-key", PLAIN_HTTP),
            Flag::value("http2-max-streams-per-connection", PLAIN_HTTP),
            Flag::switch("disable-http2-serving", PLAIN_HTTP),
            Flag::switch("permit-address-sharing", PLAIN_HTTP),
            Flag::switch("permit-port-sharing", PLAIN_HTTP),
            Flag::value("authentication-kubeconfig", NOBODY_ASKED),
            Flag::switch("authentication-skip-lookup", NOBODY_ASKED),
            Flag::value("authentication-token-webhook-cache-ttl", NOBODY_ASKED),
            Flag::switch("authentication-tolerate-lookup-failure", NOBODY_ASKED),
            Flag::value("authorization-always-allow-paths", NOBODY_ASKED),
            Flag::value("authorization-kubeconfig", NOBODY_ASKED),
            Flag::value("authorization-webhook-cache-authorized-ttl", NOBODY_ASKED),
            Flag::value("authorization-webhook-cache-unauthorized-ttl", NOBODY_ASKED),
            Flag::value("client-ca-file", NOBODY_ASKED),
            Flag::value("requestheader-allowed-names", NOBODY_ASKED),
            Flag::value("requestheader-client-ca-file", NOBODY_ASKED),
            Flag::value("requestheader-extra-headers-prefix", NOBODY_ASKED),
            Flag::value("requestheader-group-headers", NOBODY_ASKED),
            Flag::value("requestheader-uid-headers", NOBODY_ASKED),
            Flag::value("requestheader-username-headers", NOBODY_ASKED),
            Flag::value("master", "the kubeconfig names the API server"),
            Flag::value("kube-api-qps", UNLIMITED),
            Flag::value("kube-api-burst", UNLIMITED),
            Flag::value("kube-api-content-type", "Berth speaks JSON"),
            Flag::value("leader-elect-resource-lock", "the lock is always a lease"),
            Flag::switch("profiling", NO_PROFILES),
            Flag::switch("contention-profiling", NO_PROFILES),
            Flag::value("allow-metric-labels", ALL_METRICS),
            Flag::value("allow-metric-labels-manifest", ALL_METRICS),
            Flag::value("disabled-metrics", ALL_METRICS),
            Flag::value("show-hidden-metrics-for-version", ALL_METRICS),
            Flag::value("emulated-version", ONE_VERSION),
            Flag::value("min-compatibility-version", ONE_VERSION),
            Flag::value("write-config-to", "/configz shows the configuration"),
        ],
        logging::FLAGS,
    ];
}
