//! The components, each with the same steps as in live clusters.

mod agents;
mod controller;
mod provisioner;
mod scheduler;
mod workloads;

pub(crate) use agents::Agents;
pub(crate) use controller::Volumes;
pub(crate) use provisioner::{BUILTIN, DRIVER, Provisioning};
pub(crate) use scheduler::Scheduling;
pub(crate) use workloads::WorkloadSteps;
