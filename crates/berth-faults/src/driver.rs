//! A storage backend that outlives every process, and fails on demand.

use crate::components::DRIVER;
use crate::story::DriverFault;
use berth_provisioner::answer::Answer;
use berth_provisioner::request::{Failure, Request, Source, Volume, places};
use std::collections::{BTreeMap, VecDeque};

/// The backend.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    /// The volumes by their requested names.
    pub(crate) volumes: BTreeMap<String, Volume>,
    pub(crate) faults: VecDeque<DriverFault>,
}

/// The result of a call.
pub(crate) struct Called<T> {
    pub(crate) answer: T,
    /// Its additional delay.
    pub(crate) extra_millis: u64,
}

impl Driver {
    /// Creates a volume, or returns the one with that name.
    pub(crate) fn create(&mut self, request: &Request) -> Called<Answer> {
        let fault = self.faults.pop_front();
        let at_once = |answer| Called {
            answer,
            extra_millis: 0,
        };
        match fault {
            Some(DriverFault::Hangs) => Called {
                answer: Err(Failure::in_doubt("deadline exceeded")),
                extra_millis: 10_000,
            },
            Some(DriverFault::NoRoom) if !self.volumes.contains_key(&request.name) => {
                at_once(Err(Failure::last("no room")))
            }
            Some(DriverFault::Unclear) => at_once(Err(Failure::unclear("internal error"))),
            Some(DriverFault::Forgets) => {
                self.make(request);
                Called {
                    answer: Err(Failure::in_doubt("deadline exceeded")),
                    extra_millis: 3_000,
                }
            }
            Some(DriverFault::Slow) => Called {
                answer: Ok(self.make(request)),
                extra_millis: 4_000,
            },
            Some(DriverFault::Twice | DriverFault::NoRoom) | None => at_once(Ok(self.make(request))),
        }
    }

    fn make(&mut self, request: &Request) -> Volume {
        let segment = request
            .requirement
            .as_ref()
            .and_then(|requirement| requirement.preferred.first().cloned());
        let new = || Volume {
            handle: handle(&request.name),
            bytes: request.bytes,
            source: Source::Csi {
                driver: DRIVER.to_owned(),
                attributes: BTreeMap::new(),
            },
            accessible: places(segment),
            filled: false,
        };
        self.volumes.entry(request.name.clone()).or_insert_with(new).clone()
    }

    /// Deletes a volume. A nonexistent one counts as deleted.
    pub(crate) fn delete(&mut self, handle: &str) -> Called<Result<(), String>> {
        let fault = self.faults.pop_front();
        let failed = matches!(fault, Some(DriverFault::Hangs | DriverFault::Unclear));
        if !failed {
            self.volumes.retain(|_, volume| volume.handle != handle);
        }
        let lost = failed || fault == Some(DriverFault::Forgets);
        Called {
            answer: if lost { Err("no answer".to_owned()) } else { Ok(()) },
            extra_millis: match fault {
                Some(DriverFault::Hangs | DriverFault::Forgets) => 3_000,
                Some(DriverFault::Slow) => 4_000,
                _ => 0,
            },
        }
    }
}

/// The backend's own name for a volume.
pub(crate) fn handle(name: &str) -> String {
    format!("h-{name}")
}
