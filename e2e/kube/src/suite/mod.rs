//! The tests.

mod adoption;
mod agent;
mod bindings;
mod consistency;
mod faults;
mod kube_rs;
mod pairs;
mod placing;
mod report;
mod rights;
mod scenario;
mod skew;
mod stopped;
mod world;

use anyhow::{Context as _, ensure};
use berth_e2e::audit;
use report::{Remark, Report};
use scenario::Scenario;
use std::time::{Duration, Instant};
use world::{Cast, World};

/// Timeout of a test. They take seconds; on a busy machine, ten times that.
const LIMIT: Duration = Duration::from_secs(150);
/// Timeout of a test with faults.
const FAULT_LIMIT: Duration = Duration::from_secs(400);

macro_rules! play {
    ($world:expr, $report:expr, $group:expr, $($test:path),* $(,)?) => {$(
        play($world, $report, $group, stringify!($test), async |scenario| $test(scenario).await).await;
    )*};
}

/// Plays a story that changes which components run.
macro_rules! play_with_world {
    ($world:expr, $report:expr, $group:expr, $load:expr, $test:path) => {
        let name = test_name($group, stringify!($test));
        if $report.wants(&name) {
            let mut scenario = Scenario::new($world, &short_name(stringify!($test))).await?;
            let played = async {
                let result = $test($world, &mut scenario, $load).await;
                let finished = scenario.finish().await;
                let remark = result?;
                finished?;
                Ok(remark)
            };
            if !$report.run(&name, FAULT_LIMIT, played).await {
                println!("{}", $world.logs());
            }
        }
    };
}

/// Which tests to run.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct SuiteArgs {
    /// Run the tests whose names hold one of these texts.
    only: Vec<String>,
    /// Leave the logs of all processes behind.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    load: Load,
}

/// The load when things break.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Load {
    /// How many pods with a local claim each are being placed when things break.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pods: usize,
    /// Random seed: decides which process is killed and when.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Runs the tests. Returns `true` if all pass.
pub(crate) async fn suite(args: SuiteArgs) -> anyhow::Result<bool> {
    let start = Instant::now();
    let mut report = Report::new(args.only);
    let name = "kube-rs: the suite of the embedded API server";
    if report.wants(name) {
        report.run(name, kube_rs::LIMIT, kube_rs::suite()).await;
    }
    let mut world = World::new().await?;
    println!("a cluster is up after {:.1} s", start.elapsed().as_secs_f64());
    if let Err(error) = tests(&mut world, &mut report, &args.load).await {
        report.broken("the suite goes on", &error);
    }
    let passed = report.finish(start.elapsed());
    if args.keep || !passed {
        println!("logs: {}", world.cluster.keep().join("logs").display());
    }
    Ok(passed)
}

async fn tests(world: &mut World, report: &mut Report, load: &Load) -> anyhow::Result<()> {
    world.cast(Cast::BERTH).await?;
    placing(world, report).await;
    for (pair, cast) in pairs::PAIRS {
        world.cast(cast).await?;
        play_pair(world, report, pair).await;
    }
    world.cast(Cast::BERTH).await?;
    play_with_world!(
        world,
        report,
        "skew",
        &(),
        skew::claims_wait_only_for_a_scheduler_that_announces_itself
    );
    play_with_world!(
        world,
        report,
        "adoption",
        load,
        adoption::two_schedulers_share_nodes_and_volumes
    );
    play_with_world!(
        world,
        report,
        "adoption",
        load,
        adoption::the_volume_binder_changes_hands
    );
    play_with_world!(world, report, "faults", load, faults::leaders_are_killed);
    play_with_world!(
        world,
        report,
        "faults",
        load,
        stopped::a_leader_is_stopped_and_continued
    );
    // Before the API server is broken: one that starts refuses every user until it has loaded the roles.
    let name = "rights: none missing, none unused";
    if report.wants(name) {
        let whole = report.is_whole();
        report.run(name, LIMIT, check_rights(world, whole)).await;
    }
    world.end_elections().await;
    world.cast(Cast::BERTH).await?;
    play_with_world!(world, report, "faults", load, faults::components_are_killed);
    play_with_world!(world, report, "faults", load, faults::connections_are_cut);
    play_with_world!(world, report, "faults", load, faults::the_api_server_is_restarted);
    play_with_world!(world, report, "faults", load, faults::the_api_server_is_killed);
    play_with_world!(world, report, "faults", load, faults::etcd_is_paused);
    Ok(())
}

