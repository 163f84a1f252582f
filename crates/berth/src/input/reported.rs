//! Pools of drivers that are reported beside them, in the custom resource `CSIDriverCapacity`.
//!
//! Whoever reads drivers sees one object either way: what is reported for a driver is part of its status, as the scheduler
//! has it on a cluster.

use berth_core::api::{CsiDriver, CsiDriverStatus, CsiStorage, ObjectMeta};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kind and the group of reports.
pub(crate) const KIND: &str = "CSIDriverCapacity";
const GROUP: &str = "storage.berth.dev/";

/// Whether an object is a report.
pub(super) fn is_report(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    text("kind") == KIND && text("apiVersion").starts_with(GROUP)
}

/// Drivers and reports, which wait for each other until all is read.
#[derive(Default)]
pub(super) struct Reported {
    drivers: BTreeMap<String, CsiDriver>,
    reports: BTreeMap<String, Vec<CsiStorage>>,
}

impl Reported {
    pub(super) fn driver(&mut self, driver: CsiDriver) {
        self.drivers.insert(driver.metadata.name.clone(), driver);
    }

    /// Takes a report in.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn report(&mut self, report: &Value) -> Result<(), String> {
        let name = name_of(report);
        let status = report.get("status").cloned().unwrap_or_default();
        let status: Option<CsiDriverStatus> =
            serde_json::from_value(status).map_err(|error| format!("that of {name:?} cannot be read: {error}"))?;
        self.reports.insert(name.to_owned(), status.unwrap_or_default().storage);
        Ok(())
    }

    /// The drivers with what is reported for them. One that has a report and no object is known by its report.
    pub(super) fn drivers(self) -> impl Iterator<Item = CsiDriver> {
        let mut drivers = self.drivers;
        for (name, report) in self.reports {
            let driver = drivers.entry(name.clone()).or_insert_with(|| CsiDriver {
                metadata: ObjectMeta {
                    name,
                    ..ObjectMeta::default()
                },
                ..CsiDriver::default()
            });
            driver.add_report(&report);
        }
        drivers.into_values()
    }
}

/// Objects as they were written, with reports in the status of their drivers.
#[must_use]
pub fn with_reports(objects: Vec<Value>) -> Vec<Value> {
    let (reports, mut objects): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_report);
    for report in reports {
        let of_report = |object: &&mut Value| object["kind"] == "CSIDriver" && name_of(object) == name_of(&report);
        let pools = report.pointer("/status/storage").and_then(Value::as_array).cloned();
        let (pools, name) = (pools.unwrap_or_default(), name_of(&report).to_owned());
        match objects.iter_mut().find(of_report) {
            Some(driver) => add(driver, pools),
            None => objects.push(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
                "metadata": {"name": name}, "spec": {"capacityTracking": true}, "status": {"storage": pools}})),
        }
    }
    objects
}

fn add(driver: &mut Value, pools: Vec<Value>) {
    for field in ["spec", "status"] {
        if !driver[field].is_object() {
            driver[field] = json!({});
        }
    }
    driver["spec"]["capacityTracking"] = true.into();
    let storage = &mut driver["status"]["storage"];
    match storage {
        Value::Array(known) => known.extend(pools),
        storage => *storage = pools.into(),
    }
}

fn name_of(object: &Value) -> &str {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::with_reports;
    use serde_json::json;

    #[test]
    fn reports_go_into_their_drivers() {
        let report = |name: &str| {
            json!({"apiVersion": "storage.berth.dev/v1alpha1", "kind": "CSIDriverCapacity", "metadata": {"name": name},
                "status": {"storage": [{"storageClassName": "fast"}]}})
        };
        let driver = json!({"kind": "CSIDriver", "metadata": {"name": "a"},
            "status": {"storage": [{"storageClassName": "slow"}]}});
        let merged = with_reports(vec![report("a"), driver, report("b")]);
        assert_eq!(merged.len(), 2);
        assert_eq!(merged[0]["spec"]["capacityTracking"], true);
        let classes = |at: usize| {
            let storage = merged[at]["status"]["storage"].as_array().into_iter().flatten();
            storage.map(|one| one["storageClassName"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(classes(0), ["slow", "fast"]);
        assert_eq!(
            (&merged[1]["metadata"]["name"], classes(1)),
            (&json!("b"), vec![json!("fast")])
        );
        let foreign = json!({"apiVersion": "example.com/v1", "kind": "CSIDriverCapacity", "metadata": {"name": "a"}});
        assert_eq!(with_reports(vec![foreign.clone()]), [foreign]);
    }
}
