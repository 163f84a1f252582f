//! What creates the volumes: a CSI driver, the built-in provisioners, or a driver provided by the caller.

use super::secrets::ClusterSecrets;
use crate::api::Api;
use berth_core::api::{Node, PersistentVolume, StorageClass};
use berth_provisioner::answer::Answer;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::capacity::{Available, Query, SegmentSource};
use berth_provisioner::csi::Client;
use berth_provisioner::expand::Expansion;
use berth_provisioner::request::{Backing, Request};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What creates the volumes.
#[derive(Clone, Debug)]
pub struct Backend(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Csi(Client),
    Builtin(Arc<Mutex<Builtin>>),
    Other(Arc<dyn Driver>),
}

/// The future result of a [`Driver`] call.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Creates and deletes volumes. A repeated request for the same volume returns the same result.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// Creates a volume.
    fn provision<'a>(&'a self, request: &'a Request) -> Answering<'a, Answer>;

    /// Deletes a volume, or returns an error message. A nonexistent one counts as deleted.
    fn delete<'a>(&'a self, handle: &'a str) -> Answering<'a, Result<(), String>>;
}

/// A lock poisoned by a panic still holds valid data: each call is one step.
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

    /// A driver provided by the caller.
    #[must_use]
    pub fn other(driver: Arc<dyn Driver>) -> Self {
        Self(Kind::Other(driver))
    }

    /// Whether a response may take a while, so that users should see an event for the request.
    pub(super) fn is_far(&self) -> bool {
        matches!(self.0, Kind::Csi(_))
    }

    /// Whether its volumes may be attached to nodes, and must be detached before deletion.
    pub(super) fn attaches(&self) -> bool {
        match &self.0 {
            Kind::Csi(client) => client.identity().attaches,
            Kind::Builtin(_) | Kind::Other(_) => true,
        }
    }

    /// What determines the segments of its volumes.
    pub(super) fn segment_source(&self) -> SegmentSource {
        match self.0 {
            Kind::Builtin(_) => SegmentSource::Classes,
            Kind::Csi(_) | Kind::Other(_) => SegmentSource::Drivers,
        }
    }

    /// The response of a backend that answers immediately.
    pub(super) fn answer_now(&self, request: &Request, nodes: &BTreeMap<String, Node>) -> Option<Answer> {
        match &self.0 {
            Kind::Csi(_) | Kind::Other(_) => None,
            Kind::Builtin(builtin) => Some(lock(builtin).provision(request, nodes)),
        }
    }

    /// Creates a volume. Built-in provisioners have already responded.
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
                let free = lock(builtin).capacity(class, &query.item.segment);
                free.map_err(|failure| failure.to_string())
            }
            Kind::Other(_) => Err("it is published otherwise".to_owned()),
        }
    }

    /// Expands a volume. Only built-in provisioners are asked.
    pub(super) fn expand(&self, expansion: &Expansion) -> Result<(), String> {
        match &self.0 {
            Kind::Builtin(builtin) => {
                let Expansion {
                    volume, class, bytes, ..
                } = expansion;
                let expanded = lock(builtin).expand(volume, class, *bytes);
                expanded.map_err(|failure| failure.to_string())
            }
            Kind::Csi(_) | Kind::Other(_) => Err("the external-resizer of the driver expands its volumes".to_owned()),
        }
    }

    /// Adds a volume of the cluster.
    pub(super) fn observe(&self, volume: &PersistentVolume, class: Option<&StorageClass>) {
        if let Kind::Builtin(builtin) = &self.0 {
            lock(builtin).observe(volume, class);
        }
    }

    /// Forgets a volume that was deleted from the cluster, or never written to it.
    pub(super) fn forget(&self, volume: &str) {
        if let Kind::Builtin(builtin) = &self.0 {
            lock(builtin).delete(volume);
        }
    }
}
