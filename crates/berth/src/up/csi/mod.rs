//! CSI drivers next to the node agents: the kubelet's side of CSI.
//!
//! Each node's driver is registered once it responds. Before a pod starts, its volumes are staged and published; before
//! it is removed, they are unpublished, and unstaged if no other pod of the node uses them.
//!
//! ```text
//!   starts ──▶ Mounting ──▶ Mounted ──▶ Unpublishing ──▶ Unstaging ──▶ Gone ──▶ the pod is removed
//!                 │ ▲                        │  ▲
//!                 ▼ │ later                  ▼  │ later
//!               Refused                    Refused
//! ```
//!
//! `agent::csi_mounts` computes the parameters for the driver; here are the calls and their state, which the owner of
//! the view keeps. Calls run in tasks, so that a hanging driver delays only its own pods.

mod calls;
mod register;

use anyhow::Context;
use berth_cluster::agent::{self, CsiMount};
use berth_cluster::workloads::is_over;
use berth_cluster::{Step, View, field, key_of};
use berth_core::backoff::Backoff;
use berth_core::effect::{Effect, ObjectKey};
use berth_kube::api::Api;
use berth_kube::backoff::jittered;
use berth_provisioner::csi::NodeClient;
use calls::Call;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// The backoff for a driver that refused, as in kubelets.
const PATIENCE: Backoff = Backoff {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(122),
};

/// Where volumes are published: a directory for each node.
pub(super) struct Root {
    path: PathBuf,
    _own: Option<TempDir>,
}

impl Root {
    /// Next to the data, or in a directory that is removed with the process.
    pub(super) fn new(data_dir: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(directory) = data_dir {
            let path = std::path::absolute(directory)?.join("nodes");
            return Ok(Self { path, _own: None });
        }
        let own = tempfile::Builder::new().prefix("berth-nodes-").tempdir();
        let own = own.context("cannot make a directory for the volumes of pods")?;
        Ok(Self {
            path: own.path().to_owned(),
            _own: Some(own),
        })
    }
}

/// The result of a task.
enum Finished {
    /// A driver responded on a node, and is registered there.
    Registered(String, NodeClient),
    /// The calls for a pod were made, or one was refused.
    Called(String, Result<(), String>),
}

#[derive(Debug, PartialEq)]
enum State {
    Mounting,
    Mounted,
    Unpublishing,
    Unstaging,
    Gone,
    /// A call was refused; the pod is not processed again before then.
    Refused {
        message: String,
        until: Timestamp,
    },
}

/// The volumes of one pod.
struct PodMounts {
    key: ObjectKey,
    node: String,
    mounts: Vec<CsiMount>,
    state: State,
    failures: u32,
    /// Some call was made, so the driver may hold something.
    asked: bool,
}

/// The drivers of all nodes, and the volumes of all pods.
pub(super) struct Drivers {
    api: Api,
    addresses: Vec<String>,
    root: Root,
    /// By node and name of the driver.
    clients: BTreeMap<(String, String), NodeClient>,
    /// Nodes whose drivers are being looked for, or known.
    nodes: Vec<String>,
    /// By uid.
    pods: BTreeMap<String, PodMounts>,
    tasks: JoinSet<Finished>,
}

/// What a driver's news affects.
pub(super) enum Concerned {
    /// A pod.
    Pod(ObjectKey),
    /// Every waiting pod: a new driver is available.
    AllWaiting,
    /// Nothing.
    Nobody,
}

