//! Creates the objects that a cluster starts with: those of the user's files, or the sample cluster.

use super::components::{Chosen, Component};
use crate::embedded::workloads::KINDS;
use crate::embedded::{field, sample};
use berth_kube::api::{Api, ApiError};
use berth_kube::resource::Resource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why an object cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The API server does not know the kind.
    #[error("{kind} {name:?}: the API server knows no kind {kind:?} in {api_version:?}")]
    UnknownKind {
        /// What the object says.
        api_version: String,
        /// What the object says.
        kind: String,
        /// The object's name.
        name: String,
    },
    /// The API server refuses it.
    #[error("{kind} {name:?}: {source}")]
    Refused {
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// What the API server says.
        #[source]
        source: ApiError,
    },
    /// The API server does not answer as it should.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// Creates the objects, in an order in which whoever looks at one finds what it needs, and says how many nodes there
/// are then. Objects that are there already stay as they are.
pub(super) async fn load(api: &Api, chosen: &Chosen, objects: Vec<Value>) -> Result<usize, LoadError> {
    let mut objects = objects;
    let nodes = count_nodes(api).await?;
    // A cluster that was started before has what it has, even if that is not what the sample would be.
    if objects.is_empty() && chosen.has(Component::Nodes) && nodes == 0 {
        objects = sample::objects();
    }
    objects.sort_by_key(|object| order(field::kind(object)));
    let mut paths = Paths::default();
    for object in &objects {
        match create(api, &mut paths, object).await {
            // A dump of a real cluster holds what nothing here needs.
            Err(LoadError::UnknownKind { kind, .. }) if !is_needed(&kind) => {
                tracing::info!(
                    kind,
                    name = field::name(object),
                    "left out an object of a kind that is not known here"
                );
            }
            created => created?,
        }
    }
    Ok(count_nodes(api).await?)
}

/// Whether some part of a control plane reads a kind.
fn is_needed(kind: &str) -> bool {
    super::carry::resources().iter().any(|resource| resource.kind == kind)
        || berth_core::api::Kind::ALL.iter().any(|one| one.name() == kind)
}

fn order(kind: &str) -> u8 {
    match kind {
        "CustomResourceDefinition" => 0,
        "Namespace" | "PriorityClass" | "StorageClass" => 1,
        "Pod" => 4,
        kind if KINDS.contains(&kind) => 3,
        _ => 2,
    }
}

async fn count_nodes(api: &Api) -> Result<usize, ApiError> {
    let path = Resource::of(berth_core::api::Kind::Node).collection(None);
    let list: Value = serde_json::from_slice(&api.get_path(&path).await?).unwrap_or_default();
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

async fn create(api: &Api, paths: &mut Paths, object: &Value) -> Result<(), LoadError> {
    let collection = paths.collection(api, object).await?;
    let refused = |source| LoadError::Refused {
        kind: field::kind(object).to_owned(),
        name: field::name(object).to_owned(),
        source,
    };
    let mut fresh = object.clone();
    rename_binding_mode(&mut fresh);
    // What the server sets itself: objects from a dump carry what another server set.
    for given in [
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
    ] {
        field::unset(&mut fresh, &["metadata", given]);
    }
    match api.post_path(&collection, &fresh).await {
        Ok(_) => {}
        Err(error) if error.is_conflict() => return Ok(()),
        Err(error) => return Err(refused(error)),
    }
    let status = &object["status"];
    if status.as_object().is_none_or(serde_json::Map::is_empty) {
        return Ok(());
    }
    let path = format!("{collection}/{}/status", field::name(object));
    match api.merge_patch_path(&path, &json!({"status": status})).await {
        Ok(_) => Ok(()),
        // Not every kind has a status of its own.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

/// The first design spelled the key of a class's binding mode otherwise; the API knows today's name only.
fn rename_binding_mode(object: &mut Value) {
    let mode = object["bindingMode"].clone();
    if field::kind(object) == "StorageClass" && mode.is_string() && object["volumeBindingMode"].is_null() {
        field::unset(object, &["bindingMode"]);
        field::set(object, &["volumeBindingMode"], mode);
    }
}

/// Where the API server keeps the objects of a kind, as it says itself.
#[derive(Default)]
struct Paths {
    /// Plural names and whether they live in namespaces, by API version and kind.
    known: BTreeMap<(String, String), (String, bool)>,
}

impl Paths {
    async fn collection(&mut self, api: &Api, object: &Value) -> Result<String, LoadError> {
        let api_version = field::text(object, "/apiVersion").to_owned();
        let key = (api_version.clone(), field::kind(object).to_owned());
        let root = if api_version.contains('/') { "/apis" } else { "/api" };
        if !self.known.contains_key(&key) {
            self.discover(api, &format!("{root}/{api_version}"), &api_version)
                .await?;
        }
        let Some((plural, namespaced)) = self.known.get(&key) else {
            return Err(LoadError::UnknownKind {
                api_version,
                kind: key.1,
                name: field::name(object).to_owned(),
            });
        };
        let namespace = match field::namespace(object) {
            "" => "default",
            namespace => namespace,
        };
        Ok(if *namespaced {
            format!("{root}/{api_version}/namespaces/{namespace}/{plural}")
        } else {
            format!("{root}/{api_version}/{plural}")
        })
    }

    async fn discover(&mut self, api: &Api, path: &str, api_version: &str) -> Result<(), ApiError> {
        let bytes = match api.get_path(path).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
        let list: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        for resource in field::items(&list, "/resources") {
            let plural = field::text(resource, "/name");
            if !plural.contains('/') {
                let key = (api_version.to_owned(), field::kind(resource).to_owned());
                self.known
                    .insert(key, (plural.to_owned(), field::flag(resource, "/namespaced")));
            }
        }
        Ok(())
    }
}
