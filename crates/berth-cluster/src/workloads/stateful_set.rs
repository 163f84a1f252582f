//! StatefulSet: pods with their own names and claims, started in order and stopped in reverse.
//!
//! ```text
//!   ordinals   start ........ start+replicas ........ highest pod
//!              │ replicas: first missing one   │ condemned: last one
//!              │ is created, the rest waits    │ is deleted, the rest waits
//! ```
//!
//! With `podManagementPolicy: Parallel` pods do not wait for each other, except in a rolling update, which is always
//! one by one: the next outdated pod is replaced when those already replaced are available, whatever the state of the
//! outdated ones.

use super::BURST;
use super::claims::Claims;
use super::pods::{self, Availability};
use super::recreated::Recreated;
use super::revisions::{self, Revisions};
use crate::field;
use crate::names;
use crate::objects::{View, key_of};
use crate::status::Status;
use crate::step::Step;
use berth_core::effect::ObjectKey;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SOURCE: &str = "statefulset-controller";

/// The observed state of a StatefulSet.
struct Look<'a> {
    view: &'a dyn View,
    set: &'a Value,
    recreated: &'a Recreated,
    now: Timestamp,
    /// Its pods by ordinal, including condemned ones.
    pods: BTreeMap<i64, &'a Value>,
    /// From when on each of them is available.
    available: BTreeMap<i64, Availability>,
    start: i64,
    replicas: i64,
    is_ordered: bool,
    claims: Claims<'a>,
    revisions: Revisions<'a>,
}

pub(super) fn reconcile(view: &dyn View, set: &Value, recreated: &Recreated, now: Timestamp) -> Step {
    let look = Look::at(view, set, recreated, now);
    let mut step = Step::default();
    look.revisions.create(&mut step);
    // Before any pod is deleted, so that its claims get it as an owner.
    look.claims
        .retain_as_told(look.condemned().map(|(ordinal, pod)| (*ordinal, *pod)), &mut step);
    // A broken template must not keep a parallel set from getting a better one: only ordered pods wait.
    let goes_on = |is_settled: bool| is_settled || !look.is_ordered;
    if goes_on(look.start_missing(&mut step)) && goes_on(look.stop_condemned(&mut step)) {
        look.update_pods(&mut step);
    }
    look.write_status(&mut step);
    look.revisions.forget_old(look.pods.values().copied(), &mut step);
    step
}

/// The StatefulSets that need the name of an object for a pod or a claim. Such a name ends with the name of the set and
/// a number, so a few lookups find them among any number of sets. An existing claim that is not being deleted suits a
/// set in any state, unless the set wants claims to be deleted.
pub(super) fn wanting(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    let Some((base, _)) = field::name(object).rsplit_once('-') else {
        return Vec::new();
    };
    let stays = field::kind(object) == "PersistentVolumeClaim"
        && !field::is_deleting(object)
        && view
            .get(field::kind(object), field::namespace(object), field::name(object))
            .is_some();
    let endings = base.match_indices('-').map(|(at, _)| &base[at + 1..]);
    std::iter::once(base)
        .chain(endings)
        .filter_map(|name| view.get("StatefulSet", field::namespace(object), name))
        .filter(|set| wants_name(set, object))
        .filter(|set| !stays || Claims { view, set }.are_to_go())
        .map(key_of)
        .collect()
}

/// Whether an object has a name that a StatefulSet needs for a pod or a claim.
fn wants_name(set: &Value, object: &Value) -> bool {
    let name = field::name(object);
    match field::kind(object) {
        "Pod" => ordinal(field::name(set), name).is_some(),
        "PersistentVolumeClaim" => field::items(set, "/spec/volumeClaimTemplates").iter().any(|template| {
            let prefix = format!("{}-{}", field::name(template), field::name(set));
            ordinal(&prefix, name).is_some()
        }),
        _ => false,
    }
}

/// The number in `base-number`.
pub(super) fn ordinal(base: &str, name: &str) -> Option<i64> {
    let digits = name.strip_prefix(base)?.strip_prefix('-')?;
    let is_plain = digits == "0" || !digits.starts_with(['0', '+', '-']);
    digits
        .parse()
        .ok()
        .filter(|ordinal| is_plain && *ordinal <= i64::from(i32::MAX))
}

