//! Whether a pod tolerates a taint.

use super::field;
use serde_json::Value;

/// Whether a toleration matches a taint.
pub(super) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let key = field::text(toleration, "/key");
    let operator = field::text(toleration, "/operator");
    let is_key = key == field::text(taint, "/key") || (key.is_empty() && operator == "Exists");
    let (wanted, found) = (field::text(toleration, "/value"), field::text(taint, "/value"));
    // Only the canonical form of a number counts, as in the scheduler: neither `+1` nor `01`.
    let number = |text: &str| text.parse::<i64>().ok().filter(|number| number.to_string() == text);
    let numbers = number(found).zip(number(wanted));
    let is_value = match operator {
        "" | "Equal" => wanted == found,
        "Exists" => true,
        "Lt" => numbers.is_some_and(|(found, wanted)| found < wanted),
        "Gt" => numbers.is_some_and(|(found, wanted)| found > wanted),
        _ => false,
    };
    let effect = field::text(toleration, "/effect");
    is_key && is_value && (effect.is_empty() || effect == field::text(taint, "/effect"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operators_are_those_of_the_scheduler() {
        let taint = json!({"key": "level", "value": "3", "effect": "NoExecute"});
        let is_tolerated = |operator: &str, value: &str| {
            tolerates(&json!({"key": "level", "operator": operator, "value": value}), &taint)
        };
        assert!(is_tolerated("", "3") && is_tolerated("Equal", "3") && is_tolerated("Exists", ""));
        assert!(
            is_tolerated("Lt", "4") && !is_tolerated("Lt", "3") && is_tolerated("Gt", "2") && !is_tolerated("Gt", "3")
        );
        assert!(!is_tolerated("Lt", "+4") && !is_tolerated("Equal", "4") && !is_tolerated("Like", "3"));
    }
}
