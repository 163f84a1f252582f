//! The flags of the external-provisioner that `berth provisioner` supports in addition to its own, and those that it
//! accepts.

use crate::duration::duration;
use crate::flags::accepted::{Accepted, Flag, Table};
use crate::flags::go::{self, boolean};
use crate::flags::logging;
use anyhow::Context;
use berth_core::backoff::Backoff;
use berth_kube::lease::LeaseOptions;
use berth_provisioner::bids::Delays;
use berth_provisioner::request::Naming;
use clap::Args;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The manager name of the external-provisioner on capacity objects.
pub(super) const KEEPER: &str = "external-provisioner";

/// Flags of the external-provisioner.
#[derive(Args, Debug)]
#[command(next_help_heading = "Flags of the external-provisioner")]
pub struct SidecarArgs {
    /// Work only while holding the lease that the external-provisioner of the driver uses.
    #[arg(
        long,
        alias = "enable-leader-election",
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub leader_election: Option<bool>,
    /// Namespace of that lease. Defaults to the environment variable POD_NAMESPACE, or to the namespace of the pod.
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,
    /// How long that lease is valid without being renewed.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_election_lease_duration: Duration,
    /// How long a leader tries to renew that lease before it gives up.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_election_renew_deadline: Duration,
    /// Interval between tries to get or renew that lease.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub leader_election_retry_period: Duration,
    /// Labels of that lease.
    #[arg(long, value_name = "KEY:VALUE,...", default_value = "", hide_default_value = true)]
    pub leader_election_labels: String,
    /// Address to serve /metrics and health on, e.g. :8080. Like --listen.
    #[arg(long, value_name = "[HOST]:PORT", default_value = "", hide_default_value = true)]
    pub http_endpoint: String,
    /// Former name of --http-endpoint.
    #[arg(long, value_name = "[HOST]:PORT", default_value = "", hide_default_value = true)]
    pub metrics_address: String,
    /// Publish storage capacity as CSIStorageCapacity objects. Needs the environment variables NAMESPACE and POD_NAME.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub enable_capacity: Option<bool>,
    /// Serve only the node of the environment variable NODE_NAME.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub node_deployment: Option<bool>,
    /// With one provisioner per node: create volumes for claims of classes with Immediate binding, too. The provisioners compete for
    /// such a claim (default true).
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub node_deployment_immediate_binding: Option<bool>,
    /// Longest delay before the first try to get such a claim.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration)]
    pub node_deployment_base_delay: Duration,
    /// Longest delay before further tries to get such a claim.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub node_deployment_max_delay: Duration,
    /// Refuse claims from a snapshot with another volume mode than the snapshot's, unless the snapshot allows it (default true).
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub prevent_volume_mode_conversion: Option<bool>,
    /// First part of the names of new volumes.
    #[arg(long, value_name = "PREFIX", default_value = "pvc")]
    pub volume_name_prefix: String,
    /// Number of characters of the claim's UID in the names of new volumes, without dashes; -1 for the UID as it is.
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub volume_name_uuid_length: i64,
    /// Send the topology of all nodes for claims without a selected node (default true).
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub immediate_topology: Option<bool>,
    /// Mark volumes of claims with the access mode ReadOnlyMany alone as read-only.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub controller_publish_readonly: Option<bool>,
    /// Delay after a failed request, doubled with each further failure.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    pub retry_interval_start: Duration,
    /// Longest delay after failed requests.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub retry_interval_max: Duration,
    /// Log level: from 4 on like --verbose.
    #[arg(long = "v", value_name = "LEVEL")]
    pub verbosity: Option<u32>,
    /// Flags that have no effect.
    #[command(flatten)]
    pub unused: Accepted<Unused>,
}

/// Flags of the external-provisioner that have no effect here.
#[derive(Clone, Copy, Debug)]
pub struct Unused;

const UNLIMITED: &str = "Berth limits concurrent requests, not their rate";
const SOURCES: &str = "sources of volumes are released together with other work";
const OF_OLD: &str = "the external-provisioner no longer has this flag";

impl Table for Unused {
    const FLAGS: &'static [&'static [Flag]] = &[
        &[
            Flag::value("master", "the kubeconfig specifies the API server"),
            Flag::value("kube-api-qps", UNLIMITED),
            Flag::value("kube-api-burst", UNLIMITED),
            Flag::value("kube-api-capacity-qps", UNLIMITED),
            Flag::value("kube-api-capacity-burst", UNLIMITED),
            Flag::value("capacity-threads", "--workers limits capacity queries"),
            Flag::value("cloning-protection-threads", SOURCES),
            Flag::value("snapshot-orphan-sweep-interval", SOURCES),
            Flag::value("metrics-path", "metrics are served under /metrics"),
            Flag::switch("enable-pprof", "there is no profile to serve"),
            Flag::switch("automaxprocs", "Berth uses the processors that it is given"),
            Flag::value("connection-timeout", OF_OLD),
            Flag::value("provisioner", OF_OLD),
            Flag::value("leader-election-type", OF_OLD),
            Flag::value("capacity-controller-deployment-mode", OF_OLD),
        ],
        logging::FLAGS,
    ];
}

/// The number of digits in a UID.
const UID_DIGITS: usize = 32;
/// Names of volumes have at most 253 characters, and end with a dash and the UID of the claim, of 36 characters.
const LONGEST_PREFIX: usize = 253 - 37;

