//! The cluster that the tests share, and the components on it.

use super::agent::Agent;
use anyhow::Context as _;
use berth_e2e::cluster::{Cluster, Controllers, Options, Process};
use berth_e2e::components::{Component, Installation, NAMESPACE};
use berth_e2e::kube::Kube;
use berth_provisioner::driver::{ControllerService, IdentityService, NAME, NODE_KEY, SegmentRoom, Server, Store};
use berth_provisioner::topology::Segment;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// Nodes on which the tests' CSI driver can create volumes.
pub(crate) const NODES: [&str; 3] = ["n0", "n1", "n2"];
/// Capacity of each of them.
pub(crate) const ROOM_GI: i64 = 100;

/// Which project provides a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Kubernetes' own.
    Kubernetes,
    /// Berth's.
    Berth,
}

/// The scheduler and the volume binder in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cast {
    pub(crate) scheduler: Whose,
    pub(crate) volumes: Whose,
}

impl Cast {
    pub(crate) const BERTH: Self = Self {
        scheduler: Whose::Berth,
        volumes: Whose::Berth,
    };
}

/// The cluster and everything that runs on it. The order matters: components are dropped before what they talk to.
pub(crate) struct World {
    components: BTreeMap<&'static str, Process>,
    cast: Option<Cast>,
    /// Components work only while they hold a lease, as installed.
    election: bool,
    _agent: Agent,
    driver: Driver,
    pub(crate) installation: Installation,
    pub(crate) kube: Kube,
    pub(crate) cluster: Cluster,
}

impl World {
    /// A cluster with Berth installed, and no component running yet.
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let installation = Installation::read()?;
        let options = Options {
            audit: true,
            ..Options::default()
        };
        let cluster = Cluster::start(options).await?;
        installation.install(&cluster).await.context("cannot install Berth")?;
        let kube = cluster.kube();
        let driver = Driver::start(&cluster).await.context("cannot start the CSI driver")?;
        Ok(Self {
            components: BTreeMap::new(),
            cast: None,
            election: true,
            _agent: Agent::start(kube.clone()),
            driver,
            installation,
            kube,
            cluster,
        })
    }

    /// Runs exactly these components.
    pub(crate) async fn cast(&mut self, cast: Cast) -> anyhow::Result<()> {
        if self.cast.is_none_or(|before| before.volumes != cast.volumes) {
            self.stop("controller").await;
            self.stop("kube-controller-manager").await;
        }
        if self.cast.is_none_or(|before| before.scheduler != cast.scheduler) {
            self.stop("scheduler").await;
            self.stop("kube-scheduler").await;
        }
        self.cast = Some(cast);
        if !self.components.contains_key("kube-controller-manager") {
            let controllers = match cast.volumes {
                Whose::Kubernetes => Controllers::WithVolumes,
                Whose::Berth => Controllers::WithoutVolumes,
            };
            let manager = self.cluster.start_controller_manager(controllers, LIFTED).await?;
            self.components.insert("kube-controller-manager", manager);
        }
        match cast.scheduler {
            Whose::Berth => self.start(Component::Scheduler, &[]).await?,
            Whose::Kubernetes if self.components.contains_key("kube-scheduler") => {}
            Whose::Kubernetes => {
                let scheduler = self.cluster.start_scheduler(LIFTED).await?;
                self.components.insert("kube-scheduler", scheduler);
            }
        }
        if cast.volumes == Whose::Berth {
            self.start(Component::Controller, &[]).await?;
        }
        self.start(Component::Provisioner, &[]).await
    }

    /// Starts a component of Berth if it is not running.
    pub(crate) async fn start(&mut self, component: Component, arguments: &[&str]) -> anyhow::Result<()> {
        if let Some(process) = self.components.get_mut(component.command())
            && process.check().is_ok()
        {
            return Ok(());
        }
        let mut all = vec![format!("--leader-elect-namespace={NAMESPACE}")];
        all.push(format!("--leader-elect={}", self.election));
        if component == Component::Provisioner {
            let path = self.cluster.directory().join("publish-capacity.yaml");
            std::fs::write(&path, format!("capacityNamespace: {NAMESPACE}\n"))?;
            all.push(format!("--csi-address={}", self.driver.server.address()));
            all.push(format!("--config={}", path.display()));
        }
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let name = component.account();
        let process = self.installation.start(&self.cluster, component, &name, &all);
        self.components.insert(component.command(), process.await?);
        Ok(())
    }

    /// Disables leader election from now on: a replacement for a killed component works at once.
    pub(crate) async fn end_elections(&mut self) {
        self.stop_berth().await;
        self.election = false;
    }

    /// Sets another address of the API server for scheduler and controller from now on, or the real one.
    pub(crate) async fn reach_through(&mut self, address: Option<SocketAddr>) -> anyhow::Result<()> {
        self.installation.reach_through(address);
        for component in [Component::Scheduler, Component::Controller] {
            self.stop(component.command()).await;
            self.start(component, &[]).await?;
        }
        Ok(())
    }

    /// Kills a component.
    pub(crate) fn kill(&mut self, component: Component) {
        if let Some(process) = self.components.remove(component.command()) {
            process.kill();
        }
    }

    /// Stops a component in an orderly way: it releases its lease.
    pub(crate) async fn stop(&mut self, name: &str) {
        if let Some(process) = self.components.remove(name) {
            process.stop().await;
        }
    }

    /// Stops all of Berth's components in an orderly way.
    pub(crate) async fn stop_berth(&mut self) {
        for component in Component::ALL {
            self.stop(component.command()).await;
        }
    }

    /// The end of a component's log.
    pub(crate) fn log(&self, component: Component) -> String {
        let process = self.components.get(component.command());
        process.map(Process::log_tail).unwrap_or_default()
    }

    /// The ends of the components' logs.
    pub(crate) fn logs(&self) -> String {
        let tails = self.components.values().map(Process::log_tail);
        tails.collect::<Vec<_>>().join("\n")
    }
}

/// Arguments of a component with several replicas.
pub(crate) fn election() -> [String; 2] {
    [
        "--leader-elect".to_owned(),
        format!("--leader-elect-namespace={NAMESPACE}"),
    ]
}

/// Clients of Kubernetes' components are rate-limited by default, which would only slow down the tests.
const LIFTED: &[&str] = &["--kube-api-qps=5000", "--kube-api-burst=5000"];

/// The built-in CSI driver, with capacity on each of the nodes.
struct Driver {
    server: Server,
}

impl Driver {
    async fn start(cluster: &Cluster) -> anyhow::Result<Self> {
        let room = |node: &str| SegmentRoom {
            segment: Segment::from([(NODE_KEY.to_owned(), node.to_owned())]),
            bytes: Some(ROOM_GI << 30),
        };
        let rooms = NODES.iter().map(|node| room(node)).collect();
        let store = Arc::new(Mutex::new(Store::open(cluster.directory().join("volumes"), rooms)?));
        let socket = cluster.directory().join("csi.sock");
        let (identity, controller) = (IdentityService::new(NAME), ControllerService::new(store));
        Ok(Self {
            server: Server::start(socket, identity, controller, None).await?,
        })
    }
}
