//! `berth provisioner`: arguments and configuration become options here, and nowhere else.

mod sidecar;

pub use sidecar::{SidecarArgs, Unused};

use crate::cli::ComponentArgs;
use crate::component::{identity, on_cluster_of, process, read};
use crate::config::{ATTRIBUTES_CLASSES, CROSS_NAMESPACE_SOURCES, Election, GateArgs, PROVISIONER_GATES, TOPOLOGY};
use crate::duration::duration;
use crate::flags::go::boolean;
use crate::flags::logging;
use crate::flags::secure::SecureArgs;
use crate::terminal::Color;
use anyhow::Context;
use berth_kube::Client;
use berth_kube::provisioner::{self, CapacityForm, CapacityOptions, Options};
use berth_provisioner::csi::{Client as Driver, ClientSettings};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `berth provisioner`.
#[derive(Args, Debug)]
pub struct ProvisionerArgs {
    /// What components have in common.
    #[command(flatten)]
    pub component: ComponentArgs,
    /// Path to the provisioner's configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Socket of a CSI driver. If omitted, runs the built-in provisioners.
    #[arg(long, value_name = "ADDRESS")]
    pub csi_address: Option<String>,
    /// Timeout of a call to the driver, e.g. 10s.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub timeout: Duration,
    /// Number of claims and volumes to process at a time.
    #[arg(long, alias = "worker-threads", value_name = "N")]
    pub workers: Option<usize>,
    /// Request volumes in the topology segment of the selected node only.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub strict_topology: Option<bool>,
    /// Send no topology requirement for claims without a selected node.
    #[arg(long)]
    pub no_immediate_topology: bool,
    /// Pass the names of claim and volume to the driver.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub extra_create_metadata: Option<bool>,
    /// File system for classes that do not set one.
    #[arg(long, value_name = "TYPE")]
    pub default_fstype: Option<String>,
    /// Serve only this node, for drivers that run with a provisioner on every node.
    #[arg(long, value_name = "NODE")]
    pub node_name: Option<String>,
    /// Capacity publishing.
    #[command(flatten)]
    pub capacity: CapacityArgs,
    /// Feature gates.
    #[command(flatten)]
    pub gates: GateArgs,
    /// TLS.
    #[command(flatten)]
    pub secure: SecureArgs,
    /// Flags of the external-provisioner.
    #[command(flatten)]
    pub sidecar: SidecarArgs,
}

/// Where capacity is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// `CSIStorageCapacity` objects, supported by every cluster.
    Objects,
    /// Pools in the status of the `CSIDriver`, supported by `berth up`.
    DriverStatus,
    /// Pools in a custom resource, defined in `deploy/crds`.
    CustomResource,
}

/// The arguments about capacity.
#[derive(Args, Debug)]
pub struct CapacityArgs {
    /// Publish storage capacity, in this form.
    #[arg(long = "capacity", value_enum, value_name = "WHERE")]
    pub form: Option<Form>,
    /// Namespace of the capacity objects. Defaults to the environment variable NAMESPACE, or default.
    #[arg(long, value_name = "NAMESPACE")]
    pub capacity_namespace: Option<String>,
    /// Owner of the capacity objects: 0 the provisioner's pod, 1 its owner, 2 the owner's owner, -1 none. Needs the
    /// environment variables POD_NAME and NAMESPACE. Defaults to 1 with --enable-capacity, or to none.
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..))]
    pub capacity_ownerref_level: Option<i8>,
    /// Interval between capacity polls, e.g. 1m.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub capacity_poll_interval: Duration,
    /// Publish capacity for classes with Immediate binding, too.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = boolean
    )]
    pub capacity_for_immediate_binding: Option<bool>,
    /// Pools only: publish capacity for inline volumes, too, as `<ephemeral>`.
    #[arg(long)]
    pub capacity_ephemeral: bool,
    /// Pools only: publish one entry for all classes, `<fallback>`, instead of one per class.
    #[arg(long)]
    pub capacity_fallback: bool,
    /// Prefix of the node labels that make up a topology segment, e.g. example.com/. Defaults to the keys that the driver
    /// registered.
    #[arg(long, value_name = "PREFIX")]
    pub capacity_label_prefix: Option<String>,
    /// Pools only: how long a report is valid without being renewed, e.g. 10m.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub capacity_expiry: Duration,
}

/// The configuration of `berth provisioner`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ProvisionerFile {
    csi_address: Option<String>,
    capacity_namespace: Option<String>,
    workers: Option<usize>,
}

