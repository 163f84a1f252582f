//! Version skew: a controller that delays claims for a scheduler that cannot bind them leaves them unbound forever.

use super::report::Remark;
use super::scenario::{SOON, Scenario};
use super::world::{Cast, NODES, World};
use anyhow::ensure;
use berth_e2e::components::{Component, NAMESPACE};
use berth_e2e::objects;
use berth_e2e::wait::eventually;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The controller assumes a scheduler for a minute, and checks every five seconds.
const PATIENCE: Duration = Duration::from_secs(100);
const HEARD: &str = "a scheduler announces that it can bind delayed claims";

pub(crate) async fn claims_wait_only_for_a_scheduler_that_announces_itself(
    world: &mut World,
    scenario: &mut Scenario,
    _: &(),
) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    scenario.add_volumes("n0", 1, "10Gi").await?;
    allow_to_listen(world).await?;
    world.stop(Component::Scheduler.command()).await;
    world.stop(Component::Controller.command()).await;
    world
        .start(Component::Controller, &["--require-delayed-binding-scheduler"])
        .await?;

    let start = Instant::now();
    scenario.add_claim("alone", "5Gi").await?;
    let bound = eventually("the claim is bound without a scheduler", PATIENCE, async || {
        let claims = scenario.claims().await?;
        Ok::<_, anyhow::Error>(
            claims
                .iter()
                .all(|claim| claim["status"]["phase"] == "Bound")
                .then_some(()),
        )
    });
    bound.await?;
    let waited = start.elapsed().as_secs_f64();
    event(scenario, "alone", "DelayedBindingUnavailable").await?;

    world.start(Component::Scheduler, &[]).await?;
    let heard = eventually("the controller hears of the scheduler", PATIENCE, async || {
        Ok::<_, anyhow::Error>(world.log(Component::Controller).contains(HEARD).then_some(()))
    });
    heard.await?;
    let volume = objects::local_volume(&format!("{}-late", scenario.namespace), &scenario.class, "n1", "10Gi");
    scenario.add(&volume).await?;
    scenario.add_claim("patient", "5Gi").await?;
    event(scenario, "patient", "WaitForFirstConsumer").await?;
    scenario.add_pod("web", &["patient"]).await?;
    let nodes = scenario.placed(1).await?;
    ensure!(nodes["web"] == "n1", "on {}", nodes["web"]);

    world.stop(Component::Controller.command()).await;
    world.cast(Cast::BERTH).await?;
    Ok(format!("bound without a scheduler after {waited:.1} s"))
}

/// Grants the permission that the installation grants with this option: to read the leases of schedulers.
async fn allow_to_listen(world: &World) -> anyhow::Result<()> {
    let (name, group) = ("e2e-listen-for-schedulers", "rbac.authorization.k8s.io");
    let metadata = json!({"namespace": NAMESPACE, "name": name});
    let rule = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]});
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule]});
    let subject = json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": Component::Controller.account()});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name}, "subjects": [subject]});
    for object in [role, binding] {
        world.kube.apply(&object).await?;
    }
    Ok(())
}

/// Waits for an event.
async fn event(scenario: &Scenario, name: &str, reason: &str) -> anyhow::Result<()> {
    let what = format!("an event {reason} about {name}");
    let told = eventually(&what, SOON, async || {
        let events = scenario.kube.list(&scenario.path("events")).await?;
        let told = |event: &Value| event["involvedObject"]["name"] == name && event["reason"] == reason;
        Ok::<_, anyhow::Error>(events.iter().any(told).then_some(()))
    });
    Ok(told.await?)
}
