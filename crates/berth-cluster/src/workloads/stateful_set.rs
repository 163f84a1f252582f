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
use super::roster::{Member, Roster};
use crate::field;
use crate::names;
use crate::objects::{View, key_of};
use crate::status::Status;
use crate::step::Step;
use berth_core::effect::ObjectKey;
use jiff::Timestamp;
use serde_json::{Value, json};

const SOURCE: &str = "statefulset-controller";

/// The observed state of a StatefulSet.
struct Look<'a> {
    view: &'a dyn View,
    set: &'a Value,
    recreated: &'a Recreated,
    now: Timestamp,
    /// Its pods, including condemned ones.
    roster: &'a Roster,
    start: i64,
    replicas: i64,
    is_ordered: bool,
    claims: Claims<'a>,
    revisions: Revisions<'a>,
}

pub(super) fn reconcile(
    view: &dyn View,
    set: &Value,
    roster: &mut Roster,
    recreated: &Recreated,
    now: Timestamp,
) -> Step {
    let look = Look::at(view, set, roster, recreated, now);
    let mut step = Step::default();
    look.revisions.create(&mut step);
    // Before any pod is deleted, so that its claims get it as an owner.
    let condemned = look
        .condemned()
        .filter_map(|(ordinal, _)| Some((ordinal, look.pod(ordinal)?)));
    look.claims.retain_as_told(condemned, &mut step);
    // A broken template must not keep a parallel set from getting a better one: only ordered pods wait.
    let goes_on = |is_settled: bool| is_settled || !look.is_ordered;
    if goes_on(look.start_missing(&mut step)) && goes_on(look.stop_condemned(&mut step)) {
        look.update_pods(&mut step);
    }
    look.write_status(&mut step);
    look.revisions.forget_old(look.roster.live_revisions(), &mut step);
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
    fn at(
        view: &'a dyn View,
        set: &'a Value,
        roster: &'a mut Roster,
        recreated: &'a Recreated,
        now: Timestamp,
    ) -> Self {
        let revisions = Revisions::of(view, set, revisions::told(set));
        roster.refresh(view, set, revisions.latest(), now);
        Self {
            view,
            set,
            recreated,
            now,
            roster,
            start: field::count(set, "/spec/ordinals/start").unwrap_or(0),
            replicas: field::count(set, "/spec/replicas").unwrap_or(1),
            is_ordered: field::text(set, "/spec/podManagementPolicy") != "Parallel",
            claims: Claims { view, set },
            revisions,
        }
    }

    fn end(&self) -> i64 {
        self.start + self.replicas
    }

    /// The surplus pods, lowest ordinal first.
    fn condemned(&self) -> impl DoubleEndedIterator<Item = (i64, &Member)> {
        self.roster.outside(self.start..self.end())
    }

    /// The pod with an ordinal, if it is the set's.
    fn pod(&self, ordinal: i64) -> Option<&'a Value> {
        self.roster.get(ordinal)?;
        let name = format!("{}-{ordinal}", field::name(self.set));
        self.view.get("Pod", field::namespace(self.set), &name)
    }

    /// Creates missing pods and replaces finished ones. Returns true if every replica exists and is available.
    fn start_missing(&self, step: &mut Step) -> bool {
        let mut is_settled = true;
        let mut created = 0;
        let mut rest = self.start..self.end();
        while let Some(ordinal) = self.roster.first_awaited(rest.clone()) {
            rest.start = ordinal + 1;
            match self.pod(ordinal) {
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
        let member = self.roster.get(ordinal);
        member.map_or(Availability::Never, |member| member.available)
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
        let first_unhealthy = self.roster.first_unhealthy();
        for (ordinal, member) in self.condemned().rev().take(BURST) {
            // A pod that is about to become ready may still need the ones before it. The first unhealthy one need not
            // wait, nor one that has finished: it will never become ready.
            let waits = !member.is_healthy() && !member.is_over && first_unhealthy != Some(ordinal);
            if !(member.is_leaving || self.is_ordered && waits)
                && let Some(pod) = self.pod(ordinal)
            {
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
        let mut rest = first.min(self.end())..self.end();
        while let Some(ordinal) = self.roster.last_notable(rest.clone()) {
            rest.end = ordinal;
            // A missing pod is created with the latest template, and a finished one is replaced anyway: the update
            // goes on when the new one is available.
            let Some(member) = self.roster.get(ordinal).filter(|member| !member.is_over) else {
                return;
            };
            if self.roster.is_outdated(ordinal)
                && !member.is_leaving
                && let Some(pod) = self.pod(ordinal)
            {
                return self.delete_pod(pod, step);
            }
            if member.available != Availability::Now {
                return;
            }
        }
    }

    fn write_status(&self, step: &mut Step) {
        let (latest, current) = (self.revisions.latest(), self.revisions.current());
        let roster = self.roster;
        if let Some(then) = roster.next_available() {
            step.wake_at(then);
        }
        let updated = roster.of_revision(latest);
        // The update is complete when every replica has the latest template and is ready.
        let is_updated = [roster.all(), roster.ready(), updated] == [self.replicas; 3];
        let (current, of_current) = match is_updated {
            true => (latest, updated),
            false => (current, roster.of_revision(current)),
        };
        let mut status = Status::of(self.set, self.now);
        status.set("replicas", roster.all());
        status.count("readyReplicas", roster.ready());
        status.set("availableReplicas", roster.available());
        status.count("currentReplicas", of_current);
        status.count("updatedReplicas", updated);
        status.set("currentRevision", current);
        status.set("updateRevision", latest);
        status.set("collisionCount", self.revisions.collisions());
        status.observe();
        step.effects.extend(status.effect());
    }
}
