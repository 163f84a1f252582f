//! DaemonSet: one pod on every eligible node.
//!
//! A pod is created for one node, with a node affinity on the node's name; the scheduler binds it there when there is
//! room. A node is eligible if its labels match the template's selectors and the template tolerates its taints. Pods that
//! have ended or have an older template are deleted first and recreated once they are gone: a node never has two.

use super::BURST;
use super::pods::{self, Availability};
use super::revisions::Revisions;
use super::rollout::part_of;
use crate::field;
use crate::hash::Suffixes;
use crate::names;
use crate::objects::View;
use crate::status::Status;
use crate::step::Step;
use crate::tolerations::tolerates;
use berth_core::api;
use berth_core::names::{
    TAINT_DISK_PRESSURE, TAINT_MEMORY_PRESSURE, TAINT_NETWORK_UNAVAILABLE, TAINT_NOT_READY, TAINT_PID_PRESSURE,
    TAINT_UNREACHABLE, TAINT_UNSCHEDULABLE,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SOURCE: &str = "daemonset-controller";
/// How long a failed pod is kept, so that one that fails at once is not recreated at once.
const FAILED_SECONDS: i64 = 10;
/// The path of the affinity of a pod to its node.
const REQUIRED: [&str; 4] = [
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
];

/// Taints that the pods of every DaemonSet tolerate: they mark nodes in trouble.
const TOLERATED: [(&str, &str); 6] = [
    (TAINT_NOT_READY, "NoExecute"),
    (TAINT_UNREACHABLE, "NoExecute"),
    (TAINT_DISK_PRESSURE, "NoSchedule"),
    (TAINT_MEMORY_PRESSURE, "NoSchedule"),
    (TAINT_PID_PRESSURE, "NoSchedule"),
    (TAINT_UNSCHEDULABLE, "NoSchedule"),
];

/// Whether a node is eligible for a DaemonSet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meant {
    /// A pod should run there.
    Yes,
    /// A pod that runs there may stay.
    Stays,
    No,
}

struct Look<'a> {
    view: &'a dyn View,
    set: &'a Value,
    now: Timestamp,
    /// Its pods by their node, the one to keep first.
    pods: BTreeMap<&'a str, Vec<&'a Value>>,
    tolerations: Vec<Value>,
    min_ready_seconds: i64,
    revisions: Revisions<'a>,
    /// The label of pods of the current template.
    hash: String,
}

pub(super) fn reconcile(view: &dyn View, set: &Value, suffixes: &mut Suffixes, now: Timestamp) -> Step {
    let look = Look::at(view, set, now);
    let mut step = Step::default();
    look.revisions.create(&mut step);
    let mut count = Count::default();
    let mut left = BURST;
    for node in view.of_kind("Node") {
        let meant = look.is_meant(node);
        let own = look.pods.get(field::name(node)).map_or(&[][..], Vec::as_slice);
        count.node(&look, meant, own, &mut step);
        left = look.look_after(node, meant, own, left, suffixes, &mut step);
    }
    let is_gone = |name: &str| view.get("Node", "", name).is_none();
    for (_, pods) in look.pods.iter().filter(|(name, _)| is_gone(name)) {
        pods.iter().for_each(|pod| look.delete(pod, &mut step));
    }
    look.update(&count, &mut step);
    count.write(&look, &mut step);
    let pods = look.pods.values().flatten();
    let live = pods.map(|pod| field::label(pod, names::CONTROLLER_REVISION_HASH));
    look.revisions.forget_old(live, &mut step);
    step
}

/// The node that a pod is bound to or meant for.
fn node_of(pod: &Value) -> &str {
    let bound = field::text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        return bound;
    }
    let terms = field::items(
        pod,
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    let fields = terms.iter().flat_map(|term| field::items(term, "/matchFields"));
    let mut named = fields.filter(|one| one["key"] == "metadata.name" && one["operator"] == "In");
    named.next().map_or("", |one| field::text(one, "/values/0"))
}

