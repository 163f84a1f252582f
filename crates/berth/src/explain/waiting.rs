//! Why a pod that fits waits anyway: which component should act, and the evidence that it does not.

mod tried;

use super::cause::Cause;
use super::evidence::{Event, ago, lasting};
use super::held;
use super::layout::{count, names};
use super::played::Place;
use super::report::{ClaimReport, Report};
use super::world::World;
use berth_core::api;
use berth_core::names::{NO_PROVISIONER, PROVISIONED_BY};
use jiff::Timestamp;
use serde::Serialize;

/// Maximum number of names listed.
const NAMES_SHOWN: usize = 3;
/// A provisioner that has reported progress on a volume for this long without a result counts as silent, in seconds.
const PATIENCE: i64 = 300;

/// Why a pod has no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The cause.
    pub code: Cause,
    /// The cause as text that follows the name of the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The evidence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The scheduler tries the pod again within this time, in seconds, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_within_seconds: Option<i64>,
}

impl Waiting {
    pub(super) fn new(code: Cause, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            evidence: Vec::new(),
            retry_within_seconds: None,
        }
    }

    pub(super) fn with(self, evidence: impl IntoIterator<Item = String>) -> Self {
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
    let found = found.or_else(|| held::of_pod(world, pod, report));
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
            .or_else(|| asked.after_others())
            .unwrap_or_else(|| {
                let unused = held::of_unused(world, pod, report);
                Waiting::new(Cause::PodUnschedulable, unused.unwrap_or_default())
            });
    }
    let found = provisioned
        .or_else(|| asked.timed_out())
        .or_else(|| asked.others_first())
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

    /// How long ago it was, in seconds, if both times are known.
    fn age(&self, then: Option<Timestamp>) -> Option<i64> {
        Some(self.world.now?.as_second() - then?.as_second())
    }

    /// How long ago the pod was created, in seconds.
    fn pod_age(&self) -> Option<i64> {
        let created = self.pod.metadata.creation_timestamp.as_deref()?;
        self.age(created.parse().ok())
    }

    fn since(&self, time: Option<&str>) -> String {
        let age = self.age(time.and_then(|time| time.parse().ok()));
        age.map_or(String::new(), |age| format!(" for {}", lasting(age)))
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
        let text = |silent: &str| {
            format!(
                "waits{lasting} for {provisioner}{silent} to provision claim {}{on}",
                claim.claim
            )
        };
        // Without events it is unknown whether the provisioner is active.
        if at_work || evidence.events.is_empty() {
            return Some(Waiting::new(Cause::PodProvisioning, text("")));
        }
        let text = text(", which does not respond,");
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

    /// It fits, but gets no place: other waiting pods need it, or its volumes cannot be provisioned.
    fn others_first(&self) -> Option<Waiting> {
        let turns = self.world.turns.as_ref()?;
        let own = self.pod.metadata.full_name();
        let left = turns.left(&own)?;
        let fitting = || self.report.nodes.iter().filter(|node| node.fits);
        let wants = |volume: &String| {
            let mut volumes = fitting().filter_map(|node| node.volumes.as_ref());
            volumes.any(|volumes| volumes.existing.values().any(|wanted| wanted == volume))
        };
        // Without nodes only whether it fits is known.
        let is_brief = self.report.nodes.is_empty();
        let namespace = &self.pod.metadata.namespace;
        // A claim that several pods use is bound where the first of them runs.
        let shared = |place: &Place| {
            let own = self.report.claims.iter().filter(|claim| claim.is_delayed());
            let mut own = own.map(|claim| format!("{namespace}/{}", claim.claim));
            own.find(|claim| place.claims.contains(claim))
        };
        let takes = |place: &Place| {
            let is_there = is_brief || fitting().any(|node| node.name == place.node);
            is_there || shared(place).is_some() || place.volumes.iter().any(wants)
        };
        let rivals: Vec<(&str, &Place)> = turns.others(&own).filter(|(_, place)| takes(place)).collect();
        let get = match rivals.as_slice() {
            [] if left.lacks_volumes => {
                let text = "fits, but its volumes cannot be provisioned";
                let said = Some(left.message.clone()).filter(|message| !message.is_empty());
                return Some(Waiting::new(Cause::PodProvisioningFailed, text).with(said));
            }
            // It had a node and lost it.
            [] => return None,
            [_] => "another pending pod gets",
            _ => "other pending pods get",
        };
        let priority = i64::from(self.pod.spec.priority.unwrap_or(0));
        let is_higher = !rivals.is_empty() && rivals.iter().all(|(_, place)| place.priority > priority);
        let why = if is_higher { " by priority" } else { "" };
        let told = rivals.iter().take(NAMES_SHOWN).map(|(name, place)| {
            if let Some(claim) = shared(place) {
                return format!("{name} gets claim {claim}, which both use, bound on {}", place.node);
            }
            let taken = place.volumes.iter().filter(|volume| wants(volume));
            match taken.map(String::as_str).collect::<Vec<_>>().as_slice() {
                [] => format!("{name} gets a place on {}", place.node),
                [volume] => format!("{name} gets volume {volume} on {}", place.node),
                volumes => format!("{name} gets volumes {} on {}", volumes.join(", "), place.node),
            }
        });
        let more = rivals.len().checked_sub(NAMES_SHOWN).filter(|more| *more > 0);
        let more = more.map(|more| format!("and {}", count(more, "more pod", "more pods")));
        let told: Vec<String> = told.chain(more).collect();
        Some(Waiting::new(Cause::PodOthersFirst, format!("fits, but {get} its place{why}")).with(told))
    }

    /// It fits nowhere yet, but will once other waiting pods have a node.
    fn after_others(&self) -> Option<Waiting> {
        let turns = self.world.turns.as_ref()?;
        let own = self.pod.metadata.full_name();
        let place = turns.place_of(&own)?;
        // Whether a component that has not acted yet will act is unknown.
        let is_ready = |claim: &ClaimReport| claim.is_delayed() || claim.code == Cause::ClaimBound;
        if !self.report.claims.iter().all(is_ready) {
            return None;
        }
        let others: Vec<&str> = turns.others(&own).map(|(name, _)| name).collect();
        let have = match others.as_slice() {
            [] => return None,
            [other] => format!("{other} has"),
            others => format!("{} have", names(others, NAMES_SHOWN)),
        };
        let text = format!("fits on no node yet, but on {} once {have} a node", place.node);
        Some(Waiting::new(Cause::PodAfterOthers, text))
    }
}
