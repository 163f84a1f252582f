//! Serves the API over TLS until it is stopped, and writes a kubeconfig for it.
//!
//! `cargo run --example serve -- --kubeconfig FILE [--listen 127.0.0.1:0] [--data-dir DIR] [--token TOKEN]`

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use berth_apiserver::{Server, Tls};
use tokio::net::TcpListener;

struct Options {
    listen: SocketAddr,
    kubeconfig: PathBuf,
    data_dir: Option<PathBuf>,
    token: Option<String>,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        kubeconfig: PathBuf::new(),
        data_dir: None,
        token: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--listen" => options.listen = value.parse()?,
            "--kubeconfig" => options.kubeconfig = value.into(),
            "--data-dir" => options.data_dir = Some(value.into()),
            "--token" => options.token = Some(value),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    if options.kubeconfig.as_os_str().is_empty() {
        return Err("--kubeconfig is required".into());
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let mut builder = Server::builder();
    if let Some(directory) = options.data_dir {
        builder = builder.data_dir(directory);
    }
    if let Some(token) = options.token {
        builder = builder.token(token);
    }
    let server = builder.build()?;
    let listener = TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let tls = Tls::generate(&[address.ip()])?;
    std::fs::write(&options.kubeconfig, server.kubeconfig(&tls, address))?;
    writeln!(std::io::stdout(), "serving on https://{address}")?;
    let stop = async {
        // Without a signal handler there is no orderly way to stop: serve until killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    server.serve(listener, &tls, stop).await?;
    Ok(())
}