impl<'a> Look<'a> {
    fn at(view: &'a dyn View, set: &'a Value, now: Timestamp) -> Self {
        let selector = pods::Selector::of(set);
        let owned = view
            .dependents(field::uid(set))
            .filter(|object| field::kind(object) == "Pod" && field::is_controlled_by(object, set))
            .filter(|pod| selector.selects(pod));
        let mut by_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for pod in owned {
            by_node.entry(node_of(pod)).or_default().push(pod);
        }
        for pods in by_node.values_mut() {
            // A pod already on the node is kept first, then the oldest one.
            pods.sort_by_key(|pod| {
                let created = field::text(pod, "/metadata/creationTimestamp");
                let is_bound = !field::text(pod, "/spec/nodeName").is_empty();
                (!pods::is_active(pod), !is_bound, created, field::name(pod))
            });
        }
        let told = told(set, by_node.values().flatten());
        let revisions = Revisions::of(view, set, told.as_deref());
        let hash = revisions.latest();
        let hash = hash.strip_prefix(&format!("{}-", field::name(set))).unwrap_or(hash);
        let mut tolerations = field::items(set, "/spec/template/spec/tolerations").to_vec();
        let on_network = field::flag(set, "/spec/template/spec/hostNetwork");
        let on_network = on_network.then_some((TAINT_NETWORK_UNAVAILABLE, "NoSchedule"));
        for (key, effect) in TOLERATED.into_iter().chain(on_network) {
            let own = json!({"key": key, "operator": "Exists", "effect": effect});
            if !tolerations.contains(&own) {
                tolerations.push(own);
            }
        }
        Self {
            view,
            set,
            now,
            pods: by_node,
            tolerations,
            min_ready_seconds: field::count(set, "/spec/minReadySeconds").unwrap_or(0),
            hash: hash.to_owned(),
            revisions,
        }
    }

    fn is_meant(&self, node: &Value) -> Meant {
        let spec = &self.set["spec"]["template"]["spec"];
        let (name, labels) = (field::name(node), field::labels(node));
        let wanted = field::text(spec, "/nodeName");
        let selected = spec["nodeSelector"].as_object().into_iter().flatten();
        let required: Option<api::NodeSelector> = field::typed(
            spec,
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
        );
        let is_selected = (wanted.is_empty() || wanted == name)
            && selected
                .into_iter()
                .all(|(key, value)| labels.get(key).is_some_and(|label| value == label))
            && required.is_none_or(|required| required.matches(name, &labels));
        let is_tolerated = |effect: &str| {
            let mut taints = field::items(node, "/spec/taints").iter();
            taints.all(|taint| {
                taint["effect"] != effect || self.tolerations.iter().any(|toleration| tolerates(toleration, taint))
            })
        };
        match (is_selected && is_tolerated("NoExecute"), is_tolerated("NoSchedule")) {
            (true, true) => Meant::Yes,
            (true, false) => Meant::Stays,
            (false, _) => Meant::No,
        }
    }

    /// Creates the pod of a node if it is missing, and deletes those that should not be there. Returns how many more pods
    /// may be created or deleted.
    fn look_after(
        &self,
        node: &Value,
        meant: Meant,
        pods: &[&Value],
        left: usize,
        suffixes: &mut Suffixes,
        step: &mut Step,
    ) -> usize {
        if left == 0 {
            return 0;
        }
        let mut done = 0;
        for (index, pod) in pods.iter().enumerate() {
            let is_bound = !field::text(pod, "/spec/nodeName").is_empty();
            let may_stay = meant == Meant::Yes || (meant == Meant::Stays && is_bound);
            if pods::is_over(pod) {
                done += usize::from(self.delete_failed(node, pod, step));
            } else if !may_stay || index > 0 {
                self.delete(pod, step);
                done += 1;
            }
        }
        if meant == Meant::Yes && pods.is_empty() {
            self.create(field::name(node), suffixes, step);
            done += 1;
        }
        left.saturating_sub(done)
    }

    fn delete_failed(&self, node: &Value, pod: &Value, step: &mut Step) -> bool {
        if field::is_deleting(pod) {
            return false;
        }
        let since = field::time(pod, "/status/startTime").unwrap_or(self.now);
        let goes = field::after(since, FAILED_SECONDS);
        if goes > self.now {
            step.wake_at(goes);
            return false;
        }
        let (namespace, name) = (field::namespace(pod), field::name(pod));
        let node = field::name(node);
        let message = format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
        step.warning(SOURCE, self.set, "FailedDaemonPod", message);
        self.delete(pod, step);
        true
    }

    fn delete(&self, pod: &Value, step: &mut Step) {
        if field::is_deleting(pod) {
            return;
        }
        let message = format!("Deleted pod: {}", field::name(pod));
        step.delete(pod);
        step.normal(SOURCE, self.set, "SuccessfulDelete", message);
    }