/// What every pair of scheduler and volume controller must support.
async fn play_pair(world: &World, report: &mut Report, pair: &str) {
    play!(
        world,
        report,
        pair,
        placing::anti_affinity_with_volumes_on_each_node,
        placing::several_claims_with_enough_volumes_on_one_node,
        placing::provisioning_for_a_stateful_set,
        placing::immediate_claims_are_bound_without_pods,
    );
}

/// Reads the requests of Berth's components from the audit log, and compares them with their roles. Whether every
/// permission is used is known only after all tests.
async fn check_rights(world: &mut World, whole: bool) -> anyhow::Result<Remark> {
    // A watch is logged when it ends.
    world.stop_berth().await;
    let grants = rights::grants(world.installation.objects());
    ensure!(!grants.is_empty(), "the manifests give no rights");
    let requests = audit::requests(&world.cluster.audit()).context("cannot read the audit log")?;
    let forbidden = rights::forbidden(&requests);
    let unused = if whole {
        rights::unused(&grants, &requests)
    } else {
        Vec::new()
    };
    ensure!(
        forbidden.is_empty() && unused.is_empty(),
        "forbidden:\n  {}\nnever used:\n  {}",
        forbidden.join("\n  "),
        unused.join("\n  ")
    );
    let (granted, sent) = (grants.len(), rights::count(&requests));
    let whether = if whole { "all used" } else { "not all had to be used" };
    Ok(format!("{granted} rights, {whether}; {sent} requests, none forbidden"))
}

async fn placing(world: &World, report: &mut Report) {
    play!(
        world,
        report,
        "placing",
        placing::anti_affinity_with_volumes_on_each_node,
        placing::anti_affinity_with_volumes_on_two_nodes,
        placing::affinity_with_several_volumes_on_a_node,
        placing::affinity_with_one_volume_on_each_node,
        placing::several_claims_with_enough_volumes_on_one_node,
        placing::several_claims_without_enough_volumes_on_one_node,
        placing::provisioning_where_existing_volumes_do_not_suit,
        placing::existing_volumes_before_provisioning,
        placing::provisioning_for_a_stateful_set,
        placing::provisioning_elsewhere_when_a_node_is_full,
        placing::immediate_claims_are_bound_without_pods,
        placing::published_capacity_is_respected,
        placing::a_pod_of_higher_priority_gets_the_room,
        placing::a_scratch_volume_goes_with_its_claim,
        placing::a_claim_that_is_given_back_goes,
        placing::what_happens_again_is_counted,
    );
}

/// Plays one story in its own part of the cluster, and cleans up after it.
async fn play(
    world: &World,
    report: &mut Report,
    group: &str,
    path: &str,
    story: impl AsyncFn(&mut Scenario) -> anyhow::Result<Remark>,
) {
    let name = test_name(group, path);
    if !report.wants(&name) {
        return;
    }
    let played = async {
        let mut scenario = Scenario::new(world, &short_name(path)).await?;
        let result = story(&mut scenario).await;
        let finished = scenario.finish().await;
        let remark = result?;
        finished?;
        Ok(remark)
    };
    if !report.run(&name, LIMIT, played).await {
        println!("{}", world.logs());
    }
}

/// The name of a test, from the path of its function.
fn test_name(group: &str, path: &str) -> String {
    let function = path.rsplit("::").next().unwrap_or(path).trim();
    format!("{group}: {}", function.replace('_', " "))
}

/// A name for the test's namespace. Names of volumes start with it and must not become too long.
fn short_name(path: &str) -> String {
    let function = path.rsplit("::").next().unwrap_or(path).trim();
    let name: String = function.replace('_', "-").chars().take(40).collect();
    name.trim_end_matches('-').to_owned()
}
