//! The kinds, each in its own file.
//!
//! A file contains everything about a kind: first the declaration `KIND`, then the functions it refers to. Kinds that no
//! component acts on have only what clients read back.

pub mod config_map;
pub mod controller_revision;
pub mod cron_job;
pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod custom_resource_definition;
pub mod daemon_set;
pub mod deployment;
pub mod device_class;
pub mod endpoint_slice;
pub mod endpoints;
pub mod event;
pub mod horizontal_pod_autoscaler;
pub mod ingress;
pub mod ingress_class;
pub mod job;
pub mod lease;
pub mod limit_range;
pub mod namespace;
pub mod network_policy;
pub mod node;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_disruption_budget;
pub mod pod_template;
pub mod priority_class;
pub mod replica_set;
pub mod replication_controller;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_quota;
pub mod resource_slice;
pub mod review;
pub mod role;
pub mod role_binding;
pub mod runtime_class;
pub mod secret;
pub mod service;
pub mod service_account;
pub mod stateful_set;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

use crate::kind::Kind;

/// The review kinds, which are answered and never stored.
pub const REVIEWS: &[&Kind] = review::KINDS;

/// Every stored built-in kind, in discovery order.
pub const KINDS: &[&Kind] = &[
    &config_map::KIND,
    &endpoints::KIND,
    &event::KIND,
    &limit_range::KIND,
    &namespace::KIND,
    &node::KIND,
    &persistent_volume_claim::KIND,
    &persistent_volume::KIND,
    &pod::KIND,
    &pod_template::KIND,
    &replication_controller::KIND,
    &resource_quota::KIND,
    &secret::KIND,
    &service_account::KIND,
    &service::KIND,
    &controller_revision::KIND,
    &daemon_set::KIND,
    &deployment::KIND,
    &replica_set::KIND,
    &stateful_set::KIND,
    &cron_job::KIND,
    &job::KIND,
    &csi_driver::KIND,
    &csi_node::KIND,
    &csi_storage_capacity::KIND,
    &storage_class::KIND,
    &volume_attachment::KIND,
    &volume_attributes_class::KIND,
    &custom_resource_definition::KIND,
    &lease::KIND,
    &event::NEWER,
    &pod_disruption_budget::KIND,
    &role_binding::CLUSTER,
    &role::CLUSTER,
    &role_binding::KIND,
    &role::KIND,
    &priority_class::KIND,
    &horizontal_pod_autoscaler::KIND,
    &endpoint_slice::KIND,
    &ingress_class::KIND,
    &ingress::KIND,
    &network_policy::KIND,
    &runtime_class::KIND,
    &device_class::KIND,
    &resource_claim::KIND,
    &resource_claim_template::KIND,
    &resource_slice::KIND,
];
