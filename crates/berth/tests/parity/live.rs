//! Plays a case with the components of `berth up` on the embedded API server, in this process and in virtual time.

use crate::case::Case;
use crate::picture::Picture;
use berth::cli::{Cli, Command};
use berth::input::{NoProgress, Source, read_all_values};
use berth::simulate::scenario::read_file;
use berth::up;
use berth_apiserver::Server;
use berth_apiserver::store::PageQuery;
use berth_cluster::simulation::START;
use berth_cluster::simulation::scenario::{Action, Drains, Scenario};
use berth_cluster::{Objects, View, field};
use berth_core::effect::Effect;
use berth_kube::api::Api;
use berth_kube::clock::Clock;
use berth_kube::executor::{Executor, Outcome};
use berth_kube::recorder::recorder;
use berth_kube::{CancellationToken, Client};
use clap::Parser;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A cluster in which nothing changed for this long has come to rest: longer than the scheduler leaves an unschedulable
/// pod alone (five minutes), and than any backoff.
const REST: Duration = Duration::from_secs(6 * 60);
/// How often changes and possible evictions are checked.
const LOOK: Duration = Duration::from_secs(5);
/// A cluster that never comes to rest is abandoned after this long, like a simulation.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// How often a pod is placed at most until then: after 1, 2, 4, ... 64 s, and every 2 minutes from then on.
const PLACEMENTS_MAX: i64 = 8 + 2 * 3600 / 120;

/// The components' clock for the API server.
struct Stamps(Clock);

impl berth_apiserver::Clock for Stamps {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// The final state of the case; an error if it cannot be played.
pub fn play(case: &Case) -> Result<Picture, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run(case))
}

async fn run(case: &Case) -> Result<Picture, String> {
    let arguments = [
        OsStr::new("berth"),
        OsStr::new("up"),
        OsStr::new("-f"),
        case.file.as_os_str(),
    ];
    let Command::Up(arguments) = Cli::parse_from(arguments).command else {
        panic!("these are the arguments of up");
    };
    let scenario = case.scenario.as_deref().map(read_file).transpose();
    let scenario = scenario.map_err(|error| error.to_string())?;
    let mut objects = Vec::new();
    let sources: Vec<Source> = arguments.filename.iter().map(|name| name.as_os_str().into()).collect();
    read_all_values(&sources, &mut std::io::empty(), &mut NoProgress, &mut |object| {
        objects.push(object);
    })
    .map_err(|error| error.to_string())?;
    let scheduling = up::scheduler_options(&arguments).map_err(|error| error.to_string())?;
    let clock = Clock::starting_at(START);
    let server = Server::builder()
        .service_accounts(true)
        .zone_affinity(true)
        .clock(Arc::new(Stamps(clock)))
        // A failing test must be reproducible.
        .seed(1)
        .build()
        .unwrap();
    let cancel = CancellationToken::new();
    let mut parts = up::start_on(&server, objects, scheduling, clock, &cancel)
        .await
        .map_err(|error| error.to_string())?;
    let mut cluster = Cluster::new(server, clock);
    cluster.play(scenario.as_ref()).await;
    let ended = cluster.objects();
    assert_scheduled_before_started(&ended);
    assert_placements_back_off(&ended);
    let picture = Picture::of_live(&ended);
    cancel.cancel();
    while let Some(part) = parts.join_next().await {
        part.expect("no part panics").expect("no part fails");
    }
    cluster.server.shutdown();
    Ok(picture)
}

/// Users see the event that a pod was scheduled before the event that it was started.
fn assert_scheduled_before_started(ended: &Objects) {
    let version = |event: &Value| field::text(event, "/metadata/resourceVersion").parse::<u64>().unwrap();
    let of = |reason: &'static str| {
        let events = ended
            .of_kind("Event")
            .filter(move |event| field::text(event, "/reason") == reason);
        events.map(|event| (field::text(event, "/involvedObject/uid"), event))
    };
    let started: BTreeMap<&str, &Value> = of("Started").collect();
    for (uid, scheduled) in of("Scheduled") {
        if let Some(started) = started.get(uid) {
            assert!(version(scheduled) < version(started), "{scheduled}\nafter\n{started}");
        }
    }
}

