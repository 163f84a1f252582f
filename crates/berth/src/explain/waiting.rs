//! Why a pod that fits waits anyway: which component should act, and the evidence that it does not.

use super::cause::Cause;
use super::evidence::{Event, Lease, ago};
use super::layout::{count, names};
use super::report::{ClaimReport, Report};
use super::world::World;
use berth_core::api;
use berth_core::names::{NO_PROVISIONER, PROVISIONED_BY};
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use jiff::Timestamp;
use serde::Serialize;

/// Maximum number of names listed.
const NAMES_SHOWN: usize = 3;
/// A component that has written an event this recently is active, in seconds.
const RECENT: i64 = 3600;
/// A provisioner that has reported progress on a volume for this long without a result counts as silent, in seconds.
const PATIENCE: i64 = 300;

/// Why a pod has no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The cause.
    pub code: Cause,
    /// The cause as text that follows the name of the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

impl Waiting {
    fn new(code: Cause, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            evidence: Vec::new(),
        }
    }

    fn with(self, evidence: impl IntoIterator<Item = String>) -> Self {
        Self {
            evidence: evidence.into_iter().collect(),
            ..self
        }
    }

    /// Whether the pod waits for a reason other than room, which may never resolve on its own.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.code.keeps_pods()
    }
}

/// Finds out why a pod waits.
pub(super) fn why(world: &World, pod: &api::Pod, report: &Report) -> Waiting {
    let asked = Asked { world, pod, report };
    let found = asked.deleting().or_else(|| asked.has_node());
    if let Some(found) = found {
        return found;
    }
    if !asked.is_pending() {
        // It was started, and is explained as if it were to be scheduled again: it does not wait.
        let code = if report.schedulable {
            Cause::PodFits
        } else {
            Cause::PodUnschedulable
        };
        return Waiting::new(code, "");
    }
    let found = asked.gated().or_else(|| asked.nominated()).or_else(|| asked.unserved());
    if let Some(found) = found {
        return found;
    }
    if report.preemption.is_some() {
        return Waiting::new(Cause::PodNeedsEviction, "");
    }
    let provisioned = report.claims.iter().find_map(|claim| asked.provisioner(claim));
    if !report.schedulable {
        // No node accepts a pod with a claim that its provisioner does not serve.
        let is_kept = |waiting: &Waiting| waiting.is_kept();
        return provisioned
            .filter(is_kept)
            .unwrap_or_else(|| Waiting::new(Cause::PodUnschedulable, ""));
    }
    let found = provisioned
        .or_else(|| asked.timed_out())
        .or_else(|| asked.named())
        .or_else(|| asked.refused_before())
        .or_else(|| asked.not_looked_at());
    found.unwrap_or_else(|| Waiting::new(Cause::PodFits, ""))
}

/// Finds out why a claim of a pod waits, if it waits for its provisioner.
pub(super) fn of_claim(world: &World, pod: &api::Pod, claim: &ClaimReport) -> Option<Waiting> {
    let report = Report::default();
    let asked = Asked {
        world,
        pod,
        report: &report,
    };
    asked.provisioner(claim)
}

struct Asked<'a> {
    world: &'a World,
    pod: &'a api::Pod,
    report: &'a Report,
}

