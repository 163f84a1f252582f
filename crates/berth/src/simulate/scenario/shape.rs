//! The structure of a scenario's parts, with errors in terms of YAML: the decoder's messages about Rust types are
//! reworded.

use berth_cluster::simulation::scenario::Action;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The invalid field, as a path from the part that was read, and what is wrong with it.
pub(super) type Broken = (String, String);

/// Minimum similarity of a suggested name, from 0 to 1.
const NEAR_ENOUGH: f64 = 0.75;

/// The names of all actions, with an example of each.
const ACTIONS: [(&str, &str); 12] = [
    ("addNodes", "addNodes: {generateName: new-, like: node-1}"),
    ("deleteNodes", "deleteNodes: {nodes: [node-1]}"),
    ("cordon", "cordon: {nodes: [node-1]}"),
    ("uncordon", "uncordon: {nodes: [node-1]}"),
    ("drain", "drain: {nodes: [node-1]}"),
    ("stopNodes", "stopNodes: {zone: zone-a}"),
    ("startNodes", "startNodes: {zone: zone-a}"),
    ("refusePods", "refusePods: {nodes: [node-1]}"),
    ("scale", "scale: {kind: Deployment, name: web, replicas: 3}"),
    ("delete", "delete: {kind: Pod, name: web-0}"),
    ("apply", "apply: {filename: more.yaml}"),
    ("setCapacity", "setCapacity: {storageClass: fast, capacity: 10Gi}"),
];

/// Decodes a part.
pub(super) fn decode<T: DeserializeOwned>(value: Value) -> Result<T, Broken> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => String::new(),
            path => path,
        };
        (field, plain(&error.into_inner().to_string()))
    })
}

/// Decodes one action: a map with the action as its only key.
pub(super) fn action(value: Value) -> Result<Action, Broken> {
    let broken = |problem: String| Err((String::new(), problem));
    let Value::Object(fields) = &value else {
        return broken(match value.as_str().and_then(example) {
            Some(example) => format!("found {value} alone, expected what it is done to, such as `{example}`"),
            None => format!(
                "found {}, expected an action, such as `{}`",
                short(&value),
                ACTIONS[4].1
            ),
        });
    };
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let name = match names.as_slice() {
        [name] => *name,
        [] => return broken(format!("found nothing, expected an action, such as `{}`", ACTIONS[4].1)),
        names => {
            let names = names.join("` and `");
            return broken(format!(
                "found `{names}` together; write each action as a separate item"
            ));
        }
    };
    let Some(example) = example(name) else {
        return broken(unknown(name));
    };
    if !fields[name].is_object() {
        let found = short(&fields[name]);
        return Err((
            name.to_owned(),
            format!("found {found}, expected its fields, such as `{example}`"),
        ));
    }
    decode(value)
}

fn example(name: &str) -> Option<&'static str> {
    let mut known = ACTIONS.iter();
    known.find(|(known, _)| *known == name).map(|(_, example)| *example)
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = ACTIONS.iter().map(|(known, _)| *known).collect();
    let alike = known.iter().map(|known| (strsim::jaro_winkler(known, name), known));
    let nearest = alike.max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = match nearest.filter(|(alike, _)| *alike >= NEAR_ENOUGH) {
        Some((_, known)) => format!("; did you mean `{known}`?"),
        None => ";".to_owned(),
    };
    format!("there is no action `{name}`{meant} known are {}", known.join(", "))
}

