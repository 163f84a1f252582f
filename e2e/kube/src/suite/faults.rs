//! Breaks things in the middle of many bindings. Afterwards every pod has a node, no volume is bound twice, and nothing is left over.

use super::consistency::problems;
use super::report::Remark;
use super::scenario::{Scenario, nodes_of};
use super::world::{Cast, World, election};
use anyhow::{Context as _, bail, ensure};
use berth_e2e::components::{Component, NAMESPACE};
use berth_e2e::kube::Kube;
use berth_e2e::objects;
use berth_e2e::wait::eventually;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Nodes of the load. Volumes are more than claims, so that there is something to choose.
const NODES: usize = 40;
const VOLUMES_PER_NODE: usize = 6;
/// How many requests of the tests are under way at a time.
const CONCURRENCY: usize = 16;
/// How long everything may take after a fault. A leader that was killed is deposed after 15 s.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long to wait before the API server is asked again.
const RETRY: Duration = Duration::from_millis(50);
/// How long etcd is frozen: long enough for requests and leases to feel it.
const PAUSE: Duration = Duration::from_secs(5);

/// Components of which two copies run.
const LED: [Component; 2] = [Component::Scheduler, Component::Controller];

/// Numbers that look random, and are the same for the same seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below a limit.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).unwrap_or(1)).unwrap_or(0)
    }
}

/// Pods with a local claim each, being created in the background.
struct Bindings {
    count: usize,
    /// How many pods may be created.
    gate: Arc<Semaphore>,
    released: usize,
    creating: JoinSet<anyhow::Result<()>>,
    namespace: String,
    kube: Kube,
}

impl Bindings {
    /// Creates nodes, volumes and claims, and begins to create pods.
    async fn start(scenario: &mut Scenario, count: usize) -> anyhow::Result<Self> {
        let mut bindings = Self::prepare(scenario, count).await?;
        bindings.release(count);
        Ok(bindings)
    }

    /// Creates nodes, volumes and claims. Pods are created when they are [released](Self::release).
    async fn prepare(scenario: &mut Scenario, count: usize) -> anyhow::Result<Self> {
        let namespace = scenario.namespace.clone();
        scenario.add_local_class().await?;
        let names: Vec<String> = (0..NODES).map(|number| format!("f{number:02}")).collect();
        let volumes = names.iter().flat_map(|node| {
            let class = &scenario.class;
            (0..VOLUMES_PER_NODE).map(move |number| {
                let name = format!("{class}-{node}-{number}");
                objects::local_volume(&name, class, node, if number % 2 == 0 { "10Gi" } else { "20Gi" })
            })
        });
        let claims =
            (0..count).map(|number| objects::claim(&namespace, &format!("c{number:03}"), &scenario.class, "5Gi"));
        let nodes = names.iter().map(|name| objects::node(name));
        let all: Vec<Value> = nodes.chain(volumes).chain(claims).collect();
        scenario.add_all(all, CONCURRENCY).await?;
        scenario.volumes_available().await?;
        let pods = (0..count).map(|number| {
            let number = format!("{number:03}");
            objects::pod(&namespace, &format!("p{number}"), &[&format!("c{number}")])
        });
        let pods: Vec<Value> = pods.collect();
        let mut creating = JoinSet::new();
        let (kube, gate) = (scenario.kube.clone(), Arc::new(Semaphore::new(0)));
        for part in pods.chunks(count.div_ceil(CONCURRENCY).max(1)) {
            let (kube, gate, part) = (kube.clone(), Arc::clone(&gate), part.to_vec());
            creating.spawn(async move {
                for pod in part {
                    gate.acquire().await?.forget();
                    create_in_the_end(&kube, &pod).await?;
                }
                Ok(())
            });
        }
        Ok(Self {
            count,
            gate,
            released: 0,
            creating,
            namespace,
            kube,
        })
    }

    /// Lets so many pods be created in all.
    fn release(&mut self, count: usize) {
        let more = count.min(self.count).saturating_sub(self.released);
        self.released += more;
        self.gate.add_permits(more);
    }

    /// How many pods have a node. `None` while nobody can tell.
    async fn placed(&self) -> Option<usize> {
        let path = format!("/api/v1/namespaces/{}/pods?resourceVersion=0", self.namespace);
        let asked = tokio::time::timeout(Duration::from_secs(2), self.kube.list(&path)).await;
        Some(nodes_of(&asked.ok()?.ok()?).len())
    }

    /// Waits until at least so many pods have a node.
    async fn until(&self, count: usize) -> anyhow::Result<usize> {
        let what = format!("{count} pods have a node");
        let placed = eventually(&what, RECOVERY, async || {
            let placed = self.placed().await;
            Ok::<_, anyhow::Error>(placed.filter(|&placed| placed >= count))
        });
        Ok(placed.await?)
    }

