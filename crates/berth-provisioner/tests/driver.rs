//! The built-in driver, over its socket.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::effect::Effect;
use berth_provisioner::capacity::pools::{Pool, PoolClass, PoolNodes, report};
use berth_provisioner::csi::{Client, ClientSettings, ConnectError, proto};
use berth_provisioner::driver::{ControllerService, IdentityService, NAME, NodeService, Server, Store};
use berth_provisioner::topology::Segment;
use hyper_util::rt::TokioIo;
use proto::node_client::NodeClient;
use proto::volume_capability::{AccessMode, AccessType, MountVolume};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::faulty::nodes_with_room;
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

async fn serve(directory: &TempDir) -> Server {
    let rooms = nodes_with_room(2, 10 << 30);
    let segment = rooms[0].segment.clone();
    let store = Arc::new(Mutex::new(
        Store::open(directory.path().join("volumes"), rooms).unwrap(),
    ));
    let controller = ControllerService::new(store.clone());
    let node = NodeService::new(store, "n0", segment, 0);
    let socket = directory.path().join("csi.sock");
    Server::start(socket, IdentityService::new(NAME), controller, Some(node))
        .await
        .unwrap()
}

fn quick() -> ClientSettings {
    ClientSettings {
        ready_timeout: Duration::from_millis(300),
        call_timeout: Duration::from_secs(10),
    }
}

fn channel(directory: &TempDir) -> Channel {
    let path = directory.path().join("csi.sock");
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(move |_| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    }))
}

fn inline(id: &str, target: &Path, size: &str) -> proto::NodePublishVolumeRequest {
    let context = [
        ("csi.storage.k8s.io/ephemeral", "true"),
        ("csi.storage.k8s.io/size", size),
    ];
    proto::NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(proto::VolumeCapability {
            access_mode: Some(AccessMode { mode: 1 }),
            access_type: Some(AccessType::Mount(MountVolume::default())),
        }),
        volume_context: context.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn it_says_who_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(&directory).await;
    let client = Client::connect(&server.address(), quick()).await.unwrap();
    let identity = client.identity();
    assert_eq!(identity.name, NAME);
    assert!(identity.topology && identity.creates && identity.capacity && identity.tells_pods_apart);
    let everywhere = client.capacity(&BTreeMap::new(), None).await.unwrap();
    assert_eq!(
        (everywhere.bytes, everywhere.maximum_volume_size),
        (20 << 30, Some(10 << 30))
    );
    let nowhere = Segment::from([("zone".to_owned(), "x".to_owned())]);
    assert_eq!(
        client.capacity(&BTreeMap::new(), Some(&nowhere)).await.unwrap().bytes,
        0
    );
    server.stop().await;
}

#[tokio::test]
async fn nobody_there_is_said_so() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix://{}/csi.sock", directory.path().display());
    let error = Client::connect(&address, quick()).await.unwrap_err();
    assert!(matches!(&error, ConnectError::NotReady { .. }), "{error}");
    assert!(
        error.to_string().contains("csi.sock was not ready within 300ms"),
        "{error}"
    );
}

#[tokio::test]
async fn a_socket_is_not_taken_from_another() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(&directory).await;
    let store = Arc::new(Mutex::new(Store::open(directory.path().join("other"), vec![]).unwrap()));
    let socket = directory.path().join("csi.sock");
    let second = Server::start(
        &socket,
        IdentityService::new("x"),
        ControllerService::new(store.clone()),
        None,
    )
    .await;
    assert!(second.unwrap_err().to_string().contains("another driver is listening"));
    server.stop().await;
    // A file that is not a socket is kept.
    let file = directory.path().join("precious");
    std::fs::write(&file, "text").unwrap();
    let third = Server::start(&file, IdentityService::new("x"), ControllerService::new(store), None).await;
    assert!(third.is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
}

