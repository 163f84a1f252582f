//! `berth csi-driver`: the built-in CSI driver as a process, for the embedded cluster and for tests.

use crate::component::{interrupted, log};
use crate::terminal::Color;
use anyhow::Context;
use berth_core::quantity::Quantity;
use berth_provisioner::driver::{
    ControllerService, IdentityService, NAME, NODE_KEY, NodeService, SegmentRoom, Server, Store,
};
use berth_provisioner::topology::Segment;
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Arguments of `berth csi-driver`.
#[derive(Args, Debug)]
pub struct CsiDriverArgs {
    /// Directory for sockets and volumes.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// A node and its capacity for volumes. Can be repeated.
    #[arg(long = "node", value_name = "NAME=SIZE", required = true)]
    pub nodes: Vec<String>,
    /// The name of the driver.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    pub name: String,
    /// Topology key: the node label that volumes are tied to.
    #[arg(long, value_name = "LABEL", default_value = NODE_KEY)]
    pub topology_key: String,
    /// Secret that requests to create and delete volumes must carry.
    #[arg(long, value_name = "KEY=VALUE")]
    pub secret: Option<String>,
}

/// Runs the driver until interrupted.
///
/// # Errors
/// If a node is invalid, or the directory or a socket cannot be used.
pub fn csi_driver(args: &CsiDriverArgs, color: Color) -> anyhow::Result<()> {
    log(None, color);
    let rooms = args.nodes.iter().map(|text| room(text, &args.topology_key));
    let rooms = rooms.collect::<anyhow::Result<Vec<_>>>()?;
    let secret = args.secret.as_deref().map(pair).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    runtime.block_on(async {
        let _servers = serve(args, rooms, secret).await?;
        let mut out = color.stdout();
        writeln!(out, "CSI driver {}", args.name)?;
        writeln!(out, "  controller: unix://{}", controller_socket(&args.dir).display())?;
        writeln!(
            out,
            "  nodes:      unix://{}",
            node_socket(&args.dir, "{node}").display()
        )?;
        out.flush()?;
        interrupted().await;
        Ok(())
    })
}

fn controller_socket(directory: &Path) -> PathBuf {
    directory.join("csi.sock")
}

fn node_socket(directory: &Path, node: &str) -> PathBuf {
    directory.join("nodes").join(format!("{node}.sock"))
}

/// One controller service for the whole cluster, and for each node a node service with its own controller service.
async fn serve(
    args: &CsiDriverArgs,
    rooms: Vec<SegmentRoom>,
    secret: Option<(String, String)>,
) -> anyhow::Result<Vec<Server>> {
    let sockets = args.dir.join("nodes");
    std::fs::create_dir_all(&sockets).with_context(|| format!("cannot make {}", sockets.display()))?;
    let store = Arc::new(Mutex::new(Store::open(args.dir.join("volumes"), rooms.clone())?));
    let identity = || IdentityService::new(&args.name);
    let controller = ControllerService::new(Arc::clone(&store)).with_secret(secret.clone());
    let mut servers = vec![Server::start(controller_socket(&args.dir), identity(), controller, None).await?];
    for room in rooms {
        let segment = room.segment;
        let name = segment.values().next().cloned().unwrap_or_default();
        let controller = ControllerService::at_home(Arc::clone(&store), segment.clone()).with_secret(secret.clone());
        let node = NodeService::new(Arc::clone(&store), &name, segment, 0);
        let socket = node_socket(&args.dir, &name);
        servers.push(Server::start(socket, identity(), controller, Some(node)).await?);
    }
    Ok(servers)
}

fn pair(text: &str) -> anyhow::Result<(String, String)> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .with_context(|| format!("{text:?}: expected two words with = between"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn room(text: &str, key: &str) -> anyhow::Result<SegmentRoom> {
    let (node, size) = pair(text)?;
    let size: Quantity = size.parse().with_context(|| format!("{text:?} has no size"))?;
    Ok(SegmentRoom {
        segment: Segment::from([(key.to_owned(), node)]),
        bytes: Some(size.value()),
    })
}
