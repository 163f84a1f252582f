//! The messages of extenders, in version `v1` of their API. Its field names are those of Go; in answers, case does not matter, as in Go.

use berth_scheduler::extender::{Answer, NodeVictims};
use berth_scheduler::scheduler::PodRef;
use serde_json::{Map, Value, json};

/// A pod and the names of its nodes.
pub(super) fn named_nodes(pod: &Value, nodes: &[String]) -> Value {
    json!({"Pod": pod, "Nodes": null, "NodeNames": nodes})
}

/// A pod and its nodes.
pub(super) fn whole_nodes<'a>(pod: &Value, nodes: impl Iterator<Item = &'a Value>) -> Value {
    let items: Vec<_> = nodes.collect();
    json!({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null})
}

/// A pod and what would make room for it, by the uids of pods.
pub(super) fn meta_victims(pod: &Value, victims: &[NodeVictims]) -> Value {
    let nodes: Map<_, _> = victims
        .iter()
        .map(|found| {
            let pods: Vec<_> = found.pods.iter().map(|pod| json!({"UID": pod.uid})).collect();
            let victims = json!({"Pods": pods, "NumPDBViolations": found.violations});
            (found.node.clone(), victims)
        })
        .collect();
    json!({"Pod": pod, "NodeNameToVictims": null, "NodeNameToMetaVictims": nodes})
}

/// A pod and what would make room for it: nodes with pods and the number of violated budgets.
pub(super) fn whole_victims(pod: &Value, victims: Vec<(&str, Vec<Value>, i64)>) -> Value {
    let nodes: Map<_, _> = victims
        .into_iter()
        .map(|(node, pods, violations)| (node.to_owned(), json!({"Pods": pods, "NumPDBViolations": violations})))
        .collect();
    json!({"Pod": pod, "NodeNameToVictims": nodes, "NodeNameToMetaVictims": null})
}

/// A pod and its node.
pub(super) fn binding(pod: &PodRef, node: &str) -> Value {
    let (namespace, name) = pod.key.split_once('/').unwrap_or(("", &pod.key));
    json!({"PodName": name, "PodNamespace": namespace, "PodUID": pod.uid, "Node": node})
}

/// The answer to a binding.
///
/// # Errors
/// If the extender reports a problem.
pub fn bound(answer: &Value) -> Result<(), String> {
    match error(answer) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// The answer to a filter call.
///
/// # Errors
/// If the extender reports a problem, or the answer is not one of its API.
pub fn filtered(answer: &Value, node_cache_capable: bool) -> Result<Answer, String> {
    if !answer.is_object() && !answer.is_null() {
        return Err(unexpected("ExtenderFilterResult", answer));
    }
    if let Some(problem) = error(answer) {
        return Err(problem);
    }
    let names = field(answer, "NodeNames").filter(|names| node_cache_capable && !names.is_null());
    let nodes = match names {
        Some(names) => texts(names).ok_or_else(|| unexpected("list of names in NodeNames", names))?,
        None => {
            let items = field(answer, "Nodes").and_then(|nodes| field(nodes, "items"));
            let items = items.and_then(Value::as_array).into_iter().flatten();
            items
                .filter_map(|node| text(field(field(node, "metadata")?, "name")?))
                .collect()
        }
    };
    Ok(Answer::Filtered {
        nodes,
        failed: messages(answer, "FailedNodes")?,
        unresolvable: messages(answer, "FailedAndUnresolvableNodes")?,
    })
}

/// The answer to a prioritize call.
///
/// # Errors
/// If the answer is not one of its API.
pub fn scores(answer: &Value) -> Result<Answer, String> {
    let none = Vec::new();
    let list = match answer {
        Value::Null => &none,
        Value::Array(list) => list,
        other => return Err(unexpected("HostPriorityList", other)),
    };
    let score = |entry: &Value| Some((text(field(entry, "Host")?)?, field(entry, "Score")?.as_i64()?));
    let scores = list
        .iter()
        .map(|entry| score(entry).ok_or_else(|| unexpected("HostPriority", entry)));
    scores.collect::<Result<_, _>>().map(Answer::Scores)
}

/// The answer to a preempt call. Pods are named by their uids.
///
/// # Errors
/// If the answer is not one of its API.
pub fn victims(answer: &Value, asked: &[NodeVictims]) -> Result<Answer, String> {
    if !answer.is_object() && !answer.is_null() {
        return Err(unexpected("ExtenderPreemptionResult", answer));
    }
    let none = Map::new();
    let nodes = field(answer, "NodeNameToMetaVictims").and_then(Value::as_object);
    let mut victims = Vec::new();
    for (node, found) in nodes.unwrap_or(&none) {
        let pods = field(found, "Pods").and_then(Value::as_array).into_iter().flatten();
        let uids: Option<Vec<_>> = pods.map(|pod| text(field(pod, "UID")?)).collect();
        let uids = uids.ok_or_else(|| unexpected("MetaVictims", found))?;
        let known = |uid: &str| {
            let mut pods = asked.iter().flat_map(|asked| &asked.pods);
            pods.find(|pod| pod.uid == uid).map(|pod| pod.key.clone())
        };
        victims.push(NodeVictims {
            node: node.clone(),
            pods: uids
                .into_iter()
                .map(|uid| PodRef {
                    key: known(&uid).unwrap_or_default(),
                    uid,
                })
                .collect(),
            violations: field(found, "NumPDBViolations").and_then(Value::as_i64).unwrap_or(0),
        });
    }
    Ok(Answer::Victims(victims))
}

/// A field of an answer, whatever the case of its name.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = value.as_object()?;
    let any_case = || fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    fields.get(name).or_else(|| any_case().map(|(_, value)| value))
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(text).collect()
}

