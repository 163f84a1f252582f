//! `berth up`: a whole control plane in one process, for a laptop, a test or a demo.
//!
//! This module connects the parts and makes no decisions: the embedded API server, the cluster components on it through
//! an in-process client, the workload controllers and node agents, and a line on standard output for each event. The
//! first part that ends stops the rest.

mod address;
mod announced;
mod components;
mod csi;
mod kubeconfig;
mod load;
mod simulated;
mod steps;
mod tell;

pub use components::Component;
pub use load::LoadError;

use crate::cli::{AdmissionPlugin, UpArgs};
use crate::cluster::Connection;
use crate::component;
use crate::config::{EmbeddedControllerArgs, ProtectionName};
use crate::input::{NoProgress, Source, read_all_values};
use crate::terminal::Color;
use crate::view::{self, Invocation, Page};
use address::Listening;
use anyhow::Context;
use berth_apiserver::{Authority, Server, Tls, read_token};
use berth_cluster::names;
use berth_cluster::sample::Shape;
use berth_kube::api::Api;
use berth_kube::clock::Clock;
use berth_kube::component::ProcessOptions;
use berth_kube::{CancellationToken, Client, controller, provisioner, scheduler};
use berth_provisioner::csi::socket_path;
use clap::ValueEnum;
use components::Chosen;
use csi::{Drivers, Root};
use jiff::Timestamp;
use kubeconfig::Kubeconfig;
use load::Started;
use serde_json::Value;
use simulated::Simulated;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A hint about a claim that waits for a driver that may not be running.
const DRIVER_HINT: berth_controller::DriverHint = berth_controller::DriverHint {
    served: &berth_provisioner::builtin::PROVISIONERS,
    text: "If none runs, start one with berth provisioner, or start berth up with --simulate-drivers.",
};

/// The field manager of writes by `berth up` itself.
const FIELD_MANAGER: &str = "berth-up";

/// The environment variable for the token.
const TOKEN_VARIABLE: &str = "BERTH_TOKEN";

/// How long components wait for others that are not done yet, so that the result of a change does not depend on task order.
/// Workload controllers and agents do not wait, the volume controller waits for them, and so on; the scheduler decides when all
/// others are idle, as in a simulation.
const CONTROLLER_PATIENCE: Duration = Duration::from_millis(1);
const PROVISIONER_PATIENCE: Duration = Duration::from_millis(2);
/// Longer than the delay of a step after a first conflict.
const SCHEDULER_PATIENCE: Duration = Duration::from_millis(10);

/// How long the page waits for events and leases of the API server in this process.
const PAGE_PATIENCE: Duration = Duration::from_secs(30);

type Parts = JoinSet<anyhow::Result<()>>;

/// Runs until interrupted.
///
/// # Errors
/// If the input is invalid, the address or the data directory cannot be used, or a part fails.
pub fn up(args: &UpArgs, color: Color) -> anyhow::Result<()> {
    let chosen = Chosen::new(&args.components);
    let mut objects = Vec::new();
    let sources: Vec<Source> = args.filename.iter().map(|name| name.as_os_str().into()).collect();
    read_all_values(&sources, &mut io::stdin().lock(), &mut NoProgress, &mut |object| {
        objects.push(object);
    })?;
    let scheduling = scheduler::Options {
        // Whoever asks why a pod waits sees which schedulers run.
        announcement: component::announcement(component::LEASE_NAMESPACE, &args.decisions.read()?),
        ..scheduler_options(args)?
    };
    let objects = (!args.filename.is_empty()).then_some(objects);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let result = runtime.block_on(run(args, chosen, objects, scheduling, color));
    // Open client connections are not waited for.
    runtime.shutdown_background();
    result
}

/// The options of the scheduler of `berth up`.
///
/// # Errors
/// If its configuration or its feature gates are invalid.
pub fn scheduler_options(args: &UpArgs) -> anyhow::Result<scheduler::Options> {
    Ok(component::scheduler_options(&args.decisions.read()?))
}

