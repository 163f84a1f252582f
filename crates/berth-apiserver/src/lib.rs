//! An embedded Kubernetes API.
//!
//! The modules declared here are pure: they turn requests, objects and schemas into values. They open no
//! sockets, look at no clock (`now` is a parameter) and know nothing of scheduling. Objects are
//! [`serde_json::Value`] throughout, because a server must keep the fields it does not know.

pub mod apply;
pub mod discovery;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod registry;
pub mod schema;
pub mod selector;
pub mod table;
