use proptest::prelude::*;
use serde_json::{Value, json};

use super::{check, validate};

fn schema(rule: Value) -> Value {
    let port = json!({"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}});
    json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-validations": [rule], "properties": {
        "size": {"type": "integer"}, "share": {"type": "number"}, "name": {"type": "string"}, "my-key": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "ports": {"type": "array", "items": port, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }}}})
}

fn broken(rule: &str, spec: Value) -> Vec<String> {
    let schema = schema(json!({"rule": rule}));
    let errors = validate(&json!({"metadata": {"name": "o"}, "spec": spec}), None, &schema);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_hold_or_are_told() {
    for (rule, good, bad) in [
        ("self.size > 2", json!({"size": 3}), json!({"size": 2})),
        ("self.size + 1 == 4", json!({"size": 3}), json!({"size": 2})),
        ("self.share < 0.5", json!({"share": 0}), json!({"share": 1})),
        (
            "!has(self.name) || self.name.startsWith('a')",
            json!({}),
            json!({"name": "b"}),
        ),
        (
            "!(has(self.name) && has(self.size))",
            json!({"name": "a"}),
            json!({"name": "a", "size": 1}),
        ),
        (
            "self.name.matches('^[a-z]+$')",
            json!({"name": "abc"}),
            json!({"name": "1"}),
        ),
        (
            "self.name.matches('^\\\\d+$')",
            json!({"name": "12"}),
            json!({"name": "١٢"}),
        ),
        (
            "matches(self.name, '^\\\\w$')",
            json!({"name": "a"}),
            json!({"name": "ä"}),
        ),
        ("self.name in ['a', 'b']", json!({"name": "b"}), json!({"name": "c"})),
        (
            "self.name.split('-').size() == 2",
            json!({"name": "a-b"}),
            json!({"name": "a"}),
        ),
        (
            "self.ports.all(p, p.port > 0)",
            json!({"ports": [{"name": "a", "port": 1}]}),
            json!({"ports": [{"port": 0}]}),
        ),
        (
            "self.ports.all(p, self.ports.exists_one(q, p.port == q.port))",
            json!({"ports": [{"port": 1}, {"port": 2}]}),
            json!({"ports": [{"port": 1}, {"port": 1}]}),
        ),
        (
            "self.labels.all(key, key != 'x')",
            json!({"labels": {"a": "b"}}),
            json!({"labels": {"x": "b"}}),
        ),
        (
            "self.labels['a'] == 'b'",
            json!({"labels": {"a": "b"}}),
            json!({"labels": {"a": "c"}}),
        ),
        (
            "self.__namespace__ == self.my__dash__key",
            json!({"namespace": "n", "my-key": "n"}),
            json!({"namespace": "n", "my-key": "m"}),
        ),
        (
            "self.size > 1 ? self.share > 0.0 : true",
            json!({"size": 1}),
            json!({"size": 2, "share": 0}),
        ),
    ] {
        assert_eq!(
            check(&schema(json!({"rule": rule}))["properties"]["spec"]),
            [],
            "{rule}"
        );
        assert_eq!(broken(rule, good), [""; 0], "{rule}");
        let told = broken(rule, bad);
        let rule = format!("spec: Invalid value: \"object\": failed rule: {rule}");
        assert_eq!(told, [rule]);
    }
    let told = broken("self.size > 2", json!({}));
    assert!(
        told[0].contains("rule evaluation error: "),
        "what cannot be worked out does not hold: {told:?}"
    );
}

#[test]
fn a_rule_about_a_change_needs_one() {
    let schema = schema(
        json!({"rule": "self.size >= oldSelf.size", "messageExpression": "'must not shrink from ' + string(oldSelf.size)",
        "fieldPath": ".size", "reason": "FieldValueInvalid"}),
    );
    let object = |size: i64| json!({"spec": {"size": size}});
    assert_eq!(validate(&object(1), None, &schema), []);
    assert_eq!(validate(&object(2), Some(&object(1)), &schema), []);
    let errors = validate(&object(1), Some(&object(7)), &schema);
    assert_eq!(
        errors[0].to_string(),
        "spec.size: Invalid value: \"object\": must not shrink from 7"
    );
}

#[test]
fn rules_that_cannot_be_kept_are_refused_with_the_reason() {
    for (rule, why) in [
        ("self.size >", "compilation failed"),
        ("isURL(self.name)", "calls isURL"),
        ("quantity(self.name).isGreaterThan(quantity('1'))", "calls "),
        ("other.size > 1", "undeclared reference to 'other'"),
        (&"(".repeat(30), "too deep"),
        (&"!".repeat(60), "too deep"),
        (&format!("self.size == {}1", "1 + ".repeat(500)), "too"),
        (&"a".repeat(5000), "too long"),
    ] {
        let wrong = check(&json!({"x-kubernetes-validations": [{"rule": rule}]}));
        let told = wrong.first().map(|(_, error)| error.to_string()).unwrap_or_default();
        assert!(told.contains(why), "{rule:.40}: {told}");
    }
    let wrong = check(
        &json!({"x-kubernetes-validations": [{"rule": "self.size > 1"}, {"rule": "true", "optionalOldSelf": true}]}),
    );
    assert_eq!(wrong.len(), 1);
    assert_eq!(wrong[0].0, 1);
}

#[test]
fn a_rule_that_would_take_for_ever_does_not_hold() {
    let loops = "self.ports.all(a, self.ports.all(b, self.ports.all(c, self.ports.all(d, a.port != b.port + c.port * d.port))))";
    let ports: Vec<_> = (0..500).map(|port| json!({"port": port})).collect();
    let told = broken(loops, json!({"ports": ports}));
    assert!(told[0].contains("would take too long"), "{told:?}");
    let list = vec!["1"; 100].join(",");
    let nested = (0..8).fold("true".to_owned(), |inner, level| {
        format!("[{list}].all(x{level}, {inner})")
    });
    let told = broken(&nested, json!({}));
    assert!(told[0].contains("too l"), "{told:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_rule_is_taken_or_refused(rule in r"(self|oldSelf|\.size|\.ports|\.all\(a, |a|size\(|matches\('|'|\(|\)|\[|\]|\{|\}|\?|:|&&|\|\||!|-|\+|==|>|1| |\.){0,16}") {
        let rules = json!({"x-kubernetes-validations": [{"rule": rule}]});
        let _ = check(&rules);
        let _ = validate(&json!({"size": 1, "ports": [{"port": 1}]}), None, &rules);
    }
}