/// Runs a provisioner until interrupted.
///
/// # Errors
/// If the configuration is invalid, the driver or the cluster cannot be reached, or the provisioner fails.
pub fn provisioner(args: &ProvisionerArgs, color: Color) -> anyhow::Result<()> {
    let file: ProvisionerFile = read(args.config.as_deref())?;
    let gates = args.gates.read()?.volumes;
    let address = args.csi_address.clone().or(file.csi_address.clone());
    let node = args.node_name.clone().filter(|node| !node.is_empty());
    let node = match node {
        Some(node) => Some(node),
        None => args.sidecar.node(environment)?,
    };
    let listen = match args.component.listen {
        Some(address) => Some(address),
        None => args.sidecar.listen()?,
    };
    let secure = args.secure.options()?;
    let warnings: Vec<String> = args
        .gates
        .warnings(PROVISIONER_GATES)?
        .into_iter()
        .chain(args.sidecar.unused.warnings())
        .collect();
    let level = logging::level(args.component.verbose, args.sidecar.verbosity);
    let kubeconfig = args.component.kubeconfig.as_deref();
    on_cluster_of(kubeconfig, level, color, |client, cancel| async move {
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let settings = ClientSettings {
            call_timeout: args.timeout,
            ..ClientSettings::default()
        };
        let mut options = match address {
            Some(address) => Options::csi(Driver::connect(&address, settings).await?),
            None => Options::builtin(),
        };
        let topology = args.gates.of_provisioner(TOPOLOGY)?;
        let cross_namespace = args.gates.of_provisioner(CROSS_NAMESPACE_SOURCES)?;
        let attributes_classes = args.gates.of_provisioner(ATTRIBUTES_CLASSES)?;
        options.naming = args.sidecar.naming()?;
        for one in &mut options.settings {
            one.node.clone_from(&node);
            one.immediate = args.sidecar.immediate();
            one.cross_namespace_sources = cross_namespace;
            one.attributes_classes = attributes_classes;
            one.prevent_mode_conversion = args.sidecar.prevent_volume_mode_conversion.unwrap_or(true);
            one.extra_create_metadata = args.extra_create_metadata.unwrap_or(false);
            one.volume_scheduling = gates.volume_scheduling;
            one.default_fs_type = args.default_fstype.clone().filter(|name| !name.is_empty());
            one.publish_read_only = args.sidecar.controller_publish_readonly.unwrap_or(false);
            one.topology = one.topology.filter(|_| topology);
            if let Some(policy) = &mut one.topology {
                policy.strict = args.strict_topology.unwrap_or(false);
                policy.immediate = !args.no_immediate_topology && args.sidecar.immediate_topology.unwrap_or(true);
            }
        }
        options.backoff = args.sidecar.backoff();
        options.workers = args.workers.or(file.workers).unwrap_or(options.workers);
        options.capacity = match gates.csi_storage_capacity {
            true => capacity(&client, args, file.capacity_namespace).await?,
            false => None,
        };
        let driver = options.settings.first().map_or("", |one| one.provisioner.as_str());
        let sidecar = args.sidecar.lease(driver, identity())?;
        let election = args.component.election(Election::off());
        options.process = process(&args.component, &lease_name(&options, node.as_deref()), &election);
        options.process.leader_election = sidecar.or(options.process.leader_election);
        options.process.listen = listen;
        options.process.secure = secure;
        Ok(provisioner::run(client, options, cancel).await?)
    })
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Replicas for the same driver compete, those for different drivers or nodes do not.
fn lease_name(options: &Options, node: Option<&str>) -> String {
    let driver = match options.settings.as_slice() {
        [one] => Some(one.provisioner.as_str()),
        _ => None,
    };
    let parts: Vec<&str> = ["berth-provisioner"].into_iter().chain(driver).chain(node).collect();
    parts.join("-").replace('/', "-").to_lowercase()
}

async fn capacity(
    client: &Client,
    args: &ProvisionerArgs,
    namespace_in_file: Option<String>,
) -> anyhow::Result<Option<CapacityOptions>> {
    let enabled = args.sidecar.enable_capacity == Some(true);
    let args = &args.capacity;
    let form = match args.form {
        Some(Form::Objects) => CapacityForm::Objects,
        Some(Form::DriverStatus) => CapacityForm::DriverStatus,
        Some(Form::CustomResource) => CapacityForm::CustomResource,
        None if enabled || namespace_in_file.is_some() => CapacityForm::Objects,
        None => return Ok(None),
    };
    let home = environment("NAMESPACE");
    let namespace = args
        .capacity_namespace
        .clone()
        .or(namespace_in_file)
        .or_else(|| home.clone());
    let namespace = match namespace {
        None if enabled => anyhow::bail!("--enable-capacity needs the environment variable NAMESPACE"),
        namespace => namespace.unwrap_or_else(|| "default".to_owned()),
    };
    let level = args.capacity_ownerref_level.or(enabled.then_some(1));
    let owner = match level.and_then(|level| u8::try_from(level).ok()) {
        None => None,
        Some(level) => {
            let pod = environment("POD_NAME").context("the owner of capacity objects needs POD_NAME")?;
            let home = home.context("the owner of capacity objects needs NAMESPACE")?;
            Some(provisioner::owner_of_pod(client.clone(), &home, &pod, level).await?)
        }
    };
    let usual = CapacityOptions::new(namespace);
    Ok(Some(CapacityOptions {
        form,
        keeper: if enabled { sidecar::KEEPER } else { usual.keeper },
        owner,
        ephemeral: args.capacity_ephemeral,
        fallback: args.capacity_fallback,
        label_prefix: args.capacity_label_prefix.clone(),
        expiry: Some(args.capacity_expiry),
        immediate: args.capacity_for_immediate_binding.unwrap_or(false),
        poll: args.capacity_poll_interval,
        ..usual
    }))
}