fn error(answer: &Value) -> Option<String> {
    text(field(answer, "Error")?).filter(|problem| !problem.is_empty())
}

fn messages(answer: &Value, name: &str) -> Result<Vec<(String, String)>, String> {
    let Some(found) = field(answer, name).filter(|found| !found.is_null()) else {
        return Ok(Vec::new());
    };
    let entries = found.as_object().ok_or_else(|| unexpected(name, found))?;
    let entries = entries.iter().map(|(node, message)| {
        let message = text(message).ok_or_else(|| unexpected(name, message))?;
        Ok((node.clone(), message))
    });
    entries.collect()
}

fn unexpected(expected: &str, found: &Value) -> String {
    let found: String = found.to_string().chars().take(200).collect();
    format!("found {found} in its answer, expected a {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whatever_their_case() {
        let answer = json!({"nodeNames": ["n1"], "failedNodes": {"n2": "no"}, "error": ""});
        let expected = Answer::Filtered {
            nodes: vec!["n1".to_owned()],
            failed: vec![("n2".to_owned(), "no".to_owned())],
            unresolvable: Vec::new(),
        };
        assert_eq!(filtered(&answer, true), Ok(expected.clone()));
        let answer = json!({"Nodes": {"items": [{"metadata": {"name": "n1"}}]}, "NodeNames": null,
            "FailedNodes": {"n2": "no"}, "FailedAndUnresolvableNodes": null, "Error": ""});
        assert_eq!(filtered(&answer, false), Ok(expected));
        let answer = json!([{"Host": "n1", "Score": 7}]);
        assert_eq!(scores(&answer), Ok(Answer::Scores(vec![("n1".to_owned(), 7)])));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert_eq!(
            filtered(&json!({"Error": "no license"}), true),
            Err("no license".to_owned())
        );
        for broken in [
            json!([]),
            json!({"NodeNames": 1}),
            json!({"NodeNames": [], "FailedNodes": ["n"]}),
        ] {
            assert!(filtered(&broken, true).is_err(), "{broken}");
        }
        assert!(scores(&json!({})).is_err());
        assert!(scores(&json!([{"Host": "n1"}])).is_err());
        assert!(victims(&json!("no"), &[]).is_err());
        assert!(bound(&json!({"Error": "taken"})).is_err());
        assert!(bound(&json!({})).is_ok());
    }
}
