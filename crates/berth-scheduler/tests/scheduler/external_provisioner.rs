//! Capacity in flight beside the external-provisioner: one on each node, as the CSI hostpath driver is deployed.
//!
//! Each polls its driver every five seconds, and once after every call; it writes a report only if the value has changed. A report may be written
//! before or after the volume that it includes, and every watch of the scheduler has its own delay. Time passes in tenths of a second.

use crate::api::{Api, Change, decoded};
use berth_core::api::Kind;
use berth_core::names;
use berth_scheduler::profile::Profile;
use berth_scheduler::scheduler::{Effect, Scheduler, Settings};
use berth_testing::{Fault, Manifest, claim, class, node, pod, volume};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const START: i64 = 1_767_225_600;
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const GI_EACH: i64 = 10;
const CLAIMS: usize = 40;
const POLL: u64 = 50;

/// What differs between stories. Times are tenths of a second.
#[derive(Clone, Debug)]
struct Story {
    /// Delays of the scheduler's watches: of claims, of volumes, of reports, of everything else.
    delays: [u64; 4],
    /// How long a call to create a volume takes.
    call: u64,
    /// Calls at once on a node.
    workers: usize,
    /// From the driver's answer to the volume, and from that to the binding.
    record: u64,
    bind: u64,
    /// From the driver's answer about its capacity to the report.
    report: u64,
    /// Whether capacity is asked for after each call, too.
    refreshes: bool,
    /// When each node is polled first.
    polls: [u64; 3],
    /// How many claims there are at first, and when the others come.
    first: usize,
    second: u64,
    /// When the scheduler is started again.
    restart: Option<u64>,
}

fn story() -> impl Strategy<Value = Story> {
    let delays = [0..8_u64, 0..8, 0..8, 0..8];
    let times = (1..8_u64, 1..12_usize, 0..6_u64, 0..6_u64, 0..6_u64);
    let claims = (0..=CLAIMS, 1..80_u64);
    let polls = [0..POLL, 0..POLL, 0..POLL];
    let restart = prop::option::of(1..100_u64);
    let all = (delays, times, any::<bool>(), polls, claims, restart);
    all.prop_map(
        |(delays, (call, workers, record, bind, report), refreshes, polls, (first, second), restart)| Story {
            delays,
            call,
            workers,
            record,
            bind,
            report,
            refreshes,
            polls,
            first,
            second,
            restart,
        },
    )
}

/// What a provisioner does later.
enum Later {
    /// The driver's answer.
    Answer(String, usize),
    Record(String, usize),
    Bind(String),
    Poll(usize),
    Report(usize, i64),
}

struct Cluster {
    story: Story,
    api: Api,
    scheduler: Scheduler,
    now: u64,
    later: BTreeMap<u64, Vec<Later>>,
    /// Changes that the scheduler has not seen, by the delay that applies, with the times at which it will.
    unseen: [VecDeque<(u64, Change)>; 4],
    left: [i64; 3],
    /// Claims that a provisioner is at work on.
    at_work: BTreeSet<String>,
    calls: usize,
    failed: usize,
}

fn scheduler() -> Scheduler {
    let settings = Settings {
        profiles: [("default-scheduler".to_owned(), Profile::default())].into(),
        ..Settings::default()
    };
    Scheduler::new(settings, 7)
}

fn watch_of(kind: Kind) -> usize {
    match kind {
        Kind::PersistentVolumeClaim => 0,
        Kind::PersistentVolume => 1,
        Kind::CsiStorageCapacity => 2,
        _ => 3,
    }
}

