//! Deployment: one ReplicaSet for each template it has had, the latest of which should have all the pods.

use super::pods;
use super::replica_set;
use super::rollout::{Limits, Share, recreate, roll, scale};
use crate::field;
use crate::hash;
use crate::names;
use crate::objects::View;
use crate::status::{Condition, Status};
use crate::step::{self, Step};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Reverse;

const SOURCE: &str = "deployment-controller";

/// A ReplicaSet of the Deployment with the state of its pods.
struct Owned<'a> {
    set: &'a Value,
    share: Share,
    ready: i64,
}

pub(super) fn reconcile(view: &dyn View, deployment: &Value, now: Timestamp) -> Step {
    let mut step = Step::default();
    let owned = owned_sets(view, deployment, now, &mut step);
    let template = &deployment["spec"]["template"];
    let current = owned.iter().position(|owned| is_of_template(owned.set, template));
    let is_paused = field::flag(deployment, "/spec/paused");
    if current.is_none() && !is_paused && is_name_taken(view, deployment) {
        // The name belongs to another template: the next hash has a higher collision count.
        let mut status = Status::of(deployment, now);
        status.set("collisionCount", collisions(deployment) + 1);
        step.effects.extend(status.effect());
        return step;
    }
    write_status(deployment, &owned, current, now, &mut step);
    let mut shares: Vec<Share> = owned.iter().map(|owned| owned.share).collect();
    let limits = Limits::of(deployment);
    match current {
        _ if is_paused => scale(&mut shares, limits),
        Some(at) if is_recreate(deployment) => recreate(&mut shares, at, limits),
        Some(at) => roll(&mut shares, at, limits),
        None => {
            let at = shares.len();
            shares.push(Share::default());
            if is_recreate(deployment) {
                recreate(&mut shares, at, limits);
            } else {
                roll(&mut shares, at, limits);
            }
            create_set(deployment, &owned, shares[at].wanted, &mut step);
        }
    }
    for (owned, share) in owned.iter().zip(&shares) {
        resize(deployment, owned, share.wanted, &mut step);
    }
    if let Some(at) = current.filter(|_| !is_paused) {
        renumber(deployment, &owned, at, &mut step);
        forget_old_sets(deployment, &owned, at, &mut step);
    }
    step
}

/// The ReplicaSets, oldest first.
fn owned_sets<'a>(view: &'a dyn View, deployment: &Value, now: Timestamp, step: &mut Step) -> Vec<Owned<'a>> {
    let min_ready_seconds = field::count(deployment, "/spec/minReadySeconds").unwrap_or(0);
    let mut owned: Vec<_> = view
        .dependents(field::uid(deployment))
        .filter(|object| field::kind(object) == "ReplicaSet" && field::is_controlled_by(object, deployment))
        .filter(|set| !field::is_deleting(set))
        .map(|set| {
            let pods = replica_set::pods_of(view, set);
            let mut share = Share {
                wanted: field::count(set, "/spec/replicas").unwrap_or(1),
                ..Share::default()
            };
            let mut ready = 0;
            for pod in &pods {
                share.leaving += i64::from(field::is_deleting(pod) && !pods::is_over(pod));
                share.active += i64::from(pods::is_active(pod));
                ready += i64::from(pods::is_active(pod) && pods::is_ready(pod));
                match pods::availability(pod, min_ready_seconds, now) {
                    pods::Availability::Now => share.available += 1,
                    pods::Availability::From(then) => step.wake_at(then),
                    pods::Availability::Never => {}
                }
            }
            Owned { set, share, ready }
        })
        .collect();
    owned.sort_by_key(|owned| (revision_of(owned.set), field::name(owned.set)));
    owned
}

fn revision_of(object: &Value) -> i64 {
    field::annotation(object, names::DEPLOYMENT_REVISION)
        .and_then(|revision| revision.parse().ok())
        .unwrap_or(0)
}

/// Whether a ReplicaSet has a template: they differ in the label that the Deployment added.
fn is_of_template(set: &Value, template: &Value) -> bool {
    let mut found = set["spec"]["template"].clone();
    field::unset(&mut found, &["metadata", "labels", names::POD_TEMPLATE_HASH]);
    let mut wanted = template.clone();
    field::unset(&mut wanted, &["metadata", "labels", names::POD_TEMPLATE_HASH]);
    for template in [&mut found, &mut wanted] {
        // An API server may write an empty creation time in a template.
        field::unset(template, &["metadata", "creationTimestamp"]);
    }
    found == wanted
}

fn is_recreate(deployment: &Value) -> bool {
    field::text(deployment, "/spec/strategy/type") == "Recreate"
}

fn collisions(deployment: &Value) -> i64 {
    field::count(deployment, "/status/collisionCount").unwrap_or(0)
}

fn hash_of(deployment: &Value) -> String {
    hash::template_hash(&deployment["spec"]["template"], collisions(deployment))
}

fn is_name_taken(view: &dyn View, deployment: &Value) -> bool {
    let name = format!("{}-{}", field::name(deployment), hash_of(deployment));
    view.get("ReplicaSet", field::namespace(deployment), &name).is_some()
}

