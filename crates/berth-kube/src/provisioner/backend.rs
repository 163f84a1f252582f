//! Who makes the volumes: a CSI driver, the built-in provisioners, or somebody whom the caller brings.

use super::secrets::ClusterSecrets;
use crate::api::Api;
use berth_core::api::{Node, PersistentVolume, StorageClass};
use berth_provisioner::answer::Answer;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::capacity::{Available, Query};
use berth_provisioner::csi::Client;
use berth_provisioner::request::{Backing, Request};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who makes the volumes.
#[derive(Clone, Debug)]
pub struct Backend(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Csi(Client),
    Builtin(Arc<Mutex<Builtin>>),
    Other(Arc<dyn Driver>),
}

/// What a [`Driver`] answers, when it does.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes and deletes volumes. Asked again for a volume that it made, it answers as before.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// Makes a volume.
    fn provision<'a>(&'a self, request: &'a Request) -> Answering<'a, Answer>;

    /// Deletes a volume; an error in words if it cannot. One that is not there counts as deleted.
    fn delete<'a>(&'a self, handle: &'a str) -> Answering<'a, Result<(), String>>;
}

/// A lock that a panic left behind holds what it held before: each call is one step.
fn lock(builtin: &Mutex<Builtin>) -> MutexGuard<'_, Builtin> {
    builtin.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend {
    /// A CSI driver.
    #[must_use]
    pub fn csi(client: Client) -> Self {
        Self(Kind::Csi(client))
    }

    /// The built-in provisioners.
    #[must_use]
    pub fn builtin() -> Self {
        Self(Kind::Builtin(Arc::default()))
    }

    /// Somebody else.
    #[must_use]
    pub fn other(driver: Arc<dyn Driver>) -> Self {
        Self(Kind::Other(driver))
    }

    /// Whether an answer may take its time, so that users should hear that somebody was asked.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.0, Kind::Csi(_))
    }

    /// Whether its volumes may be attached to nodes, from which they must be detached before they go.
    pub(super) fn attaches(&self) -> bool {
        match &self.0 {
            Kind::Csi(client) => client.identity().attaches,
            Kind::Builtin(_) | Kind::Other(_) => true,
        }
    }

    /// Whether the volumes' segments depend on the class.
    pub(super) fn is_builtin(&self) -> bool {
        matches!(self.0, Kind::Builtin(_))
    }

    /// The answer of a backend that knows it at once.
    pub(super) fn answer_now(&self, request: &Request, nodes: &BTreeMap<String, Node>) -> Option<Answer> {
        match &self.0 {
            Kind::Csi(_) | Kind::Other(_) => None,
            Kind::Builtin(builtin) => Some(lock(builtin).provision(request, nodes)),
        }
    }

    /// Asks for a volume. Built-in provisioners have answered already.
    pub(super) async fn create(&self, request: &Request, api: &Api) -> Answer {
        match &self.0 {
            Kind::Csi(client) => client.create(request, &ClusterSecrets::new(api.clone())).await,
            Kind::Builtin(builtin) => lock(builtin).provision(request, &BTreeMap::new()),
            Kind::Other(driver) => driver.provision(request).await,
        }
    }

    /// Deletes a volume.
    pub(super) async fn delete(&self, backing: &Backing, api: &Api) -> Result<(), String> {
        match &self.0 {
            Kind::Csi(client) => {
                let secrets = ClusterSecrets::new(api.clone());
                client
                    .delete(backing, &secrets)
                    .await
                    .map_err(|error| error.to_string())
            }
            Kind::Builtin(builtin) => {
                lock(builtin).delete(&backing.handle);
                Ok(())
            }
            Kind::Other(driver) => driver.delete(&backing.handle).await,
        }
    }

    /// The free space for a query.
    pub(super) async fn capacity(&self, query: &Query, class: Option<&StorageClass>) -> Result<Available, String> {
        match &self.0 {
            Kind::Csi(client) => {
                // A segment without labels is the whole cluster.
                let segment = Some(&*query.item.segment).filter(|segment| !segment.is_empty());
                let asked = client.capacity(&query.parameters, segment).await;
                asked.map_err(|error| error.to_string())
            }
            Kind::Builtin(builtin) => {
                let class = class.ok_or("the class is gone")?;
                let free = lock(builtin).available(class, &query.item.segment);
                let free = free.map_err(|failure| failure.to_string())?;
                Ok(Available {
                    bytes: free.unwrap_or(i64::MAX),
                    maximum_volume_size: None,
                })
            }
            Kind::Other(_) => Err("it is published otherwise".to_owned()),
        }
    }

    /// Takes in a volume of the cluster.
    pub(super) fn observe(&self, volume: &PersistentVolume, class: Option<&StorageClass>) {
        if let Kind::Builtin(builtin) = &self.0 {
            lock(builtin).observe(volume, class);
        }
    }

    /// Forgets a volume that is gone from the cluster, or was never written to it.
    pub(super) fn forget(&self, volume: &str) {
        if let Kind::Builtin(builtin) = &self.0 {
            lock(builtin).delete(volume);
        }
    }
}
