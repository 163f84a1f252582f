//! Pools that are reported in the custom resource `CSIDriverCapacity`.
//!
//! The pools of a driver are part of the status of its `CSIDriver`, if the API server has that field. On other clusters they are
//! in a custom resource with the same name and form. Readers see one object either way: the report is merged into the driver's
//! status.

use crate::api::{CsiDriver, CsiDriverStatus, CsiStorage, ObjectMeta};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The kind of reports.
pub const KIND: &str = "CSIDriverCapacity";
/// The API group of reports.
pub const GROUP: &str = "storage.berth.dev";

/// Whether an object is a report.
#[must_use]
pub fn is_report(object: &Value) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map(|(group, _)| group);
    text("kind") == KIND && group == Some(GROUP)
}

/// Drivers and their reports, by name.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    drivers: BTreeMap<String, CsiDriver>,
    reports: BTreeMap<String, Vec<CsiStorage>>,
}

impl Reported {
    /// Adds or replaces a driver.
    pub fn driver(&mut self, driver: CsiDriver) {
        self.drivers.insert(driver.metadata.name.clone(), driver);
    }

    /// Forgets a driver.
    pub fn remove_driver(&mut self, name: &str) {
        self.drivers.remove(name);
    }

    /// Adds or replaces a report. Returns the name of its driver.
    ///
    /// # Errors
    /// Describes what is wrong with it. The previous report remains in effect.
    pub fn report<'r>(&mut self, report: &'r Value) -> Result<&'r str, String> {
        let name = report.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default();
        let status = report.get("status").cloned().unwrap_or_default();
        let status: Option<CsiDriverStatus> =
            serde_json::from_value(status).map_err(|error| format!("that of {name:?} cannot be read: {error}"))?;
        self.reports.insert(name.to_owned(), status.unwrap_or_default().storage);
        Ok(name)
    }

    /// Forgets a report.
    pub fn remove_report(&mut self, name: &str) {
        self.reports.remove(name);
    }

    /// A driver merged with its report. A driver with a report and no object is built from its report.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<CsiDriver> {
        let (driver, report) = (self.drivers.get(name).cloned(), self.reports.get(name));
        let Some(report) = report else { return driver };
        let mut driver = driver.unwrap_or_else(|| CsiDriver {
            metadata: ObjectMeta {
                name: name.to_owned(),
                ..ObjectMeta::default()
            },
            ..CsiDriver::default()
        });
        driver.spec.capacity_tracking = Some(true);
        driver.status.storage.extend_from_slice(report);
        Some(driver)
    }

    /// All drivers, as returned by [`Self::get`].
    pub fn all(&self) -> impl Iterator<Item = CsiDriver> + '_ {
        let names: BTreeSet<&String> = self.drivers.keys().chain(self.reports.keys()).collect();
        names.into_iter().filter_map(|name| self.get(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(name: &str, status: &Value) -> Value {
        json!({"apiVersion": "storage.berth.dev/v1alpha1", "kind": KIND, "metadata": {"name": name}, "status": status})
    }

    fn classes(driver: &CsiDriver) -> Vec<&str> {
        let storage = driver.status.storage.iter();
        storage.map(|one| one.storage_class_name.as_str()).collect()
    }

    #[test]
    fn a_driver_is_what_both_objects_say() {
        let mut reported = Reported::default();
        let fast = json!({"storage": [{"storageClassName": "fast", "pools": [{"name": "p", "capacity": "1Gi"}]}]});
        assert_eq!(reported.report(&report("d", &fast)), Ok("d"));
        assert_eq!(classes(&reported.get("d").unwrap()), ["fast"], "a report is enough");
        let driver = json!({"metadata": {"name": "d"}, "spec": {"podInfoOnMount": true},
            "status": {"storage": [{"storageClassName": "slow"}]}});
        reported.driver(serde_json::from_value(driver).unwrap());
        let merged = reported.get("d").unwrap();
        assert_eq!(classes(&merged), ["slow", "fast"]);
        assert_eq!(merged.spec.capacity_tracking, Some(true));
        assert_eq!(merged.spec.pod_info_on_mount, Some(true));
        assert!(reported.report(&report("d", &json!({"storage": 3}))).is_err());
        assert_eq!(
            reported.get("d").unwrap(),
            merged,
            "what was reported before still stands"
        );
        reported.report(&report("other", &Value::Null)).unwrap();
        assert_eq!(reported.all().count(), 2);
        reported.remove_report("d");
        assert_eq!(classes(&reported.get("d").unwrap()), ["slow"]);
        reported.remove_driver("d");
        assert_eq!(reported.get("d"), None);
    }

    #[test]
    fn only_its_own_group_counts() {
        assert!(is_report(&report("d", &Value::Null)));
        let foreign = json!({"apiVersion": "example.com/v1", "kind": KIND, "metadata": {"name": "d"}});
        assert!(!is_report(&foreign));
    }
}
