//! Protects volume attributes classes from deletion while a claim or a volume refers to them.

use super::field;
use super::objects::{View, key_of};
use berth_core::effect::{Effect, Guard, Merge, ObjectKey, Patch, Target};
use berth_kinds::kinds::volume_attributes_class::{KIND, PROTECTION};
use berth_kinds::meta;
use serde_json::{Value, json};

/// The classes to check when an object was created, changed or deleted: a claim or a volume may have been the last
/// reference.
#[must_use]
pub fn concerned(view: &dyn View, object: &Value) -> Vec<ObjectKey> {
    match field::kind(object) {
        kind if kind == KIND.name => vec![key_of(object)],
        "PersistentVolumeClaim" | "PersistentVolume" => {
            let classes = view.of_kind(KIND.name);
            classes.filter(|class| field::is_deleting(class)).map(key_of).collect()
        }
        _ => Vec::new(),
    }
}

/// What to do about a class: add its protection, or remove it if the class is being deleted and no longer used.
#[must_use]
pub fn step(view: &dyn View, class: &Value) -> Option<Effect> {
    let mut finalizers = meta::finalizers(class);
    let is_protected = finalizers.contains(&PROTECTION);
    match (field::is_deleting(class), is_protected) {
        (false, false) => finalizers.push(PROTECTION),
        (true, true) if !is_named(view, field::name(class)) => finalizers.retain(|found| *found != PROTECTION),
        // It is protected; it is still used; or it is deleted without us.
        (false, true) | (true, _) => return None,
    }
    Some(Effect::Patch(Patch {
        target: Target::of_value(class),
        guard: Guard::Version,
        subresource: None,
        merge: Merge::Json,
        body: json!({"metadata": {"finalizers": finalizers}}),
        name: "protect_volume_attributes_class",
    }))
}

fn is_named(view: &dyn View, class: &str) -> bool {
    let names = |kind: &str, fields: &[&str]| {
        let mut objects = view.of_kind(kind);
        objects.any(|object| fields.iter().any(|path| field::text(object, path) == class))
    };
    let claim = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    names("PersistentVolumeClaim", &claim) || names("PersistentVolume", &["/spec/volumeAttributesClassName"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Objects;

    fn class(deleted: bool, finalizers: &[&str]) -> Value {
        let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": "gold", "uid": "1", "resourceVersion": "7", "finalizers": finalizers}});
        if deleted {
            class["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        }
        class
    }

    fn finalizers(others: Vec<Value>, class: &Value) -> Option<Value> {
        let view: Objects = others.into_iter().collect();
        match step(&view, class)? {
            Effect::Patch(patch) => Some(patch.body["metadata"]["finalizers"].clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_class_goes_when_nothing_names_it() {
        assert_eq!(
            finalizers(vec![], &class(false, &["x"])),
            Some(json!(["x", PROTECTION]))
        );
        assert_eq!(finalizers(vec![], &class(false, &[PROTECTION])), None);
        assert_eq!(finalizers(vec![], &class(true, &["x", PROTECTION])), Some(json!(["x"])));
        assert_eq!(finalizers(vec![], &class(true, &[])), None);
    }

    #[test]
    fn a_claim_or_a_volume_keeps_a_class() {
        let claim = |spec: Value, status: Value| {
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec, "status": status,
            "metadata": {"name": "c", "namespace": "default"}})
        };
        let gold = json!({"volumeAttributesClassName": "gold"});
        for other in [
            claim(gold.clone(), json!({})),
            claim(json!({}), json!({"currentVolumeAttributesClassName": "gold"})),
            claim(
                json!({}),
                json!({"modifyVolumeStatus": {"targetVolumeAttributesClassName": "gold"}}),
            ),
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": gold}),
        ] {
            assert_eq!(
                finalizers(vec![other.clone()], &class(true, &[PROTECTION])),
                None,
                "{other}"
            );
            let view: Objects = [class(true, &[PROTECTION]), other.clone()].into_iter().collect();
            assert_eq!(
                concerned(&view, &other),
                [key_of(&class(true, &[]))],
                "it is looked at when that goes"
            );
        }
        let other = claim(json!({"volumeAttributesClassName": "silver"}), json!({}));
        assert_eq!(finalizers(vec![other], &class(true, &[PROTECTION])), Some(json!([])));
    }
}
