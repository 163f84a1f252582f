//! Finds fields that Kubernetes does not have. A misspelt `nodeSelector` silently selects nothing: an API server warns
//! about it, and so must a reader of files.
//!
//! Objects with a UID have been through an API server, possibly a newer one with more fields, and are left alone.

use super::place::Place;
use berth_apiserver::schema::{Schema, builtin_definitions, unknown_fields};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of fields reported. Beyond that, the reader needs the pattern, not the rest.
const WARNINGS_MAX: usize = 10;

/// Minimum similarity of a suggested name, from 0 to 1.
const NEAR_ENOUGH: f64 = 0.85;

/// An additional name that Berth reads: the binding mode of a class before it was part of Kubernetes.
const ALSO_READ: [(&str, &str); 1] = [("StorageClass", "bindingMode")];

/// The unknown fields, by kind and path; the same mistake in many objects is reported once.
#[derive(Debug, Default)]
pub(super) struct UnknownFields {
    found: BTreeMap<(String, String), Found>,
    /// The order in which they were first found.
    order: Vec<(String, String)>,
}

#[derive(Debug)]
struct Found {
    first: String,
    more: usize,
}

impl UnknownFields {
    /// Checks an object from a file.
    pub(super) fn look(&mut self, place: &Place, object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if !text("/metadata/uid").is_empty() {
            return;
        }
        let (kind, api_version) = (text("/kind"), text("/apiVersion"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(schema) = Schema::builtin(group, version, kind) else {
            return;
        };
        for path in unknown_fields(object, schema) {
            if ALSO_READ.contains(&(kind, &*path)) {
                continue;
            }
            let key = (kind.to_owned(), without_indexes(&path));
            if let Some(known) = self.found.get_mut(&key) {
                known.more += 1;
                continue;
            }
            let name = match (text("/metadata/namespace"), text("/metadata/name")) {
                ("", name) => name.to_owned(),
                (namespace, name) => format!("{namespace}/{name}"),
            };
            let meant = meant(group, version, kind, &path).unwrap_or_default();
            let first = format!("{place}: {kind} {name:?}: {path}: Kubernetes has no such field; it is ignored{meant}");
            self.order.push(key.clone());
            self.found.insert(key, Found { first, more: 0 });
        }
    }

    /// The warnings, one line per field.
    pub(super) fn warnings(&self) -> Vec<String> {
        let line = |key: &(String, String)| {
            let found = self.found.get(key)?;
            let more = match found.more {
                0 => String::new(),
                1 => " (and once more)".to_owned(),
                more => format!(" (and {more} times more)"),
            };
            Some(format!("warning: {}{more}", found.first))
        };
        let mut lines: Vec<String> = self.order.iter().take(WARNINGS_MAX).filter_map(line).collect();
        match self.order.len().saturating_sub(WARNINGS_MAX) {
            0 => {}
            more => lines.push(format!("warning: and {more} more fields that Kubernetes does not have")),
        }
        lines
    }
}

/// `spec.containers[3].foo` as `spec.containers[].foo`.
fn without_indexes(path: &str) -> String {
    let mut out = String::new();
    let mut is_index = false;
    for letter in path.chars() {
        is_index &= letter != ']';
        if !is_index {
            out.push(letter);
        }
        is_index |= letter == '[';
    }
    out
}

/// The field that was probably meant.
fn meant(group: &str, version: &str, kind: &str, path: &str) -> Option<String> {
    let is_kind = |definition: &&Value| {
        let kinds = definition["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|one| {
            one["kind"] == kind && one["version"] == version && one["group"].as_str().unwrap_or_default() == group
        })
    };
    let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut at = builtin_definitions().values().find(is_kind)?;
    for step in above.split('.').filter(|step| !step.is_empty()) {
        let (step, items) = step.split_once('[').map_or((step, 0), |(step, _)| (step, 1));
        at = resolved(&at["properties"][step])?;
        for _ in 0..items {
            at = resolved(&at["items"])?;
        }
    }
    let known = at["properties"].as_object()?.keys();
    let alike = known.map(|known| (strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase()), known));
    let nearest = alike.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (nearest.0 >= NEAR_ENOUGH).then(|| format!("; did you mean `{}`?", nearest.1))
}

/// A definition, following a reference.
fn resolved(definition: &Value) -> Option<&Value> {
    let reference = definition["$ref"]
        .as_str()
        .or_else(|| definition.pointer("/allOf/0/$ref")?.as_str());
    match reference {
        Some(reference) => builtin_definitions().get(reference.rsplit('/').next()?),
        None => definition.is_object().then_some(definition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn warnings(object: &Value) -> Vec<String> {
        let mut unknown = UnknownFields::default();
        let place = Place::document(&"a.yaml".into(), 1, 1);
        unknown.look(&place, object);
        unknown.look(&place, object);
        unknown.warnings()
    }

    #[test]
    fn a_misspelt_field_is_told_with_the_one_that_was_meant() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "lables": {}},
            "spec": {"nodeSelectr": {"a": "b"}, "containers": [{"name": "c", "resource": {}}, {"name": "d", "zzz": 1}]}});
        let said = warnings(&pod);
        assert_eq!(
            said[0],
            "warning: a.yaml: document 1 (line 1): Pod \"p\": metadata.lables: Kubernetes has no such field; it is ignored; did you mean `labels`? (and once more)"
        );
        let ends = |line: &String, end: &str| line.contains(end);
        assert!(
            said.iter()
                .any(|line| ends(line, "spec.nodeSelectr") && ends(line, "`nodeSelector`?"))
        );
        assert!(
            said.iter()
                .any(|line| ends(line, "spec.containers[0].resource:") && ends(line, "`resources`?"))
        );
        assert!(
            said.iter()
                .any(|line| ends(line, "spec.containers[1].zzz:") && !ends(line, "did you mean"))
        );
        assert_eq!(said.len(), 4);
    }

    #[test]
    fn what_an_api_server_has_seen_and_what_berth_reads_besides_is_left_alone() {
        let seen =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "1"}, "spec": {"tomorrow": 1}});
        assert_eq!(warnings(&seen), [""; 0]);
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"},
            "provisioner": "x", "bindingMode": "WaitForFirstConsumer"});
        assert_eq!(warnings(&class), [""; 0]);
    }
}
