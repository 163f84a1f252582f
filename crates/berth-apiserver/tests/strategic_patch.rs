//! Strategic merge patches as Kubernetes applies them: recorded with `kubectl patch --local`, which runs the same code
//! as kube-apiserver. Each line has an object, a patch, and the result or the error.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use berth_apiserver::patch::strategic;
use berth_apiserver::registry::{builtin, by_kind};
use berth_apiserver::schema::Schema;
use serde_json::Value;

#[test]
fn recorded_patches_give_the_recorded_results() {
    let mut failures = Vec::new();
    let cases = include_str!("strategic_patch.jsonl").lines();
    for (number, line) in cases.enumerate() {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        let object = &case["object"];
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = by_kind(builtin(), group, version, kind).expect("the kind is known");
        let result = strategic::apply(object, &case["patch"], &Schema::of(resource));
        let as_expected = match &result {
            Ok(patched) => case["expect"] == *patched,
            Err(error) => case["error"] == error.to_string().trim(),
        };
        if !as_expected {
            let got = result.map_or_else(|error| error.to_string(), |object| object.to_string());
            failures.push(format!("line {}: {line}\n  got {got}", number + 1));
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n")
    );
}
