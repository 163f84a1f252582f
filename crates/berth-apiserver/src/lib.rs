//! An embedded Kubernetes API: a versioned store, watches, and REST as a `tower` service.
//!
//! The crate knows the API's objects and rules, and nothing of scheduling or volumes beyond them.

pub mod store;
