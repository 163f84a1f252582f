//! The CSI driver of our own as a program: volumes are directories.
//!
//! `dir-driver SOCKET ROOT NODE=ROOM...`, such as `dir-driver /tmp/csi.sock /tmp/volumes n0=10Gi n1=10Gi`. It answers
//! as the controller for all nodes, and as the node service of the first one, until it is ended.

use berth_core::quantity::Quantity;
use berth_provisioner::driver::{
    ControllerService, IdentityService, NAME, NODE_KEY, NodeService, SegmentRoom, Server, Store,
};
use berth_provisioner::topology::Segment;
use std::error::Error;
use std::sync::{Arc, Mutex};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(root)) = (arguments.next(), arguments.next()) else {
        return Err("usage: dir-driver SOCKET ROOT NODE=ROOM...".into());
    };
    let mut rooms = Vec::new();
    for argument in arguments {
        let (node, room) = argument.split_once('=').ok_or("expected NODE=ROOM, such as n0=10Gi")?;
        rooms.push(SegmentRoom {
            segment: Segment::from([(NODE_KEY.to_owned(), node.to_owned())]),
            bytes: Some(room.parse::<Quantity>()?.value()),
        });
    }
    let first = rooms.first().ok_or("expected at least one NODE=ROOM")?.segment.clone();
    let name = first.values().next().cloned().unwrap_or_default();
    let store = Arc::new(Mutex::new(Store::open(root, rooms)?));
    let controller = ControllerService::new(store.clone());
    let node = NodeService::new(store, name, first, 0);
    let _server = Server::start(socket, IdentityService::new(NAME), controller, Some(node)).await?;
    std::future::pending::<()>().await;
    Ok(())
}
