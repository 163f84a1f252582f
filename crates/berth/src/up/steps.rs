//! Runs the workload controllers and node agents against an API server.
//!
//! One task owns the view. Watches bring news to it, news and time bring work, and the effects of each piece of work
//! are carried out before the next one is looked at: so a step always sees what was written before it.

use super::carry::{Carrier, resources};
use super::clock::Clock;
use super::components::{Chosen, Component};
use super::csi::{Concerned, Drivers};
use super::{FIELD_MANAGER, Parts};
use berth_cluster::agent::{self, Mode};
use berth_cluster::names::NODE_LEASES;
use berth_cluster::workloads::{self, Workloads};
use berth_cluster::{Objects, Step, View, disruption, field, key_for, key_of, lifecycle};
use berth_core::effect::{Effect, ObjectKey, Refusal};
use berth_kube::api::Api;
use berth_kube::backoff::Backoff;
use berth_kube::resource::{Resource, Whole};
use berth_kube::watch::{Change, Difference, Sink, watch_resource};
use berth_kube::{CancellationToken, Client};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Differences that may wait; watches wait when it is full.
const CAPACITY: usize = 64;

/// How long a volume may take to be ready before the user hears of it: the phase of a claim is written a moment after
/// the claim is bound, and kubelets look again before they say anything.
const MOUNT_PATIENCE: jiff::SignedDuration = jiff::SignedDuration::from_millis(500);

/// Something to look after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// A workload. Before nodes and pods, because those are the end of the way.
    Workload(ObjectKey),
    /// A disruption budget.
    Budget(ObjectKey),
    /// A node, its lease and its pods.
    Node(String),
    /// One pod of a node.
    Pod(ObjectKey),
}

/// What a watch brings.
struct News {
    resource: Resource,
    difference: Difference<Whole>,
}

struct Forward {
    resource: Resource,
    sender: mpsc::Sender<News>,
}

impl Sink<Whole> for Forward {
    async fn take(&mut self, difference: Difference<Whole>) -> bool {
        let resource = self.resource;
        self.sender.send(News { resource, difference }).await.is_ok()
    }
}

/// Starts the chosen ones.
pub(super) fn start(
    client: &Client,
    chosen: &Chosen,
    drivers: Option<Drivers>,
    cancel: &CancellationToken,
    parts: &mut Parts,
) {
    let (workloads, agents) = (chosen.has(Component::Controller), chosen.has(Component::Nodes));
    if !workloads && !agents {
        return;
    }
    let api = Api::new(client.clone(), FIELD_MANAGER);
    let (sender, inbox) = mpsc::channel(CAPACITY);
    let mut watches = JoinSet::new();
    for resource in resources() {
        let forward = Forward {
            resource,
            sender: sender.clone(),
        };
        watches.spawn(watch_resource(api.clone(), resource, forward, cancel.clone()));
    }
    let owner = Owner {
        carrier: Carrier::new(api, cancel.clone()),
        view: Objects::default(),
        // Names need not be the same in every run of a live cluster.
        workloads: workloads.then(|| Workloads::new(Timestamp::now().as_nanosecond() as u64)),
        agents: agents.then(|| agent::Settings {
            heartbeats: true,
            ..agent::Settings::default()
        }),
        drivers: drivers.filter(|_| agents),
        inbox,
        listed: BTreeSet::new(),
        work: BTreeSet::new(),
        later: BTreeSet::new(),
        failures: BTreeMap::new(),
        waiting_pods: BTreeMap::new(),
        modes: BTreeMap::new(),
        clock: Clock::start(),
    };
    let cancel = cancel.clone();
    parts.spawn(async move {
        owner.run(cancel).await;
        while watches.join_next().await.is_some() {}
        Ok(())
    });
}

struct Owner {
    carrier: Carrier,
    view: Objects,
    workloads: Option<Workloads>,
    agents: Option<agent::Settings>,
    /// CSI drivers beside the agents.
    drivers: Option<Drivers>,
    inbox: mpsc::Receiver<News>,
    listed: BTreeSet<&'static str>,
    work: BTreeSet<Work>,
    later: BTreeSet<(Timestamp, Work)>,
    failures: BTreeMap<Work, u32>,
    /// Pods on nodes that do not run yet, since when: a claim or volume may be what they wait for.
    waiting_pods: BTreeMap<ObjectKey, Timestamp>,
    /// The last mode of each node's agent that was not the usual one.
    modes: BTreeMap<String, Mode>,
    clock: Clock,
}

