//! The address that `berth up` listens on. With a data directory the port is stored there, so that a kubeconfig is valid
//! for the next run, too.

use anyhow::Context;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

/// The file with the port of the last run in a data directory.
const PORT_FILE: &str = "port";

/// A listener, and a remark about its address.
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) note: Option<String>,
}

/// Loopback with a free port.
pub(super) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Listens at the specified address; by default on loopback, on the port of the last run if there was one.
pub(super) async fn listen(asked: Option<SocketAddr>, data_dir: Option<&Path>) -> anyhow::Result<Listening> {
    let kept = match asked {
        Some(_) => None,
        None => data_dir.and_then(kept_port),
    };
    let wanted = asked.unwrap_or(SocketAddr::new(ANY_PORT.ip(), kept.unwrap_or_default()));
    let mut note = None;
    let bound = match (TcpListener::bind(wanted).await, kept) {
        (Err(error), Some(port)) if error.kind() == ErrorKind::AddrInUse => {
            note = Some(format!(
                "port {port} of the last run is in use: a kubeconfig from then no longer works"
            ));
            TcpListener::bind(ANY_PORT).await
        }
        (bound, _) => bound,
    };
    let listener = bound.with_context(|| format!("cannot listen on {wanted}"))?;
    let address = listener.local_addr().context("the listener has no address")?;
    if let Some(directory) = data_dir {
        keep_port(directory, address.port())
            .with_context(|| format!("cannot write the port into {}", directory.display()))?;
    }
    Ok(Listening {
        listener,
        address,
        note,
    })
}

/// The port of the last run. An invalid file does not prevent the start.
fn kept_port(directory: &Path) -> Option<u16> {
    let text = fs::read_to_string(directory.join(PORT_FILE)).ok()?;
    text.trim().parse().ok()
}

/// A crash leaves the old file or the new one.
fn keep_port(directory: &Path, port: u16) -> io::Result<()> {
    if kept_port(directory) == Some(port) {
        return Ok(());
    }
    let mut file = NamedTempFile::new_in(directory)?;
    writeln!(file, "{port}")?;
    file.persist(directory.join(PORT_FILE))?;
    Ok(())
}