fn next_revision(owned: &[Owned<'_>]) -> i64 {
    owned.iter().map(|owned| revision_of(owned.set)).max().unwrap_or(0) + 1
}

fn create_set(deployment: &Value, owned: &[Owned<'_>], replicas: i64, step: &mut Step) {
    let hash = hash_of(deployment);
    let name = format!("{}-{hash}", field::name(deployment));
    let mut template = deployment["spec"]["template"].clone();
    field::set(
        &mut template,
        &["metadata", "labels", names::POD_TEMPLATE_HASH],
        json!(hash),
    );
    let mut selector = deployment["spec"]["selector"].clone();
    field::set(&mut selector, &["matchLabels", names::POD_TEMPLATE_HASH], json!(hash));
    let revision = next_revision(owned).to_string();
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {names::DEPLOYMENT_REVISION: revision},
            "ownerReferences": [field::controller_reference(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    });
    if let Some(seconds) = field::count(deployment, "/spec/minReadySeconds") {
        field::set(&mut set, &["spec", "minReadySeconds"], json!(seconds));
    }
    step.create(set);
    step.normal(
        SOURCE,
        deployment,
        "ScalingReplicaSet",
        format!("Scaled up replica set {name} from 0 to {replicas}"),
    );
    mark_revision(deployment, &revision, step);
}

fn resize(deployment: &Value, owned: &Owned<'_>, wanted: i64, step: &mut Step) {
    let before = owned.share.wanted;
    if wanted == before {
        return;
    }
    let direction = if wanted > before { "up" } else { "down" };
    let name = field::name(owned.set);
    step.patch(owned.set, "scale", json!({"spec": {"replicas": wanted}}));
    step.normal(
        SOURCE,
        deployment,
        "ScalingReplicaSet",
        format!("Scaled {direction} replica set {name} from {before} to {wanted}"),
    );
}

/// A template that is used again becomes the latest revision, and the Deployment records which one it is.
fn renumber(deployment: &Value, owned: &[Owned<'_>], current: usize, step: &mut Step) {
    let known = revision_of(owned[current].set);
    let is_latest = known > 0 && owned.iter().all(|owned| revision_of(owned.set) <= known);
    let revision = if is_latest { known } else { next_revision(owned) }.to_string();
    if !is_latest {
        let patch = json!({"metadata": {"annotations": {names::DEPLOYMENT_REVISION: revision}}});
        step.patch(owned[current].set, "number_revision", patch);
    }
    mark_revision(deployment, &revision, step);
}

fn mark_revision(deployment: &Value, revision: &str, step: &mut Step) {
    if field::annotation(deployment, names::DEPLOYMENT_REVISION) != Some(revision) {
        let patch = json!({"metadata": {"annotations": {names::DEPLOYMENT_REVISION: revision}}});
        step.patch(deployment, "number_revision", patch);
    }
}

/// Deletes the oldest ReplicaSets without pods, beyond the revision history limit.
fn forget_old_sets(deployment: &Value, owned: &[Owned<'_>], current: usize, step: &mut Step) {
    let kept = field::count(deployment, "/spec/revisionHistoryLimit").unwrap_or(10);
    let old = owned
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != current)
        .map(|(_, owned)| owned);
    let mut idle: Vec<_> = old
        .filter(|owned| owned.share.wanted == 0 && owned.share.active == 0 && owned.share.leaving == 0)
        .collect();
    idle.sort_by_key(|owned| Reverse(revision_of(owned.set)));
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    step.effects
        .extend(idle.iter().skip(kept).map(|owned| step::delete(owned.set)));
}

fn write_status(deployment: &Value, owned: &[Owned<'_>], current: Option<usize>, now: Timestamp, step: &mut Step) {
    let limits = Limits::of(deployment);
    let total = |of: fn(&Owned<'_>) -> i64| owned.iter().map(of).sum::<i64>();
    let replicas = total(|owned| owned.share.active);
    let available = total(|owned| owned.share.available);
    let latest = current.map(|at| &owned[at]);
    let updated = latest.map_or(0, |latest| latest.share.active);
    let mut status = Status::of(deployment, now);
    status.count("replicas", replicas);
    status.count("updatedReplicas", updated);
    status.count("readyReplicas", total(|owned| owned.ready));
    status.count("availableReplicas", available);
    status.count(
        "unavailableReplicas",
        (limits.replicas.max(replicas) - available).max(0),
    );
    let (holds, reason, message) = if available >= limits.floor() {
        (true, "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        (
            false,
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    status.dated_condition(Condition {
        name: "Available",
        holds,
        reason,
        message,
    });
    if let Some(latest) = latest {
        let name = field::name(latest.set);
        let is_complete = updated == limits.replicas && replicas == updated && available == updated;
        let (reason, message) = if is_complete {
            (
                "NewReplicaSetAvailable",
                format!("ReplicaSet {name:?} has successfully progressed."),
            )
        } else {
            ("ReplicaSetUpdated", format!("ReplicaSet {name:?} is progressing."))
        };
        status.dated_condition(Condition {
            name: "Progressing",
            holds: true,
            reason,
            message: &message,
        });
    }
    status.observe();
    step.effects.extend(status.effect());
}
