//! The calls to a driver for one volume of a pod.

use berth_cluster::agent::CsiMount;
use berth_kube::api::Api;
use berth_kube::provisioner::ClusterSecrets;
use berth_provisioner::csi::{NodeClient, Secrets as _};
use berth_provisioner::parameters::SecretReference;
use std::collections::BTreeMap;
use std::path::Path;

enum Kind {
    Publish,
    Unpublish,
    Unstage,
}

/// One call, or two if the driver stages volumes.
pub(super) struct Call {
    kind: Kind,
    client: NodeClient,
    mount: CsiMount,
}

impl Call {
    fn new(kind: Kind, client: &NodeClient, mount: &CsiMount) -> Self {
        Self {
            kind,
            client: client.clone(),
            mount: mount.clone(),
        }
    }

    pub(super) fn publish(client: &NodeClient, mount: &CsiMount) -> Self {
        Self::new(Kind::Publish, client, mount)
    }

    pub(super) fn unpublish(client: &NodeClient, mount: &CsiMount) -> Self {
        Self::new(Kind::Unpublish, client, mount)
    }

    pub(super) fn unstage(client: &NodeClient, mount: &CsiMount) -> Self {
        Self::new(Kind::Unstage, client, mount)
    }

    /// Makes the call. The error is a message for the user.
    pub(super) async fn make(&self, api: &Api) -> Result<(), String> {
        let volume = &self.mount.volume;
        let name = &self.mount.volume_name;
        match self.kind {
            Kind::Publish => {
                let published = self.publish_now(api).await;
                published.map_err(|problem| format!("MountVolume.SetUp failed for volume {name:?} : {problem}"))
            }
            Kind::Unpublish => {
                let undone = self.client.unpublish(&volume.handle, &volume.target_path).await;
                undone.map_err(|error| format!("UnmountVolume.TearDown failed for volume {name:?} : {error}"))
            }
            Kind::Unstage => {
                let Some(path) = &volume.staging_path else {
                    return Ok(());
                };
                let undone = self.client.unstage(&volume.handle, path).await;
                undone.map_err(|error| format!("UnmountDevice failed for volume {name:?} : {error}"))
            }
        }
    }

    async fn publish_now(&self, api: &Api) -> Result<(), String> {
        let mut volume = self.mount.volume.clone();
        volume.stage_secrets = secret(api, self.mount.stage_secret.as_ref()).await?;
        volume.publish_secrets = secret(api, self.mount.publish_secret.as_ref()).await?;
        // The caller creates the staging directory, and the parent of the target path.
        let above = Path::new(&volume.target_path).parent();
        for path in volume.staging_path.as_deref().map(Path::new).into_iter().chain(above) {
            let made = tokio::fs::create_dir_all(path).await;
            made.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        self.client.publish(&volume).await.map_err(|error| error.to_string())
    }
}

async fn secret(api: &Api, reference: Option<&SecretReference>) -> Result<BTreeMap<String, String>, String> {
    match reference {
        None => Ok(BTreeMap::new()),
        Some(reference) => {
            let secrets = ClusterSecrets::new(api.clone());
            secrets.resolve(reference).await.map_err(|error| error.to_string())
        }
    }
}