/// What the volume controller is set to. If no pod can run, its purpose is binding volumes: a bound volume can be deleted at once,
/// and its claim is lost, unless the user configures it otherwise.
fn controller_args(mut args: EmbeddedControllerArgs, chosen: &Chosen) -> EmbeddedControllerArgs {
    if args.protection.is_none() && !chosen.has(Component::Nodes) {
        args.protection = Some(ProtectionName::UsedByPods);
    }
    args
}

/// The specified token, if any: from an argument, a file, or the environment.
fn token(args: &UpArgs) -> anyhow::Result<Option<String>> {
    if let Some(path) = &args.token_file {
        let token = read_token(path);
        return token
            .map(Some)
            .with_context(|| format!("cannot read the token in {}", path.display()));
    }
    let from_environment = || std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    Ok(args.token.clone().or_else(from_environment))
}

async fn run(
    args: &UpArgs,
    chosen: Chosen,
    objects: Option<Vec<Value>>,
    scheduling: scheduler::Options,
    color: Color,
) -> anyhow::Result<()> {
    let token = token(args)?;
    Server::may_listen(args.listen.unwrap_or(address::ANY_PORT), token.is_some())?;
    let left_out = |plugin| args.disable_admission_plugins.contains(&plugin);
    let mut builder = Server::builder()
        .service_accounts(true)
        .zone_affinity(!left_out(AdmissionPlugin::PersistentVolumeLabel));
    if let Some(directory) = &args.data_dir {
        builder = builder.data_dir(directory);
    }
    if let Some(token) = token {
        builder = builder.token(token);
    }
    let server = Arc::new(builder.build().context("cannot start the API server")?);
    let Listening {
        listener,
        address,
        note,
    } = address::listen(args.listen, args.data_dir.as_deref()).await?;
    let tls = tls(args, address.ip())?;
    let kubeconfig = Kubeconfig::write(args, &server.kubeconfig(&tls, reachable(address)))?;
    // The server stops after its watchers.
    let (cancel, unserved) = (CancellationToken::new(), CancellationToken::new());
    let (mut parts, mut serving) = (Parts::new(), Parts::new());
    serve(&server, listener, tls.clone(), &unserved, &mut serving);
    let client = Client::new(server.service(), "default");
    let begin = Timestamp::now();
    let mut started = load::load(&server, &chosen, objects, &args.shape()).await?;
    started.notes.extend(note);
    // A dump may contain the address of its own API server.
    server.publish(reachable(address), &tls).await;
    let page = match args.no_view {
        true => None,
        false => Some(Page::listen(args.view, view::new_token()?).await?),
    };
    // From the greeting on, Ctrl-C must work.
    let interrupted = component::interrupted();
    let is_sample = args.filename.is_empty();
    greet(color, &chosen, address, &kubeconfig, &started, is_sample, page.as_ref())?;
    tell::start(&client, begin, color, &cancel, &mut parts);
    let controller = controller_args(args.controller, &chosen);
    if let Some(page) = page {
        let invocation = Invocation {
            kubeconfig: Some(kubeconfig.path().to_owned()),
            context: Some(kubeconfig::CONTEXT.to_owned()),
            decisions: args.decisions.clone(),
            controller,
            ..Invocation::default()
        };
        show(page, &client, address, invocation, &cancel, &mut parts);
    }
    let hints_drivers = !args.simulate_drivers && args.csi_address.is_empty();
    let how = How {
        scheduling,
        volumes: berth_controller::Settings {
            driver_hint: hints_drivers.then_some(DRIVER_HINT),
            ..controller.settings()
        },
        drivers: drivers(args, &client)?,
        simulates_drivers: args.simulate_drivers,
        clock: Clock::default(),
    };
    start(&client, &chosen, how, &cancel, &mut parts);
    let result = tokio::select! {
        () = interrupted => Ok(()),
        Some(ended) = parts.join_next() => ended.unwrap_or_else(|error| Err(error.into())),
        Some(ended) = serving.join_next() => ended.unwrap_or_else(|error| Err(error.into())),
    };
    writeln!(color.stdout(), "stopping")?;
    for (mut ending, token) in [(parts, cancel), (serving, unserved)] {
        token.cancel();
        while let Some(ended) = ending.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::debug!(%error, "a part ended badly");
            }
        }
    }
    server.shutdown();
    writeln!(color.stdout(), "stopped")?;
    result
}

