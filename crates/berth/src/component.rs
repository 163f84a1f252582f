//! The components of a cluster as commands: `berth scheduler` and `berth controller`, and what they share with `berth
//! provisioner`.
//!
//! Arguments and configuration files become options here, and nowhere else; `berth-kube` runs the components
//! themselves.

use crate::cli::{ComponentArgs, ControllerArgs, SchedulerArgs};
use crate::config::{CONTROLLER_GATES, Configuration, ControllerFile, Election, SCHEDULER_GATES};
use crate::flags::logging;
use crate::input;
use crate::terminal::{Clean, Color};
use anyhow::Context;
use berth_kube::announce::{RequiredScheduler, announcing};
use berth_kube::component::ProcessOptions;
use berth_kube::lease::LeaseOptions;
use berth_kube::{CancellationToken, Client, connect, controller, scheduler};
use serde::de::DeserializeOwned;
use std::future::Future;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hasher as _, RandomState};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Runs the scheduler until interrupted.
///
/// # Errors
/// If the configuration is invalid, the cluster cannot be reached, or the scheduler fails.
pub fn scheduler(args: &SchedulerArgs, color: Color) -> anyhow::Result<()> {
    let configuration = args.decisions.read()?;
    let (settings, flags) = (&configuration.process, &args.kubernetes);
    let election = flags
        .generic
        .election(&args.component, settings.election.clone().unwrap_or_default())?;
    let process = process(&args.component, &flags.usual_lease, &election);
    let mut options = scheduler::Options {
        seed: args.seed,
        cold_standby: settings.cold_standby,
        announcement: match process.leader_election {
            Some(_) => None,
            None => announcement(
                lease_namespace(&args.component, configuration.process.election.as_ref()),
                &configuration,
            ),
        },
        process: ProcessOptions {
            secure: flags.generic.secure.options()?,
            ..announced(process, &configuration)
        },
        ..scheduler_options(&configuration)
    };
    options.settings.hold_volumes = args.hold_volumes;
    options.settings.replica = replica();
    options.settings.times.flush_after = flags.pod_max_in_unschedulable_pods_duration;
    let kubeconfig = args.component.kubeconfig.as_deref().or(settings.kubeconfig.as_deref());
    let level = logging::level(args.component.verbose, flags.generic.verbosity);
    let gates = args.decisions.gates.warnings(SCHEDULER_GATES)?;
    let warnings: Vec<String> = gates.into_iter().chain(flags.unused.warnings()).collect();
    on_cluster_of(kubeconfig, level, color, |client, cancel| async move {
        for warning in settings.unused.iter().chain(&warnings) {
            tracing::warn!("{warning}");
        }
        Ok(scheduler::run(client, options, cancel).await?)
    })
}

/// The options of a scheduler with this configuration.
#[must_use]
pub fn scheduler_options(configuration: &Configuration) -> scheduler::Options {
    scheduler::Options {
        settings: configuration.live_settings(),
        configuration: Some(configuration.shown().to_string().into()),
        ..scheduler::Options::default()
    }
}

/// Runs the volume controller until interrupted.
///
/// # Errors
/// If the configuration is invalid, the cluster cannot be reached, or the controller fails.
pub fn controller(args: &ControllerArgs, color: Color) -> anyhow::Result<()> {
    let file: ControllerFile = read(args.config.as_deref())?;
    let gates = args.gates.read()?.volumes;
    let mut settings = file.settings();
    settings.volume_scheduling &= gates.volume_scheduling;
    settings.claim_unused_since_time = gates.claim_unused_since_time;
    let usual = controller::Options::default();
    let of_file = file.require_delayed_binding_scheduler.unwrap_or(false);
    let required = args.require_delayed_binding_scheduler || of_file;
    let flags = &args.kubernetes;
    let election = flags.generic.election(&args.component, Election::off())?;
    let options = controller::Options {
        settings,
        workers: file.workers.unwrap_or(usual.workers),
        resync: file
            .resync_seconds
            .map_or(usual.resync, |seconds| Duration::from_secs(seconds.max(1))),
        required_scheduler: required.then(|| RequiredScheduler::new(lease_namespace(&args.component, None))),
        process: ProcessOptions {
            secure: flags.generic.secure.options()?,
            ..process(&args.component, "berth-controller", &election)
        },
        ..usual
    };
    let warnings: Vec<String> = args
        .gates
        .warnings(CONTROLLER_GATES)?
        .into_iter()
        .chain(flags.unused.warnings())
        .collect();
    let level = logging::level(args.component.verbose, flags.generic.verbosity);
    let kubeconfig = args.component.kubeconfig.as_deref();
    on_cluster_of(kubeconfig, level, color, |client, cancel| async move {
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(controller::run(client, options, cancel).await?)
    })
}

