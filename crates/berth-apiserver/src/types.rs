//! The currently served types: the built-in ones, and those of the CustomResourceDefinitions in the store.
//!
//! The set is immutable. A change of a definition creates a new set, and requests in progress keep theirs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use berth_kinds::{Kind, StoredForm};
use bytes::Bytes;
use serde_json::Value;

use crate::meta;
use crate::registry::{self, ResourceType, Subresource};
use crate::schema::Schema;

/// The parts of a custom resource definition beyond its names.
#[derive(Debug)]
pub(crate) struct Custom {
    /// `additionalPrinterColumns`, or null.
    pub(crate) columns: Value,
    /// `openAPIV3Schema`.
    pub(crate) openapi: Value,
    /// The `apiVersion` that objects are stored under.
    pub(crate) storage_api_version: String,
    /// `subresources.scale`, or null.
    pub(crate) scale: Value,
    /// The warning for clients of a deprecated version.
    pub(crate) deprecation: Option<String>,
    /// `selectableFields`, for example `spec.colour`.
    pub(crate) selectable: Vec<String>,
}

/// One served type.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) resource: ResourceType,
    /// The rules of a built-in type.
    pub(crate) kind: Option<&'static Kind>,
    pub(crate) schema: Schema,
    /// The table of its objects in the store.
    pub(crate) table: Arc<str>,
    pub(crate) custom: Option<Custom>,
    /// Answered immediately, never stored.
    pub(crate) is_review: bool,
}

impl Served {
    fn builtin(kind: &'static Kind) -> Self {
        let resource = ResourceType::from(kind);
        Self {
            schema: Schema::of(&resource),
            table: kind.table().into(),
            resource,
            kind: Some(kind),
            custom: None,
            is_review: !kind.stored,
        }
    }

    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.resource.group == group && self.resource.kind == kind
    }

    pub(crate) fn has_status(&self) -> bool {
        self.resource.subresource("status").is_some()
    }

    fn stored_form(&self) -> Option<&'static StoredForm> {
        self.kind.and_then(|kind| kind.stored_form.as_ref())
    }

    /// Whether the stored form of objects differs from the served one.
    pub(crate) fn is_converted(&self) -> bool {
        let other_version = |custom: &Custom| custom.storage_api_version != self.resource.api_version();
        self.stored_form().is_some() || self.custom.as_ref().is_some_and(other_version)
    }

    /// Converts the stored form to the served one.
    pub(crate) fn present(&self, mut stored: Value) -> Value {
        if self.custom.is_some() {
            meta::set(&mut stored, &["apiVersion"], self.resource.api_version().into());
            return stored;
        }
        match self.stored_form() {
            Some(form) => (form.to_shown)(stored),
            None => stored,
        }
    }

    /// Converts the served form to the stored one.
    pub(crate) fn accept(&self, mut shown: Value) -> Value {
        if let Some(custom) = &self.custom {
            meta::set(&mut shown, &["apiVersion"], custom.storage_api_version.as_str().into());
            return shown;
        }
        match self.stored_form() {
            Some(form) => (form.to_stored)(shown),
            None => shown,
        }
    }
}

/// All served types.
#[derive(Debug)]
pub(crate) struct Types {
    served: HashMap<(String, String, String), Arc<Served>>,
    /// All of them as a list, for discovery.
    list: Vec<ResourceType>,
    /// OpenAPI documents by path, once requested: they are large and change only with the types.
    documents: Mutex<HashMap<(String, &'static str), Bytes>>,
}

impl Types {
    /// The built-in types and those of these definitions.
    pub(crate) fn new<'a>(definitions: impl Iterator<Item = &'a Value>) -> Self {
        let mut types = Self {
            served: HashMap::new(),
            list: Vec::new(),
            documents: Mutex::default(),
        };
        for kind in berth_kinds::KINDS.iter().chain(berth_kinds::REVIEWS) {
            types.add(Served::builtin(kind));
        }
        for definition in definitions {
            for served in custom_types(definition) {
                types.add(served);
            }
        }
        types
    }