impl<'a> Look<'a> {
    fn at(view: &'a dyn View, set: &'a Value, recreated: &'a Recreated, now: Timestamp) -> Self {
        let selector = pods::Selector::of(set);
        let min_ready_seconds = field::count(set, "/spec/minReadySeconds").unwrap_or(0);
        let pods: BTreeMap<i64, &Value> = view
            .dependents(field::uid(set))
            .filter(|object| field::kind(object) == "Pod" && field::is_controlled_by(object, set))
            .filter(|pod| selector.selects(pod))
            .filter_map(|pod| Some((ordinal(field::name(set), field::name(pod))?, pod)))
            .collect();
        let availability = |pod: &Value| pods::availability(pod, min_ready_seconds, now);
        let available = pods.iter().map(|(ordinal, pod)| (*ordinal, availability(pod)));
        Self {
            view,
            set,
            recreated,
            now,
            available: available.collect(),
            pods,
            start: field::count(set, "/spec/ordinals/start").unwrap_or(0),
            replicas: field::count(set, "/spec/replicas").unwrap_or(1),
            is_ordered: field::text(set, "/spec/podManagementPolicy") != "Parallel",
            claims: Claims { view, set },
            revisions: Revisions::of(view, set, revisions::told(set)),
        }
    }

    fn end(&self) -> i64 {
        self.start + self.replicas
    }

    /// The surplus pods, lowest ordinal first.
    fn condemned(&self) -> impl DoubleEndedIterator<Item = (&i64, &&'a Value)> {
        let (start, end) = (self.start, self.end());
        self.pods
            .iter()
            .filter(move |(ordinal, _)| !(start..end).contains(*ordinal))
    }

    fn is_healthy(&self, pod: &Value) -> bool {
        !field::is_deleting(pod) && pods::is_ready(pod)
    }

    /// Creates missing pods and replaces finished ones. Returns true if every replica exists and is available.
    fn start_missing(&self, step: &mut Step) -> bool {
        let mut is_settled = true;
        let mut created = 0;
        for ordinal in self.start..self.end() {
            match self.pods.get(&ordinal) {
                None => {
                    is_settled = false;
                    created += 1;
                    self.create_pod(ordinal, step);
                }
                Some(pod) => is_settled &= self.keep_pod(ordinal, pod, step),
            }
            if (self.is_ordered && !is_settled) || created == BURST {
                return false;
            }
        }
        is_settled
    }

    /// Manages a pod that should exist. Returns true if the next one need not wait for it.
    fn keep_pod(&self, ordinal: i64, pod: &Value, step: &mut Step) -> bool {
        if field::is_deleting(pod) {
            return false;
        }
        if pods::is_over(pod) {
            if let Some(until) = self.recreated.waits_until(&key_of(pod), self.now) {
                step.wake_at(until);
                return false;
            }
            let (namespace, set, name) = (field::namespace(self.set), field::name(self.set), field::name(pod));
            let message = format!("StatefulSet {namespace}/{set} is recreating failed Pod {name}");
            step.warning(SOURCE, self.set, "RecreatingFailedPod", message);
            self.delete_pod(pod, step);
            return false;
        }
        if field::text(pod, "/spec/nodeName").is_empty() {
            self.claims.create_missing(ordinal, step);
        }
        match self.available(ordinal) {
            Availability::Now => true,
            Availability::From(then) => {
                step.wake_at(then);
                false
            }
            Availability::Never => false,
        }
    }

    fn available(&self, ordinal: i64) -> Availability {
        self.available.get(&ordinal).copied().unwrap_or(Availability::Never)
    }

    fn create_pod(&self, ordinal: i64, step: &mut Step) {
        let (namespace, set) = (field::namespace(self.set), field::name(self.set));
        let name = format!("{set}-{ordinal}");
        // A foreign pod with that name must be deleted first; its deletion triggers this again.
        if self.view.get("Pod", namespace, &name).is_some() || !self.claims.create_missing(ordinal, step) {
            return;
        }
        let (revision, template) = self.revisions.for_ordinal(ordinal, self.start);
        let mut pod = pods::template_pod(self.set, template);
        field::set(&mut pod, &["metadata", "name"], json!(name));
        field::set(&mut pod, &["metadata", "generateName"], json!(format!("{set}-")));
        let labels = [
            (names::POD_NAME, name.as_str()),
            (names::POD_INDEX, &ordinal.to_string()),
            (names::CONTROLLER_REVISION_HASH, revision),
        ];
        for (key, value) in labels {
            field::set(&mut pod, &["metadata", "labels", key], json!(value));
        }
        field::set(&mut pod, &["spec", "hostname"], json!(name));
        if let Some(service) = self.set["spec"]["serviceName"].as_str() {
            field::set(&mut pod, &["spec", "subdomain"], json!(service));
        }
        self.claims.mount(&mut pod, ordinal);
        let message = format!("create Pod {name} in StatefulSet {set} successful");
        step.create(pod);
        step.normal(SOURCE, self.set, "SuccessfulCreate", message);
    }