    /// Waits until all is well. Says how long that took.
    async fn recover(mut self, scenario: &Scenario, at: usize) -> anyhow::Result<Remark> {
        let start = Instant::now();
        self.release(self.count);
        let first = self.until((at + 1).min(self.count)).await;
        let first = first.map(|_| start.elapsed());
        while let Some(created) = self.creating.join_next().await {
            created??;
        }
        let all = self.until(self.count).await;
        let placed_after = start.elapsed();
        let described = async || scenario.describe().await.chars().take(4000).collect::<String>();
        if let Err(error) = all {
            bail!("{error}\n{}", described().await);
        }
        let mut found = Vec::new();
        let settled = eventually("claims and volumes agree", RECOVERY, async || {
            let (pods, claims) = (scenario.pods().await?, scenario.claims().await?);
            found = problems(&pods, &claims, &scenario.volumes().await?);
            found.extend(unbound(&claims));
            Ok::<_, anyhow::Error>(found.is_empty().then_some(()))
        });
        if let Err(error) = settled.await {
            bail!("{error}\n{}\n{}", found.join("\n"), described().await);
        }
        Ok(format!(
            "{} pods, the fault at {at}; next pod placed {:.2} s after it ended, all {:.2} s, settled {:.2} s",
            self.count,
            first?.as_secs_f64(),
            placed_after.as_secs_f64(),
            start.elapsed().as_secs_f64()
        ))
    }
}

fn unbound(claims: &[Value]) -> Vec<String> {
    let pending = claims.iter().filter(|claim| claim["status"]["phase"] != "Bound");
    pending
        .map(|claim| format!("claim {} is not bound", claim["metadata"]["name"]))
        .collect()
}

/// Creates an object, however often that has to be tried: the API server may be away.
async fn create_in_the_end(kube: &Kube, object: &Value) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        match kube.create(object).await {
            Ok(_) => return Ok(()),
            // An earlier attempt went through after all.
            Err(error) if error.is_conflict() => return Ok(()),
            Err(error) if start.elapsed() > RECOVERY => return Err(error.into()),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

pub(crate) async fn the_api_server_is_restarted(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let load = Bindings::start(scenario, load.pods).await?;
    let at = load.until(load.count / 10).await?;
    let down = Instant::now();
    world.cluster.stop_apiserver().await;
    world.cluster.start_apiserver().await?;
    let outage = down.elapsed().as_secs_f64();
    let remark = load.recover(scenario, at).await?;
    Ok(format!("away for {outage:.1} s; {remark}"))
}

pub(crate) async fn the_api_server_is_killed(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let load = Bindings::start(scenario, load.pods).await?;
    let at = load.until(load.count / 10).await?;
    let down = Instant::now();
    world.cluster.kill_apiserver();
    world.cluster.start_apiserver().await?;
    let outage = down.elapsed().as_secs_f64();
    let remark = load.recover(scenario, at).await?;
    Ok(format!("away for {outage:.1} s; {remark}"))
}

pub(crate) async fn etcd_is_paused(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let load = Bindings::start(scenario, load.pods).await?;
    let at = load.until(load.count / 10).await?;
    world.cluster.pause_etcd()?;
    tokio::time::sleep(PAUSE).await;
    world.cluster.resume_etcd()?;
    load.recover(scenario, at).await
}

pub(crate) async fn components_are_killed(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let (count, seed) = (load.pods, load.seed);
    let mut chance = Chance::new(seed);
    let mut moments: Vec<usize> = (0..6).map(|_| count / 20 + chance.below(count * 8 / 10)).collect();
    moments.sort_unstable();
    let mut load = Bindings::prepare(scenario, count).await?;
    let (mut at, mut killed) = (0, Vec::new());
    for moment in moments {
        // Some are always on their way, and never all: a component that is killed is in the middle of something.
        load.release(moment + count / 8);
        at = load.until(moment).await?;
        let victims: &[Component] = match chance.below(3) {
            0 => &[Component::Scheduler],
            1 => &[Component::Controller],
            _ => &[Component::Scheduler, Component::Controller],
        };
        for &component in victims {
            world.kill(component);
        }
        for &component in victims {
            world.start(component, &[]).await?;
        }
        let names: Vec<&str> = victims.iter().map(|component| component.command()).collect();
        killed.push(format!("{}@{at}", names.join("+")));
    }
    let remark = load.recover(scenario, at).await?;
    Ok(format!("seed {seed}, killed {}; {remark}", killed.join(" ")))
}

pub(crate) async fn leaders_are_killed(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let election = election();
    let mut copies = Vec::new();
    for component in LED {
        world.stop(component.command()).await;
        for copy in ["a", "b"] {
            let name = format!("{}-{copy}", component.account());
            let started = world.installation.start(&world.cluster, component, &name, &election);
            copies.push(started.await?);
        }
    }
    let load = Bindings::start(scenario, load.pods).await?;
    let at = load.until(load.count / 10).await?;
    let killed = Instant::now();
    for component in LED {
        let leader = leader(&world.kube, &component.account()).await?;
        let place = copies
            .iter()
            .position(|process| leader.ends_with(&format!("_{}", process.id())));
        let place = place.with_context(|| format!("{leader} leads, and is none of ours"))?;
        copies.remove(place).kill();
    }
    ensure!(copies.len() == LED.len(), "one copy of each is left");
    let remark = load.recover(scenario, at).await?;
    let seconds = killed.elapsed().as_secs_f64();
    for process in copies {
        process.stop().await;
    }
    world.cast(Cast::BERTH).await?;
    Ok(format!("both leaders killed, {seconds:.1} s in all; {remark}"))
}

/// Who holds a lease.
async fn leader(kube: &Kube, name: &str) -> anyhow::Result<String> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}");
    let lease = kube.get(&path).await?.unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody holds the lease {name}");
    Ok(holder.to_owned())
}
