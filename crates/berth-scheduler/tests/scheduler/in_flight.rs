//! Capacity in flight: drivers that report periodically, and more claims at once than they have room for.

use crate::api::{Api, decoded};
use berth_core::api::Kind;
use berth_core::names;
use berth_scheduler::profile::Profile;
use berth_scheduler::scheduler::{Effect, Scheduler, Settings};
use berth_testing::{Fault, Manifest, claim, class, node, pod, volume};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const START: i64 = 1_767_225_600;
const NODES: [&str; 3] = ["n1", "n2", "n3"];
const GI_EACH: i64 = 10;

/// How a driver reports its capacity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reporting {
    /// The free space, written at once.
    Prompt,
    /// The free space, written after further volumes were created.
    Left,
    /// The free space this many seconds ago.
    Late(usize),
    /// The free space, written again a second later.
    Twice,
    /// The total.
    Total,
}

/// A driver with its provisioner, schedulers, and their shared API.
struct Cluster {
    api: Api,
    schedulers: Vec<Scheduler>,
    seconds: u64,
    reporting: Reporting,
    /// The free space on each node, for each second so far.
    left: Vec<BTreeMap<&'static str, i64>>,
    /// Calls that the driver can handle per second on each node.
    calls_per_second: usize,
    failed_calls: usize,
}

fn scheduler(name: &str) -> Scheduler {
    let settings = Settings {
        profiles: [(name.to_owned(), Profile::default())].into(),
        ..Settings::default()
    };
    Scheduler::new(settings, 7)
}

impl Cluster {
    fn new(schedulers: &[&str], reporting: Reporting) -> Self {
        let mut cluster = Self {
            api: Api::default(),
            schedulers: schedulers.iter().map(|name| scheduler(name)).collect(),
            seconds: 0,
            reporting,
            left: vec![NODES.iter().map(|node| (*node, GI_EACH)).collect()],
            calls_per_second: 2,
            failed_calls: 0,
        };
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "disk.example.com"},
            "spec": {"storageCapacity": true}});
        cluster.api.put(class("disk", "disk.example.com"));
        cluster.api.put(driver);
        for name in NODES {
            let mut node = node(name);
            node["status"]["allocatable"] = json!({"cpu": "64", "memory": "64Gi", "pods": "200"});
            cluster.api.put(node);
        }
        cluster.report();
        cluster
    }

    /// Pods with a claim of 1Gi each, for the schedulers in turn.
    fn ask_for(&mut self, count: usize, schedulers: &[&str]) {
        for number in 0..count {
            let name = format!("p{number}");
            self.api.put(claim(&name, "disk", 1));
            let mut pod = pod(&name, &[&name]);
            pod["spec"]["schedulerName"] = json!(schedulers[number % schedulers.len()]);
            self.api.put(pod);
        }
    }

    fn deliver(&mut self) {
        let now = Duration::from_secs(self.seconds);
        for (kind, name, value) in std::mem::take(&mut self.api.changes) {
            for scheduler in &mut self.schedulers {
                match &value {
                    Some(value) => scheduler.upsert(&decoded(value), now),
                    None => {
                        let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
                        scheduler.remove(kind, namespace, name, now);
                    }
                }
            }
        }
    }

    fn schedule(&mut self) {
        let now = Duration::from_secs(self.seconds);
        let epoch = START + i64::try_from(self.seconds).expect("a short story");
        for index in 0..self.schedulers.len() {
            self.deliver();
            self.schedulers[index].set_now(epoch);
            self.schedulers[index].tick(now);
            loop {
                let mut busy = self.schedulers[index].step(now);
                for effect in self.schedulers[index].take_effects() {
                    if let Effect::Write { id, .. } = &effect {
                        busy = true;
                        let outcome = self.api.apply(&effect, Fault::None).expect("nothing is lost");
                        self.schedulers[index].written(*id, &outcome, now);
                    }
                }
                if !busy && self.api.changes.is_empty() {
                    break;
                }
                self.deliver();
            }
        }
    }

    /// Creates volumes for claims with a node, as many as the driver can, and fails where it has no space.
    fn provision(&mut self) {
        let mut left = self.left.last().expect("the first second").clone();
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        let claims: Vec<Value> = self
            .api
            .all(Kind::PersistentVolumeClaim)
            .map(|(_, claim)| claim.clone())
            .collect();
        for claim in claims.iter().filter(|claim| claim["spec"]["volumeName"].is_null()) {
            let selected = claim["metadata"]["annotations"][names::SELECTED_NODE].as_str();
            let Some(node) = NODES.into_iter().find(|node| Some(*node) == selected) else {
                continue;
            };
            let calls = calls.entry(node).or_default();
            *calls += 1;
            if *calls > self.calls_per_second {
                continue;
            }
            let name = format!("default/{}", claim["metadata"]["name"].as_str().expect("a name"));
            let room = left.get_mut(node).expect("it is there");
            if *room < 1 {
                self.failed_calls += 1;
                self.api.edit(Kind::PersistentVolumeClaim, &name, |claim| {
                    claim["metadata"]["annotations"] = json!({});
                });
                continue;
            }
            *room -= 1;
            let made = format!("pvc-{}", &name["default/".len()..]);
            let mut volume = volume(&made, "disk", 1).on(node);
            let time = Timestamp::from_second(START + i64::try_from(self.seconds).expect("a short story"));
            volume["metadata"]["creationTimestamp"] = json!(time.expect("a time").to_string());
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": claim["metadata"]["name"],
                "uid": claim["metadata"]["uid"]});
            volume["status"]["phase"] = json!("Bound");
            self.api.put(volume);
            self.api.edit(Kind::PersistentVolumeClaim, &name, |claim| {
                claim["spec"]["volumeName"] = json!(made);
                claim["metadata"]["annotations"][names::BIND_COMPLETED] = json!("yes");
            });
        }
        self.left.push(left);
    }

    /// Writes the report, if the value has changed.
    fn report(&mut self) {
        let lag = match self.reporting {
            Reporting::Late(seconds) => seconds,
            Reporting::Prompt | Reporting::Left | Reporting::Twice | Reporting::Total => 0,
        };
        let at = (self.left.len() - 1).saturating_sub(lag);
        for (node, left) in self.left[at].clone() {
            let gi = if self.reporting == Reporting::Total {
                GI_EACH
            } else {
                left
            };
            let report = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                "metadata": {"name": format!("room-{node}"), "namespace": "default"}, "storageClassName": "disk",
                "capacity": format!("{gi}Gi"), "nodeTopology": {"matchLabels": {names::HOSTNAME: node}}});
            let name = format!("default/room-{node}");
            let says = self.api.text(Kind::CsiStorageCapacity, &name, "/capacity");
            let again = self.reporting == Reporting::Twice && self.seconds % 5 == 1;
            if again || says != report["capacity"] {
                self.api.put(report);
            }
        }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            // A report that was requested before volumes are created may be written after them.
            let before = self.left.len();
            self.schedule();
            self.provision();
            let is_due = self.seconds.is_multiple_of(5) || self.reporting == Reporting::Twice && self.seconds % 5 == 1;
            if is_due && self.reporting == Reporting::Prompt {
                self.report();
            } else if is_due {
                let newest = self.left.split_off(before);
                self.report();
                self.left.extend(newest);
            }
            self.schedule();
        }
    }

    /// Another scheduler replaces the first, and knows only the API.
    fn restart(&mut self, name: &str) {
        self.deliver();
        let mut new = scheduler(name);
        new.set_now(START + i64::try_from(self.seconds).expect("a short story"));
        // It starts now; its own clock is at the current time of the story.
        for value in self.api.everything() {
            new.upsert(&decoded(value), Duration::from_secs(self.seconds));
        }
        self.schedulers[0] = new;
    }

    fn running(&self) -> usize {
        let pods = self.api.all(Kind::Pod);
        pods.filter(|(_, pod)| pod["spec"]["nodeName"].is_string()).count()
    }

    #[track_caller]
    fn assert_all_room_is_used(&self) {
        assert_eq!(
            (self.failed_calls, self.running()),
            (0, 30),
            "failed calls, running pods"
        );
    }
}