    fn delete_pod(&self, pod: &Value, step: &mut Step) {
        let message = format!(
            "delete Pod {} in StatefulSet {} successful",
            field::name(pod),
            field::name(self.set)
        );
        step.delete(pod);
        step.normal(SOURCE, self.set, "SuccessfulDelete", message);
    }

    /// Deletes surplus pods, highest ordinal first. Returns true if there are none.
    fn stop_condemned(&self, step: &mut Step) -> bool {
        if self.condemned().next().is_none() {
            return true;
        }
        let first_unhealthy = self
            .pods
            .iter()
            .find(|(_, pod)| !self.is_healthy(pod))
            .map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in self.condemned().rev().take(BURST) {
            let is_leaving = field::is_deleting(pod);
            // A pod that is about to become ready may still need the ones before it. The first unhealthy one need not
            // wait, nor one that has finished: it will never become ready.
            let waits = !self.is_healthy(pod) && !pods::is_over(pod) && first_unhealthy != Some(*ordinal);
            if !(is_leaving || self.is_ordered && waits) {
                self.delete_pod(pod, step);
            }
            if self.is_ordered {
                break;
            }
        }
        false
    }

    /// Replaces the last pod of an older template, one at a time and only while those after it are healthy.
    fn update_pods(&self, step: &mut Step) {
        if field::text(self.set, "/spec/updateStrategy/type") == "OnDelete" {
            return;
        }
        let first = self.start + self.revisions.partition();
        for ordinal in (first.min(self.end())..self.end()).rev() {
            // A missing pod is created with the latest template, and a finished one is replaced anyway: the update
            // goes on when the new one is available.
            let Some(pod) = self.pods.get(&ordinal).filter(|pod| !pods::is_over(pod)) else {
                return;
            };
            let is_old = field::label(pod, names::CONTROLLER_REVISION_HASH) != self.revisions.latest();
            if is_old && !field::is_deleting(pod) {
                return self.delete_pod(pod, step);
            }
            if self.available(ordinal) != Availability::Now {
                return;
            }
        }
    }

    fn write_status(&self, step: &mut Step) {
        let (latest, current) = (self.revisions.latest(), self.revisions.current());
        let mut counts = Counts::default();
        for (ordinal, pod) in &self.pods {
            counts.all += 1;
            match self.available(*ordinal) {
                Availability::Now => {
                    counts.available += 1;
                    counts.ready += 1;
                }
                Availability::From(then) => {
                    step.wake_at(then);
                    counts.ready += 1;
                }
                // A terminating pod is not available, but may be ready.
                Availability::Never => counts.ready += i64::from(pods::is_ready(pod)),
            }
            let revision = field::label(pod, names::CONTROLLER_REVISION_HASH);
            counts.current += i64::from(!field::is_deleting(pod) && revision == current);
            counts.updated += i64::from(!field::is_deleting(pod) && revision == latest);
        }
        // The update is complete when every replica has the latest template and is ready.
        let is_updated = [counts.all, counts.ready, counts.updated] == [self.replicas; 3];
        let (current, of_current) = match is_updated {
            true => (latest, counts.updated),
            false => (current, counts.current),
        };
        let mut status = Status::of(self.set, self.now);
        status.set("replicas", counts.all);
        status.count("readyReplicas", counts.ready);
        status.set("availableReplicas", counts.available);
        status.count("currentReplicas", of_current);
        status.count("updatedReplicas", counts.updated);
        status.set("currentRevision", current);
        status.set("updateRevision", latest);
        status.set("collisionCount", self.revisions.collisions());
        status.observe();
        step.effects.extend(status.effect());
    }
}

/// Number of pods by state.
#[derive(Default)]
struct Counts {
    all: i64,
    ready: i64,
    available: i64,
    current: i64,
    updated: i64,
}