/// Loads objects into an API server and starts every component on it, without a socket: a whole cluster in this process with
/// one clock. CSI drivers are simulated.
///
/// # Errors
/// If the server refuses an object.
pub async fn start_on(
    server: &Server,
    objects: Vec<Value>,
    scheduling: scheduler::Options,
    clock: Clock,
    cancel: &CancellationToken,
) -> Result<JoinSet<anyhow::Result<()>>, LoadError> {
    let chosen = Chosen::new(Component::value_variants());
    load::load(server, &chosen, Some(objects), &Shape::default()).await?;
    let mut parts = Parts::new();
    let client = Client::new(server.service(), "default");
    let how = How {
        scheduling,
        volumes: berth_controller::Settings::embedded(),
        drivers: None,
        simulates_drivers: true,
        clock,
    };
    start(&client, &chosen, how, cancel, &mut parts);
    Ok(parts)
}

/// A certificate for all names of this machine. With a data directory the authority is stored there, so that a
/// kubeconfig is valid for the next run, too.
fn tls(args: &UpArgs, address: IpAddr) -> anyhow::Result<Tls> {
    let authority = match &args.data_dir {
        Some(directory) => Authority::kept_in(directory)?,
        None => Authority::generate()?,
    };
    let mut names = vec![address.to_string()];
    names.extend(args.tls_san.iter().cloned());
    let host = hostname::get().ok().and_then(|name| name.into_string().ok());
    // A host name may be invalid in a certificate; that does not prevent the start.
    let with_host: Vec<String> = names.iter().cloned().chain(host).collect();
    Tls::issue(&authority, &with_host)
        .or_else(|_| Tls::issue(&authority, &names))
        .context("cannot use the names that --tls-san gives")
}

/// The address for clients: the unspecified address is replaced.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Serves until stopped.
fn serve(server: &Arc<Server>, listener: TcpListener, tls: Tls, cancel: &CancellationToken, parts: &mut Parts) {
    let (server, cancel) = (Arc::clone(server), cancel.clone());
    parts.spawn(async move {
        let stop = async move { cancel.cancelled().await };
        server.serve(listener, &tls, stop).await.context("the API server")
    });
}

/// Serves the page of the cluster.
fn show(
    page: Page,
    client: &Client,
    address: SocketAddr,
    invocation: Invocation,
    cancel: &CancellationToken,
    parts: &mut Parts,
) {
    let api = Api::new(client.clone(), FIELD_MANAGER);
    let connection = Connection::new(api, format!("https://{address}"), PAGE_PATIENCE);
    let mut tasks = page.start(&connection, invocation, cancel);
    parts.spawn(async move {
        while let Some(ended) = tasks.join_next().await {
            ended.context("the page")?;
        }
        Ok(())
    });
}

/// The CSI drivers that node agents call, if there are any.
fn drivers(args: &UpArgs, client: &Client) -> anyhow::Result<Option<Drivers>> {
    if args.csi_address.is_empty() {
        return Ok(None);
    }
    for address in &args.csi_address {
        socket_path(address)?;
    }
    let root = Root::new(args.data_dir.as_deref())?;
    let api = Api::new(client.clone(), FIELD_MANAGER);
    Ok(Some(Drivers::new(api, args.csi_address.clone(), root)))
}

/// How components run.
struct How {
    scheduling: scheduler::Options,
    volumes: berth_controller::Settings,
    /// The CSI drivers that node agents call.
    drivers: Option<Drivers>,
    /// Whether drivers that are not running are simulated.
    simulates_drivers: bool,
    /// The clock that all of them share.
    clock: Clock,
}

