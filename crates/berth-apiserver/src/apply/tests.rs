use proptest::prelude::*;
use serde_json::json;

use super::fields::without_nulls;
use super::*;

fn writer(manager: &str, seconds: i64) -> Writer<'_> {
    Writer {
        manager,
        api_version: "apps/v1",
        subresource: "",
        time: Timestamp::from_second(seconds).unwrap(),
        reset: &[],
    }
}

fn deployment() -> &'static Schema {
    Schema::builtin("apps", "v1", "Deployment").unwrap()
}

fn pod() -> &'static Schema {
    Schema::builtin("", "v1", "Pod").unwrap()
}

fn apply_as(manager: &str, live: Option<&Value>, applied: &Value) -> Result<Value, ApplyError> {
    apply(live, applied, writer(manager, 1), false, deployment())
}

fn without_managed_fields(mut object: Value) -> Value {
    set_managed_fields(&mut object, Vec::new());
    object
}

fn owned_by(object: &Value, manager: &str) -> Vec<String> {
    let entries = managed::entries(object);
    let own = entries.iter().filter(|entry| entry.manager == manager);
    own.flat_map(|entry| entry.fields.paths()).collect()
}

#[test]
fn created_objects_record_what_was_applied() {
    let applied = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"a": "1"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "1"}}, "template": {"spec": {"containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}},
    });
    let created = apply_as("kubectl", None, &applied).unwrap();
    let expect = json!([{
        "manager": "kubectl", "operation": "Apply", "apiVersion": "apps/v1", "time": "1970-01-01T00:00:01Z",
        "fieldsType": "FieldsV1", "fieldsV1": {
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {"f:spec": {"f:containers": {
                "k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:ports": {
                    "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}},
        },
    }]);
    assert_eq!(created["metadata"]["managedFields"], expect);
    assert_eq!(without_managed_fields(created), applied);
}

#[test]
fn fields_no_longer_applied_are_removed() {
    let check = |first: Value, second: Value, expect: Value| {
        let live = apply(None, &first, writer("m", 1), false, pod()).unwrap();
        let live = apply(Some(&live), &second, writer("m", 2), false, pod()).unwrap();
        assert_eq!(without_managed_fields(live), expect);
    };
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"b": "3"}}}),
        json!({"metadata": {"labels": {"b": "3"}}}),
    );
    check(
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}}),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "b", "image": "2"}]}}),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "b", "image": "2"}]}}),
    );
    check(
        json!({"metadata": {"name": "p", "finalizers": ["x", "y"]}}),
        json!({"metadata": {"name": "p", "finalizers": ["y"]}}),
        json!({"metadata": {"name": "p", "finalizers": ["y"]}}),
    );
    // An atomic list is replaced; a struct that becomes empty is removed.
    check(
        json!({"metadata": {}, "spec": {"tolerations": [{"key": "a"}], "securityContext": {"runAsUser": 1}}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        json!({"metadata": {}, "spec": {"tolerations": [{"key": "b"}]}}),
    );
}

#[test]
fn what_others_own_stays() {
    let first = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "1"}]}});
    let live = apply(None, &first, writer("one", 1), false, pod()).unwrap();
    let second = json!({"spec": {"containers": [{"name": "a", "tty": true}]}});
    let live = apply(Some(&live), &second, writer("two", 2), false, pod()).unwrap();
    let live = apply(Some(&live), &json!({"spec": {}}), writer("one", 3), false, pod()).unwrap();
    let expect = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "tty": true}]}});
    assert_eq!(without_managed_fields(live), expect);
}