/// Reads a configuration file, or returns the defaults if there is none. Unknown fields are errors.
pub(crate) fn read<T: DeserializeOwned + Default>(path: Option<&Path>) -> anyhow::Result<T> {
    let Some(path) = path else {
        return Ok(T::default());
    };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let value = input::value_of(&name.as_str().into(), &text)?;
    if value.is_null() {
        return Ok(T::default());
    }
    serde_path_to_error::deserialize(value)
        .map_err(|error| anyhow::anyhow!("{name}: {}: {}", error.path(), error.inner()))
}

/// The namespace of leases, unless configured.
pub(crate) const LEASE_NAMESPACE: &str = "kube-system";
/// The usual lease of kube-scheduler.
pub(crate) const KUBE_LEASE: &str = "kube-scheduler";
/// The usual lease of Berth's schedulers. A scheduler without leader election appends a dot and the name of its first profile.
pub(crate) const BERTH_LEASE: &str = "berth-scheduler";

/// The scheduler's lease, with its capabilities and the names of its profiles.
fn announced(mut process: ProcessOptions, configuration: &Configuration) -> ProcessOptions {
    let announcing = |lease| announcing(lease, configuration.scheduler_names());
    process.leader_election = process.leader_election.map(announcing);
    process
}

/// The lease by which a scheduler without leader election announces itself.
pub(crate) fn announcement(namespace: &str, configuration: &Configuration) -> Option<LeaseOptions> {
    let name = format!("{BERTH_LEASE}.{}", configuration.scheduler_names().next()?);
    let lease = LeaseOptions {
        // There is no standby: a few renewals in the minute that controllers wait are enough.
        retry: Duration::from_secs(10),
        ..LeaseOptions::new(namespace, name, identity())
    };
    Some(announcing(lease, configuration.scheduler_names()))
}

/// The identity of this process: unique for every replica, on any machine, even with equal process IDs.
pub(crate) fn identity() -> &'static str {
    static IDENTITY: LazyLock<String> = LazyLock::new(|| {
        let name = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().and_then(name);
        let host = host.or_else(|| std::env::var("HOSTNAME").ok().and_then(name));
        let random = RandomState::new().build_hasher().finish();
        let (host, id) = (host.unwrap_or_else(|| "berth".to_owned()), std::process::id());
        format!("{host}_{random:016x}_{id}")
    });
    &IDENTITY
}

/// A number for this process that another replica hardly ever has.
fn replica() -> u16 {
    let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(identity());
    u16::try_from(hash & u64::from(u16::MAX)).unwrap_or_default()
}

fn lease_namespace<'a>(args: &'a ComponentArgs, file: Option<&'a Election>) -> &'a str {
    let of_file = file.and_then(|election| election.namespace.as_deref());
    args.leader_elect_namespace
        .as_deref()
        .or(of_file)
        .unwrap_or(LEASE_NAMESPACE)
}

/// How a component runs, with the lease for its leader election. Arguments take precedence.
pub(crate) fn process(args: &ComponentArgs, lease: &str, election: &Election) -> ProcessOptions {
    let lease = || LeaseOptions {
        duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry: election.retry_period,
        ..LeaseOptions::new(
            lease_namespace(args, Some(election)),
            election.name.as_deref().unwrap_or(lease),
            identity(),
        )
    };
    ProcessOptions {
        leader_election: args.leader_elect.unwrap_or(election.elect).then(lease),
        listen: args.listen,
        ..ProcessOptions::default()
    }
}

/// Runs a component on the cluster of a kubeconfig until it ends or is interrupted.
pub(crate) fn on_cluster_of<F: Future<Output = anyhow::Result<()>>>(
    kubeconfig: Option<&Path>,
    level: Level,
    color: Color,
    run: impl FnOnce(Client, CancellationToken) -> F,
) -> anyhow::Result<()> {
    log(Some(level), color);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        let client = match kubeconfig {
            Some(path) => connect::from_kubeconfig(path).await?,
            None => connect::infer().await?,
        };
        let cancel = CancellationToken::new();
        let mut running = std::pin::pin!(run(client, cancel.clone()));
        tokio::select! {
            result = &mut running => return result,
            () = interrupted() => cancel.cancel(),
        }
        running.await
    })
}

