//! The templates that a StatefulSet or DaemonSet has had, kept as ControllerRevisions so that users can roll back, and so
//! that pods below the partition of a rolling update can still be created from the older one.

use crate::field;
use crate::hash;
use crate::names;
use crate::objects::View;
use crate::step::{self, Step};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The revisions of one set.
pub(super) struct Revisions<'a> {
    set: &'a Value,
    /// The stored ones, oldest first.
    known: Vec<&'a Value>,
    latest: String,
    current: String,
    collisions: i64,
}

impl<'a> Revisions<'a> {
    /// The revisions of a set, and the name of the current one as far as its status or its pods show it.
    pub(super) fn of(view: &'a dyn View, set: &'a Value, told: Option<&str>) -> Self {
        let mut known: Vec<_> = view
            .dependents_of_kind(field::uid(set), "ControllerRevision")
            .filter(|revision| field::is_controlled_by(revision, set))
            .collect();
        known.sort_by_key(|revision| (number(revision), field::name(revision)));
        let template = &set["spec"]["template"];
        let mut collisions = field::count(set, "/status/collisionCount").unwrap_or(0);
        let same = known.iter().rfind(|revision| is_of_template(revision, template));
        let latest = match (same, told) {
            (Some(revision), _) => field::name(revision).to_owned(),
            // A dump of a cluster usually has no revisions, and their names cannot be derived from the template.
            (None, Some(told)) if known.is_empty() => told.to_owned(),
            (None, _) => loop {
                let name = format!("{}-{}", field::name(set), hash::template_hash(template, collisions));
                if view.get("ControllerRevision", field::namespace(set), &name).is_none() {
                    break name;
                }
                collisions += 1;
            },
        };
        let current = field::text(set, "/status/currentRevision");
        let is_known =
            known.iter().any(|revision| field::name(revision) == current) || (known.is_empty() && told.is_some());
        let is_known = is_known && !current.is_empty();
        let current = if is_known { current.to_owned() } else { latest.clone() };
        Self {
            set,
            known,
            latest,
            current,
            collisions,
        }
    }

    /// The revision that pods should have.
    pub(super) fn latest(&self) -> &str {
        &self.latest
    }

    /// The revision that all pods had before the ongoing update.
    pub(super) fn current(&self) -> &str {
        &self.current
    }

    pub(super) fn collisions(&self) -> i64 {
        self.collisions
    }

    /// How many of the first replicas a rolling update leaves unchanged.
    pub(super) fn partition(&self) -> i64 {
        field::count(self.set, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0)
    }

    /// The revision and template for a new pod.
    pub(super) fn for_ordinal(&self, ordinal: i64, start: i64) -> (&str, &'a Value) {
        let keeps_current =
            field::text(self.set, "/spec/updateStrategy/type") != "OnDelete" && ordinal < start + self.partition();
        let found = self.known.iter().find(|revision| field::name(revision) == self.current);
        match found.and_then(|revision| field::at(revision, "/data/spec/template")) {
            Some(template) if keeps_current => (&self.current, template),
            Some(_) | None => (&self.latest, &self.set["spec"]["template"]),
        }
    }

    /// Creates the revision of a new template, and renumbers one that is used again as the latest.
    pub(super) fn create(&self, step: &mut Step) {
        let next = self
            .known
            .iter()
            .map(|revision| number(revision))
            .max()
            .unwrap_or(0)
            .saturating_add(1);
        match self.known.iter().find(|revision| field::name(revision) == self.latest) {
            Some(revision) if number(revision) + 1 < next => {
                step.patch(revision, "number_revision", json!({"revision": next}));
            }
            Some(_) => {}
            None => {
                let hash = self.latest.rsplit('-').next().unwrap_or_default();
                let mut labels = self.set["spec"]["template"]["metadata"]["labels"].clone();
                field::set(&mut labels, &[names::REVISION_HASH], json!(hash));
                step.create(json!({
                    "apiVersion": "apps/v1",
                    "kind": "ControllerRevision",
                    "metadata": {
                        "name": self.latest,
                        "namespace": self.set["metadata"]["namespace"],
                        "labels": labels,
                        "ownerReferences": [field::controller_reference(self.set)],
                    },
                    "revision": next,
                    "data": {"spec": {"template": self.template_to_keep()}},
                }));
            }
        }
    }

    /// The template with the directive that makes `kubectl rollout undo` replace it as a whole.
    fn template_to_keep(&self) -> Value {
        let mut template = self.set["spec"]["template"].clone();
        field::set(&mut template, &["$patch"], json!("replace"));
        template
    }

    /// Deletes the oldest revisions that no pod has, beyond the revision history limit.
    pub(super) fn forget_old<'b>(&self, live: impl Iterator<Item = &'b str>, step: &mut Step) {
        let kept = field::count(self.set, "/spec/revisionHistoryLimit").unwrap_or(10);
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        if self.known.len() <= kept {
            return;
        }
        let live: BTreeSet<&str> = live.collect();
        let is_idle = |revision: &&&Value| {
            let name = field::name(revision);
            // Pods of a StatefulSet have the whole name as a label, those of a DaemonSet its last part.
            let hash = name.rsplit('-').next().unwrap_or(name);
            name != self.latest && name != self.current && !live.contains(name) && !live.contains(hash)
        };
        let idle: Vec<_> = self.known.iter().filter(is_idle).collect();
        let excess = idle.len().saturating_sub(kept);
        step.effects
            .extend(idle.iter().take(excess).map(|revision| step::delete(revision)));
    }
}

/// The revision of the current template of a StatefulSet, if its status is up to date.
pub(super) fn told(set: &Value) -> Option<&str> {
    let told = field::text(set, "/status/updateRevision");
    let observed = field::number(set, "/status/observedGeneration")?;
    (!told.is_empty() && field::number(set, "/metadata/generation") == Some(observed)).then_some(told)
}

fn number(revision: &Value) -> i64 {
    field::count(revision, "/revision").unwrap_or(0)
}

fn is_of_template(revision: &Value, template: &Value) -> bool {
    let mut found = revision["data"]["spec"]["template"].clone();
    field::unset(&mut found, &["$patch"]);
    found == *template
}
