//! Drivers together with what is reported for them elsewhere.
//!
//! The pools of a driver stand in the status of its `CSIDriver`, where the server has that. On other clusters they stand
//! in a custom resource of the same name and form. Whoever reads drivers sees one object either way: what the custom
//! resource reports is part of the driver's status. A cluster that does not know the custom resource has no reports.

use crate::inbox::Forward;
use crate::resource::{Resource, Whole};
use crate::watch::{Change, Difference, ObjectName, Sink};
use berth_core::api::{CsiDriver, CsiDriverStatus, CsiStorage, ObjectMeta};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The custom resource in which pools of drivers are reported. A cluster need not have it.
pub const REPORTS: Resource = Resource {
    group: "storage.berth.dev",
    version: "v1alpha1",
    plural: "csidrivercapacities",
    kind: "CSIDriverCapacity",
    namespaced: false,
};

/// Drivers and reports, by name.
#[derive(Default)]
struct Known {
    drivers: BTreeMap<String, CsiDriver>,
    reports: BTreeMap<String, Vec<CsiStorage>>,
    drivers_listed: bool,
    reports_listed: bool,
}

impl Known {
    /// Whether all is known: a driver whose room is reported elsewhere must not be taken for one without limits.
    fn is_listed(&self) -> bool {
        self.drivers_listed && self.reports_listed
    }

    /// A driver with what is reported for it. One that has a report and no object is known by its report.
    fn driver(&self, name: &ObjectName) -> Change<CsiDriver> {
        let (driver, report) = (self.drivers.get(&name.1), self.reports.get(&name.1));
        let without_object = || CsiDriver {
            metadata: ObjectMeta {
                name: name.1.clone(),
                ..ObjectMeta::default()
            },
            ..CsiDriver::default()
        };
        match (driver, report) {
            (None, None) => Change::Removed {
                name: name.clone(),
                uid: Box::default(),
            },
            (Some(driver), None) => Change::Applied(driver.clone()),
            (driver, Some(report)) => {
                let mut driver = driver.cloned().unwrap_or_else(without_object);
                driver.add_report(report);
                Change::Applied(driver)
            }
        }
    }

    fn take_driver(&mut self, change: Change<CsiDriver>) -> Change<CsiDriver> {
        let name = match change {
            Change::Applied(driver) => {
                let name = (String::new(), driver.metadata.name.clone());
                self.drivers.insert(name.1.clone(), driver);
                name
            }
            Change::Removed { name, .. } => {
                self.drivers.remove(&name.1);
                name
            }
            Change::Broken { .. } => return change,
        };
        self.driver(&name)
    }

    fn take_report(&mut self, change: Change<Whole>) -> Option<Change<CsiDriver>> {
        let name = match change {
            Change::Applied(report) => {
                let name = report.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let status = report.value["status"].clone();
                match serde_json::from_value::<Option<CsiDriverStatus>>(status) {
                    Ok(status) => self.reports.insert(name.clone(), status.unwrap_or_default().storage),
                    Err(error) => {
                        tracing::warn!(name, %error, "set aside a report of capacity that cannot be read");
                        return None;
                    }
                };
                (String::new(), name)
            }
            Change::Removed { name, .. } => {
                self.reports.remove(&name.1);
                name
            }
            Change::Broken { .. } => return None,
        };
        Some(self.driver(&name))
    }
}

/// Takes in drivers.
pub(crate) struct Drivers {
    known: Arc<Mutex<Known>>,
    forward: Forward<CsiDriver>,
}

/// Takes in reports.
pub(crate) struct Reports {
    known: Arc<Mutex<Known>>,
    forward: Forward<CsiDriver>,
}

/// The sinks of both watches, which hand on drivers as one.
pub(crate) fn sinks(forward: Forward<CsiDriver>) -> (Drivers, Reports) {
    let known = Arc::<Mutex<Known>>::default();
    let drivers = Drivers {
        known: Arc::clone(&known),
        forward: forward.clone(),
    };
    (drivers, Reports { known, forward })
}

