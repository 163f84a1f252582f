//! Simulates CSI drivers that are not running, by the rules of `berth simulate`: a provisioner creates their volumes, and
//! their published capacity shrinks accordingly.
//!
//! Objects are read again for each volume, so that space is taken from the current capacity. Volumes are created one at
//! a time.

use super::{FIELD_MANAGER, Parts};
use berth_cluster::drivers::{Drivers, Topology};
use berth_cluster::{Objects, View, field};
use berth_core::api::{CsiNode, Kind, Node};
use berth_core::effect::Effect;
use berth_kube::api::Api;
use berth_kube::executor::Executor;
use berth_kube::provisioner::{Answering, Driver};
use berth_kube::recorder::recorder;
use berth_kube::resource::{Resource, Whole};
use berth_kube::watch::{Change, Difference, ObjectName, Sink, watch_resource};
use berth_kube::{CancellationToken, Client};
use berth_provisioner::answer::Answer;
use berth_provisioner::request::{Failure, Request};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The kinds that drivers read.
const KINDS: [Kind; 4] = [Kind::Node, Kind::CsiNode, Kind::CsiStorageCapacity, Kind::CsiDriver];

/// How often a write to a pool is retried after a conflict.
const TRIES: usize = 10;

/// The simulated drivers.
pub(super) struct Simulated {
    executor: Executor,
    drivers: Mutex<Drivers>,
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").finish_non_exhaustive()
    }
}

impl Driver for Simulated {
    fn provision<'a>(&'a self, request: &'a Request) -> Answering<'a, Answer> {
        Box::pin(self.make(request))
    }

    fn delete<'a>(&'a self, handle: &'a str) -> Answering<'a, Result<(), String>> {
        Box::pin(async move {
            let mut drivers = self.drivers.lock().await;
            let view = self.view().await?;
            self.publish(&drivers.delete(&view, handle)).await;
            Ok(())
        })
    }
}

impl Simulated {
    /// Starts following the pods with inline volumes.
    pub(super) fn start(client: &Client, cancel: &CancellationToken, parts: &mut Parts) -> Arc<Self> {
        let api = Api::new(client.clone(), FIELD_MANAGER);
        // Drivers record no events: their provisioner does.
        let (recorder, _) = recorder(api.clone(), FIELD_MANAGER, FIELD_MANAGER);
        let simulated = Arc::new(Self {
            executor: Executor::new(api.clone(), recorder),
            drivers: Mutex::default(),
        });
        let inline = Inline {
            simulated: Arc::clone(&simulated),
            pods: BTreeMap::new(),
        };
        let cancel = cancel.clone();
        parts.spawn(async move {
            watch_resource(api, Resource::of(Kind::Pod), inline, cancel).await;
            Ok(())
        });
        simulated
    }

    async fn make(&self, request: &Request) -> Answer {
        let mut drivers = self.drivers.lock().await;
        for _ in 0..TRIES {
            let view = self.view().await.map_err(Failure::not_asked)?;
            let (nodes, csi_nodes) = (
                decoded::<Node>(&view, Kind::Node),
                decoded::<CsiNode>(&view, Kind::CsiNode),
            );
            let topology = Topology {
                nodes: &nodes,
                csi_nodes: &csi_nodes,
            };
            let (answer, rooms) = drivers.provision(&view, topology, request);
            if self.publish(&rooms).await {
                return answer;
            }
            drivers.forget(&request.name);
        }
        Err(Failure::not_asked("another client keeps writing to the same pools"))
    }

    /// Writes the remaining space; returns `false` if another writer was faster.
    async fn publish(&self, rooms: &[Effect]) -> bool {
        self.executor.carry_out(rooms).await.refused.is_none()
    }

    /// The current objects that drivers read.
    async fn view(&self) -> Result<Objects, String> {
        let mut view = Objects::default();
        for resource in KINDS.map(Resource::of) {
            let listed = self.executor.api().get_path(&resource.collection(None)).await;
            let bytes = listed.map_err(|error| error.to_string())?;
            let mut list: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
            for item in list["items"].as_array_mut().into_iter().flatten() {
                // Items of a list have no kind.
                field::set(item, &["apiVersion"], json!(resource.api_version()));
                field::set(item, &["kind"], json!(resource.kind));
                view.insert(item.take());
            }
        }
        Ok(view)
    }

    /// Takes the space for the inline volumes of a pod, or returns it.
    async fn follow(&self, pod: &Value, is_gone: bool) {
        let mut drivers = self.drivers.lock().await;
        for _ in 0..TRIES {
            let view = match self.view().await {
                Ok(view) => view,
                Err(error) => return tracing::warn!(%error, "the capacity for inline volumes is unknown"),
            };
            let rooms = match is_gone {
                true => drivers.pod_gone(&view, pod),
                false => drivers.pod_changed(&view, pod),
            };
            if rooms.is_empty() {
                return;
            }
            if !self.publish(&rooms).await {
                tracing::debug!("another client wrote to a pool at the same time");
            }
        }
    }
}

/// The readable objects of a kind, by name.
fn decoded<T: DeserializeOwned>(view: &Objects, kind: Kind) -> BTreeMap<String, T> {
    let objects = view.of_kind(kind.name());
    let read = |object: &Value| {
        Some((
            field::name(object).to_owned(),
            serde_json::from_value(object.clone()).ok()?,
        ))
    };
    objects.filter_map(read).collect()
}

/// The pods with inline volumes.
struct Inline {
    simulated: Arc<Simulated>,
    pods: BTreeMap<ObjectName, Value>,
}

impl Sink<Whole> for Inline {
    async fn take(&mut self, difference: Difference<Whole>) -> bool {
        for change in difference.changes {
            match change {
                Change::Applied(pod) => self.applied(pod.value).await,
                Change::Removed { name, .. } => self.removed(&name).await,
                Change::Broken { .. } => {}
            }
        }
        true
    }
}

impl Inline {
    async fn applied(&mut self, pod: Value) {
        let brings = |volume: &Value| volume["csi"].is_object();
        if !field::items(&pod, "/spec/volumes").iter().any(brings) {
            return;
        }
        let name = (field::namespace(&pod).to_owned(), field::name(&pod).to_owned());
        if self
            .pods
            .get(&name)
            .is_some_and(|known| field::uid(known) != field::uid(&pod))
        {
            self.removed(&name).await;
        }
        self.simulated.follow(&pod, false).await;
        self.pods.insert(name, pod);
    }

    async fn removed(&mut self, name: &ObjectName) {
        if let Some(pod) = self.pods.remove(name) {
            self.simulated.follow(&pod, true).await;
        }
    }
}
