//! Objects of a cluster as JSON: create, apply, read, list, change, delete.

use berth_kube::Client;
use berth_kube::api::{Api, ApiError};
use serde_json::{Value, json};

/// The field manager of the tests.
const FIELD_MANAGER: &str = "berth-e2e";

/// A client for objects.
#[derive(Clone)]
pub struct Kube {
    api: Api,
}

impl Kube {
    /// Objects through a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            api: Api::new(client, FIELD_MANAGER),
        }
    }

    /// Single requests.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Creates an object.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn create(&self, object: &Value) -> Result<Value, ApiError> {
        let path = collection(object);
        decode(&path, &self.api.post_path(&path, object).await?)
    }

    /// Creates or updates an object.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn apply(&self, object: &Value) -> Result<Value, ApiError> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force=true", path_of(object));
        let answer = self
            .api
            .patch_path(&path, "application/apply-patch+yaml", object)
            .await?;
        decode(&path, &answer)
    }

    /// Reads an object or any other JSON. `None` if it does not exist.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.api.get_path(path).await {
            Ok(bytes) => decode(path, &bytes).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists a collection.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        let mut answer: Value = decode(path, &self.api.get_path(path).await?)?;
        match answer["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Applies a merge patch.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn patch(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        decode(path, &self.api.merge_patch_path(path, patch).await?)
    }

    /// Deletes an object at once: there is no kubelet to terminate pods. A missing one counts as deleted.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
            "propagationPolicy": "Background"});
        match self.api.delete_path(path, &options).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn decode(path: &str, bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| ApiError::Malformed {
        path: path.to_owned(),
        problem: error.to_string(),
    })
}

/// The path of an object.
#[must_use]
pub fn path_of(object: &Value) -> String {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    format!("{}/{}", collection(object), name.unwrap_or_default())
}

/// The path of the collection that an object belongs to.
#[must_use]
pub fn collection(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").unwrap_or("v1");
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let plural = plural(text("/kind").unwrap_or_default());
    match text("/metadata/namespace") {
        Some(namespace) => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{version}/{plural}"),
    }
}

/// The plural of a kind, by English rules.
fn plural(kind: &str) -> String {
    let lower = kind.to_ascii_lowercase();
    if let Some(stem) = lower.strip_suffix('y') {
        format!("{stem}ies")
    } else if lower.ends_with('s') {
        format!("{lower}es")
    } else {
        format!("{lower}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_their_place() {
        let check = |object: Value, expected: &str| assert_eq!(path_of(&object), expected);
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "a", "name": "p"}}),
            "/api/v1/namespaces/a/pods/p",
        );
        check(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "c"}}),
            "/apis/storage.k8s.io/v1/storageclasses/c",
        );
        check(
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}}),
            "/apis/scheduling.k8s.io/v1/priorityclasses/c",
        );
        assert_eq!(plural("CSIStorageCapacity"), "csistoragecapacities");
    }
}
