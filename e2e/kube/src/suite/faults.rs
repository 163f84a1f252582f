//! Breaks things in the middle of many bindings. Afterwards every pod has a node, no volume is bound twice, and nothing is left over.

use super::bindings::Bindings;
use super::report::Remark;
use super::scenario::Scenario;
use super::world::{Cast, World, election};
use anyhow::{Context as _, ensure};
use berth_e2e::cluster::Wire;
use berth_e2e::components::{Component, NAMESPACE};
use berth_e2e::kube::Kube;
use std::time::{Duration, Instant};

/// How long etcd is frozen: long enough to affect requests and leases.
const PAUSE: Duration = Duration::from_secs(5);

/// Components with two replicas.
const LED: [Component; 2] = [Component::Scheduler, Component::Controller];

/// Pseudo-random numbers from a seed.
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

/// How the API server becomes unavailable.
#[derive(Clone, Copy)]
enum Outage {
    Restart,
    Kill,
}

pub(crate) async fn the_api_server_is_restarted(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    the_api_server_is_away(world, scenario, load, Outage::Restart).await
}

pub(crate) async fn the_api_server_is_killed(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    the_api_server_is_away(world, scenario, load, Outage::Kill).await
}

async fn the_api_server_is_away(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
    outage: Outage,
) -> anyhow::Result<Remark> {
    let load = Bindings::start(scenario, load.pods).await?;
    let at = load.until(load.count / 10).await?;
    let down = Instant::now();
    match outage {
        Outage::Restart => world.cluster.stop_apiserver().await,
        Outage::Kill => world.cluster.kill_apiserver(),
    }
    world.cluster.start_apiserver().await?;
    let away = down.elapsed().as_secs_f64();
    let remark = load.recover(scenario, at).await?;
    Ok(format!("away for {away:.1} s; {remark}"))
}

/// Every connection of scheduler and controller breaks, both watches and requests, while the API server continues.
pub(crate) async fn connections_are_cut(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let wire = Wire::start(world.cluster.address()).await?;
    world.reach_through(Some(wire.address())).await?;
    let result = cut_while_binding(&wire, scenario, load).await;
    world.reach_through(None).await?;
    result
}

async fn cut_while_binding(wire: &Wire, scenario: &mut Scenario, load: &super::Load) -> anyhow::Result<Remark> {
    let (count, seed) = (load.pods, load.seed);
    let moments = moments(&mut Chance::new(seed), count);
    let mut load = Bindings::prepare(scenario, count).await?;
    let (mut at, mut cuts) = (0, Vec::new());
    for moment in moments {
        load.release(moment + count / 8);
        at = load.until(moment).await?;
        cuts.push(format!("{}@{at}", wire.cut()));
    }
    let remark = load.recover(scenario, at).await?;
    Ok(format!("seed {seed}, connections cut {}; {remark}", cuts.join(" ")))
}

/// After how many pods something happens.
fn moments(chance: &mut Chance, count: usize) -> Vec<usize> {
    let mut moments: Vec<usize> = (0..6).map(|_| count / 20 + chance.below(count * 8 / 10)).collect();
    moments.sort_unstable();
    moments
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
    let moments = moments(&mut chance, count);
    let mut load = Bindings::prepare(scenario, count).await?;
    let (mut at, mut killed) = (0, Vec::new());
    for moment in moments {
        // Some bindings are always in progress, and never all: a killed component is in the middle of something.
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

/// The holder of a lease.
pub(crate) async fn leader(kube: &Kube, name: &str) -> anyhow::Result<String> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}");
    let lease = kube.get(&path).await?.unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody holds the lease {name}");
    Ok(holder.to_owned())
}
