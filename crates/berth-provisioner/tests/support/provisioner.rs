//! The loop of a provisioner over the cluster in memory and a real driver.

use super::cluster::Cluster;
use super::faulty::{DriverProcess, nodes_with_room};
use berth_core::api::Object;
use berth_provisioner::answer::Answer;
use berth_provisioner::course::{Course, Ended, Next};
use berth_provisioner::csi::{Client, ClientSettings, NoSecrets};
use berth_provisioner::driver::{NAME, NODE_KEY};
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::request::Request;
use berth_provisioner::settings::Settings;
use berth_provisioner::source::Lookup;
use berth_provisioner::step::{Decision, step};
use berth_testing::{Carried, Manifest, class, csi_node, node};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

pub struct World {
    pub cluster: Cluster,
    pub driver: DriverProcess,
    pub settings: Settings,
    client: Client,
    /// The provisioner stops after this many more actions, as in a crash.
    pub crash_after: Option<usize>,
    _directory: TempDir,
}

impl World {
    /// Nodes `n0`, `n1`, ... with this much space each.
    pub async fn new(nodes: usize, bytes: i64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let driver = DriverProcess::start(directory.path(), nodes_with_room(nodes, bytes));
        let settings = ClientSettings {
            ready_timeout: Duration::from_secs(20),
            call_timeout: Duration::from_millis(250),
        };
        let client = Client::connect(&driver.address(), settings).await.unwrap();
        let deleted = |class: Value| class.with("/reclaimPolicy", "Delete");
        let mut cluster = Cluster::with(vec![
            deleted(class("dir", NAME)),
            deleted(class("now", NAME).immediate()),
        ]);
        for index in 0..nodes {
            let name = format!("n{index}");
            cluster.create(node(&name).label(NODE_KEY, &name));
            cluster.create(csi_node(&name, &[(NAME, &[NODE_KEY])]));
        }
        Self {
            cluster,
            driver,
            settings: Settings::csi(NAME),
            client,
            crash_after: None,
            _directory: directory,
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a course to its end, unless the provisioner crashes.
    pub async fn run(&mut self, mut course: Course, claim: &str) -> Option<Ended> {
        loop {
            match course.next() {
                Next::Write(effects) => {
                    let mut carried = Carried::default();
                    let mut refusal = None;
                    for effect in &effects {
                        self.live_on()?;
                        refusal = self.cluster.apply(effect, &mut carried).err();
                        if refusal.is_some() {
                            break;
                        }
                    }
                    let claim = || Some(Object::PersistentVolumeClaim(Box::new(self.cluster.claim(claim))));
                    course.written(refusal, claim);
                }
                Next::Ask(request) => {
                    let answer = self.ask(request).await;
                    course.answered(answer);
                }
                Next::Delete(backing) => {
                    self.live_on()?;
                    let deleted = self.client.delete(&backing, &NoSecrets).await;
                    course.deleted(deleted.map_err(|failure| format!("{failure:?}")));
                }
                Next::Find(volume) => course.found(self.cluster.state().volume(&volume.name)),
                Next::Look(lookup) => {
                    let found = match &lookup {
                        Lookup::One(key) => self.cluster.get(&key.kind, &key.name).cloned(),
                        Lookup::All { .. } => None,
                    };
                    course.looked(Ok(found));
                }
                Next::Expand(expansion) => panic!("{expansion:?}"),
                Next::Capacity(query) => {
                    let available = self.client.capacity(&query.parameters, Some(&query.item.segment)).await;
                    course.has_room(available.ok().as_ref());
                }
                Next::End(ended) => return Some(ended),
            }
        }
    }

    fn live_on(&mut self) -> Option<()> {
        match &mut self.crash_after {
            None => Some(()),
            Some(0) => None,
            Some(left) => {
                *left -= 1;
                Some(())
            }
        }
    }

    /// Asks the driver; if it dies meanwhile, it is restarted.
    async fn ask(&mut self, request: &Request) -> Answer {
        let (client, script) = (self.client.clone(), self.driver.script.clone());
        let asked = client.create(request, &NoSecrets);
        tokio::pin!(asked);
        loop {
            tokio::select! {
                answer = &mut asked => return answer,
                () = script.die.notified() => self.driver.restart(),
            }
        }
    }

    /// One pass over all claims and volumes.
    pub async fn provision(&mut self) {
        let state = self.cluster.state();
        for claim in state.claims() {
            let course = match step(claim, &state, &self.settings, Timestamp::UNIX_EPOCH) {
                Decision::Nothing(_) => continue,
                Decision::Act(conclusion) => Course::of_conclusion(conclusion),
                Decision::Bid(bid) => Course::of_bid(bid),
                Decision::Expand(expansion) => panic!("{expansion:?}"),
                Decision::Ask(attempt) => Course::of_attempt(attempt, None, self.settings.clone()),
            };
            self.run(course, &claim.metadata.name).await;
        }
        for volume in self.cluster.state().volumes() {
            if let Reclaim::Act(actions) = reclaim(volume, &state, &self.settings) {
                self.run(Course::of_reclaim(actions), "").await;
            }
        }
    }

    /// All components take turns, this many times.
    pub async fn rounds(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.cluster.control();
            self.cluster.schedule();
            self.provision().await;
            self.cluster.control();
        }
    }

    pub fn calls(&self) -> (usize, usize) {
        let script = &self.driver.script;
        (
            script.calls.load(Ordering::Relaxed),
            script.failed.load(Ordering::Relaxed),
        )
    }

    /// Every volume in the backend has exactly one object, and every object has its volume and its own claim.
    pub fn check_nothing_is_lost(&self) {
        let mut handles: Vec<String> = self
            .cluster
            .of_kind("PersistentVolume")
            .map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap().to_owned())
            .collect();
        handles.sort();
        assert_eq!(self.driver.volumes(), handles, "volumes of the backend against objects");
        let mut claims: Vec<&str> = self
            .cluster
            .of_kind("PersistentVolume")
            .map(super::cluster::claim_of)
            .collect();
        claims.sort_unstable();
        let count = claims.len();
        claims.dedup();
        assert_eq!(claims.len(), count, "a claim has two volumes");
        for claim in self.cluster.of_kind("PersistentVolumeClaim") {
            let left = claim["metadata"]["finalizers"].to_string();
            assert!(!left.contains("berth.dev"), "a record is left on {claim}");
        }
    }

    pub fn bound(&self) -> usize {
        let claims = self.cluster.of_kind("PersistentVolumeClaim");
        claims.filter(|claim| claim["spec"]["volumeName"].is_string()).count()
    }
}
