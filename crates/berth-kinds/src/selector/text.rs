//! Label selectors in string form.

use serde_json::Value;

use crate::meta;

/// A label selector object in string form.
#[must_use]
pub fn text_of(selector: &Value) -> String {
    requirements(selector).join(",")
}

/// The requirements of a label selector object, each in string form. A plain map of labels is also a selector.
pub(crate) fn requirements(selector: &Value) -> Vec<String> {
    let labels = match &selector["matchLabels"] {
        Value::Null => selector,
        labels => labels,
    };
    let mut parts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in meta::items(selector, &["matchExpressions"]) {
        let key = meta::text(expression, &["key"]);
        let values: Vec<_> = meta::items(expression, &["values"])
            .iter()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match meta::text(expression, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts
}
