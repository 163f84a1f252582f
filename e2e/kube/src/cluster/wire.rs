//! A proxy between a client and a server that a test can cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

/// Forwards connections to a server until they are cut. It stops when dropped.
pub struct Wire {
    address: SocketAddr,
    accepting: JoinHandle<()>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Wire {
    /// Listens on loopback for connections to a server.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&connections)));
        Ok(Self {
            address,
            accepting,
            connections,
        })
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every existing connection; new ones are accepted as before. Returns their number.
    pub fn cut(&self) -> usize {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let open = connections.drain(..).filter(|connection| !connection.is_finished());
        open.map(|connection| connection.abort()).count()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, connections: Arc<Mutex<Vec<AbortHandle>>>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let passed_on = tokio::spawn(async move {
            // An unavailable server looks like a connection that breaks at once.
            if let Ok(mut server) = TcpStream::connect(server).await {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.is_finished());
        connections.push(passed_on.abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn connections_work_until_they_are_cut_and_new_ones_after_that() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let wire = Wire::start(server.local_addr().unwrap()).await.unwrap();
        for _ in 0..2 {
            let mut client = TcpStream::connect(wire.address()).await.unwrap();
            let (mut served, _) = server.accept().await.unwrap();
            client.write_all(b"hello").await.unwrap();
            let mut heard = [0; 5];
            served.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"hello");
            assert_eq!(wire.cut(), 1);
            // End of stream or reset: either way nothing more arrives.
            assert!(matches!(client.read(&mut heard).await, Ok(0) | Err(_)));
        }
    }
}