/// Starts the chosen components.
fn start(client: &Client, chosen: &Chosen, how: How, cancel: &CancellationToken, parts: &mut Parts) {
    let gates = how.scheduling.settings.volume_gates();
    let process = |patience| ProcessOptions {
        clock: how.clock,
        patience,
        ..ProcessOptions::default()
    };
    let mut announcing = BTreeSet::new();
    if chosen.has(Component::Scheduler) {
        let mut options = how.scheduling;
        announcing.extend(options.settings.profiles.keys().cloned());
        options.process = process(SCHEDULER_PATIENCE);
        options.settings.hold_volumes = chosen.has(Component::Controller);
        let running = scheduler::run(client.clone(), options, cancel.clone());
        parts.spawn(async move { running.await.context("the scheduler") });
    }
    if chosen.has(Component::Controller) {
        let options = controller::Options {
            settings: berth_controller::Settings {
                volume_scheduling: gates.volume_scheduling,
                claim_unused_since_time: gates.claim_unused_since_time,
                ..how.volumes
            },
            process: process(CONTROLLER_PATIENCE),
            ..controller::Options::default()
        };
        let running = controller::run(client.clone(), options, cancel.clone());
        parts.spawn(async move { running.await.context("the volume controller") });
    }
    if chosen.has(Component::Provisioner) {
        let mut options = provisioner::Options::builtin();
        options.process = process(PROVISIONER_PATIENCE);
        for one in &mut options.settings {
            one.volume_scheduling = gates.volume_scheduling;
        }
        options.capacity = gates.csi_storage_capacity.then(provisioner::CapacityOptions::builtin);
        let running = provisioner::run(client.clone(), options, cancel.clone());
        parts.spawn(async move { running.await.context("the provisioner") });
    }
    if chosen.has(Component::Provisioner) && how.simulates_drivers {
        let simulated = Simulated::start(client, cancel, parts);
        let mut options = provisioner::Options::others(berth_cluster::drivers::settings, simulated);
        options.process = process(PROVISIONER_PATIENCE);
        let running = provisioner::run(client.clone(), options, cancel.clone());
        parts.spawn(async move { running.await.context("the simulated drivers") });
    }
    steps::start(client, chosen, announcing, how.drivers, how.clock, cancel, parts);
}

fn greet(
    color: Color,
    chosen: &Chosen,
    address: SocketAddr,
    kubeconfig: &Kubeconfig,
    started: &Started,
    is_sample: bool,
    page: Option<&Page>,
) -> anyhow::Result<()> {
    let nodes = started.nodes;
    let bold = anstyle::Style::new().bold();
    let version = env!("CARGO_PKG_VERSION");
    let path = kubeconfig.path().display();
    let mut out = color.stdout();
    writeln!(out, "berth {version} on https://{address}: {chosen}; {nodes} nodes")?;
    for note in &started.notes {
        writeln!(out, "{note}")?;
    }
    writeln!(out)?;
    if let Some(page) = page {
        writeln!(out, "To watch it in a browser:")?;
        writeln!(out, "  {bold}{}{bold:#}", page.address())?;
        writeln!(out)?;
    }
    writeln!(out, "To use it from another terminal:")?;
    writeln!(out, "  {bold}export KUBECONFIG={path}{bold:#}")?;
    if let Some(note) = kubeconfig.note() {
        writeln!(out, "  ({note})")?;
    }
    if nodes > 0 {
        writeln!(out, "  kubectl get nodes -L topology.kubernetes.io/zone")?;
        writeln!(out, "  kubectl get storageclasses,pv")?;
        if is_sample {
            writeln!(out, "  kubectl apply -f examples/up/database.yaml")?;
        }
        writeln!(out, "  kubectl get pods -o wide --watch")?;
        writeln!(out)?;
        writeln!(out, "To inject a node failure (undo with `{}-`):", names::AGENT_MODE)?;
        writeln!(
            out,
            "  kubectl annotate node NODE {}=stop    stops heartbeats; its pods are deleted after some minutes",
            names::AGENT_MODE
        )?;
        writeln!(
            out,
            "  kubectl annotate node NODE {}=refuse  rejects new pods",
            names::AGENT_MODE
        )?;
    }
    writeln!(out)?;
    writeln!(out, "Press Ctrl-C to stop. Events:")?;
    out.flush()?;
    Ok(())
}
