//! Subresources that are not the object itself: binding, eviction and scale.

use berth_core::time;
use serde_json::{Value, json};

use super::{Change, DeleteOptions, Outcome};
use crate::error::ApiError;
use crate::meta;
use crate::selector;
use crate::store::PageQuery;
use berth_kinds::eviction::{self, Refused};
use berth_kinds::kinds::pod;
use berth_kinds::workload;

const BUDGETS: &str = "poddisruptionbudgets.policy";

impl Change<'_> {
    /// Binds a pod to a node.
    pub(crate) fn bind(&mut self, binding: &Value) -> Result<Outcome, ApiError> {
        let node = meta::text(binding, &["target", "name"]).to_owned();
        if node.is_empty() {
            return Err(ApiError::unforeseen("target.name: Required value"));
        }
        let kind = meta::text(binding, &["target", "kind"]);
        if !["", "Node"].contains(&kind) {
            let why = format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
            return Err(ApiError::unforeseen(why));
        }
        let (uid, annotations) = (
            meta::uid(binding).to_owned(),
            binding["metadata"]["annotations"].clone(),
        );
        let (resource, name, now) = (self.served.resource.clone(), self.name.clone(), self.now);
        self.subresource = "binding".into();
        let other_uid = |found: &str| self.other_uid(&uid, found);
        let mut change = self.quiet();
        // Kubernetes does not record who bound a pod.
        change.change(false, |pod| {
            let refuse = |why: String| {
                let mut resource = resource.clone();
                resource.plural = "pods/binding".into();
                ApiError::conflict(&resource, &name, &why)
            };
            if !uid.is_empty() && uid != meta::uid(pod) {
                return Err(other_uid(meta::uid(pod)));
            }
            if meta::is_deleting(pod) {
                return Err(refuse(format!(
                    "pod {name} is being deleted, cannot be assigned to a host"
                )));
            }
            let assigned = meta::text(pod, &["spec", "nodeName"]);
            if !assigned.is_empty() {
                return Err(refuse(format!("pod {name} is already assigned to node {assigned:?}")));
            }
            if !meta::items(pod, &["spec", "schedulingGates"]).is_empty() {
                return Err(refuse(format!("pod {name} has non-empty .spec.schedulingGates")));
            }
            Ok(bound(pod, &node, &annotations, &time::seconds(now)))
        })
    }

    /// Deletes a pod if no disruption budget forbids it.
    pub(crate) fn evict(&mut self, eviction: &Value) -> Result<Outcome, ApiError> {
        let (_, pod) = self.current().ok_or_else(|| self.not_found())?;
        let options = DeleteOptions::parse(&eviction["deleteOptions"], &Default::default())?;
        let dry_run = options.dry_run || self.dry_run;
        self.subresource = String::new();
        if eviction::is_guarded(&pod) {
            self.take_from_budgets(&pod, dry_run)?;
            self.mark_disrupted(dry_run)?;
        }
        self.delete(&options).map(|(outcome, _)| outcome)
    }

    /// Records the reason for its eviction on the pod.
    fn mark_disrupted(&self, dry_run: bool) -> Result<(), ApiError> {
        let mut change = Change::internal(self.api, self.served.clone(), &self.namespace, &self.name);
        change.subresource = "status".into();
        change.dry_run = dry_run;
        let condition = json!({"type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": time::seconds(self.now), "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting"});
        change.change(false, |pod| Ok(with_condition(pod, condition.clone())))?;
        Ok(())
    }

    fn take_from_budgets(&self, pod: &Value, dry_run: bool) -> Result<(), ApiError> {
        let prefix = format!("{}/", self.namespace);
        let query = PageQuery::all(&prefix);
        let page = self
            .api
            .store
            .list(BUDGETS, &query)
            .map_err(|e| ApiError::internal(e.to_string()))?;
        let budgets: Vec<_> = page.objects.iter().map(|budget| budget.value()).collect();
        let guard = eviction::guard(pod, &budgets).map_err(refused)?;
        let Some(budget) = guard else {
            return Ok(());
        };
        let Some(served) = self.api.types().by_kind("policy/v1", "PodDisruptionBudget").cloned() else {
            return Ok(());
        };
        let mut change = Change::internal(self.api, served, meta::namespace(budget), meta::name(budget));
        change.subresource = "status".into();
        change.dry_run = dry_run;
        change.change(true, |budget| {
            eviction::disrupted(budget, &self.name, &time::seconds(self.now)).map_err(refused)
        })?;
        Ok(())
    }

    /// The object as a `Scale`.
    pub(crate) fn scale(&self) -> Result<Value, ApiError> {
        let (_, object) = self.current().ok_or_else(|| self.not_found())?;
        Ok(self.scale_of(&object))
    }

    pub(crate) fn scale_of(&self, object: &Value) -> Value {
        let custom = self.served.custom.as_ref().map(|custom| &custom.scale);
        let read = |key: &str, usual: &str| {
            let path = custom.map_or(usual, |scale| meta::text(scale, &[key]));
            object.pointer(&pointer(path)).cloned().unwrap_or(Value::Null)
        };
        let count = |value: Value| value.as_u64().unwrap_or(0);
        let mut scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": meta::name(object), "namespace": meta::namespace(object), "uid": meta::uid(object),
                "resourceVersion": object["metadata"]["resourceVersion"],
                "creationTimestamp": object["metadata"]["creationTimestamp"]},
            "spec": {"replicas": count(read("specReplicasPath", ".spec.replicas"))},
            "status": {"replicas": count(read("statusReplicasPath", ".status.replicas"))}});
        let selector = match custom {
            Some(_) => read("labelSelectorPath", "").as_str().unwrap_or_default().to_owned(),
            None => selector::text_of(&object["spec"]["selector"]),
        };
        if !selector.is_empty() {
            meta::set(&mut scale, &["status", "selector"], selector.into());
        }
        scale
    }

    /// Sets the number of replicas from a `Scale`, which a body or a patch creates from the current one.
    pub(crate) fn set_scale(&mut self, make: impl Fn(&Value) -> Result<Value, ApiError>) -> Result<Outcome, ApiError> {
        let path = match &self.served.custom {
            Some(custom) => meta::text(&custom.scale, &["specReplicasPath"]).to_owned(),
            None => ".spec.replicas".to_owned(),
        };
        let steps: Vec<String> = path
            .split('.')
            .filter(|step| !step.is_empty())
            .map(str::to_owned)
            .collect();
        let name = self.name.clone();
        let scale_of = |object: &Value| self.scale_of(object);
        let plan = |old: &Value| {
            let scale = make(&scale_of(old))?;
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            let mut errors = Vec::new();
            workload::check_pods(&replicas.into(), "spec.replicas", &mut errors);
            if !errors.is_empty() {
                return Err(ApiError::invalid_object("autoscaling", "Scale", &name, &errors));
            }
            let mut new = old.clone();
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            meta::set(&mut new, &steps, replicas.into());
            meta::copy(&scale, &mut new, &["metadata", "resourceVersion"]);
            Ok(new)
        };
        let mut change = Change::internal(self.api, self.served.clone(), &self.namespace, &self.name);
        change.manager.clone_from(&self.manager);
        change.dry_run = self.dry_run;
        change.subresource = "scale".into();
        change.change(true, plan)
    }
}

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn bound(pod: &Value, node: &str, annotations: &Value, time: &str) -> Value {
    let mut new = pod.clone();
    for (key, value) in annotations.as_object().into_iter().flatten() {
        meta::set(&mut new, &["metadata", "annotations", key], value.clone());
    }
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time});
    pod::bind(&mut new, node, scheduled);
    new
}

/// The object with a condition set, replacing the one of the same type.
fn with_condition(object: &Value, condition: Value) -> Value {
    let mut new = object.clone();
    pod::set_condition(&mut new, condition);
    new
}

fn refused(refused: Refused) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    match refused {
        Refused::SeveralBudgets => ApiError::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ),
        Refused::Processing { budget } => {
            let cause = format!("The disruption budget {budget} is still being processed by the server.");
            ApiError::disruption_budget(message, &cause).with_retry_after(10)
        }
        Refused::Exhausted {
            budget,
            desired,
            healthy,
        } => {
            let cause =
                format!("The disruption budget {budget} needs {desired} healthy pods and has {healthy} currently");
            ApiError::disruption_budget(message, &cause)
        }
    }
}