/// The PMEM example: inline volumes with a size are allocated from the node's own pool and returned to it.
#[tokio::test]
async fn inline_volumes_with_a_size() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(&directory).await;
    let client = Client::connect(&server.address(), quick()).await.unwrap();
    let mut node = NodeClient::new(channel(&directory));
    let target = |pod: &str| directory.path().join("pods").join(pod).join("mount");
    let here = nodes_with_room(1, 0)[0].segment.clone();
    let free = || async { client.capacity(&BTreeMap::new(), Some(&here)).await.unwrap().bytes >> 30 };

    node.node_publish_volume(inline("csi-redis-1", &target("redis-1"), "6Gi"))
        .await
        .unwrap();
    std::fs::write(target("redis-1").join("dump"), "data").unwrap();
    assert_eq!(free().await, 4);
    let pool = Pool {
        name: "n0".into(),
        nodes: PoolNodes::List(vec!["n0".into()]),
        bytes: free().await << 30,
        expires: None,
    };
    let Effect::Patch(patch) = report(NAME, &PoolClass::Ephemeral, &pool) else {
        panic!("not a patch")
    };
    let reported = &patch.body["status"]["storage"][0];
    assert_eq!(reported["storageClassName"], "<ephemeral>");
    assert_eq!(reported["pools"][0]["capacity"], "4Gi");
    // Publishing is idempotent.
    node.node_publish_volume(inline("csi-redis-1", &target("redis-1"), "6Gi"))
        .await
        .unwrap();
    assert_eq!(free().await, 4);

    let full = node
        .node_publish_volume(inline("csi-redis-2", &target("redis-2"), "6Gi"))
        .await
        .unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted, "{full}");
    let outside = node
        .node_publish_volume(inline("../../etc", &target("redis-3"), "1Gi"))
        .await
        .unwrap_err();
    assert_eq!(outside.code(), Code::InvalidArgument);

    let gone = proto::NodeUnpublishVolumeRequest {
        volume_id: "csi-redis-1".into(),
        target_path: target("redis-1").to_str().unwrap().into(),
    };
    node.node_unpublish_volume(gone.clone()).await.unwrap();
    assert!(!target("redis-1").exists());
    assert_eq!(free().await, 10);
    node.node_unpublish_volume(gone).await.unwrap();
    server.stop().await;
}

#[test]
fn what_is_on_the_disk_is_all_there_is() {
    let directory = tempfile::tempdir().unwrap();
    let rooms = nodes_with_room(1, 10);
    let segment = rooms[0].segment.clone();
    let id = {
        let mut store = Store::open(directory.path(), rooms.clone()).unwrap();
        let volume = store
            .create("a name / with anything", 4, segment.clone(), false)
            .unwrap();
        std::fs::write(directory.path().join("half.draft"), "{").unwrap();
        volume.id
    };
    let mut store = Store::open(directory.path(), rooms.clone()).unwrap();
    assert_eq!(store.by_name("a name / with anything").unwrap().id, id);
    assert!(store.directory(&id).is_dir());
    assert!(store.find_room(std::slice::from_ref(&segment), 7).is_err());
    store.delete(&id).unwrap();
    store.delete(&id).unwrap();
    assert!(store.find_room(std::slice::from_ref(&segment), 7).is_ok());
    std::fs::write(directory.path().join("broken.json"), "{").unwrap();
    let error = Store::open(directory.path(), rooms).unwrap_err().to_string();
    assert!(error.contains("broken.json does not describe a volume"), "{error}");
}

#[test]
fn a_copy_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let rooms = nodes_with_room(1, 10);
    let segment = rooms[0].segment.clone();
    let mut store = Store::open(directory.path(), rooms.clone()).unwrap();
    let source = store.create("source", 4, segment.clone(), false).unwrap();
    std::fs::write(store.directory(&source.id).join("file"), "text").unwrap();
    let copy = store.copy("copy", 4, segment, &source.id).unwrap();
    let file = |id: &str| directory.path().join(id).join("file");
    assert_eq!(std::fs::read_to_string(file(&copy.id)).unwrap(), "text");
    // A crash after the copy was described, and another one while a copy was made.
    std::fs::rename(
        directory.path().join(&copy.id),
        directory.path().join(format!("{}.copy", copy.id)),
    )
    .unwrap();
    std::fs::create_dir(directory.path().join("vol-half.copy")).unwrap();
    let store = Store::open(directory.path(), rooms).unwrap();
    assert_eq!(std::fs::read_to_string(file(&copy.id)).unwrap(), "text");
    assert_eq!(store.get(&copy.id).unwrap().source, Some(source.id));
    assert!(!directory.path().join("vol-half.copy").exists());
}
