//! Command lines that were written for Kubernetes' own components.
//!
//! Whoever replaces kube-scheduler or the external-provisioner by Berth changes the image and nothing else. So their flags are
//! flags here too: what means something is obeyed, and what does not is accepted with a warning ([`accepted`]). They are
//! written as Go programs read them ([`go`]).

pub mod accepted;
pub mod go;
pub mod kube_scheduler;
pub mod logging;
pub mod secure;