impl Cluster {
    fn new(story: Story) -> Self {
        let mut api = Api::default();
        api.put(class("disk", "disk.example.com"));
        api.put(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
            "spec": {"storageCapacity": true}}),
        );
        for name in NODES {
            let mut node = node(name);
            node["status"]["allocatable"] = json!({"cpu": "64", "memory": "64Gi", "pods": "200"});
            api.put(node);
        }
        let mut cluster = Self {
            scheduler: scheduler(),
            api,
            now: 0,
            later: BTreeMap::new(),
            unseen: Default::default(),
            left: [GI_EACH; 3],
            at_work: BTreeSet::new(),
            calls: 0,
            failed: 0,
            story,
        };
        for at in 0..NODES.len() {
            cluster.report(at, GI_EACH);
            cluster.after(cluster.story.polls[at], Later::Poll(at));
        }
        cluster.restart();
        cluster
    }

    fn seconds(&self) -> i64 {
        START + i64::try_from(self.now / 10).expect("a short story")
    }

    fn after(&mut self, ticks: u64, what: Later) {
        self.later.entry(self.now + ticks.max(1)).or_default().push(what);
    }

    /// Pods with a claim of 1Gi each.
    fn ask(&mut self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let name = format!("p{number:02}");
            self.api.put(claim(&name, "disk", 1));
            self.api.put(pod(&name, &[&name]));
        }
    }

    /// Another scheduler, which knows the objects as they are.
    fn restart(&mut self) {
        self.api.changes.clear();
        self.unseen = Default::default();
        let mut new = scheduler();
        new.set_now(self.seconds());
        let at = Duration::from_millis(self.now * 100);
        self.api
            .everything()
            .for_each(|object| new.upsert(&decoded(object), at));
        self.scheduler = new;
    }

    fn deliver(&mut self) {
        for change in std::mem::take(&mut self.api.changes) {
            let watch = watch_of(change.0);
            let due = self.now + self.story.delays[watch];
            self.unseen[watch].push_back((due, change));
        }
        let at = Duration::from_millis(self.now * 100);
        for watch in &mut self.unseen {
            while watch.front().is_some_and(|(due, _)| *due <= self.now) {
                let Some((_, (kind, name, value))) = watch.pop_front() else {
                    break;
                };
                match &value {
                    Some(value) => self.scheduler.upsert(&decoded(value), at),
                    None => {
                        let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
                        self.scheduler.remove(kind, namespace, name, at);
                    }
                }
            }
        }
    }

    fn schedule(&mut self) {
        let at = Duration::from_millis(self.now * 100);
        self.scheduler.set_now(self.seconds());
        self.scheduler.tick(at);
        loop {
            self.deliver();
            let mut busy = self.scheduler.step(at);
            for effect in self.scheduler.take_effects() {
                if let Effect::Write { id, .. } = &effect {
                    busy = true;
                    let outcome = self.api.apply(&effect, Fault::None).expect("nothing is lost");
                    self.scheduler.written(*id, &outcome, at);
                }
            }
            if !busy {
                break;
            }
        }
    }

    /// Provisioners call their drivers for claims with their node.
    fn call_drivers(&mut self) {
        let mut calls: Vec<(String, usize)> = Vec::new();
        for (name, claim) in self.api.all(Kind::PersistentVolumeClaim) {
            let selected = claim["metadata"]["annotations"][names::SELECTED_NODE].as_str();
            let at = NODES.iter().position(|node| Some(*node) == selected);
            if let Some(at) = at.filter(|_| claim["spec"]["volumeName"].is_null())
                && !self.at_work.contains(&name)
            {
                calls.push((name, at));
            }
        }
        for (name, at) in calls {
            let on_node = |later: &&Later| matches!(later, Later::Answer(_, node) if *node == at);
            if self.later.values().flatten().filter(on_node).count() < self.story.workers {
                self.at_work.insert(name.clone());
                self.calls += 1;
                self.after(self.story.call, Later::Answer(name, at));
            }
        }
    }

    fn go_on(&mut self, what: Later) {
        match what {
            Later::Answer(claim, at) => {
                let is_made = self.left[at] > 0;
                if self.story.refreshes {
                    self.after(self.story.report, Later::Report(at, self.left[at] - i64::from(is_made)));
                }
                if is_made {
                    self.left[at] -= 1;
                    self.after(self.story.record, Later::Record(claim, at));
                } else {
                    self.failed += 1;
                    self.at_work.remove(&claim);
                    self.api.edit(Kind::PersistentVolumeClaim, &claim, |claim| {
                        claim["metadata"]["annotations"] = json!({});
                    });
                }
            }
            Later::Record(claim, at) => {
                let name = &claim["default/".len()..];
                let mut volume = volume(&format!("pvc-{name}"), "disk", 1).on(NODES[at]);
                let time = Timestamp::from_second(self.seconds()).expect("a time");
                volume["metadata"]["creationTimestamp"] = json!(time.to_string());
                let uid = self.api.text(Kind::PersistentVolumeClaim, &claim, "/metadata/uid");
                volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name, "uid": uid});
                volume["status"]["phase"] = json!("Pending");
                self.api.put(volume);
                self.after(self.story.bind, Later::Bind(claim));
            }
            Later::Bind(claim) => {
                let volume = format!("pvc-{}", &claim["default/".len()..]);
                self.api.edit(Kind::PersistentVolume, &volume, |volume| {
                    volume["status"]["phase"] = json!("Bound");
                });
                self.api.edit(Kind::PersistentVolumeClaim, &claim, |claim| {
                    claim["spec"]["volumeName"] = json!(volume);
                    claim["metadata"]["annotations"][names::BIND_COMPLETED] = json!("yes");
                });
            }
            Later::Poll(at) => {
                self.after(self.story.report, Later::Report(at, self.left[at]));
                self.after(POLL, Later::Poll(at));
            }
            Later::Report(at, gi) => self.report(at, gi),
        }
    }

    /// Writes a report, if the value has changed.
    fn report(&mut self, at: usize, gi: i64) {
        let node = NODES[at];
        let name = format!("default/csisc-{node}");
        let said = self.api.text(Kind::CsiStorageCapacity, &name, "/capacity");
        if said == format!("{gi}Gi") {
            return;
        }
        let time = Timestamp::from_second(self.seconds()).expect("a time").to_string();
        let report: Value = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": {"name": format!("csisc-{node}"), "namespace": "default", "creationTimestamp": time,
                "managedFields": [{"manager": "csi-provisioner", "operation": "Update", "time": time}]},
            "storageClassName": "disk", "capacity": format!("{gi}Gi"), "maximumVolumeSize": format!("{gi}Gi"),
            "nodeTopology": {"matchLabels": {names::HOSTNAME: node}}});
        self.api.put(report);
    }

    fn advance(&mut self, ticks: u64) {
        self.now += ticks;
        if self.now == 1 {
            self.ask(0..self.story.first);
        }
        if self.now == self.story.second {
            self.ask(self.story.first..CLAIMS);
        }
        if self.story.restart == Some(self.now) {
            self.restart();
        }
        while let Some(due) = self.later.first_entry().filter(|due| *due.key() <= self.now) {
            for what in due.remove() {
                self.go_on(what);
            }
        }
        self.schedule();
        self.call_drivers();
    }

    fn running(&self) -> usize {
        let pods = self.api.all(Kind::Pod);
        pods.filter(|(_, pod)| pod["spec"]["nodeName"].is_string()).count()
    }

    /// When everything that has room must run, however reports come: each pod is seen, decided on and bound, and its volume made in its turn.
    fn latest(&self) -> u64 {
        let story = &self.story;
        let turns = 10_usize.div_ceil(story.workers);
        let seen: u64 = story.delays.iter().sum();
        let made = u64::try_from(turns).expect("few") * story.call.max(1) + story.record.max(1) + story.bind.max(1);
        story.second + 2 * seen + made + 20
    }
}

