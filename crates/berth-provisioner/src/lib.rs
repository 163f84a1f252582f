//! Provisioning where the pod will run.
//!
//! Deciding and doing are apart. The decisions are pure functions of API objects:
//!
//! - [`topology`]: where a volume must be reachable;
//! - [`step`]: whether and for what a backend is asked, from a claim;
//! - [`answer`]: what follows from the backend's answer;
//! - [`course`]: in which order that is done, and what follows from a refusal;
//! - [`in_flight`]: what is remembered meanwhile;
//! - [`reclaim`]: when a volume is deleted in the backend;
//! - [`builtin`]: provisioners as state machines, for an embedded cluster and for simulation;
//! - [`capacity`]: which capacity is asked for and published.
//!
//! What they ask for is data ([`effect`]): effects on the API, and what only a backend can do. Doing is left to [`csi`], the client for drivers, and to whoever
//! runs the loop: a cluster component, an embedded control plane or a simulation in virtual time.
//! `driver` is a small CSI driver of our own.
//!
//! One claim's way, in virtual time, with a built-in provisioner:
//!
//! ```
//! use berth_core::api::Object;
//! use berth_core::effect::Effect;
//! use berth_provisioner::answer::conclude;
//! use berth_provisioner::builtin::Builtin;
//! use berth_provisioner::effect::Action;
//! use berth_provisioner::settings::Settings;
//! use berth_provisioner::state::State;
//! use berth_provisioner::step::{Decision, step};
//! use serde_json::json;
//!
//! let mut state = State::default();
//! for object in [
//!     json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
//!            "provisioner": "berth.dev/local", "volumeBindingMode": "WaitForFirstConsumer"}),
//!     json!({"apiVersion": "v1", "kind": "Node",
//!            "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}}),
//!     json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
//!            "metadata": {"name": "data", "uid": "u-1", "annotations": {
//!                "volume.kubernetes.io/storage-provisioner": "berth.dev/local",
//!                "volume.kubernetes.io/selected-node": "n1"}},
//!            "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}}),
//! ] {
//!     if let Some(object) = Object::decode(&object)? {
//!         state.apply(&object);
//!     }
//! }
//! let settings = Settings::builtin("berth.dev/local");
//! let mut backend = Builtin::default();
//! let claim = state.claim("default", "data").ok_or("no claim")?;
//! let now = "2026-11-15T18:00:00Z".parse()?;
//! if let Decision::Ask(attempt) = step(claim, &state, &settings, now) {
//!     let answer = backend.provision(&attempt.request, state.nodes());
//!     let conclusion = conclude(&attempt, &answer, &settings);
//!     let Action::Api(Effect::Create(volume)) = &conclusion.actions[0] else { return Err("no volume".into()) };
//!     assert_eq!(volume["metadata"]["name"], "pvc-u-1");
//! }
//! assert_eq!(backend.volumes(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing outside of `csi` and `driver` may know a socket, a runtime or a clock.

pub mod answer;
pub mod builtin;
pub mod capacity;
pub mod course;
#[cfg(feature = "csi")]
pub mod csi;
#[cfg(feature = "csi")]
pub mod driver;
pub mod effect;
pub mod in_flight;
mod labels;
mod lower;
pub mod node_volume;
pub mod object;
pub mod parameters;
pub mod reclaim;
mod rejections;
pub mod request;
pub mod settings;
pub mod state;
pub mod step;
pub mod topology;