const ONE: [&str; 1] = ["default-scheduler"];

#[test]
fn more_claims_than_room_at_once_fail_no_call() {
    let mut cluster = Cluster::new(&ONE, Reporting::Left);
    cluster.ask_for(40, &ONE);
    cluster.run(5);
    assert!(
        cluster.running() > 0,
        "volumes are made as fast as the driver makes them"
    );
    cluster.run(10);
    cluster.assert_all_room_is_used();
    cluster.run(300);
    cluster.assert_all_room_is_used();
}

#[test]
fn schedulers_see_what_others_promised() {
    let both = ["one", "two"];
    let mut cluster = Cluster::new(&both, Reporting::Left);
    cluster.ask_for(40, &both);
    cluster.run(300);
    cluster.assert_all_room_is_used();
}

#[test]
fn a_scheduler_that_starts_anew_reads_promises_from_the_objects() {
    for second in 1..12 {
        let mut cluster = Cluster::new(&ONE, Reporting::Prompt);
        cluster.ask_for(40, &ONE);
        cluster.run(second);
        cluster.restart(ONE[0]);
        cluster.run(300);
        cluster.assert_all_room_is_used();
    }
}

#[test]
fn reports_that_come_late_or_twice_are_taken_for_what_they_are() {
    for reporting in [Reporting::Late(3), Reporting::Late(12), Reporting::Twice] {
        let mut cluster = Cluster::new(&ONE, reporting);
        cluster.ask_for(40, &ONE);
        cluster.run(300);
        cluster.assert_all_room_is_used();
    }
}

/// Such a driver cannot be distinguished from one that overcommits. While a report may be due nothing fails; then pods are tried,
/// because they might run.
#[test]
fn a_driver_that_reports_the_total_is_not_asked_for_more_while_a_report_is_due() {
    let mut cluster = Cluster::new(&ONE, Reporting::Total);
    cluster.ask_for(40, &ONE);
    cluster.run(50);
    cluster.assert_all_room_is_used();
    cluster.run(300);
    assert_eq!(cluster.running(), 30);
    assert!(
        cluster.failed_calls > 0,
        "no pod waits for ever for a report that does not come"
    );
}

#[test]
fn room_that_was_given_back_is_used_after_the_next_report() {
    let mut cluster = Cluster::new(&ONE, Reporting::Left);
    cluster.ask_for(40, &ONE);
    cluster.run(20);
    cluster.assert_all_room_is_used();
    // A user deletes three volumes with their claims and pods.
    let placed = cluster.api.all(Kind::Pod);
    let placed = placed.filter(|(_, pod)| pod["spec"]["nodeName"].is_string());
    let gone: Vec<(String, String)> = placed
        .map(|(name, pod)| (name, pod["spec"]["nodeName"].as_str().expect("it has one").to_owned()))
        .take(3)
        .collect();
    let mut left = cluster.left.last().expect("seconds").clone();
    for (name, node) in &gone {
        cluster.api.delete(Kind::Pod, name);
        cluster.api.delete(Kind::PersistentVolumeClaim, name);
        cluster
            .api
            .delete(Kind::PersistentVolume, &format!("pvc-{}", &name["default/".len()..]));
        *left.get_mut(node.as_str()).expect("it is there") += 1;
    }
    cluster.left.push(left);
    cluster.run(20);
    cluster.assert_all_room_is_used();
}