#[test]
fn unowned_parts_of_a_removed_element_go_with_it() {
    let first = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
    let mut live = apply(None, &first, writer("one", 1), false, pod()).unwrap();
    live["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    let second = json!({"spec": {"containers": [{"name": "b"}]}});
    let live = apply(Some(&live), &second, writer("one", 2), false, pod()).unwrap();
    assert_eq!(live["spec"]["containers"], json!([{"name": "b"}]));
}

#[test]
fn conflicts_name_owner_and_field() {
    let live = json!({"metadata": {"name": "d", "labels": {"l": "1"}}, "spec": {"replicas": 1, "paused": true}});
    let mut live = live;
    let entries = managed_fields_after_update(
        None,
        &live,
        writer("kubectl-create", 1),
        Operation::Update,
        deployment(),
    );
    set_managed_fields(&mut live, entries);
    let check = |applied: Value, expect: &str| {
        let error = apply_as("other", Some(&live), &applied).expect_err("conflicts");
        assert_eq!(error.to_string(), expect);
    };
    check(
        json!({"spec": {"replicas": 2}}),
        "Apply failed with 1 conflict: conflict with \"kubectl-create\" using apps/v1: .spec.replicas",
    );
    check(
        json!({"spec": {"replicas": 2, "paused": false}}),
        "Apply failed with 2 conflicts: conflicts with \"kubectl-create\" using apps/v1:\n- .spec.paused\n- .spec.replicas",
    );
    let same = apply_as("other", Some(&live), &json!({"spec": {"replicas": 1}})).unwrap();
    assert_eq!(owned_by(&same, "other"), [".spec.replicas"]);
    assert!(owned_by(&same, "kubectl-create").contains(&".spec.replicas".to_owned()));
}

#[test]
fn force_takes_fields_over() {
    let live = apply_as("one", None, &json!({"spec": {"replicas": 1, "paused": true}})).unwrap();
    let applied = json!({"spec": {"replicas": 2}});
    let error = apply_as("two", Some(&live), &applied).unwrap_err().to_string();
    assert_eq!(
        error,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    let live = apply(Some(&live), &applied, writer("two", 2), true, deployment()).unwrap();
    assert_eq!(live["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(owned_by(&live, "one"), [".spec.paused"]);
    assert_eq!(owned_by(&live, "two"), [".spec.replicas"]);
}

#[test]
fn objects_of_unknown_owners_conflict_until_forced() {
    let live = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1}});
    let error = apply_as("m", Some(&live), &json!({"spec": {"replicas": 2}}))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas"
    );
}

#[test]
fn writes_take_fields_over() {
    let live = apply_as("one", None, &json!({"spec": {"replicas": 1, "paused": true}})).unwrap();
    let mut new = live.clone();
    new["spec"] = json!({"replicas": 3});
    let entries = managed_fields_after_update(Some(&live), &new, writer("scaler", 5), Operation::Update, deployment());
    set_managed_fields(&mut new, entries);
    assert_eq!(owned_by(&new, "scaler"), [".spec.replicas"]);
    assert_eq!(owned_by(&new, "one"), [".spec.replicas"; 0]);
    assert_eq!(new["metadata"]["managedFields"].as_array().unwrap().len(), 1);
}

#[test]
fn created_maps_are_owned_with_their_keys() {
    let new = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": {"a": "1"}},
        "spec": {"containers": [{"name": "a"}], "nodeSelector": {"x": "y"}}});
    let entries = managed_fields_after_update(None, &new, writer("m", 1), Operation::Update, pod());
    let expect = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}, "f:nodeSelector": {}},
    });
    assert_eq!(entries[0]["fieldsV1"], expect);
}

#[test]
fn writes_that_change_nothing_keep_the_entries() {
    let live = apply_as("one", None, &json!({"spec": {"replicas": 1}})).unwrap();
    let mut new = live.clone();
    new["metadata"]["resourceVersion"] = json!("7");
    let entries = managed_fields_after_update(Some(&live), &new, writer("w", 9), Operation::Update, deployment());
    assert_eq!(json!(entries), live["metadata"]["managedFields"]);
}

#[test]
fn old_writers_are_put_together() {
    let mut object = json!({"metadata": {"labels": {}}});
    for n in 0..14 {
        let mut new = object.clone();
        new["metadata"]["labels"][format!("l{n}")] = json!("x");
        let manager = format!("m{n}");
        let writer = Writer {
            manager: &manager,
            ..writer("", n)
        };
        let entries = managed_fields_after_update(Some(&object), &new, writer, Operation::Update, pod());
        set_managed_fields(&mut new, entries);
        object = new;
    }
    assert_eq!(object["metadata"]["managedFields"].as_array().unwrap().len(), 10);
    assert_eq!(owned_by(&object, "ancient-changes").len(), 5);
}

#[test]
fn bad_configurations_are_refused() {
    let check = |applied: Value, expect: &str| {
        let error = apply(None, &applied, writer("m", 1), false, pod())
            .expect_err("refused")
            .to_string();
        assert!(error.ends_with(expect), "{error}");
    };
    check(
        json!({"metadata": {"managedFields": [{"manager": "x"}]}}),
        "metadata.managedFields must be nil",
    );
    check(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
            "spec": {"containers": [{"name": "a"}, {"name": "a"}]}}),
        "failed to create typed patch object (n/p; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name=\"a\"]",
    );
    check(
        json!({"spec": {"containers": [{"image": "a"}]}}),
        ".spec.containers: element 0: associative list with keys has an element that omits key field \"name\" \
         (and doesn't have default value)",
    );
}

