//! Runtime classes, and what pods get from them.

use std::collections::BTreeMap;

use berth_core::quantity::Quantity;
use serde_json::Value;

use crate::admission::Admission;
use crate::columns::{AGE, NAME, text};
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::kind::Kind;
use crate::meta;

/// Runtime classes.
pub const KIND: Kind = Kind {
    columns: &[NAME, text("Handler", &["handler"], ""), AGE],
    defaults: |class| fields::canonicalize(class, &["overhead", "podFixed"]),
    validate: |class| {
        let mut errors = Vec::new();
        fields::check_dns_label(meta::text(class, &["handler"]), "handler", &mut errors);
        errors
    },
    validate_update: |old, new| -> Vec<FieldError> { fields::check_fixed(old, new, &["handler"]) },
    ..Kind::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses")
};

/// Applies a pod's runtime class: its overhead and scheduling constraints.
pub(crate) fn equip(admission: &Admission<'_>, pod: &mut Value) -> Result<(), Refusal> {
    let is_strict = admission.features.runtime_classes && !admission.restores;
    let name = meta::text(pod, &["spec", "runtimeClassName"]);
    let class = admission.objects.get(&KIND, "", name).filter(|_| !name.is_empty());
    if class.is_none() && is_strict && !name.is_empty() {
        let class = name.to_owned();
        return Err(Refusal::UnknownRuntimeClass { class });
    }
    let class = class.map_or(Value::Null, |class| class.into_owned());
    let overhead = class["overhead"]["podFixed"].clone();
    let own = &pod["spec"]["overhead"];
    if is_strict && !own.is_null() && amounts(own) != amounts(&overhead) {
        return Err(match overhead {
            Value::Null => Refusal::OverheadWithoutClass,
            _ => Refusal::OtherOverhead,
        });
    }
    meta::default(pod, &["spec", "overhead"], overhead);
    select_nodes(&class["scheduling"]["nodeSelector"], pod)?;
    tolerate(meta::items(&class, &["scheduling", "tolerations"]), pod);
    Ok(())
}

/// Amounts by resource: `1Gi` and `1024Mi` are equal.
fn amounts(resources: &Value) -> BTreeMap<&str, Option<Quantity>> {
    let resources = resources.as_object().into_iter().flatten();
    resources
        .map(|(resource, amount)| (resource.as_str(), fields::parse_quantity(amount)))
        .collect()
}

fn select_nodes(wanted: &Value, pod: &mut Value) -> Result<(), Refusal> {
    for (label, value) in wanted.as_object().into_iter().flatten() {
        let path = ["spec", "nodeSelector", label.as_str()];
        meta::default(pod, &path, value.clone());
        let own = meta::at(pod, &path);
        if own != value {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return Err(Refusal::OtherNodes {
                label: label.clone(),
                values: Box::new([text(value), text(own)]),
            });
        }
    }
    Ok(())
}

/// Adds tolerations, except those that another one covers.
fn tolerate(wanted: &[Value], pod: &mut Value) {
    if wanted.is_empty() {
        return;
    }
    let all = [meta::items(pod, &["spec", "tolerations"]), wanted].concat();
    let mut kept: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let later = all.iter().skip(index + 1);
        if !later.chain(&kept).any(|other| covers(other, one)) {
            kept.push(one.clone());
        }
    }
    meta::set(pod, &["spec", "tolerations"], Value::Array(kept));
}

/// Whether one toleration covers everything that another tolerates.
fn covers(one: &Value, other: &Value) -> bool {
    let (ours, theirs) = (
        |field: &str| meta::text(one, &[field]),
        |field: &str| meta::text(other, &[field]),
    );
    let exists = ours("operator") == "Exists";
    let same_key = ours("key") == theirs("key") || (ours("key").is_empty() && exists);
    let same_effect = ours("effect") == theirs("effect") || ours("effect").is_empty();
    let as_long = match (one["tolerationSeconds"].as_i64(), other["tolerationSeconds"].as_i64()) {
        (None, _) => true,
        (Some(ours), Some(theirs)) => ours >= theirs,
        (Some(_), None) => false,
    };
    let same_value = exists || (theirs("operator") != "Exists" && ours("value") == theirs("value"));
    one == other || (same_key && same_effect && as_long && same_value)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::admission::{Lookup, complete};

    /// A cluster with one runtime class.
    struct One(Value);

    impl Lookup for One {
        fn get(&self, kind: &Kind, _: &str, name: &str) -> Option<Cow<'_, Value>> {
            let found = kind.name == KIND.name && meta::name(&self.0) == name;
            found.then_some(Cow::Borrowed(&self.0))
        }

        fn all<'a>(&'a self, _: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
            Box::new(std::iter::empty())
        }
    }

    fn admitted(spec: Value) -> Result<Value, String> {
        let objects = One(json!({"metadata": {"name": "sandbox"}, "handler": "sandbox",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "a", "operator": "Exists"}]}}));
        let mut admission = Admission::new(&objects, Timestamp::UNIX_EPOCH);
        admission.features.runtime_classes = true;
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        complete(&mut pod, &admission).map_err(|why| why.to_string())?;
        Ok(pod["spec"].take())
    }

    #[test]
    fn a_pod_gets_overhead_nodes_and_tolerations_of_its_class() {
        let own =
            json!([{"key": "a", "operator": "Equal", "value": "b"}, {"operator": "Exists", "effect": "NoExecute"}]);
        let spec = admitted(json!({"runtimeClassName": "sandbox", "nodeSelector": {"zone": "a"}, "tolerations": own}))
            .unwrap();
        assert_eq!(spec["overhead"], json!({"cpu": "250m"}));
        assert_eq!(spec["nodeSelector"], json!({"zone": "a", "disk": "ssd"}));
        let expected = json!([{"operator": "Exists", "effect": "NoExecute"}, {"key": "a", "operator": "Exists"}]);
        assert_eq!(spec["tolerations"], expected, "what another one covers is left out");
    }

    #[test]
    fn a_pod_that_does_not_fit_its_class_is_refused() {
        fn check(spec: Value, expected: &str) {
            assert_eq!(admitted(spec).unwrap_err(), expected);
        }
        check(
            json!({"runtimeClassName": "other"}),
            "pod rejected: RuntimeClass \"other\" not found",
        );
        check(
            json!({"runtimeClassName": "sandbox", "overhead": {"cpu": "1"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        );
        check(
            json!({"overhead": {"cpu": "1"}}),
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        );
        check(
            json!({"runtimeClassName": "sandbox", "nodeSelector": {"disk": "hdd"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = hdd",
        );
        assert!(admitted(json!({"runtimeClassName": "sandbox", "overhead": {"cpu": "0.25"}})).is_ok());
    }
}