impl Asked<'_> {
    fn ago(&self, then: Timestamp) -> String {
        ago(self.now(), then)
    }

    /// The current time. If it is unknown, there is no evidence to compare it with.
    fn now(&self) -> Timestamp {
        self.world.now.unwrap_or_default()
    }

    fn since(&self, time: Option<&str>) -> String {
        let then = time
            .and_then(|time| time.parse().ok())
            .filter(|_| self.world.now.is_some());
        then.map_or(String::new(), |then| format!(" for {}", self.ago(then)))
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.world.evidence.about("Pod", &self.pod.metadata)
    }

    fn deleting(&self) -> Option<Waiting> {
        let deleted = self.pod.metadata.deletion_timestamp.as_deref()?;
        let text = format!("{}: schedulers ignore it", self.terminating(Some(deleted)));
        let finalizers = &self.pod.metadata.finalizers;
        let held = (!finalizers.is_empty()).then(|| format!("finalizers: {}", finalizers.join(", ")));
        Some(Waiting::new(Cause::PodDeleting, text).with(held))
    }

    /// `has been terminating for 2 min`.
    fn terminating(&self, since: Option<&str>) -> String {
        match self.since(since).as_str() {
            "" => "is terminating".to_owned(),
            since => format!("has been terminating{since}"),
        }
    }

    fn is_pending(&self) -> bool {
        matches!(self.pod.status.phase.as_str(), "" | "Pending")
    }

    fn has_node(&self) -> Option<Waiting> {
        let known = self.world.objects.pods.get(&self.pod.metadata.full_name());
        let node = known.map_or(&self.pod.spec.node_name, |pod| &pod.spec.node_name);
        (self.is_pending() && !node.is_empty()).then(|| {
            let text = match self.world.objects.nodes.contains_key(node) {
                true => format!("has node {node}: its kubelet has to start it (see kubectl describe pod)"),
                false => format!("has node {node}, which does not exist: no kubelet starts it"),
            };
            Waiting::new(Cause::PodHasNode, text)
        })
    }

    fn gated(&self) -> Option<Waiting> {
        let gates: Vec<&str> = self
            .pod
            .spec
            .scheduling_gates
            .iter()
            .map(|gate| gate.name.as_str())
            .collect();
        (!gates.is_empty()).then(|| {
            let text = format!(
                "has scheduling gates ({}): it is not scheduled until they are removed",
                gates.join(", ")
            );
            Waiting::new(Cause::PodGated, text)
        })
    }

    /// A node is nominated for the pod, and the pods evicted for it still exist.
    fn nominated(&self) -> Option<Waiting> {
        let node = &self.pod.status.nominated_node_name;
        if node.is_empty() {
            return None;
        }
        let pods = self.world.objects.pods.values();
        let victims = pods.filter(|pod| pod.spec.node_name == *node && pod.metadata.is_deleting());
        let victims: Vec<String> = victims
            .map(|pod| {
                let name = pod.metadata.full_name();
                let terminating = self.terminating(pod.metadata.deletion_timestamp.as_deref());
                match pod.metadata.finalizers.as_slice() {
                    [] => format!("{name} {terminating}"),
                    held => format!("{name} {terminating}, held by finalizers {}", held.join(", ")),
                }
            })
            .collect();
        if victims.is_empty() {
            return None;
        }
        let pods = count(victims.len(), "preempted pod", "preempted pods");
        let text = format!("is nominated to node {node} and waits for {pods} to terminate there");
        Some(Waiting::new(Cause::PodNominated, text).with(victims))
    }

    /// A node is nominated for the pod, and no other obstacle is known.
    fn named(&self) -> Option<Waiting> {
        let node = &self.pod.status.nominated_node_name;
        (!node.is_empty()).then(|| {
            let text = format!("is nominated to node {node} and waits for its turn");
            Waiting::new(Cause::PodNominated, text)
        })
    }

    /// No scheduler serves the pod's `schedulerName`. Without leases this is unknown.
    fn unserved(&self) -> Option<Waiting> {
        let name = self.pod.spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
        let name = name.unwrap_or(DEFAULT_SCHEDULER_NAME);
        let evidence = &self.world.evidence;
        if evidence.leases.is_empty() || self.was_looked_at() {
            return None;
        }
        let own = [name.to_owned(), format!("berth-scheduler.{name}")];
        let usual = ["kube-scheduler", "berth-scheduler"];
        let serves = |lease: &&Lease| {
            own.contains(&lease.name) || (name == DEFAULT_SCHEDULER_NAME && usual.contains(&lease.name.as_str()))
        };
        let now = self.now();
        let is_recent = |event: &Event| {
            let last = event.last.map(|last| now.as_second() - last.as_second());
            event.is_of(name) && last.is_some_and(|age| age < RECENT)
        };
        let leases = || evidence.leases.iter();
        let placed = self.world.objects.pods.values().any(|pod| {
            let theirs = pod.spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
            let later = pod.metadata.creation_timestamp >= self.pod.metadata.creation_timestamp;
            theirs.unwrap_or(DEFAULT_SCHEDULER_NAME) == name && !pod.spec.node_name.is_empty() && later
        });
        // A scheduler of Berth does not announce its profiles.
        let maybe = leases().any(|lease| lease.announces_scheduler && lease.is_held(now) && !serves(&lease));
        let served = leases().filter(serves).any(|lease| lease.is_held(now));
        if served || maybe || placed || evidence.events.iter().any(is_recent) {
            return None;
        }
        let text = format!(
            "waits{} for scheduler {name:?}, which does not respond: it holds no lease and wrote no event in the last hour",
            self.since(self.pod.metadata.creation_timestamp.as_deref())
        );
        let told = leases().filter(serves).map(|lease| {
            let renewed = lease.renewed.map_or("never renewed".to_owned(), |renewed| {
                format!("last renewed {} ago", self.ago(renewed))
            });
            format!(
                "lease {}/{} of {}: {renewed}",
                lease.namespace, lease.name, lease.holder
            )
        });
        Some(Waiting::new(Cause::PodSchedulerAbsent, text).with(told))
    }

    /// Whether a scheduler has reported anything about the pod.
    fn was_looked_at(&self) -> bool {
        let mut conditions = self.pod.status.conditions.iter();
        let refused = conditions.any(|condition| condition.kind == "PodScheduled" && condition.status == "False");
        let selected = self.report.claims.iter().any(|claim| claim.selected_node().is_some());
        refused || selected || self.events().any(|event| event.reason == "FailedScheduling")
    }

    /// A claim waits for its provisioner.
    fn provisioner(&self, claim: &ClaimReport) -> Option<Waiting> {
        let class = self.world.objects.classes.get(claim.class.as_deref()?)?;
        let provisioner = class.provisioner.as_str();
        if provisioner == NO_PROVISIONER {
            return None;
        }
        let evidence = &self.world.evidence;
        let namespace = &self.pod.metadata.namespace;
        let object = self.world.objects.claims.get(&format!("{namespace}/{}", claim.claim))?;
        let is_unbound = claim.code == Cause::ClaimWaitsForProvisioner || claim.is_delayed();
        let latest = evidence.latest_of_provisioner(&object.metadata, class);
        if let Some(event) = latest.filter(|event| is_unbound && event.is_failed_provisioning()) {
            let (name, times) = (&claim.claim, event.times(self.now()));
            let text = format!("waits for a volume: {provisioner} failed to provision claim {name}{times}");
            let said = format!("it says: {}", event.message);
            let gave_up = claim.is_delayed() && claim.selected_node().is_none();
            let cleared =
                gave_up.then(|| "it cleared the selected node; the scheduler selects a node again".to_owned());
            let told = [said].into_iter().chain(cleared);
            return Some(Waiting::new(Cause::PodProvisioningFailed, text).with(told));
        }
        let waits =
            claim.code == Cause::ClaimWaitsForProvisioner || (claim.is_delayed() && claim.selected_node().is_some());
        if !waits {
            return None;
        }
        let age = |time: Option<Timestamp>| time.map(|time| self.now().as_second() - time.as_second());
        let at_work = latest.is_some_and(|event| age(event.last).is_none_or(|age| age < PATIENCE));
        let about = evidence.about("PersistentVolumeClaim", &object.metadata);
        let asked = about.filter_map(|event| event.first).min();
        let created = object.metadata.creation_timestamp.as_deref();
        let created = created.and_then(|created| created.parse().ok());
        let created = created.filter(|_| self.world.now.is_some());
        let since = asked.or(created);
        let on = claim
            .selected_node()
            .map_or(String::new(), |node| format!(" on node {node}"));
        let lasting = since.map_or(String::new(), |since| format!(" for {}", self.ago(since)));
        let text = format!(
            "waits{lasting} for {provisioner} to provision claim {}{on}",
            claim.claim
        );
        // Without events it is unknown whether the provisioner is active.
        if at_work || evidence.events.is_empty() {
            return Some(Waiting::new(Cause::PodProvisioning, text));
        }
        let heard = evidence.events.iter().filter(|event| event.is_of(provisioner));
        let heard = heard.filter_map(|event| event.last).max();
        let silent = match heard {
            Some(last) => format!(
                "no provisioner of that name has written an event for {}",
                self.ago(last)
            ),
            None => "no provisioner of that name has written any event".to_owned(),
        };
        Some(Waiting::new(Cause::PodProvisionerSilent, text).with([silent].into_iter().chain(self.traces(provisioner))))
    }

    /// Further evidence of a provisioner.
    fn traces(&self, provisioner: &str) -> Vec<String> {
        let objects = &self.world.objects;
        let mut told = Vec::new();
        told.push(match objects.drivers.contains_key(provisioner) {
            true => format!("CSIDriver {provisioner} exists"),
            false => format!("there is no CSIDriver {provisioner}"),
        });
        let has = |node: &&api::CsiNode| node.spec.drivers.iter().any(|driver| driver.name == provisioner);
        let nodes: Vec<&str> = objects
            .csi_nodes
            .values()
            .filter(has)
            .map(|node| node.metadata.name.as_str())
            .collect();
        told.push(match nodes.len() {
            0 => "no CSINode lists the driver".to_owned(),
            some => format!(
                "the driver is on {}: {}",
                count(some, "node", "nodes"),
                names(&nodes, NAMES_SHOWN)
            ),
        });
        let made = objects.volumes.values().filter(|volume| {
            let by = volume.metadata.annotations.get(PROVISIONED_BY);
            by.is_some_and(|by| by == provisioner)
        });
        let last = made.filter_map(|volume| volume.metadata.creation_timestamp.as_deref()?.parse::<Timestamp>().ok());
        told.push(match last.max() {
            Some(last) => format!("it provisioned its last volume {} ago", self.ago(last)),
            None => "none of the volumes was provisioned by it".to_owned(),
        });
        let runs = |pod: &&api::Pod| {
            let mut containers = pod.spec.containers.iter();
            containers
                .any(|container| container.name.contains("provisioner") || container.image.contains("provisioner"))
        };
        let pods: Vec<String> = objects
            .pods
            .values()
            .filter(runs)
            .map(|pod| {
                let phase = if pod.status.phase.is_empty() {
                    "no phase"
                } else {
                    pod.status.phase.as_str()
                };
                format!("{} ({phase})", pod.metadata.full_name())
            })
            .collect();
        told.push(match pods.as_slice() {
            [] => "no pod runs a container named provisioner".to_owned(),
            pods => format!("pods with a provisioner: {}", names(pods, NAMES_SHOWN)),
        });
        told
    }

    /// Binding the volumes took too long, maybe more than once.
    fn timed_out(&self) -> Option<Waiting> {
        let words = |event: &&Event| {
            let message = &event.message;
            let late = message.contains("timed out") || message.contains("deadline exceeded");
            event.reason == "FailedScheduling" && message.contains("binding volumes") && late
        };
        let found: Vec<&Event> = self.events().filter(words).collect();
        let last = found.iter().filter_map(|event| event.last).max();
        let times: u64 = found.iter().map(|event| event.count).sum();
        let last = last.map_or(String::new(), |last| format!(", last {} ago", self.ago(last)));
        let message = &found.first()?.message;
        let times = if times == 1 {
            "once".to_owned()
        } else {
            format!("{times} times")
        };
        let text = format!("got a node, but its volumes were not bound in time: {times}{last}");
        Some(Waiting::new(Cause::PodBindingTimedOut, text).with([format!("the scheduler says: {message}")]))
    }

    /// The scheduler refused it, and will retry.
    fn refused_before(&self) -> Option<Waiting> {
        let refusals = self.events().filter(|event| event.reason == "FailedScheduling");
        let last = refusals.max_by_key(|event| event.last);
        let mut conditions = self.pod.status.conditions.iter();
        let condition = conditions.find(|one| one.kind == "PodScheduled" && one.status == "False");
        let (message, when) = match (last, condition) {
            (Some(event), _) => (event.message.as_str(), event.last),
            (None, Some(condition)) => (condition.message.as_str(), None),
            (None, None) => return None,
        };
        let when = when.map_or(String::new(), |when| format!(" {} ago", self.ago(when)));
        let text =
            format!("was refused{when} but fits now: the scheduler retries within 5 min, or when something changes");
        let told = (!message.is_empty()).then(|| format!("the scheduler said: {message}"));
        Some(Waiting::new(Cause::PodRefusedBefore, text).with(told))
    }

    /// No scheduler has processed it. Nothing can be said about a pod that no API server has stored.
    fn not_looked_at(&self) -> Option<Waiting> {
        let created = self.pod.metadata.creation_timestamp.as_deref()?;
        let since = self.since(Some(created));
        if !self.report.schedulable || !matches!(self.pod.status.phase.as_str(), "" | "Pending") {
            return None;
        }
        let text = format!("waits{since}; no scheduler has tried it yet");
        Some(Waiting::new(Cause::PodNotLookedAt, text))
    }
}
