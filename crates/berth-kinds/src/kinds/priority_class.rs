//! Priority classes, and the priority that pods get from them.

use serde_json::{Value, json};

use crate::admission::{Admission, Lookup};
use crate::columns::{AGE, NAME, flag, integer, text};
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::kind::{Generation, Kind};
use crate::meta;

/// Priority classes.
pub const KIND: Kind = Kind {
    short_names: &["pc"],
    generation: Generation::Fixed,
    columns: &[
        NAME,
        integer("Value", &["value"]),
        flag("Global-Default", &["globalDefault"], false),
        AGE,
        text("PreemptionPolicy", &["preemptionPolicy"], USUAL_POLICY),
    ],
    defaults: |class| meta::default(class, &["preemptionPolicy"], USUAL_POLICY),
    validate,
    validate_update,
    ..Kind::cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
};

const USUAL_POLICY: &str = "PreemptLowerPriority";
/// The largest value for user-defined classes; system classes are above.
const USER_VALUE_MAX: i64 = 1_000_000_000;

/// A built-in class.
#[derive(Debug, Clone, Copy)]
pub struct SystemClass {
    /// Name.
    pub name: &'static str,
    value: i64,
    description: &'static str,
}

impl SystemClass {
    /// The object, without server-generated fields.
    #[must_use]
    pub fn object(&self) -> Value {
        json!({"metadata": {"name": self.name}, "value": self.value, "description": self.description})
    }
}

/// The built-in classes.
#[must_use]
pub fn system_classes() -> [SystemClass; 2] {
    [
        SystemClass {
            name: "system-cluster-critical",
            value: 2_000_000_000,
            description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        },
        SystemClass {
            name: "system-node-critical",
            value: 2_000_001_000,
            description: "Used for system critical pods that must not be moved from their current node.",
        },
    ]
}

fn system_class(name: &str) -> Option<Value> {
    let class = system_classes().into_iter().find(|class| class.name == name)?;
    Some(class.object())
}

/// What a pod gets from its priority class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority {
    /// The class; `None` if the pod sets none and there is no default.
    pub class: Option<String>,
    /// The priority.
    pub value: i64,
    /// Whether the pod may preempt others.
    pub preemption_policy: String,
}

/// The priority of pods with this class, or of pods without a class if it is empty.
///
/// # Errors
/// If there is no such class.
pub fn priority(objects: &dyn Lookup, name: &str) -> Result<Priority, Refusal> {
    let class = if name.is_empty() {
        global_default(objects)
    } else {
        let stored = objects.get(&KIND, "", name).map(|class| class.into_owned());
        let found = stored.or_else(|| system_class(name));
        let class = name.to_owned();
        Some(found.ok_or(Refusal::UnknownPriorityClass { class })?)
    };
    let class = class.unwrap_or(Value::Null);
    let policy = class["preemptionPolicy"].as_str().unwrap_or(USUAL_POLICY);
    Ok(Priority {
        class: Some(meta::name(&class).to_owned()).filter(|name| !name.is_empty()),
        value: class["value"].as_i64().unwrap_or(0),
        preemption_policy: policy.to_owned(),
    })
}

/// Sets the priority and the preemption policy of a pod's class. An existing pod keeps its priority, since its class may be
/// gone or changed.
pub(crate) fn give_priority(admission: &Admission<'_>, pod: &mut Value) -> Result<(), Refusal> {
    let given = pod["spec"]["priority"].as_i64();
    if admission.restores && given.is_some() {
        return Ok(());
    }
    let found = priority(admission.objects, meta::text(pod, &["spec", "priorityClassName"]))?;
    let computed = found.value;
    if let Some(given) = given.filter(|given| *given != computed) {
        return Err(Refusal::OtherPriority { given, computed });
    }
    meta::set(pod, &["spec", "priority"], computed.into());
    if let Some(class) = found.class {
        meta::set(pod, &["spec", "priorityClassName"], class.into());
    }
    meta::default(pod, &["spec", "preemptionPolicy"], found.preemption_policy);
    Ok(())
}

/// The class of pods that set none: the lowest of several.
fn global_default(objects: &dyn Lookup) -> Option<Value> {
    let defaults = objects.all(&KIND).filter(|class| class["globalDefault"] == true);
    let lowest = defaults.min_by_key(|class| class["value"].as_i64());
    lowest.map(|class| class.into_owned())
}

fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let value = class["value"].as_i64().unwrap_or(0);
    let name = meta::name(class);
    if name.starts_with("system-") && system_class(name).is_none_or(|known| known["value"] != value) {
        let detail = "priority class names with 'system-' prefix are reserved for system use only";
        errors.push(FieldError::forbidden("metadata.name", detail));
    } else if !name.starts_with("system-") && value > USER_VALUE_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_VALUE_MAX}");
        errors.push(FieldError::forbidden("value", &detail));
    }
    let policies = ["PreemptLowerPriority", "Never"];
    fields::check_one_of(class, &["preemptionPolicy"], &policies, &mut errors);
    errors
}

fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["value", "preemptionPolicy"] {
        if old[field] != new[field] {
            errors.push(FieldError::forbidden(field, "may not be changed in an update."));
        }
    }
    errors
}
