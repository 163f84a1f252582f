//! Reads secrets by name, one at a time. They are not cached.

use crate::api::Api;
use crate::resource::Resource;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_provisioner::csi::{SecretError, Secrets};
use berth_provisioner::parameters::SecretReference;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Secrets of the cluster.
#[derive(Clone)]
pub struct ClusterSecrets {
    api: Api,
}

impl ClusterSecrets {
    /// Read through this.
    #[must_use]
    pub fn new(api: Api) -> Self {
        Self { api }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Secret {
    data: Option<BTreeMap<String, String>>,
}

impl Secrets for ClusterSecrets {
    async fn resolve(&self, secret: &SecretReference) -> Result<BTreeMap<String, String>, SecretError> {
        let failed = |problem: String| SecretError {
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
            problem,
            missing: false,
        };
        let found = self.api.get(Resource::SECRETS, &secret.namespace, &secret.name).await;
        let bytes = found
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| SecretError {
                missing: true,
                ..failed("does not exist".to_owned())
            })?;
        let object: Secret =
            serde_json::from_slice(&bytes).map_err(|_| failed("is not what the API defines".to_owned()))?;
        let decoded = object.data.unwrap_or_default().into_iter().map(|(key, value)| {
            // The value must not end up in a message.
            let bytes = STANDARD.decode(value).ok();
            match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
                Some(text) => Ok((key, text)),
                None => Err(failed(format!("key {key:?} is no text"))),
            }
        });
        decoded.collect()
    }
}
