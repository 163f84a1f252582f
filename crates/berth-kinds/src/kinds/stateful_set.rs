//! Stateful sets.

use serde_json::{Value, json};

use crate::columns::{AGE, NAME};
use crate::error::FieldError;
use crate::kind::{Generation, Kind, SCALE, STATUS};
use crate::meta;
use crate::pod_spec;
use crate::storage;
use crate::workload::{self, CONTAINERS, IMAGES, READY, TEMPLATE};

/// Stateful sets.
pub const KIND: Kind = Kind {
    short_names: &["sts"],
    categories: &["all"],
    subresources: &[SCALE, STATUS],
    generation: Generation::Counted,
    columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
    defaults,
    validate,
    validate_update,
    ..Kind::namespaced("apps", "v1", "StatefulSet", "statefulsets")
};

/// Mutable fields of the spec.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn defaults(set: &mut Value) {
    workload::default_template(set, TEMPLATE);
    let spec = json!({"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady",
        "persistentVolumeClaimRetentionPolicy": {}});
    workload::default_spec(set, &spec);
    for when in ["whenDeleted", "whenScaled"] {
        meta::default(set, &["spec", "persistentVolumeClaimRetentionPolicy", when], "Retain");
    }
    default_strategy(set);
    workload::default_status(set, &["replicas", "availableReplicas"]);
    for claim in meta::items_mut(set, &["spec", "volumeClaimTemplates"]) {
        meta::default(claim, &["apiVersion"], "v1");
        meta::default(claim, &["kind"], "PersistentVolumeClaim");
        storage::default_claim_spec(claim);
        meta::default(claim, &["status", "phase"], "Pending");
    }
}

/// A set that specifies only the type of its strategy is left as it is.
fn default_strategy(set: &mut Value) {
    let path = ["spec", "updateStrategy", "rollingUpdate"];
    let is_silent = meta::text(set, &["spec", "updateStrategy", "type"]).is_empty();
    if is_silent || !meta::at(set, &path).is_null() {
        workload::default_strategy(set, "updateStrategy", &json!({"partition": 0}));
    }
}

fn validate(set: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    workload::check_replicas(set, &mut errors);
    let strategy = &set["spec"]["updateStrategy"];
    if !["RollingUpdate", "OnDelete"].contains(&meta::text(strategy, &["type"])) {
        let detail = "must be 'RollingUpdate' or 'OnDelete'";
        let shown = workload::shown_strategy(strategy);
        errors.push(FieldError::invalid_text("spec.updateStrategy", &shown, detail));
    }
    workload::check_selector(set, "statefulset", &mut errors);
    errors.extend(pod_spec::validate(&pod_with_claims(set), "spec.template.spec"));
    errors
}

/// The pod of the template. The claims of the set become volumes of its pods with the same names.
fn pod_with_claims(set: &Value) -> Value {
    let mut spec = set["spec"]["template"]["spec"].clone();
    let claims = meta::items(set, &["spec", "volumeClaimTemplates"]).iter();
    let from_claims = claims.map(|claim| json!({"name": meta::name(claim), "emptyDir": {}}));
    let volumes = meta::items(&spec, &["volumes"]).iter().cloned();
    let volumes: Vec<Value> = volumes.chain(from_claims).collect();
    if !volumes.is_empty() {
        meta::set(&mut spec, &["volumes"], volumes.into());
    }
    spec
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let fixed = |set: &Value| {
        let mut spec = set["spec"].clone();
        for field in CHANGEABLE {
            meta::set(&mut spec, &[field], Value::Null);
        }
        spec
    };
    if fixed(old) == fixed(new) {
        return Vec::new();
    }
    let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    vec![FieldError::forbidden("spec", detail)]
}
