use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod() -> &'static Schema {
    Schema::builtin("", "v1", "Pod").expect("pods have a schema")
}

fn check(object: Value, patch: Value, expect: Value) {
    assert_eq!(apply(&object, &patch, pod()).expect("applies"), expect, "{patch}");
}

#[test]
fn lists_merge_by_key() {
    check(
        json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}),
        json!({"spec": {"containers": [{"name": "b", "image": "2"}]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}),
    );
    // A new element comes before those that exist only on the server.
    check(
        json!({"spec": {"containers": [{"name": "a"}]}}),
        json!({"spec": {"containers": [{"name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}),
    );
    check(
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "x"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}]}}),
        json!({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "name": "y"}]}]}}),
    );
}

#[test]
fn other_lists_are_replaced() {
    check(
        json!({"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}}),
        json!({"spec": {"tolerations": [{"key": "c"}]}}),
        json!({"spec": {"tolerations": [{"key": "c"}]}}),
    );
}

#[test]
fn scalars_merge_by_value() {
    check(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"finalizers": ["b", "c"]}}),
        json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
    );
    check(
        json!({"metadata": {"finalizers": ["a", "b"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
        json!({"metadata": {"finalizers": ["b"]}}),
    );
    check(
        json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"],
            "$setElementOrder/finalizers": ["c", "d"], "finalizers": ["d"]}}),
        json!({"metadata": {"finalizers": ["b", "c", "d"]}}),
    );
}

#[test]
fn nulls_remove_and_are_never_stored() {
    check(json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2}));
    check(
        json!({"metadata": {}}),
        json!({"metadata": {"labels": {"a": null, "b": "1"}}}),
        json!({"metadata": {"labels": {"b": "1"}}}),
    );
}

#[test]
fn directives_replace_and_delete() {
    check(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
        json!({"spec": {"containers": [{"name": "b"}]}}),
    );
    check(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}}),
        json!({"spec": {"containers": [{"name": "c"}]}}),
    );
    check(
        json!({"spec": {"securityContext": {"runAsUser": 1, "fsGroup": 2}}}),
        json!({"spec": {"securityContext": {"$patch": "replace", "runAsUser": 3}}}),
        json!({"spec": {"securityContext": {"runAsUser": 3}}}),
    );
    check(
        json!({"spec": {"securityContext": {"runAsUser": 1}}}),
        json!({"spec": {"securityContext": {"$patch": "delete"}}}),
        json!({"spec": {"securityContext": {}}}),
    );
}

#[test]
fn volumes_change_their_source_by_retained_keys() {
    check(
        json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/a"}}]}}),
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}]}}),
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
    );
}

/// What `kubectl apply` sends when an image, a port and the source of a volume change.
#[test]
fn patches_of_kubectl_apply() {
    check(
        json!({"spec": {"containers": [{"name": "c", "image": "nginx:1", "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "emptyDir": {}}]}}),
        json!({"spec": {"$setElementOrder/containers": [{"name": "c"}], "$setElementOrder/volumes": [{"name": "v"}],
            "containers": [{"name": "c", "image": "nginx:2", "$setElementOrder/ports": [{"containerPort": 81}],
                "ports": [{"containerPort": 81}, {"$patch": "delete", "containerPort": 80}]}],
            "volumes": [{"name": "v", "$retainKeys": ["hostPath", "name"], "emptyDir": null,
                "hostPath": {"path": "/y"}}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "nginx:2", "ports": [{"containerPort": 81}]}],
            "volumes": [{"name": "v", "hostPath": {"path": "/y"}}]}}),
    );
}

#[test]
fn element_order_is_set() {
    check(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "server"}]}}),
        json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}),
        json!({"spec": {"containers": [{"name": "b"}, {"name": "a"}, {"name": "server"}]}}),
    );
    check(
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
        json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c"}, {"$patch": "delete", "name": "b"}]}}),
        json!({"spec": {"containers": [{"name": "c"}, {"name": "a"}]}}),
    );
}

#[test]
fn bad_patches_are_refused() {
    let check = |patch: Value, expect: &str| {
        let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "x": {}}});
        let error = apply(&object, &patch, pod()).expect_err("fails").to_string();
        assert!(error.contains(expect), "{error}");
    };
    check(
        json!([1]),
        "cannot unmarshal array into Go value of type map[string]interface {}",
    );
    check(
        json!({"spec": {"containers": [{"image": "x"}]}}),
        "map: map[image:x] does not contain declared merge key: name",
    );
    check(
        json!({"spec": {"x": {"$patch": "swap"}}}),
        "unknown patch type: swap in map: map[$patch:swap]",
    );
    check(
        json!({"spec": {"containers": ["x"]}}),
        "list element types are not identical: [[map[name:a] map[name:b]] [x]]",
    );
    check(
        json!({"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
            "containers": [{"name": "b"}, {"name": "a"}]}}),
        "doesn't match $setElementOrder list",
    );
}

fn containers() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", "[x-z]", 0..4).prop_map(|images| {
        let list = images
            .into_iter()
            .map(|(name, image)| json!({"name": name, "image": image}));
        json!({"spec": {"containers": list.collect::<Vec<_>>()}})
    })
}

proptest! {
    #[test]
    fn a_patch_applied_twice_changes_nothing_more(object in containers(), patch in containers()) {
        let once = apply(&object, &patch, pod()).unwrap();
        prop_assert_eq!(apply(&once, &patch, pod()).unwrap(), once);
    }

    #[test]
    fn no_patch_panics(object in any_json(), patch in any_json()) {
        let _ = apply(&object, &patch, pod());
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i8>().prop_map(Value::from),
        "a|delete|replace".prop_map(Value::from)
    ];
    let names = "spec|containers|name|metadata|finalizers|\\$patch|\\$retainKeys|\\$setElementOrder/containers|\\$deleteFromPrimitiveList/finalizers";
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
