//! Merges drivers with their separate capacity reports into one watch.
//!
//! A cluster without the custom resource has no reports.

use crate::inbox::Forward;
use crate::resource::{Resource, Whole};
use crate::watch::{Change, Difference, ObjectName, Problem, Sink};
use berth_core::api::CsiDriver;
use berth_core::reported::{GROUP, KIND, Reported};
use std::sync::Arc;
use tokio::sync::Mutex;

/// The custom resource in which pools of drivers are reported. It is optional in a cluster.
pub const REPORTS: Resource = Resource {
    group: GROUP,
    version: "v1alpha1",
    plural: "csidrivercapacities",
    kind: KIND,
    namespaced: false,
};

/// Drivers and reports, and which of both were listed.
#[derive(Default)]
struct Known {
    reported: Reported,
    drivers_listed: bool,
    reports_listed: bool,
}

impl Known {
    /// Whether both are known: a driver whose capacity is reported separately must not be mistaken for one without
    /// limits.
    fn is_listed(&self) -> bool {
        self.drivers_listed && self.reports_listed
    }

    /// A driver in its current state.
    fn driver(&self, name: ObjectName) -> Change<CsiDriver> {
        match self.reported.get(&name.1) {
            Some(driver) => Change::Applied(driver),
            None => Change::Removed {
                name,
                uid: Box::default(),
            },
        }
    }

    fn take_driver(&mut self, change: Change<CsiDriver>) -> Change<CsiDriver> {
        let name = match change {
            Change::Applied(driver) => {
                let name = (String::new(), driver.metadata.name.clone());
                self.reported.driver(driver);
                name
            }
            Change::Removed { name, .. } => {
                self.reported.remove_driver(&name.1);
                name
            }
            Change::Broken { .. } => return change,
        };
        self.driver(name)
    }

    fn take_report(&mut self, change: Change<Whole>) -> Option<Change<CsiDriver>> {
        let name = match change {
            Change::Applied(report) => match self.reported.report(&report.value) {
                Ok(name) => (String::new(), name.to_owned()),
                Err(error) => {
                    tracing::warn!(error, "ignored an invalid capacity report");
                    return None;
                }
            },
            Change::Removed { name, .. } => {
                self.reported.remove_report(&name.1);
                name
            }
            Change::Broken { .. } => return None,
        };
        Some(self.driver(name))
    }
}

/// Receives drivers.
pub(crate) struct Drivers {
    known: Arc<Mutex<Known>>,
    forward: Forward<CsiDriver>,
}

/// Receives reports.
pub(crate) struct Reports {
    known: Arc<Mutex<Known>>,
    forward: Forward<CsiDriver>,
}

/// The sinks of both watches, which forward drivers as one.
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
        // Held until it is forwarded: the other watch must not overtake.
        let mut known = self.known.lock().await;
        known.drivers_listed |= difference.relisted;
        let changes = difference.changes.into_iter();
        let difference = Difference {
            changes: changes.map(|change| known.take_driver(change)).collect(),
            relisted: difference.relisted && known.is_listed(),
        };
        self.forward.take(difference).await
    }

    fn problem(&mut self, problem: Problem<'_>) {
        self.forward.problem(problem);
    }

    fn works(&mut self) {
        self.forward.works();
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
        // Once both were listed, a relist of drivers is reported by the other watch.
        let first = difference.relisted && !std::mem::replace(&mut known.reports_listed, true);
        let relisted = first && known.is_listed();
        if changes.is_empty() && !relisted {
            return true;
        }
        self.forward.take(Difference { changes, relisted }).await
    }

    fn problem(&mut self, problem: Problem<'_>) {
        self.forward.problem(problem);
    }

    fn works(&mut self) {
        self.forward.works();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