impl Owner {
    async fn run(mut self, cancel: CancellationToken) {
        loop {
            self.bring_due();
            let ready = self.listed.len() == resources().len() && !self.work.is_empty();
            let wait = self.time_to_next();
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                news = self.inbox.recv() => match news {
                    Some(news) => self.take(news),
                    None => break,
                },
                concerned = news_of(&mut self.drivers) => self.hear(concerned),
                () = std::future::ready(()), if ready => self.work_on_one().await,
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() && !ready => {}
            }
        }
        self.carrier.finish().await;
    }

    fn bring_due(&mut self) {
        let now = self.clock.now();
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            if let Some((_, work)) = self.later.pop_first() {
                self.work.insert(work);
            }
        }
    }

    fn time_to_next(&self) -> Option<Duration> {
        let (at, _) = self.later.first()?;
        // A little late rather than a little early: a step that is run too early has nothing to do.
        let wait = Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default();
        Some(wait + Duration::from_millis(1))
    }

    fn take(&mut self, news: News) {
        let News { resource, difference } = news;
        for change in difference.changes {
            match change {
                Change::Applied(mut whole) => {
                    // Items of a list do not say what they are.
                    field::set(&mut whole.value, &["apiVersion"], json!(resource.api_version()));
                    field::set(&mut whole.value, &["kind"], json!(resource.kind));
                    self.view.insert(whole.value.clone());
                    self.concern(&whole.value);
                }
                Change::Removed((namespace, name)) => {
                    let key = key_for(resource.kind, &namespace, &name);
                    if let Some(gone) = self.view.remove(&key) {
                        self.concern(&gone);
                        self.forget(&gone);
                    }
                }
                Change::Broken { .. } => {}
            }
        }
        if difference.relisted {
            self.listed.insert(resource.plural);
        }
    }

    /// Takes in that a driver has done something, or is there.
    fn hear(&mut self, concerned: Concerned) {
        match concerned {
            Concerned::Pod(key) => {
                self.work.insert(Work::Pod(key));
            }
            Concerned::AllWaiting => self.work.extend(self.waiting_pods.keys().cloned().map(Work::Pod)),
            Concerned::Nobody => {}
        }
    }

    /// Finds whom an object concerns that came, changed or went.
    fn concern(&mut self, object: &Value) {
        if self.workloads.is_some() {
            let workloads = workloads::concerned(&self.view, object).into_iter();
            self.work.extend(workloads.map(Work::Workload));
            self.concern_budgets(object);
        }
        if self.agents.is_none() {
            return;
        }
        match field::kind(object) {
            "Node" => {
                if let Some(drivers) = &mut self.drivers {
                    drivers.node_appeared(field::name(object));
                }
                self.work.insert(Work::Node(field::name(object).to_owned()));
            }
            "Pod" if !field::text(object, "/spec/nodeName").is_empty() => {
                self.work.insert(Work::Pod(key_of(object)));
            }
            "Lease" if field::namespace(object) == NODE_LEASES => {
                self.work.insert(Work::Node(field::name(object).to_owned()));
            }
            "PersistentVolumeClaim" | "PersistentVolume" => {
                self.work.extend(self.waiting_pods.keys().cloned().map(Work::Pod));
            }
            _ => {}
        }
    }

    fn concern_budgets(&mut self, object: &Value) {
        match field::kind(object) {
            "PodDisruptionBudget" => {
                self.work.insert(Work::Budget(key_of(object)));
            }
            "Pod" => {
                let budgets = self.view.of_kind("PodDisruptionBudget");
                let budgets = budgets.filter(|budget| disruption::covers(budget, object)).map(key_of);
                let budgets: Vec<ObjectKey> = budgets.collect();
                self.work.extend(budgets.into_iter().map(Work::Budget));
            }
            _ => {}
        }
    }

    /// What goes with an object that is gone.
    fn forget(&mut self, gone: &Value) {
        match field::kind(gone) {
            "Pod" => {
                self.waiting_pods.remove(&key_of(gone));
                self.drivers.iter_mut().for_each(|drivers| drivers.pod_gone(gone));
            }
            "Node" if self.agents.is_some() => {
                self.drivers
                    .iter_mut()
                    .for_each(|drivers| drivers.node_gone(field::name(gone)));
                self.modes.remove(field::name(gone));
                let pods = self.view.pods_on(field::name(gone)).map(key_of);
                self.work.extend(pods.map(Work::Pod));
            }
            _ => {}
        }
    }

    async fn work_on_one(&mut self) {
        let Some(work) = self.work.pop_first() else {
            return;
        };
        let now = self.clock.now();
        let step = self.step(&work, now);
        if let Some(wake) = step.wake {
            self.later.insert((wake, work.clone()));
        }
        let (changed, result) = self.carrier.carry_out(&step.effects, &mut self.view).await;
        for object in changed {
            self.concern(&object);
        }
        match result {
            Ok(()) => {
                self.failures.remove(&work);
            }
            Err(refusal) => {
                let failures = self.failures.entry(work.clone()).or_default();
                *failures = failures.saturating_add(1);
                let delay = Backoff::EFFECT.jittered(*failures);
                if matches!(refusal, Refusal::Invalid { .. } | Refusal::Unavailable { .. }) {
                    tracing::warn!(?work, error = %refusal, ?delay, "a step failed, trying again");
                }
                let delay = jiff::SignedDuration::try_from(delay).unwrap_or_default();
                let at = now.checked_add(delay).unwrap_or(now);
                self.later.insert((at, work));
            }
        }
    }

    fn step(&mut self, work: &Work, now: Timestamp) -> Step {
        match (work, &mut self.workloads, &self.agents) {
            (Work::Workload(key), Some(workloads), _) => workloads.reconcile(&self.view, key, now),
            (Work::Budget(key), Some(_), _) => {
                let budget = self.view.get(&key.kind, &key.namespace, &key.name);
                let effect = budget.and_then(|budget| disruption::step(&self.view, budget, now));
                Step {
                    effects: effect.into_iter().collect(),
                    wake: None,
                }
            }
            (Work::Node(name), controllers, Some(settings)) => {
                let Some(node) = self.view.get("Node", "", name) else {
                    return Step::default();
                };
                let mode = Mode::of_node(node).unwrap_or_default();
                let mut step = agent::step(&self.view, name, mode, settings, now);
                let before = self.modes.insert(name.clone(), mode);
                if before == Some(Mode::Cordon) && mode != Mode::Cordon {
                    step.effects.push(agent::uncordon(node));
                }
                let silent = step.effects.is_empty();
                if self.drivers.is_some() {
                    // Pods may have to wait for a driver, each on its own.
                    step.effects.retain(|effect| !is_about_pod(effect));
                    let pods = self.view.pods_on(name).map(key_of);
                    self.work.extend(pods.map(Work::Pod));
                }
                // What the agent says comes first: a node that is back after a while is not lost once more.
                if controllers.is_some() && silent {
                    step.append(lifecycle::step(&self.view, name, now));
                }
                step
            }
            (Work::Pod(key), _, Some(settings)) => {
                let Some(pod) = self.view.get("Pod", &key.namespace, &key.name) else {
                    self.waiting_pods.remove(key);
                    return Step::default();
                };
                let node = self.view.get("Node", "", field::text(pod, "/spec/nodeName"));
                let mode = node.and_then(Mode::of_node).unwrap_or_default();
                let step = agent::pod_step(&self.view, pod, mode, settings, now);
                let drivers = self.drivers.as_mut();
                let held = drivers.and_then(|drivers| drivers.hold(&self.view, pod, &step, now));
                if field::text(pod, "/status/phase") != "Pending" {
                    self.waiting_pods.remove(key);
                    return held.unwrap_or(step);
                }
                let since = *self.waiting_pods.entry(key.clone()).or_insert(now);
                if let Some(held) = held {
                    return held;
                }
                let until = since.checked_add(MOUNT_PATIENCE).unwrap_or(now);
                if now < until && is_refused(&step) {
                    let mut later = Step::default();
                    later.wake_at(until);
                    return later;
                }
                step
            }
            _ => Step::default(),
        }
    }
}

/// Waits for news from a driver, for ever if there are none.
async fn news_of(drivers: &mut Option<Drivers>) -> Concerned {
    match drivers {
        Some(drivers) => drivers.next().await,
        None => std::future::pending().await,
    }
}

fn is_about_pod(effect: &Effect) -> bool {
    let kind = match effect {
        Effect::Create(object) => field::kind(object),
        Effect::Delete(delete) => &delete.target.key.kind,
        Effect::Patch(patch) => &patch.target.key.kind,
        Effect::Event(event) => &event.about.key.kind,
        Effect::Confirm(_) | Effect::Bind { .. } | Effect::LookAgain { .. } => "",
    };
    kind == "Pod"
}

/// Whether a step tells that a volume cannot be mounted.
fn is_refused(step: &Step) -> bool {
    let refused = |effect: &Effect| matches!(effect, Effect::Event(event) if event.reason == "FailedMount");
    step.effects.iter().any(refused)
}