impl Sink<CsiDriver> for Drivers {
    async fn take(&mut self, difference: Difference<CsiDriver>) -> bool {
        // Held until it is handed on: the other watch must not overtake.
        let mut known = self.known.lock().await;
        known.drivers_listed |= difference.relisted;
        let changes = difference.changes.into_iter();
        let difference = Difference {
            changes: changes.map(|change| known.take_driver(change)).collect(),
            relisted: difference.relisted && known.is_listed(),
        };
        self.forward.take(difference).await
    }

    fn problem(&mut self, problem: &str) {
        self.forward.problem(problem);
    }

    async fn recovered(&mut self) {
        self.forward.recovered().await;
    }
}

impl Sink<Whole> for Reports {
    async fn take(&mut self, difference: Difference<Whole>) -> bool {
        let mut known = self.known.lock().await;
        let changes = difference.changes.into_iter();
        let changes: Vec<_> = changes.filter_map(|change| known.take_report(change)).collect();
        // Once both were listed, that drivers are listed again is for the other watch to say.
        let first = difference.relisted && !std::mem::replace(&mut known.reports_listed, true);
        let relisted = first && known.is_listed();
        if changes.is_empty() && !relisted {
            return true;
        }
        self.forward.take(Difference { changes, relisted }).await
    }

    fn problem(&mut self, problem: &str) {
        self.forward.problem(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(name: &str, status: serde_json::Value) -> Change<Whole> {
        let object = json!({"metadata": {"name": name}, "status": status});
        Change::Applied(serde_json::from_value(object).unwrap())
    }

    fn classes(change: &Change<CsiDriver>) -> Vec<&str> {
        let Change::Applied(driver) = change else {
            panic!("{change:?}")
        };
        let storage = driver.status.storage.iter();
        storage.map(|one| one.storage_class_name.as_str()).collect()
    }

    #[test]
    fn a_driver_is_what_both_objects_say() {
        let mut known = Known::default();
        let name = (String::new(), "d".to_owned());
        let storage = json!({"storage": [{"storageClassName": "fast", "pools": [{"name": "p", "capacity": "1Gi"}]}]});
        let change = known.take_report(report("d", storage)).unwrap();
        assert_eq!(classes(&change), ["fast"], "a report is enough");
        let driver = json!({"metadata": {"name": "d"}, "spec": {"podInfoOnMount": true}});
        let change = known.take_driver(Change::Applied(serde_json::from_value(driver).unwrap()));
        assert_eq!(classes(&change), ["fast"]);
        let Change::Applied(merged) = &change else { panic!() };
        assert_eq!(merged.spec.capacity_tracking, Some(true));
        assert_eq!(merged.spec.pod_info_on_mount, Some(true));
        assert!(
            known.take_report(report("d", json!({"storage": 3}))).is_none(),
            "what was known still stands"
        );
        let (name, uid) = (name, Box::default());
        let change = known
            .take_report(Change::Removed {
                name: name.clone(),
                uid,
            })
            .unwrap();
        assert!(classes(&change).is_empty());
        let Change::Applied(plain) = &change else { panic!() };
        assert_eq!(plain.spec.capacity_tracking, None);
        let removed = Change::Removed {
            name,
            uid: Box::default(),
        };
        assert!(matches!(known.take_driver(removed), Change::Removed { .. }));
    }

    fn listed<T>() -> Difference<T> {
        Difference {
            changes: Vec::new(),
            relisted: true,
        }
    }

    #[tokio::test]
    async fn drivers_are_listed_when_reports_are_too() {
        for reports_first in [true, false] {
            let (forward, mut messages) = Forward::to_test();
            let (mut drivers, mut reports) = sinks(forward);
            if reports_first {
                assert!(reports.take(listed()).await && drivers.take(listed()).await);
            } else {
                assert!(drivers.take(listed()).await && reports.take(listed()).await);
            }
            let mut told = Vec::new();
            while let Ok(message) = messages.try_recv() {
                told.push(message.difference.relisted);
            }
            assert_eq!(told.last(), Some(&true), "reports first: {reports_first}");
            assert_eq!(told.iter().filter(|relisted| **relisted).count(), 1, "{told:?}");
        }
    }
}
