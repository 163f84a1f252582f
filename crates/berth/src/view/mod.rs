//! `berth view`: shows a cluster as it is, live, on a page or in the terminal. `berth up` serves the page, too.
//!
//! `watching` brings objects, `owner` keeps them and the rows of the page, `server` serves both the page and its data to
//! whom `guard` lets in, `screen` draws them in a terminal, and `answers` works out what is asked. Nothing is written to the
//! cluster.

mod answers;
mod assets;
mod guard;
mod invocation;
mod kept;
mod owner;
mod screen;
mod server;
mod stream;
mod watching;
mod what_if;

use crate::cluster::{Connection, REQUEST_TIMEOUT};
use crate::component;
use crate::config::{ConfigArgs, EmbeddedControllerArgs};
use crate::duration::duration;
use crate::terminal::Color;
use answers::Answers;
use anyhow::Context;
use berth_kube::{CancellationToken, connect};
use clap::Args;
use guard::Guard;
pub(crate) use invocation::Invocation;
use owner::{Asker, Cluster, Owner};
use server::Server;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use watching::Failures;

/// Loopback with a port of the system's choice.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Arguments of `berth view`.
#[derive(Args, Debug)]
pub struct ViewArgs {
    /// Path to the kubeconfig. Defaults to KUBECONFIG or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Defaults to the current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Show the cluster in this terminal instead of on a page.
    #[arg(short, long, conflicts_with_all = ["listen", "token_file"])]
    pub terminal: bool,
    /// Address to serve the page on. Port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = ANY_PORT)]
    pub listen: SocketAddr,
    /// File that contains the token of the page's address. Generated if omitted.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Timeout of a request to the cluster, e.g. 30s.
    #[arg(long, value_name = "DURATION", default_value = REQUEST_TIMEOUT, value_parser = duration)]
    pub request_timeout: Duration,
    /// The configuration of decisions.
    #[command(flatten)]
    pub decisions: ConfigArgs,
    /// Log what the watches do, to standard error.
    #[arg(short, long)]
    pub verbose: bool,
}

/// Shows the cluster of a kubeconfig until interrupted.
///
/// # Errors
/// If there is no cluster, the configuration is broken, or the address or the terminal cannot be used.
pub fn view(args: &ViewArgs, color: Color) -> anyhow::Result<()> {
    // Broken configuration is told here, and not by each answer.
    args.decisions.read()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("cannot start")?;
    let result = runtime.block_on(run(args, color));
    // Pages that are open are not waited for.
    runtime.shutdown_background();
    result
}

async fn run(args: &ViewArgs, color: Color) -> anyhow::Result<()> {
    if args.terminal {
        return show(args, color).await;
    }
    let token = match &args.token_file {
        Some(path) => {
            berth_apiserver::read_token(path).with_context(|| format!("cannot read the token in {}", path.display()))?
        }
        None => new_token()?,
    };
    let connection = connect(args).await?;
    let page = Page::listen(args.listen, token).await?;
    let interrupted = component::interrupted();
    let mut out = color.stdout();
    let bold = anstyle::Style::new().bold();
    writeln!(out, "The page of the cluster at {}, read-only:", connection.server())?;
    writeln!(out, "  {bold}{}{bold:#}", page.address())?;
    writeln!(out, "Press Ctrl-C to stop.")?;
    out.flush()?;
    let cancel = CancellationToken::new();
    let mut tasks = page.start(&connection, invocation(args), &cancel);
    tokio::select! {
        () = interrupted => {}
        _ = tasks.join_next() => {}
    }
    cancel.cancel();
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Shows the cluster in the terminal.
async fn show(args: &ViewArgs, color: Color) -> anyhow::Result<()> {
    screen::check_terminal()?;
    let connection = connect(args).await?;
    let interrupted = component::interrupted();
    let cancel = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let view = screen::View {
        server: connection.server().to_owned(),
        asker: watch(&connection, None, &cancel, &mut tasks),
        answers: Answers::new(connection, invocation(args)),
        colored: color.is_colored(),
    };
    let result = view.show(&mut tasks, interrupted).await;
    cancel.cancel();
    result
}

/// The cluster. One that cannot be reached is told at once; what goes wrong later is shown.
async fn connect(args: &ViewArgs) -> anyhow::Result<Connection> {
    let (kubeconfig, context) = (args.kubeconfig.as_deref(), args.context.as_deref());
    let connection = Connection::to(kubeconfig, context, args.request_timeout).await?;
    connection.check().await?;
    Ok(connection)
}

/// How this was started.
fn invocation(args: &ViewArgs) -> Invocation {
    Invocation {
        kubeconfig: args.kubeconfig.clone(),
        variable: std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()),
        context: connect::context_of(args.kubeconfig.as_deref(), args.context.as_deref()),
        decisions: args.decisions.clone(),
        controller: EmbeddedControllerArgs::default(),
    }
}

/// Watches the cluster until cancelled.
fn watch(
    connection: &Connection,
    context: Option<String>,
    cancel: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Asker {
    let failures = Failures::default();
    let heard = watching::start(connection.api(), &failures, cancel, tasks);
    let cluster = Cluster {
        context,
        server: connection.server().trim_end_matches('/').to_owned(),
    };
    Owner::new(failures, cluster).start(heard, cancel.clone(), tasks)
}

/// A token for the address of a page.
///
/// # Errors
/// If the system has no random numbers.
pub(crate) fn new_token() -> anyhow::Result<String> {
    berth_apiserver::random_token().context("no random numbers for a token")
}

/// A page that is about to be served.
pub(crate) struct Page {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

impl Page {
    /// Listens, and answers nobody yet.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub(crate) async fn listen(wanted: SocketAddr, token: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(wanted).await;
        let listener = listener.with_context(|| format!("cannot serve the page on {wanted}"))?;
        let address = listener.local_addr().context("the listener has no address")?;
        Ok(Self {
            listener,
            address,
            token,
        })
    }

    /// What to open in a browser. The token stands where browsers send it to nobody.
    pub(crate) fn address(&self) -> String {
        let address = match self.address.ip().is_unspecified() {
            true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.address.port()),
            false => self.address,
        };
        format!("http://{address}/#{}", self.token)
    }

    /// Watches the cluster and serves the page until cancelled.
    pub(crate) fn start(
        self,
        connection: &Connection,
        invocation: Invocation,
        cancel: &CancellationToken,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let server = Server::new(
            Guard::new(self.token, self.address.ip()),
            watch(connection, invocation.context.clone(), cancel, &mut tasks),
            Answers::new(connection.clone(), invocation),
        );
        tasks.spawn(server.serve(self.listener, cancel.clone()));
        tasks
    }
}
