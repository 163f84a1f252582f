//! Finds the owner of published objects: the pod of the provisioner, or one of its controllers.

use crate::api::{Api, ApiError};
use crate::component::Component as _;
use berth_provisioner::capacity::Owner;
use serde_json::Value;

/// Why the owner of published objects is unknown.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The API server does not return it.
    #[error("{kind} {namespace}/{name}: {source}")]
    Api {
        /// The object's kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's error.
        #[source]
        source: ApiError,
    },
    /// It has no controller.
    #[error("{kind} {namespace}/{name} has no controller: use a lower level")]
    NoController {
        /// The object's kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// The pod, or its controller this many levels up: 1 is a ReplicaSet, a StatefulSet or a DaemonSet, 2 a Deployment.
///
/// # Errors
/// If the pod or one of its owners does not exist.
pub async fn owner_of_pod(client: kube::Client, namespace: &str, pod: &str, level: u8) -> Result<Owner, OwnerError> {
    let api = Api::new(client, super::Options::FIELD_MANAGER);
    let mut owner = Owner {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.to_owned(),
        uid: String::new(),
    };
    for step in 0..=level {
        let found = api.get_path(&path(namespace, &owner)).await;
        let bytes = found.map_err(|source| OwnerError::Api {
            kind: owner.kind.clone(),
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
            source,
        })?;
        let object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if step == level {
            owner.uid = text(&object["metadata"], "uid");
            break;
        }
        let references = object["metadata"]["ownerReferences"].as_array();
        let controller = references.and_then(|all| all.iter().find(|one| one["controller"] == true));
        let Some(controller) = controller else {
            return Err(OwnerError::NoController {
                kind: owner.kind,
                namespace: namespace.to_owned(),
                name: owner.name,
            });
        };
        owner = Owner {
            api_version: text(controller, "apiVersion"),
            kind: text(controller, "kind"),
            name: text(controller, "name"),
            uid: text(controller, "uid"),
        };
    }
    Ok(owner)
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// The path of an object. Controllers of pods have regular plurals.
fn path(namespace: &str, owner: &Owner) -> String {
    let root = if owner.api_version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    let plural = format!("{}s", owner.kind.to_lowercase());
    format!(
        "{root}/{}/namespaces/{namespace}/{plural}/{}",
        owner.api_version, owner.name
    )
}