#[test]
fn applied_nulls_remove_fields() {
    let live = apply_as("one", None, &json!({"spec": {"replicas": 1, "paused": true}})).unwrap();
    let live = apply(
        Some(&live),
        &json!({"spec": {"paused": null}}),
        writer("two", 2),
        true,
        deployment(),
    )
    .unwrap();
    assert_eq!(live["spec"], json!({"replicas": 1}));
}

fn configuration(names: &'static str) -> impl Strategy<Value = Value> {
    let containers = prop::collection::btree_map(names, ("[x-z]", prop::option::of(any::<bool>())), 0..3);
    let labels = prop::collection::btree_map(names, "[x-z]", 0..3);
    let finalizers = prop::collection::btree_set(names, 0..3);
    let user = prop::option::of(0..3i64);
    (containers, labels, finalizers, user).prop_map(|(containers, labels, finalizers, user)| {
        let containers: Vec<_> = containers
            .into_iter()
            .map(|(name, (image, tty))| without_nulls(&json!({"name": name, "image": image, "tty": tty})))
            .collect();
        let spec = json!({"containers": containers, "securityContext": {"runAsUser": user}});
        without_nulls(&json!({"metadata": {"name": "p", "labels": labels, "finalizers": finalizers}, "spec": spec}))
    })
}

proptest! {
    #[test]
    fn applying_again_changes_nothing(first in configuration("[a-d]"), second in configuration("[a-d]")) {
        let live = apply(None, &first, writer("one", 1), false, pod()).unwrap();
        let once = apply(Some(&live), &second, writer("one", 2), false, pod()).unwrap();
        let twice = apply(Some(&once), &second, writer("one", 3), false, pod()).unwrap();
        prop_assert_eq!(twice, once);
    }

    #[test]
    fn one_manager_gets_what_it_applied_last(first in configuration("[a-d]"), second in configuration("[a-d]")) {
        let live = apply(None, &first, writer("one", 1), false, pod()).unwrap();
        let live = apply(Some(&live), &second, writer("one", 2), false, pod()).unwrap();
        let fresh = apply(None, &second, writer("one", 2), false, pod()).unwrap();
        prop_assert_eq!(fields::field_set(&live, pod().cursor(), Containers::Applied),
                        fields::field_set(&fresh, pod().cursor(), Containers::Applied));
    }

    #[test]
    fn managers_of_different_fields_commute(one in configuration("[a-b]"), mut two in configuration("[c-d]")) {
        two["spec"]["securityContext"] = json!({});
        two["spec"]["hostNetwork"] = json!(true);
        let both = |first: (&str, &Value), second: (&str, &Value)| {
            let live = apply(None, first.1, writer(first.0, 1), false, pod()).unwrap();
            apply(Some(&live), second.1, writer(second.0, 1), false, pod()).unwrap()
        };
        let (mut a, mut b) = (both(("one", &one), ("two", &two)), both(("two", &two), ("one", &one)));
        // Elements of different managers have no relative order.
        for object in [&mut a, &mut b] {
            if let Some(list) = object["spec"]["containers"].as_array_mut() {
                list.sort_by_key(|c| c["name"].to_string());
            }
            if let Some(list) = object["metadata"]["finalizers"].as_array_mut() {
                list.sort_by_key(Value::to_string);
            }
            // Only changes of the object have a time, which may be either of the two.
            let mut entries = managed::entries(object);
            entries.iter_mut().for_each(|entry| entry.time = None);
            set_managed_fields(object, managed::encode(entries));
        }
        prop_assert_eq!(a, b);
    }

    #[test]
    fn forced_applies_always_succeed(first in configuration("[a-c]"), second in configuration("[a-c]")) {
        let live = apply(None, &first, writer("one", 1), false, pod()).unwrap();
        let live = apply(Some(&live), &second, writer("two", 2), true, pod()).unwrap();
        let again = apply(Some(&live), &second, writer("two", 3), false, pod());
        prop_assert_eq!(again, Ok(live));
    }
}
