//! The schemas of the built-in kinds, generated once from the API types.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::{
    apps, authentication, authorization, autoscaling, batch, coordination, core, discovery, events, networking, node,
    policy, rbac, resource, scheduling, storage,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::node::{Cursor, Definitions, Node, Schema, Shape};
use super::{extension, markers};
use crate::registry::{self, ResourceType};

/// The prefix of references between definitions.
pub(super) const REFERENCE_PREFIX: &str = "#/components/schemas/";

static DEFINITIONS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(generate);
static NODES: LazyLock<Arc<Definitions>> = LazyLock::new(|| {
    let nodes = DEFINITIONS.iter().map(|(name, json)| {
        let node = special_shape(name).map_or_else(|| Node::from_json(json), Node::of);
        (name.clone(), node)
    });
    Arc::new(Definitions { nodes: nodes.collect() })
});
static SCHEMAS: LazyLock<BTreeMap<(String, String, String), Schema>> = LazyLock::new(|| {
    let mut schemas = BTreeMap::new();
    for (name, json) in DEFINITIONS.iter() {
        for gvk in json["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
            let part = |key: &str| gvk[key].as_str().unwrap_or_default().to_owned();
            let schema = Schema {
                definitions: Arc::clone(&NODES),
                root: Node::of(Shape::Reference(name.clone())),
            };
            schemas.insert((part("group"), part("version"), part("kind")), schema);
        }
    }
    schemas
});

/// Types with custom decoding: a JSON schema cannot express what they accept.
fn special_shape(definition: &str) -> Option<Shape> {
    match definition.rsplit('.').next()? {
        "Quantity" => Some(Shape::Quantity),
        "IntOrString" => Some(Shape::IntOrString),
        "FieldsV1" | "RawExtension" | "JSON" => Some(Shape::Any),
        name if name.starts_with("JSONSchemaPropsOr") => Some(Shape::Any),
        _ => None,
    }
}

impl Schema {
    /// The schema of a built-in kind, or of the kind of one of its lists, subresources or reviews.
    pub fn builtin(group: &str, version: &str, kind: &str) -> Option<&'static Schema> {
        SCHEMAS.get(&(group.to_owned(), version.to_owned(), kind.to_owned()))
    }

    /// The schema of a resource type: built in, or an unrestricted one.
    pub fn of(resource: &ResourceType) -> Schema {
        Schema::builtin(&resource.group, &resource.version, &resource.kind)
            .cloned()
            .unwrap_or_else(Schema::untyped)
    }
}

/// The definitions of all built-in types as JSON schema with Kubernetes' extensions, by name.
/// They refer to each other by `#/components/schemas/NAME`.
pub fn definitions() -> &'static BTreeMap<String, Value> {
    &DEFINITIONS
}

/// The name of the definition of a built-in kind, if there is one.
pub(crate) fn definition_name_of(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match &Schema::builtin(group, version, kind)?.root.shape {
        Shape::Reference(name) => Some(name),
        _ => None,
    }
}

/// A cursor at a built-in definition.
pub(crate) fn definition_cursor(name: &str) -> Option<Cursor<'static>> {
    static NAMED: LazyLock<BTreeMap<&'static str, Node>> = LazyLock::new(|| {
        let names = DEFINITIONS.keys();
        names
            .map(|name| (name.as_str(), Node::of(Shape::Reference(name.clone()))))
            .collect()
    });
    NAMED.get(name).map(|node| Cursor::new(&NODES, node))
}

pub(super) fn nodes() -> Arc<Definitions> {
    Arc::clone(&NODES)
}

