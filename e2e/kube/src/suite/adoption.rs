//! Adopting Berth in a running cluster: alongside kube-scheduler, and one component after the other.

use super::bindings::Bindings;
use super::report::Remark;
use super::scenario::{SOON, Scenario};
use super::world::{Cast, Whose, World};
use anyhow::{Context as _, bail};
use berth_e2e::components::Component;
use berth_e2e::wait::eventually;
use serde_json::Value;
use std::collections::BTreeMap;

/// The scheduler names of both: Berth's is that of the manifests.
const SCHEDULERS: [&str; 2] = ["default-scheduler", "berth-scheduler"];
/// Number of pods for both. kube-scheduler is slow with local volumes.
const SHARED: usize = 80;

/// Both choose from the same volumes at the same time, and do not touch each other's pods.
pub(crate) async fn two_schedulers_share_nodes_and_volumes(
    world: &mut World,
    scenario: &mut Scenario,
    _: &super::Load,
) -> anyhow::Result<Remark> {
    let kubernetes = Cast {
        scheduler: Whose::Kubernetes,
        volumes: Whose::Berth,
    };
    world.cast(kubernetes).await?;
    let configuration = world
        .installation
        .write_configuration(&world.cluster, Component::Scheduler)?
        .context("the manifests have no configuration for the scheduler")?;
    let configuration = format!("--config={}", configuration.display());
    world.start(Component::Scheduler, &[&configuration]).await?;
    let mut load = Bindings::prepare_for(scenario, SHARED, &SCHEDULERS).await?;
    load.release(SHARED);
    let remark = load.recover(scenario, 0).await;
    let placed_by = placed_by(scenario).await;
    world.stop(Component::Scheduler.command()).await;
    world.cast(Cast::BERTH).await?;
    let (remark, placed_by) = (remark?, placed_by?);
    let counts: Vec<String> = placed_by
        .iter()
        .map(|(name, count)| format!("{count} by {name}"))
        .collect();
    Ok(format!("{}; {remark}", counts.join(", ")))
}

/// Number of pods that each scheduler reports as placed. An error if one placed a pod of the other.
async fn placed_by(scenario: &Scenario) -> anyhow::Result<BTreeMap<String, usize>> {
    let pods = scenario.pods().await?;
    let wanted: BTreeMap<&str, &str> = pods
        .iter()
        .filter_map(|pod| {
            Some((
                pod["metadata"]["name"].as_str()?,
                pod["spec"]["schedulerName"].as_str()?,
            ))
        })
        .collect();
    // Events are written with a delay.
    let told = eventually("every pod has an event that tells who placed it", SOON, async || {
        let mut events = scenario.kube.list(&scenario.path("events")).await?;
        events.retain(|event| event["reason"] == "Scheduled");
        Ok::<_, anyhow::Error>((events.len() >= pods.len()).then_some(events))
    });
    let mut counts = BTreeMap::new();
    for event in told.await? {
        let pod = event["involvedObject"]["name"].as_str().unwrap_or_default();
        let component = reporter(&event);
        if wanted.get(pod) != Some(&component.as_str()) {
            bail!("{component} placed {pod}, which asked for {:?}", wanted.get(pod));
        }
        *counts.entry(component).or_default() += 1;
    }
    Ok(counts)
}

/// The source of an event, from either of its two fields.
fn reporter(event: &Value) -> String {
    let new = event["reportingComponent"].as_str().filter(|name| !name.is_empty());
    let old = event["source"]["component"].as_str();
    new.or(old).unwrap_or_default().to_owned()
}

/// kube-controller-manager's binder stops and Berth's takes over, and back again, while claims are being bound.
pub(crate) async fn the_volume_binder_changes_hands(
    world: &mut World,
    scenario: &mut Scenario,
    load: &super::Load,
) -> anyhow::Result<Remark> {
    let count = load.pods;
    let binds = |volumes| Cast {
        scheduler: Whose::Berth,
        volumes,
    };
    world.cast(binds(Whose::Kubernetes)).await?;
    let mut load = Bindings::prepare(scenario, count).await?;
    let mut at = 0;
    for (share, next) in [(1, Whose::Berth), (2, Whose::Kubernetes)] {
        load.release(count * share / 3 + count / 8);
        at = load.until(count * share / 3).await?;
        world.cast(binds(next)).await?;
    }
    let remark = load.recover(scenario, at).await;
    world.cast(Cast::BERTH).await?;
    remark
}
