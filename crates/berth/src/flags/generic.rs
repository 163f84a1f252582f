//! Flags that kube-scheduler and kube-controller-manager share.

use super::accepted::Flag;
use super::secure::SecureArgs;
use crate::cli::ComponentArgs;
use crate::config::Election;
use crate::duration::duration;
use clap::Args;
use std::time::Duration;

/// Flags of both programs that have a meaning here.
#[derive(Args, Debug)]
pub struct GenericArgs {
    /// Name of the lease. Defaults to what the configuration says, or to berth- and the name of the component.
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// How long a leader tries to renew its lease before it gives up. Defaults to what the configuration says, or to two thirds of the
    /// lease duration.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// Interval between tries to get or renew the lease. Defaults to what the configuration says, or to 2/15 of the lease duration.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
    /// Log level: from 4 on like --verbose.
    #[arg(long = "v", value_name = "LEVEL")]
    pub verbosity: Option<u32>,
    /// TLS.
    #[command(flatten)]
    pub secure: SecureArgs,
}

impl GenericArgs {
    /// Leader election: flags take precedence over the file, and the file over the defaults. Times that are not set are derived from
    /// the lease duration of the flag, if there is one.
    ///
    /// # Errors
    /// If a leader would not step down before its lease ends.
    pub(crate) fn election(&self, component: &ComponentArgs, file: Election) -> anyhow::Result<Election> {
        let file = component.election(file);
        let election = Election {
            name: self.leader_elect_resource_name.clone().or(file.name),
            renew_deadline: self.leader_elect_renew_deadline.unwrap_or(file.renew_deadline),
            retry_period: self.leader_elect_retry_period.unwrap_or(file.retry_period),
            ..file
        };
        if let Some((time, more, than)) = election.too_short() {
            anyhow::bail!("leader election: {time} must be more than {more}, which is {than:?}; see --leader-elect-*");
        }
        Ok(election)
    }
}

const IN_MEMORY: &str = "without a certificate file, one is generated at each start";
const USUAL_TLS: &str = "Berth supports TLS 1.2 and 1.3 with secure cipher suites only";
const HTTP_1: &str = "metrics and health are served over HTTP/1.1";
const SAME_SERVER: &str = "the API server of --kubeconfig authorizes metrics requests";
const TOKENS_ONLY: &str = "metrics clients authenticate with a token, not a certificate";
const TEN_SECONDS: &str = "responses of the API server are cached for ten seconds";
const UNLIMITED: &str = "Berth limits concurrent requests, not their rate";
const NO_PROFILES: &str = "there is no profile to serve";
const ALL_METRICS: &str = "all metrics are served, with all of their labels";
const ONE_VERSION: &str = "Berth works as one version of it does, with any API server";

/// Flags of both programs that have no effect here.
pub const FLAGS: &[Flag] = &[
    Flag::value("cert-dir", IN_MEMORY),
    Flag::value("tls-cipher-suites", USUAL_TLS),
    Flag::value("tls-curve-preferences", USUAL_TLS),
    Flag::value("tls-min-version", USUAL_TLS),
    Flag::value("tls-sni-cert-key", "there is one certificate"),
    Flag::value("http2-max-streams-per-connection", HTTP_1),
    Flag::switch("disable-http2-serving", HTTP_1),
    Flag::switch("permit-address-sharing", "the port is not shared"),
    Flag::switch("permit-port-sharing", "the port is not shared"),
    Flag::value("authentication-kubeconfig", SAME_SERVER),
    Flag::switch("authentication-skip-lookup", TOKENS_ONLY),
    Flag::value("authentication-token-webhook-cache-ttl", TEN_SECONDS),
    Flag::switch("authentication-tolerate-lookup-failure", TOKENS_ONLY),
    Flag::value("authorization-kubeconfig", SAME_SERVER),
    Flag::value("authorization-webhook-cache-authorized-ttl", TEN_SECONDS),
    Flag::value("authorization-webhook-cache-unauthorized-ttl", TEN_SECONDS),
    Flag::value("client-ca-file", TOKENS_ONLY),
    Flag::value("requestheader-allowed-names", TOKENS_ONLY),
    Flag::value("requestheader-client-ca-file", TOKENS_ONLY),
    Flag::value("requestheader-extra-headers-prefix", TOKENS_ONLY),
    Flag::value("requestheader-group-headers", TOKENS_ONLY),
    Flag::value("requestheader-uid-headers", TOKENS_ONLY),
    Flag::value("requestheader-username-headers", TOKENS_ONLY),
    Flag::value("master", "the kubeconfig specifies the API server"),
    Flag::value("kube-api-qps", UNLIMITED),
    Flag::value("kube-api-burst", UNLIMITED),
    Flag::value("kube-api-content-type", "Berth uses JSON"),
    Flag::value("leader-elect-resource-lock", "the lock is always a lease"),
    Flag::switch("profiling", NO_PROFILES),
    Flag::switch("contention-profiling", NO_PROFILES),
    Flag::value("allow-metric-labels", ALL_METRICS),
    Flag::value("allow-metric-labels-manifest", ALL_METRICS),
    Flag::value("disabled-metrics", ALL_METRICS),
    Flag::value("show-hidden-metrics-for-version", ALL_METRICS),
    Flag::value("emulated-version", ONE_VERSION),
    Flag::value("min-compatibility-version", ONE_VERSION),
];
