//! The claims of a StatefulSet: created before the pod that uses them, and kept when it is deleted unless the user says
//! otherwise.

use crate::field;
use crate::objects::View;
use crate::step::{self, Step};
use berth_core::effect::Effect;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The claims of one StatefulSet.
pub(super) struct Claims<'a> {
    pub(super) view: &'a dyn View,
    pub(super) set: &'a Value,
}

impl<'a> Claims<'a> {
    fn templates(&self) -> &'a [Value] {
        field::items(self.set, "/spec/volumeClaimTemplates")
    }

    fn name(&self, template: &Value, ordinal: i64) -> String {
        format!("{}-{}-{ordinal}", field::name(template), field::name(self.set))
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.view.get("PersistentVolumeClaim", field::namespace(self.set), name)
    }

    /// Creates the missing claims of a pod. Returns false if one of them is being deleted: the pod must wait for its
    /// successor.
    pub(super) fn create_missing(&self, ordinal: i64, step: &mut Step) -> bool {
        let is_leaving = |template: &Value| self.get(&self.name(template, ordinal)).is_some_and(field::is_deleting);
        if self.templates().iter().any(is_leaving) {
            return false;
        }
        for template in self.templates() {
            let name = self.name(template, ordinal);
            if self.get(&name).is_none() {
                let set = field::name(self.set);
                let message = format!("create Claim {name} Pod {set}-{ordinal} in StatefulSet {set} success");
                step.create(self.claim(template, &name));
                step.normal("statefulset-controller", self.set, "SuccessfulCreate", message);
            }
        }
        true
    }

    fn claim(&self, template: &Value, name: &str) -> Value {
        let mut labels = Map::new();
        for part in [
            &template["metadata"]["labels"],
            &self.set["spec"]["selector"]["matchLabels"],
        ] {
            labels.extend(part.as_object().cloned().unwrap_or_default());
        }
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": self.set["metadata"]["namespace"], "labels": labels},
            "spec": template["spec"],
        });
        if template["metadata"]["annotations"].is_object() {
            let annotations = template["metadata"]["annotations"].clone();
            field::set(&mut claim, &["metadata", "annotations"], annotations);
        }
        if self.is_deleted_with("whenDeleted") {
            let owners = json!([field::owner_reference(self.set)]);
            field::set(&mut claim, &["metadata", "ownerReferences"], owners);
        }
        claim
    }

    /// Adds the volumes of its claims to a pod, replacing any with the same names.
    pub(super) fn mount(&self, pod: &mut Value, ordinal: i64) {
        let templates = self.templates();
        let is_template = |volume: &&Value| templates.iter().any(|template| field::name(template) == volume["name"]);
        let others = field::items(pod, "/spec/volumes")
            .iter()
            .filter(|volume| !is_template(volume));
        let claimed = templates.iter().map(|template| {
            let claim = self.name(template, ordinal);
            json!({"name": field::name(template), "persistentVolumeClaim": {"claimName": claim}})
        });
        let volumes: Vec<Value> = claimed.chain(others.cloned()).collect();
        if !volumes.is_empty() {
            field::set(pod, &["spec", "volumes"], json!(volumes));
        }
    }

    fn is_deleted_with(&self, when: &str) -> bool {
        self.set["spec"]["persistentVolumeClaimRetentionPolicy"][when] == "Delete"
    }

    /// Makes claims be deleted as configured: with the set (`whenDeleted`), or with a pod removed by scaling down
    /// (`whenScaled`).
    pub(super) fn retain_as_told(&self, condemned: impl Iterator<Item = (i64, &'a Value)>, step: &mut Step) {
        if !self.may_have_to_go() {
            return;
        }
        let condemned: BTreeMap<i64, &Value> = condemned.collect();
        let with_set = self.is_deleted_with("whenDeleted");
        let with_pod = self.is_deleted_with("whenScaled");
        let claims = self.templates().iter().flat_map(|template| {
            let prefix = format!("{}-{}", field::name(template), field::name(self.set));
            self.ordinals(&condemned)
                .into_iter()
                .map(move |ordinal| (ordinal, format!("{prefix}-{ordinal}")))
        });
        for (ordinal, claim) in claims {
            let Some(claim) = self.get(&claim).filter(|claim| !field::is_deleting(claim)) else {
                continue;
            };
            let leaving = condemned.get(&ordinal).copied();
            let owner = match leaving.filter(|_| with_pod) {
                Some(pod) => Some(pod),
                None => Some(self.set).filter(|_| with_set),
            };
            step.effects.extend(self.own(claim, owner));
        }
    }

    /// Whether claims may need another owner: if some should be deleted, or the policy has just changed. Otherwise those that had one have lost
    /// it when the policy did change.
    fn may_have_to_go(&self) -> bool {
        let number = |path: &str| field::number(self.set, path);
        let is_new = number("/metadata/generation") != number("/status/observedGeneration");
        is_new || self.are_to_go()
    }

    /// Whether the user wants claims to be deleted.
    pub(super) fn are_to_go(&self) -> bool {
        self.is_deleted_with("whenDeleted") || self.is_deleted_with("whenScaled")
    }

    /// The ordinals whose claims are processed: those of replicas and of condemned pods.
    fn ordinals(&self, condemned: &BTreeMap<i64, &Value>) -> Vec<i64> {
        let start = field::count(self.set, "/spec/ordinals/start").unwrap_or(0);
        let replicas = field::count(self.set, "/spec/replicas").unwrap_or(1);
        // Replicas that were never started have no claims either.
        let started = (start..start + replicas).take_while(|ordinal| {
            let templates = self.templates();
            templates
                .iter()
                .any(|template| self.get(&self.name(template, *ordinal)).is_some())
        });
        started.chain(condemned.keys().copied()).collect()
    }

    /// Sets whether the set or its pod owns a claim, and leaves other owners alone.
    fn own(&self, claim: &Value, owner: Option<&Value>) -> Option<Effect> {
        let set = field::name(self.set);
        let is_ours = |reference: &&Value| {
            let name = field::text(reference, "/name");
            (reference["kind"] == "StatefulSet" && name == set)
                || (reference["kind"] == "Pod" && super::stateful_set::ordinal(set, name).is_some())
        };
        let known = field::items(claim, "/metadata/ownerReferences");
        let mut wanted: Vec<Value> = known.iter().filter(|reference| !is_ours(reference)).cloned().collect();
        if let Some(owner) = owner {
            if known
                .iter()
                .any(|reference| reference["uid"] == owner["metadata"]["uid"])
                && known.len() == wanted.len() + 1
            {
                return None;
            }
            wanted.push(field::owner_reference(owner));
        } else if known.len() == wanted.len() {
            return None;
        }
        let owners = if wanted.is_empty() { Value::Null } else { json!(wanted) };
        let body = json!({"metadata": {"ownerReferences": owners}});
        Some(step::patch_as_seen(claim, "own_claim", body))
    }
}