    fn create(&self, node: &str, suffixes: &mut Suffixes, step: &mut Step) {
        let mut pod = pods::template_pod(self.set, &self.set["spec"]["template"]);
        let base = format!("{}-", field::name(self.set));
        let namespace = field::namespace(self.set);
        let name = suffixes.name(&base, |name| self.view.get("Pod", namespace, name).is_some());
        pods::name_pod(&mut pod, &base, &name);
        let label = ["metadata", "labels", names::CONTROLLER_REVISION_HASH];
        field::set(&mut pod, &label, json!(self.hash));
        field::set(&mut pod, &["spec", "tolerations"], json!(self.tolerations));
        // The template's own terms have already been checked; only the node's name remains.
        let named = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        field::set(
            &mut pod,
            &REQUIRED,
            json!({"nodeSelectorTerms": [{"matchFields": [named]}]}),
        );
        step.create(pod);
        let message = format!("Created pod: {name}");
        step.normal(SOURCE, self.set, "SuccessfulCreate", message);
    }

    fn is_old(&self, pod: &Value) -> bool {
        field::label(pod, names::CONTROLLER_REVISION_HASH) != self.hash
    }

    fn is_available(&self, pod: &Value) -> bool {
        pods::is_available(pod, self.min_ready_seconds, self.now)
    }

    /// Deletes pods of an older template, as many as may be unavailable at once. Unavailable ones are deleted at once.
    fn update(&self, count: &Count<'_>, step: &mut Step) {
        if field::text(self.set, "/spec/updateStrategy/type") == "OnDelete" {
            return;
        }
        let limit = self.set.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable");
        let limit = match limit {
            Some(limit) if !limit.is_null() => part_of(Some(limit), count.desired, true).max(1),
            Some(_) | None => 1,
        };
        let mut spare = limit - (count.desired - count.available);
        for pod in count.serving.iter().filter(|pod| self.is_old(pod)) {
            if !self.is_available(pod) {
                self.delete(pod, step);
            } else if spare > 0 {
                spare -= 1;
                self.delete(pod, step);
            }
        }
    }
}

/// The hash of the current template, if the status shows that all pods have it: a dump of a cluster usually has no
/// revisions.
fn told<'p>(set: &Value, mut pods: impl Iterator<Item = &'p &'p Value>) -> Option<String> {
    let number = |path: &str| field::number(set, path);
    let is_told = number("/status/observedGeneration")? == number("/metadata/generation")?
        && number("/status/updatedNumberScheduled")? == number("/status/currentNumberScheduled")?;
    let pod = pods.find(|pod| pods::is_active(pod)).filter(|_| is_told)?;
    let hash = field::label(pod, names::CONTROLLER_REVISION_HASH);
    (!hash.is_empty()).then(|| format!("{}-{hash}", field::name(set)))
}

/// Number of nodes by state.
#[derive(Default)]
struct Count<'a> {
    desired: i64,
    current: i64,
    misplaced: i64,
    ready: i64,
    available: i64,
    updated: i64,
    /// The pods of the nodes that should have one.
    serving: Vec<&'a Value>,
}

impl<'a> Count<'a> {
    fn node(&mut self, look: &Look<'_>, meant: Meant, pods: &[&'a Value], step: &mut Step) {
        let pod = pods.iter().copied().find(|pod| pods::is_active(pod));
        if meant != Meant::Yes {
            self.misplaced += i64::from(pod.is_some());
            return;
        }
        self.desired += 1;
        let Some(pod) = pod else {
            return;
        };
        self.current += 1;
        self.ready += i64::from(pods::is_ready(pod));
        self.updated += i64::from(!look.is_old(pod));
        match pods::availability(pod, look.min_ready_seconds, look.now) {
            Availability::Now => self.available += 1,
            Availability::From(then) => step.wake_at(then),
            Availability::Never => {}
        }
        self.serving.push(pod);
    }

    fn write(&self, look: &Look<'_>, step: &mut Step) {
        let mut status = Status::of(look.set, look.now);
        status.set("currentNumberScheduled", self.current);
        status.set("desiredNumberScheduled", self.desired);
        status.set("numberMisscheduled", self.misplaced);
        status.set("numberReady", self.ready);
        status.count("updatedNumberScheduled", self.updated);
        status.count("numberAvailable", self.available);
        status.count("numberUnavailable", self.desired - self.available);
        if look.revisions.collisions() > 0 {
            status.set("collisionCount", look.revisions.collisions());
        }
        status.observe();
        step.effects.extend(status.effect());
    }
}
