//! Any selector is parsed or refused.

use berth_kinds::selector::{FieldSelector, LabelSelector};
use proptest::prelude::*;
use serde_json::{Value, json};

proptest! {
    #[test]
    fn any_label_selector_is_read_or_refused(text in r"([a-z./]{1,4}|=|==|!=|!|in|notin|exists| |\(|\)|,|<|>|[0-9]{1,3}|\PC){0,14}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            let object = json!({"metadata": {"labels": {"a": "b"}}});
            let _ = (selector.matches(&object), selector.matches(&Value::Null), selector.is_empty());
        }
    }

    #[test]
    fn any_field_selector_is_read_or_refused(text in r"(metadata|\.|name|spec|=|==|!=|,|\\|[a-z]{1,3}|\PC){0,14}") {
        if let Ok(selector) = FieldSelector::parse(&text) {
            let _ = (selector.matches(&json!({"metadata": {"name": "a"}}), &[]), selector.is_empty());
        }
    }

    #[test]
    fn any_selector_object_is_read_or_refused(
        key in ".{0,6}",
        operator in "(In|NotIn|Exists|DoesNotExist|Gt|Lt|.{0,4})",
        values in proptest::option::of(prop::collection::vec(".{0,4}", 0..3)),
        label in ".{0,6}",
    ) {
        let selector = json!({"matchLabels": {label: "x"}, "matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        if let Ok(selector) = LabelSelector::from_object(&selector) {
            let _ = selector.matches(&json!({"metadata": {"labels": {"a": "b"}}}));
        }
    }
}