/// Waits for Ctrl-C, or another termination signal. Signals count from this call on, even before the future is polled.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    };
    async move {
        #[cfg(unix)]
        if let (Ok(mut interrupt), Ok(mut terminate)) = signals {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        // Without a handler there is no orderly way to stop: run until killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Logs to standard error from a level on; without one, only errors.
pub(crate) fn log(level: Option<Level>, color: Color) {
    let colored = match color {
        Color::Auto => color.stderr().get_ref().current_choice() != anstream::ColorChoice::Never,
        Color::Always => true,
        Color::Never => false,
    };
    let level = level.unwrap_or(Level::WARN);
    let subscriber = tracing_subscriber::fmt()
        .with_writer(|| Clean::new(std::io::stderr()))
        .with_ansi(colored)
        .with_max_level(level);
    // The client logs every failed attempt, thousands while an API server is unavailable, and its libraries log every
    // frame. The callers log the result once.
    let others = level.min(Level::INFO);
    let client = (level >= Level::DEBUG).then_some(level);
    let targets = Targets::new()
        .with_default(others)
        .with_target("berth", level)
        .with_target("kube_client", LevelFilter::from(client));
    // A second subscriber in one process, as in tests, is not an error.
    let _ = subscriber.finish().with(targets).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn election(arguments: &[&str], file: Election) -> anyhow::Result<Option<LeaseOptions>> {
        let line = ["berth", "controller"].iter().chain(arguments);
        let crate::cli::Command::Controller(args) = crate::cli::Cli::parse_from(line).command else {
            panic!("{arguments:?}")
        };
        let election = args.kubernetes.generic.election(&args.component, file)?;
        Ok(process(&args.component, "berth-scheduler", &election).leader_election)
    }

    fn times(lease: &LeaseOptions) -> [u64; 3] {
        [lease.duration, lease.renew_deadline, lease.retry].map(|one| one.as_secs())
    }

    #[test]
    fn arguments_go_before_the_file_and_the_file_before_the_defaults() {
        assert_eq!(election(&[], Election::off()).unwrap(), None);
        let usual = election(&["--leader-elect"], Election::off()).unwrap().unwrap();
        assert_eq!(
            (usual.namespace.as_str(), usual.name.as_str()),
            ("kube-system", "berth-scheduler")
        );
        assert_eq!(usual, LeaseOptions::new("kube-system", "berth-scheduler", identity()));
        let file = Election {
            lease_duration: Duration::from_secs(30),
            renew_deadline: Duration::from_secs(21),
            retry_period: Duration::from_secs(3),
            name: Some("ours".to_owned()),
            namespace: Some("storage".to_owned()),
            ..Election::default()
        };
        let of_file = election(&[], file.clone()).unwrap().unwrap();
        assert_eq!((of_file.namespace.as_str(), of_file.name.as_str()), ("storage", "ours"));
        assert_eq!(times(&of_file), [30, 21, 3]);
        let flags = [
            "--leader-elect-namespace",
            "other",
            "--leader-elect-lease-duration",
            "60s",
        ];
        let both = election(&flags, file.clone()).unwrap().unwrap();
        assert_eq!((both.namespace.as_str(), times(&both)), ("other", [60, 40, 8]));
        assert_eq!(election(&["--leader-elect=false"], file.clone()).unwrap(), None);
        let off = Election { elect: false, ..file };
        assert_eq!(election(&[], off.clone()).unwrap(), None);
        assert!(election(&["--leader-elect"], off).unwrap().is_some());
    }

    #[test]
    fn times_of_flags_count_beside_a_lease_duration_and_must_fit_it() {
        let flags = "--leader-elect --leader-elect-lease-duration=60s --leader-elect-renew-deadline=50s \
                     --leader-elect-retry-period=5s --leader-elect-resource-name=kube-controller-manager";
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let lease = election(&flags, Election::off()).unwrap().unwrap();
        assert_eq!(
            (lease.name.as_str(), times(&lease)),
            ("kube-controller-manager", [60, 50, 5])
        );
        let error = election(&["--leader-elect-renew-deadline=20s"], Election::off()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "leader election: leaseDuration must be more than renewDeadline, which is 20s; see --leader-elect-*"
        );
    }

    #[test]
    fn an_identity_ends_in_the_process_id_and_stays_the_same() {
        let id = std::process::id();
        assert!(identity().ends_with(&format!("_{id}")), "{}", identity());
        assert_eq!(identity().rsplit('_').nth(1).map(str::len), Some(16));
        assert_eq!(identity(), identity());
    }
}
