//! Topology-aware provisioning: volumes are created where the pod will run.
//!
//! Decisions are separate from I/O. They are pure functions of API objects:
//!
//! - [`topology`]: where a volume must be reachable;
//! - [`source`]: what a volume is filled with;
//! - [`step`]: whether to ask a backend for a claim's volume, and for what;
//! - [`answer`]: what follows from the backend's response;
//! - [`course`]: in which order that is carried out, and what follows from a refusal;
//! - [`in_flight`]: what is remembered in the meantime;
//! - [`bids`]: which provisioner gets an Immediate claim, if each node has one;
//! - [`expand`]: how volumes of built-in provisioners grow;
//! - [`reclaim`]: when a volume is deleted in the backend;
//! - [`builtin`]: provisioners as state machines, for an embedded cluster and for simulation;
//! - [`capacity`]: which capacity is queried and published.
//!
//! Their results are data ([`change`]): effects on the API, and actions that only a backend can perform. They are carried out by [`csi`], the client
//! for drivers, and by the caller: a cluster component, an embedded control plane or a simulation in virtual time. `driver` is a small built-in CSI
//! driver.
//!
//! The lifecycle of one claim, in virtual time, with a built-in provisioner:
//!
//! ```
//! use berth_core::api::Object;
//! use berth_core::effect::Effect;
//! use berth_provisioner::answer::conclude;
//! use berth_provisioner::builtin::Builtin;
//! use berth_provisioner::change::Action;
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
//! Only `csi` and `driver` may use sockets, a runtime or a clock.

pub mod answer;
pub mod bids;
pub mod builtin;
pub mod capacity;
pub mod change;
pub mod course;
#[cfg(feature = "csi")]
pub mod csi;
#[cfg(feature = "csi")]
pub mod driver;
pub mod expand;
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
pub mod source;
pub mod state;
pub mod step;
pub mod topology;