/// The published schemas of the API types.
fn published() -> BTreeMap<String, Value> {
    let settings = SchemaSettings::openapi3().with(|s| s.transforms.clear());
    let mut generator = settings.into_generator();
    macro_rules! add {
        ($($kind:path),* $(,)?) => { $( generator.subschema_for::<$kind>(); )* };
    }
    add!(
        core::v1::Binding,
        core::v1::ConfigMap,
        core::v1::Endpoints,
        core::v1::Event,
        core::v1::LimitRange,
        core::v1::Namespace,
        core::v1::Node,
        core::v1::PersistentVolume,
        core::v1::PersistentVolumeClaim,
        core::v1::Pod,
        core::v1::PodTemplate,
        core::v1::ReplicationController,
        core::v1::ResourceQuota,
        core::v1::Secret,
        core::v1::Service,
        core::v1::ServiceAccount,
        apps::v1::ControllerRevision,
        apps::v1::DaemonSet,
        apps::v1::Deployment,
        apps::v1::ReplicaSet,
        apps::v1::StatefulSet,
        batch::v1::CronJob,
        batch::v1::Job,
        storage::v1::CSIDriver,
        storage::v1::CSINode,
        storage::v1::CSIStorageCapacity,
        storage::v1::StorageClass,
        storage::v1::VolumeAttachment,
        storage::v1::VolumeAttributesClass,
        apiextensions::v1::CustomResourceDefinition,
        autoscaling::v1::Scale,
        autoscaling::v2::HorizontalPodAutoscaler,
        coordination::v1::Lease,
        discovery::v1::EndpointSlice,
        events::v1::Event,
        networking::v1::Ingress,
        networking::v1::IngressClass,
        networking::v1::NetworkPolicy,
        node::v1::RuntimeClass,
        policy::v1::Eviction,
        policy::v1::PodDisruptionBudget,
        rbac::v1::ClusterRole,
        rbac::v1::ClusterRoleBinding,
        rbac::v1::Role,
        rbac::v1::RoleBinding,
        resource::v1::DeviceClass,
        resource::v1::ResourceClaim,
        resource::v1::ResourceClaimTemplate,
        resource::v1::ResourceSlice,
        scheduling::v1::PriorityClass,
        authentication::v1::SelfSubjectReview,
        authentication::v1::TokenReview,
        authorization::v1::LocalSubjectAccessReview,
        authorization::v1::SelfSubjectAccessReview,
        authorization::v1::SelfSubjectRulesReview,
        authorization::v1::SubjectAccessReview,
        meta::v1::DeleteOptions,
        meta::v1::ListMeta,
        meta::v1::Status,
    );
    generator.take_definitions(false).into_iter().collect()
}

fn generate() -> BTreeMap<String, Value> {
    let mut definitions = published();
    extension::add_fields(&mut definitions);
    markers::mark(&mut definitions);
    for resource in registry::builtin().iter().chain(registry::reviews()) {
        add_kind(&mut definitions, resource);
    }
    for (group, kind) in [("", "Binding"), ("policy", "Eviction"), ("autoscaling", "Scale")] {
        let name = definition_name(group, "v1", kind);
        mark_kind(&mut definitions, &name, group, "v1", kind);
    }
    definitions
}

/// The name of the definition of a built-in kind.
fn definition_name(group: &str, version: &str, kind: &str) -> String {
    if group == "apiextensions.k8s.io" {
        return format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}");
    }
    let package = match group {
        "" => "core",
        other => other.split('.').next().unwrap_or(other),
    };
    format!("io.k8s.api.{package}.{version}.{kind}")
}

fn mark_kind(definitions: &mut BTreeMap<String, Value>, name: &str, group: &str, version: &str, kind: &str) {
    if let Some(Value::Object(definition)) = definitions.get_mut(name) {
        definition.insert(
            "x-kubernetes-group-version-kind".to_owned(),
            json!([{"group": group, "version": version, "kind": kind}]),
        );
    }
}

/// Marks the definition with its kind, and adds that of the list.
fn add_kind(definitions: &mut BTreeMap<String, Value>, resource: &ResourceType) {
    let name = definition_name(&resource.group, &resource.version, &resource.kind);
    mark_kind(definitions, &name, &resource.group, &resource.version, &resource.kind);
    if !resource.has_verb("list") {
        return;
    }
    let list = definition_name(&resource.group, &resource.version, &resource.list_kind);
    definitions.insert(
        list.clone(),
        list_definition(&resource.kind, &resource.list_kind, &name),
    );
    mark_kind(
        definitions,
        &list,
        &resource.group,
        &resource.version,
        &resource.list_kind,
    );
}

/// The definition of a list of objects that the definition `name` describes.
pub(crate) fn list_definition(kind: &str, list_kind: &str, name: &str) -> Value {
    let mut properties = Map::new();
    properties.insert(
        "apiVersion".to_owned(),
        json!({
        "description": "The version of the schema that this list is written in.", "type": "string"}),
    );
    properties.insert(
        "kind".to_owned(),
        json!({
        "description": "The REST resource that this list represents.", "type": "string"}),
    );
    properties.insert(
        "metadata".to_owned(),
        json!({
        "description": "Standard list metadata.",
        "$ref": format!("{REFERENCE_PREFIX}io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")}),
    );
    properties.insert(
        "items".to_owned(),
        json!({
        "description": format!("The objects of kind {kind}."), "type": "array",
        "items": {"$ref": format!("{REFERENCE_PREFIX}{name}")}}),
    );
    json!({
        "description": format!("{list_kind} is a list of objects of kind {kind}."),
        "type": "object", "required": ["items"], "properties": properties,
    })
}
