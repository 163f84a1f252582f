//! An embedded API server with a volume controller.

// Each test crate uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod faulty;
pub mod gate;

use berth_apiserver::Server;
use berth_core::api::Kind;
use berth_kube::api::Api;
use berth_kube::controller::{Options, RunError, run};
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client};
use berth_testing::{claim, object, volume};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Timeout for something that must happen.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub server: Server,
    pub client: Client,
    pub api: Api,
}

impl Cluster {
    pub fn new() -> Self {
        let server = Server::builder().build().unwrap();
        let client = Client::new(server.service(), "default");
        let api = Api::new(client.clone(), "test");
        Self { server, client, api }
    }

    pub fn start(&self, options: Options) -> Running {
        let cancel = CancellationToken::new();
        let task = tokio::spawn(run(self.client.clone(), options, cancel.clone()));
        Running { cancel, task }
    }

    pub async fn create(&self, object: &Value) {
        let kind = kind_of(object["kind"].as_str().unwrap());
        let namespace = object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Err(error) = self.api.create(Resource::of(kind), namespace, object).await {
            let name = object["metadata"]["name"].as_str().unwrap();
            let there = self.get(kind, namespace, name).await;
            panic!("{error}: {there:#?}");
        }
    }

    pub async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Value> {
        let bytes = self.api.get(Resource::of(kind), namespace, name).await.unwrap();
        bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    pub async fn list(&self, resource: Resource) -> Vec<Value> {
        let bytes = self.api.get_path(&resource.collection(None)).await.unwrap();
        let list: Value = serde_json::from_slice(&bytes).unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Deletes an object as a user does, in any version.
    pub async fn delete(&self, kind: Kind, namespace: &str, name: &str) {
        let object = self.get(kind, namespace, name).await.unwrap();
        let uid = &object["metadata"]["uid"];
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        let deleted = self
            .api
            .delete_with(Resource::of(kind), namespace, name, &options)
            .await;
        deleted.unwrap();
    }

    /// Deletes an object that finalizers would keep.
    pub async fn remove(&self, kind: Kind, namespace: &str, name: &str) {
        let resource = Resource::of(kind);
        let freed = json!({"metadata": {"finalizers": null}});
        let patched = self.api.merge_patch(resource, namespace, name, None, &freed).await;
        patched.unwrap();
        self.delete(kind, namespace, name).await;
        assert_eq!(self.get(kind, namespace, name).await, None);
    }

    pub async fn namespace(&self, name: &str) {
        self.create(&object("v1", "Namespace", name)).await;
    }
}

pub fn kind_of(name: &str) -> Kind {
    Kind::ALL.iter().copied().find(|kind| kind.name() == name).unwrap()
}

pub struct Running {
    pub cancel: CancellationToken,
    pub task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    pub async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Waits until a condition holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A volume and a claim with this name that match only each other: they have their own class.
pub async fn create_pair(cluster: &Cluster, name: &str) {
    cluster.create(&volume(name, name, 1)).await;
    cluster.create(&claim(name, name, 1)).await;
}