fn outcome(story: Story) -> (usize, usize, u64, u64) {
    let mut cluster = Cluster::new(story);
    let mut all_run = 0;
    // Until promises have expired, whatever reports say.
    while cluster.now < 800 {
        cluster.advance(if cluster.now < 250 { 1 } else { 10 });
        if all_run == 0 && cluster.running() == 30 {
            all_run = cluster.now;
        }
    }
    (cluster.calls, cluster.failed, all_run, cluster.latest())
}

/// How many stories are played. For more: `PROPTEST_CASES=500 cargo test --test scheduler external_provisioner`.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES");
    asked.ok().and_then(|cases| cases.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Three nodes with 10Gi each and 40 claims of 1Gi: thirty calls, none of which fails, and thirty pods that run as soon as the driver allows.
    #[test]
    fn no_call_fails_and_nobody_waits(story in story()) {
        let (is_restarted, second) = (story.restart.is_some(), story.second);
        let (calls, failed, all_run, latest) = outcome(story);
        prop_assert_eq!((calls, failed), (30, 0), "calls, failed calls");
        prop_assert!(all_run > 0, "thirty pods run");
        // After a restart, room that is in doubt counts ten seconds after the last volume was made. Then its pods have their turn after a
        // backoff of ten seconds at most, and their volumes are made, too.
        let latest = if is_restarted { latest + 200 + (latest - second) } else { latest };
        prop_assert!(all_run <= latest, "thirty pods run after {} instead of {} tenths of a second", all_run, latest);
    }
}