    fn add(&mut self, served: Served) {
        let resource = &served.resource;
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        // A definition cannot take the name of a built-in type.
        if !self.served.contains_key(&key) {
            self.list.push(resource.clone());
            self.served.insert(key, Arc::new(served));
        }
    }

    /// The document at a path in one form, generated at most once.
    pub(crate) fn document(
        &self,
        path: &str,
        media_type: &'static str,
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        let key = (path.to_owned(), media_type);
        let lock = || self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&key).cloned() {
            return Some(found);
        }
        let made = make()?;
        lock().insert(key, made.clone());
        Some(made)
    }

    pub(crate) fn list(&self) -> &[ResourceType] {
        &self.list
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.list
            .iter()
            .filter_map(|r| self.by_plural(&r.group, &r.version, &r.plural))
    }

    pub(crate) fn by_plural(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.served
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Served>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = registry::by_kind(&self.list, group, version, kind)?;
        self.by_plural(group, version, &found.plural)
    }

    /// The type of the objects in a table.
    pub(crate) fn by_table(&self, table: &str) -> Option<&Arc<Served>> {
        self.all()
            .find(|served| &*served.table == table && !served.is_converted())
    }
}

fn custom_types(definition: &Value) -> Vec<Served> {
    let spec = &definition["spec"];
    let group = meta::text(spec, &["group"]);
    let versions = meta::items(spec, &["versions"]);
    let storage = versions.iter().find(|version| version["storage"] == true);
    let storage_version = storage.map_or("", |version| meta::text(version, &["name"]));
    versions
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| custom_type(spec, group, version, storage_version))
        .collect()
}

fn custom_type(spec: &Value, group: &str, version: &Value, storage_version: &str) -> Served {
    let names = &spec["names"];
    let texts = |key: &str| -> Vec<String> {
        meta::items(names, &[key])
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let namespaced = spec["scope"] == "Namespaced";
    let (kind, plural) = (meta::text(names, &["kind"]), meta::text(names, &["plural"]));
    let mut resource = ResourceType::stored(group, meta::text(version, &["name"]), kind, plural, namespaced);
    if let Some(singular) = names["singular"].as_str() {
        resource.singular = singular.to_owned();
    }
    if let Some(list_kind) = names["listKind"].as_str() {
        resource.list_kind = list_kind.to_owned();
    }
    resource.short_names = texts("shortNames");
    resource.categories = texts("categories");
    if !version["subresources"]["status"].is_null() {
        resource = resource.with_status();
    }
    let scale = version["subresources"]["scale"].clone();
    if !scale.is_null() {
        resource = resource.with_scale();
    }
    let api_version = |version: &str| registry::group_version(group, version);
    Served {
        schema: Schema::from_crd_version(version).unwrap_or_else(|_| Schema::untyped()),
        table: resource.qualified_plural().into(),
        kind: None,
        custom: Some(Custom {
            columns: version["additionalPrinterColumns"].clone(),
            openapi: version["schema"]["openAPIV3Schema"].clone(),
            storage_api_version: api_version(storage_version),
            scale,
            deprecation: deprecation(version, &resource),
            selectable: meta::items(version, &["selectableFields"])
                .iter()
                .map(|field| meta::text(field, &["jsonPath"]).trim_start_matches('.').to_owned())
                .collect(),
        }),
        resource,
        is_review: false,
    }
}

fn deprecation(version: &Value, resource: &ResourceType) -> Option<String> {
    let usual = || format!("{} {} is deprecated", resource.api_version(), resource.kind);
    let own = version["deprecationWarning"].as_str();
    (version["deprecated"] == true).then(|| own.map_or_else(usual, str::to_owned))
}

/// The verbs that a path with a subresource supports.
pub(crate) fn allows(subresource: &Subresource, verb: &str) -> bool {
    subresource.verbs.iter().any(|found| found == verb)
}