/// Where Kubernetes mounts the namespace of a pod.
const POD_NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

impl SidecarArgs {
    /// The address for metrics and health, if set.
    pub(super) fn listen(&self) -> anyhow::Result<Option<SocketAddr>> {
        match (self.http_endpoint.as_str(), self.metrics_address.as_str()) {
            ("", "") => Ok(None),
            (address, "") | ("", address) => go::address(address).map(Some),
            _ => anyhow::bail!("only one of --http-endpoint and --metrics-address can be set"),
        }
    }

    /// The lease of the driver's external-provisioner: while images are swapped, only one of them works.
    pub(super) fn lease(&self, driver: &str, identity: &str) -> anyhow::Result<Option<LeaseOptions>> {
        if self.leader_election != Some(true) {
            return Ok(None);
        }
        let namespace = self.leader_election_namespace.clone().filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or_else(pod_namespace);
        Ok(Some(LeaseOptions {
            duration: self.leader_election_lease_duration,
            renew_deadline: self.leader_election_renew_deadline,
            retry: self.leader_election_retry_period,
            labels: labels(&self.leader_election_labels)?,
            ..LeaseOptions::new(namespace, lease_name(driver), identity)
        }))
    }

    /// The node that a per-node provisioner serves.
    pub(super) fn node(&self, environment: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<String>> {
        if self.node_deployment != Some(true) {
            return Ok(None);
        }
        let node = environment("NODE_NAME").filter(|node| !node.is_empty());
        node.map(Some)
            .context("--node-deployment needs the environment variable NODE_NAME")
    }

    /// How volumes are named.
    pub(super) fn naming(&self) -> anyhow::Result<Naming> {
        let prefix = self.volume_name_prefix.clone();
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        let starts = prefix.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !starts || !prefix.chars().all(is_name) || prefix.len() > LONGEST_PREFIX {
            anyhow::bail!(
                "--volume-name-prefix: found {prefix:?}, expected lower case letters, digits, dashes and dots, at most \
                 {LONGEST_PREFIX} of them, the first a letter or digit"
            );
        }
        let uid_length = match self.volume_name_uuid_length {
            -1 => None,
            length => match usize::try_from(length) {
                Ok(length) if (1..=UID_DIGITS).contains(&length) => Some(length),
                _ => anyhow::bail!("--volume-name-uuid-length: found {length}, expected 1 to {UID_DIGITS}, or -1"),
            },
        };
        Ok(Naming { prefix, uid_length })
    }

    /// How long to wait before trying to get an Immediate claim, if claims of that kind are served.
    pub(super) fn immediate(&self) -> Option<Delays> {
        let is_on = self.node_deployment_immediate_binding.unwrap_or(true);
        is_on.then_some(Delays {
            base: self.node_deployment_base_delay,
            max: self.node_deployment_max_delay,
        })
    }

    pub(super) fn backoff(&self) -> Backoff {
        Backoff {
            initial: self.retry_interval_start,
            max: self.retry_interval_max,
        }
    }
}

/// The name of the lease for leader election of a driver's sidecars.
fn lease_name(driver: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut name: String = driver.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    if name.ends_with('-') {
        name.push('X');
    }
    name
}

/// The namespace that a sidecar considers its own.
fn pod_namespace() -> String {
    let given = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let of_environment = std::env::var("POD_NAMESPACE").ok().and_then(given);
    let of_file = || std::fs::read_to_string(POD_NAMESPACE_FILE).ok().and_then(given);
    of_environment.or_else(of_file).unwrap_or_else(|| "default".to_owned())
}

/// Labels as `key:value,key:value`.
fn labels(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| match pair.split_once(':') {
        Some((key, value)) if !value.contains(':') => Ok((key.to_owned(), value.to_owned())),
        _ => anyhow::bail!("--leader-election-labels: found {pair:?}, expected KEY:VALUE"),
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_named_as_sidecars_name_them() {
        assert_eq!(lease_name("ebs.csi.aws.com"), "ebs-csi-aws-com");
        assert_eq!(lease_name("example.com/disks"), "example-com-disks");
        assert_eq!(lease_name("disks."), "disks-X");
    }

    #[test]
    fn volumes_are_named_as_told() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            args: SidecarArgs,
        }
        let naming = |line: &str| Line::parse_from(line.split(' ')).args.naming();
        assert_eq!(naming("x").unwrap(), Naming::default());
        let short = naming("x --volume-name-prefix=disk --volume-name-uuid-length=8").unwrap();
        let claim = serde_json::json!({"metadata": {"name": "c", "uid": "0123-4567-89ab"}});
        assert_eq!(short.volume(&serde_json::from_value(claim).unwrap()), "disk-01234567");
        assert!(naming("x --volume-name-prefix=Disk").is_err());
        assert!(naming("x --volume-name-uuid-length=0").is_err());
    }

    #[test]
    fn labels_are_pairs() {
        let found = labels("a:b,app.kubernetes.io/name:disks").unwrap();
        let expected = [("a", "b"), ("app.kubernetes.io/name", "disks")];
        assert_eq!(
            found,
            expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
        );
        assert!(labels("").unwrap().is_empty());
        assert!(labels("a=b").is_err());
    }
}