impl Drivers {
    pub(super) fn new(api: Api, addresses: Vec<String>, root: Root) -> Self {
        Self {
            api,
            addresses,
            root,
            clients: BTreeMap::new(),
            nodes: Vec::new(),
            pods: BTreeMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Looks for the drivers of a node.
    pub(super) fn node_appeared(&mut self, node: &str) {
        if self.nodes.iter().any(|known| known == node) {
            return;
        }
        self.nodes.push(node.to_owned());
        for address in &self.addresses {
            let (api, node) = (self.api.clone(), node.to_owned());
            let address = address.replace("{node}", &node);
            self.tasks.spawn(async move {
                let client = register::register(&api, &node, &address).await;
                Finished::Registered(node, client)
            });
        }
    }

    /// A node was deleted: one with the same name is a different one.
    pub(super) fn node_gone(&mut self, node: &str) {
        self.nodes.retain(|known| known != node);
        self.clients.retain(|(of, _), _| of != node);
    }

    /// A pod is gone.
    pub(super) fn pod_gone(&mut self, pod: &Value) {
        self.pods.remove(field::uid(pod));
    }

    /// Waits for news from a driver. Cancel safe.
    pub(super) async fn next(&mut self) -> Concerned {
        let finished = match self.tasks.join_next().await {
            Some(Ok(finished)) => finished,
            // A call that panicked leaves its pod as it is.
            Some(Err(error)) => {
                tracing::error!(%error, "a call to a driver failed");
                return Concerned::Nobody;
            }
            None => std::future::pending().await,
        };
        match finished {
            Finished::Registered(node, client) => {
                self.clients.insert((node, client.identity().driver.clone()), client);
                Concerned::AllWaiting
            }
            Finished::Called(uid, result) => self.called(&uid, result),
        }
    }

    fn called(&mut self, uid: &str, result: Result<(), String>) -> Concerned {
        let Some(pod) = self.pods.get_mut(uid) else {
            return Concerned::Nobody;
        };
        let key = pod.key.clone();
        match (result, &pod.state) {
            (Err(message), _) => pod.refused(message, Timestamp::now()),
            (Ok(()), State::Mounting) => {
                pod.failures = 0;
                pod.state = State::Mounted;
            }
            (Ok(()), State::Unpublishing) => {
                pod.state = State::Unstaging;
                self.unstage(uid);
                return Concerned::Nobody;
            }
            (Ok(()), _) => pod.state = State::Gone,
        }
        Concerned::Pod(key)
    }

    /// Whether an agent's action on a pod must wait for a driver: then returns the step to do instead.
    pub(super) fn hold(&mut self, view: &dyn View, pod: &Value, step: &Step, now: Timestamp) -> Option<Step> {
        if step.effects.iter().any(starts) {
            return self.before_start(view, pod, now);
        }
        let removes = |effect: &Effect| matches!(effect, Effect::Delete(delete) if delete.target.key.kind == "Pod");
        if step.effects.iter().any(removes) {
            return self.before_removal(view, pod, now);
        }
        if is_over(pod) {
            // Nothing waits for it; a driver that refuses is called again before the pod is removed.
            let mounted = self.pods.get(field::uid(pod));
            if mounted.is_some_and(|mounted| mounted.state == State::Mounted) {
                self.unpublish(field::uid(pod), now);
            }
        }
        None
    }

    fn before_start(&mut self, view: &dyn View, pod: &Value, now: Timestamp) -> Option<Step> {
        match self.pods.get(field::uid(pod)).map(|known| &known.state) {
            Some(State::Mounted) => None,
            Some(State::Refused { message, until }) if now < *until => {
                let mut step = agent::mount_failed(view, pod, message, now);
                step.wake_at(*until);
                Some(step)
            }
            Some(State::Refused { .. }) | None => self.mount(view, pod, now),
            Some(State::Mounting | State::Unpublishing | State::Unstaging | State::Gone) => Some(Step::default()),
        }
    }

    fn mount(&mut self, view: &dyn View, pod: &Value, now: Timestamp) -> Option<Step> {
        let mounts = self.plan(view, pod)?;
        let uid = field::uid(pod).to_owned();
        let mut entry = PodMounts::new(pod, mounts);
        if let Some(known) = self.pods.get(&uid) {
            (entry.failures, entry.asked) = (known.failures, known.asked);
        }
        let calls = entry.mounts.iter().map(|mount| {
            let client = self.clients.get(&(entry.node.clone(), mount.driver.clone()));
            client
                .map(|client| Call::publish(client, mount))
                .ok_or_else(|| not_registered(mount))
        });
        match calls.collect::<Result<Vec<_>, _>>() {
            Ok(calls) => {
                entry.asked = true;
                self.pods.insert(uid.clone(), entry);
                self.call(uid, calls);
                Some(Step::default())
            }
            Err(message) => {
                entry.refused(message, now);
                self.pods.insert(uid, entry);
                self.before_start(view, pod, now)
            }
        }
    }

    /// The volumes of a pod that drivers must publish; `None` if there are none.
    fn plan(&self, view: &dyn View, pod: &Value) -> Option<Vec<CsiMount>> {
        let root = self.root.path.join(field::text(pod, "/spec/nodeName"));
        let mounts = agent::csi_mounts(view, pod, &root).ok()?;
        (!mounts.is_empty()).then_some(mounts)
    }

    fn before_removal(&mut self, view: &dyn View, pod: &Value, now: Timestamp) -> Option<Step> {
        let uid = field::uid(pod);
        if !self.pods.contains_key(uid) {
            if field::text(pod, "/status/phase") == "Pending" {
                return None;
            }
            // It was mounted before this process started.
            let mounts = self.plan(view, pod)?;
            let mut entry = PodMounts::new(pod, mounts);
            (entry.state, entry.asked) = (State::Mounted, true);
            self.pods.insert(uid.to_owned(), entry);
        }
        let known = self.pods.get(uid).filter(|known| known.asked);
        match known.map(|known| &known.state) {
            Some(State::Gone) | None => None,
            Some(State::Refused { until, .. }) if now < *until => {
                let mut step = Step::default();
                step.wake_at(*until);
                Some(step)
            }
            Some(State::Mounting | State::Unpublishing | State::Unstaging) => Some(Step::default()),
            Some(State::Mounted | State::Refused { .. }) => {
                self.unpublish(uid, now);
                self.pods.get(uid).map(|entry| {
                    let mut step = Step::default();
                    if let State::Refused { until, .. } = entry.state {
                        step.wake_at(until);
                    }
                    step
                })
            }
        }
    }

    fn unpublish(&mut self, uid: &str, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let calls = entry.mounts.iter().map(|mount| {
            let client = self.clients.get(&(entry.node.clone(), mount.driver.clone()));
            client
                .map(|client| Call::unpublish(client, mount))
                .ok_or_else(|| not_registered(mount))
        });
        match calls.collect::<Result<Vec<_>, _>>() {
            Ok(calls) => {
                entry.state = State::Unpublishing;
                self.call(uid.to_owned(), calls);
            }
            Err(message) => entry.refused(message, now),
        }
    }

    /// Unstages the volumes of a pod that no other pod of its node uses.
    fn unstage(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let used_elsewhere = |mount: &CsiMount| {
            let mut others = self.pods.iter().filter(|(other, one)| {
                *other != uid && one.node == entry.node && !matches!(one.state, State::Unstaging | State::Gone)
            });
            others.any(|(_, one)| {
                let mut mounts = one.mounts.iter();
                mounts.any(|other| other.driver == mount.driver && other.volume.handle == mount.volume.handle)
            })
        };
        let calls = entry
            .mounts
            .iter()
            .filter(|mount| !used_elsewhere(mount))
            .filter_map(|mount| {
                let client = self.clients.get(&(entry.node.clone(), mount.driver.clone()))?;
                Some(Call::unstage(client, mount))
            });
        let calls: Vec<Call> = calls.collect();
        self.call(uid.to_owned(), calls);
    }

    fn call(&mut self, uid: String, calls: Vec<Call>) {
        let api = self.api.clone();
        self.tasks.spawn(async move {
            for call in calls {
                if let Err(problem) = call.make(&api).await {
                    return Finished::Called(uid, Err(problem));
                }
            }
            Finished::Called(uid, Ok(()))
        });
    }
}

impl PodMounts {
    fn new(pod: &Value, mounts: Vec<CsiMount>) -> Self {
        Self {
            key: key_of(pod),
            node: field::text(pod, "/spec/nodeName").to_owned(),
            mounts,
            state: State::Mounting,
            failures: 0,
            asked: false,
        }
    }

    fn refused(&mut self, message: String, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let delay = SignedDuration::try_from(jittered(PATIENCE, self.failures)).unwrap_or_default();
        tracing::info!(pod = ?self.key, message, "a driver returned an error, retrying later");
        self.state = State::Refused {
            message,
            until: now.checked_add(delay).unwrap_or(now),
        };
    }
}

/// Whether an effect reports that a pod has started.
fn starts(effect: &Effect) -> bool {
    match effect {
        Effect::Patch(patch) => {
            patch.target.key.kind == "Pod" && field::text(&patch.body, "/status/phase") == "Running"
        }
        _ => false,
    }
}

fn not_registered(mount: &CsiMount) -> String {
    format!(
        "MountVolume.SetUp failed for volume {:?} : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver \
         name {} not found in the list of registered CSI drivers",
        mount.volume_name, mount.driver
    )
}