/// A value for use in a sentence.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "fields".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Rewords the decoder's message for authors of YAML.
fn plain(problem: &str) -> String {
    let problem = problem
        .strip_prefix("invalid type: ")
        .or(problem.strip_prefix("invalid value: "))
        .unwrap_or(problem);
    let Some((found, expected)) = problem.split_once(", expected ") else {
        return problem.to_owned();
    };
    if problem.starts_with("unknown ") {
        return problem.to_owned();
    }
    let found = match found {
        "sequence" => "a list".to_owned(),
        "map" => "fields".to_owned(),
        "null" => "nothing".to_owned(),
        found => found
            .replace("integer ", "the number ")
            .replace("floating point ", "the number ")
            .replace("boolean ", "")
            .replace("string ", "the text "),
    };
    let expected = match expected {
        "a string" if found.starts_with("the number") || found.starts_with('`') => "a text; put it in quotes",
        "a string" => "a text",
        "u32" if found.starts_with("the text") => "a whole number; take the quotes away",
        "u32" => "a whole number, 0 or more",
        "a boolean" => "true or false",
        "a sequence" => "a list, such as [a, b]",
        "a map" => "fields, such as {a: b}",
        expected if expected.starts_with("struct ") => "fields, such as {a: b}",
        expected => expected,
    };
    format!("found {found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn every_example_is_an_action_of_its_name() {
        for (name, example) in ACTIONS {
            let value = crate::input::value_of(&"example".into(), example).unwrap();
            let action = action(value).unwrap_or_else(|(field, problem)| panic!("{example}: {field}: {problem}"));
            assert_eq!(action.verb(), name);
        }
    }

    /// The fields that the decoder lists in its error about an unknown one.
    fn decoded_fields(verb: &str) -> BTreeSet<String> {
        let (_, problem) = action(json!({verb: {"noSuchField": 1}})).unwrap_err();
        let (_, fields) = problem.split_once("expected ").unwrap();
        let fields = fields.split('`').skip(1).step_by(2);
        fields.map(str::to_owned).collect()
    }

    #[test]
    fn the_schema_has_the_actions_and_fields_that_are_read() {
        let schema: Value = serde_json::from_str(super::super::SCHEMA).unwrap();
        let actions = schema["$defs"]["action"]["properties"].as_object().unwrap();
        let known: BTreeSet<&str> = ACTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(actions.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
        for (name, action) in actions {
            let shape = match action["$ref"].as_str() {
                Some(reference) => schema.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
                None => action,
            };
            let fields = shape["properties"].as_object().unwrap().keys().cloned();
            assert_eq!(fields.collect::<BTreeSet<_>>(), decoded_fields(name), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_action_is_said_in_plain_words() {
        for (value, field, said) in [
            (
                json!("drain"),
                "",
                "found \"drain\" alone, expected what it is done to, such as `drain: {nodes",
            ),
            (json!(5), "", "found 5, expected an action"),
            (
                json!({"drain": {}, "cordon": {}}),
                "",
                "write each action as a separate item",
            ),
            (
                json!({"drian": {}}),
                "",
                "there is no action `drian`; did you mean `drain`?",
            ),
            (
                json!({"drain": ["n1"]}),
                "drain",
                "found a list, expected its fields, such as `drain: {nodes",
            ),
            (
                json!({"drain": {"nodes": "n1"}}),
                "drain.nodes",
                "found the text \"n1\", expected a list, such as [a, b]",
            ),
            (
                json!({"drain": {"nodes": [1]}}),
                "drain.nodes[0]",
                "found the number `1`, expected a text; put it in quotes",
            ),
            (
                json!({"cordon": {"zone": true}}),
                "cordon.zone",
                "found `true`, expected a text; put it in quotes",
            ),
            (
                json!({"scale": {"kind": "Deployment", "name": "w", "replicas": "3"}}),
                "scale.replicas",
                "found the text \"3\", expected a whole number; take the quotes away",
            ),
            (
                json!({"scale": {"kind": "Deployment", "name": "w", "replicas": -1}}),
                "scale.replicas",
                "found the number `-1`, expected a whole number, 0 or more",
            ),
            (
                json!({"scale": {"kind": "Deployment", "name": "w"}}),
                "scale",
                "missing field `replicas`",
            ),
        ] {
            let (found_field, problem) = action(value.clone()).unwrap_err();
            assert_eq!(found_field, field, "{value}: {problem}");
            assert!(problem.contains(said), "{value}\n  said {problem}\n  not  {said}");
        }
    }
}
