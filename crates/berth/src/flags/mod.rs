//! Command lines written for Kubernetes' own components.
//!
//! To replace kube-scheduler or the external-provisioner with Berth, users only change the image. Their flags are therefore
//! flags here too: those with a meaning are obeyed, the others are accepted with a warning ([`accepted`]). They use the syntax
//! of Go programs ([`go`]).

pub mod accepted;
pub mod generic;
pub mod go;
pub mod kube_scheduler;
pub mod logging;
pub mod secure;
pub mod storage_controllers;