/// A pod that its node refuses, and that its workload creates again under the same name, is placed less often each time.
fn assert_placements_back_off(ended: &Objects) {
    let mut placements: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for event in ended.of_kind("Event") {
        if field::text(event, "/reason") == "Scheduled" {
            let of = |pointer: &str| field::text(event, pointer);
            let pod = (of("/involvedObject/namespace"), of("/involvedObject/name"));
            *placements.entry(pod).or_default() += field::number(event, "/count").unwrap_or(1);
        }
    }
    for ((namespace, name), times) in placements {
        assert!(times <= PLACEMENTS_MAX, "{namespace}/{name} was placed {times} times");
    }
}

/// A cluster, and the executor of its scenario.
struct Cluster {
    server: Server,
    clock: Clock,
    executor: Executor,
    drains: Drains,
}

impl Cluster {
    fn new(server: Server, clock: Clock) -> Self {
        let api = Api::new(Client::new(server.service(), "default"), "scenario");
        // The effects of scenarios record no events.
        let (recorder, _) = recorder(api.clone(), "scenario", "scenario");
        Self {
            executor: Executor::new(api, recorder),
            server,
            clock,
            drains: Drains::default(),
        }
    }

    /// Plays the steps of a scenario, each at its time, and runs until nothing changes any more.
    async fn play(&mut self, scenario: Option<&Scenario>) {
        for step in scenario.iter().flat_map(|scenario| &scenario.steps) {
            let at = START.checked_add(step.at).expect("a time within the range");
            while self.clock.now() < at {
                self.look().await;
            }
            for action in &step.actions {
                self.perform(action).await;
            }
        }
        self.rest().await;
    }

    async fn perform(&mut self, action: &Action) {
        let plan = action.plan(&self.objects()).expect("the scenario fits the cluster");
        let done = self.carry_out(&plan.effects).await;
        assert!(done.refused.is_none(), "{action:?}: {:?}", done.refused);
        self.drains.follow(&plan);
    }

    async fn carry_out(&self, effects: &[Effect]) -> Outcome {
        self.executor.carry_out(effects).await
    }

    /// Lets a little time pass, and evicts what can be evicted then.
    async fn look(&mut self) {
        tokio::time::sleep(LOOK).await;
        if self.drains.nodes().next().is_none() {
            return;
        }
        while let Some(effects) = self.drains.evict_next(&self.objects(), self.clock.now()) {
            // If anything is refused, it is retried in the next round.
            self.carry_out(&effects).await;
        }
    }

    async fn rest(&mut self) {
        let begin = Instant::now();
        let (mut moved, mut last) = (begin, Vec::new());
        while moved.elapsed() < REST && begin.elapsed() < LONGEST {
            self.look().await;
            let now = self.versions();
            if now != last {
                (moved, last) = (Instant::now(), now);
            }
        }
    }

    /// The version of everything relevant: heartbeats and events do not count.
    fn versions(&self) -> Vec<u64> {
        let store = self.server.store();
        let tables = store.tables().into_iter();
        let moving = tables.filter(|(table, _)| !["events", "leases.coordination.k8s.io"].contains(&&**table));
        let pages = moving.map(|(table, _)| store.list(&table, &PageQuery::all("")).unwrap());
        let versions = pages.flat_map(|page| {
            page.objects
                .into_iter()
                .map(|object| object.version())
                .collect::<Vec<_>>()
        });
        versions.collect()
    }

    /// All objects of the API server.
    fn objects(&self) -> Objects {
        let mut objects = Objects::default();
        let store = self.server.store();
        for (table, _) in store.tables() {
            let page = store.list(&table, &PageQuery::all("")).unwrap();
            for object in page.objects {
                objects.insert(object.value());
            }
        }
        objects
    }
}
