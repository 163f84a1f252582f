//! The end-to-end tests of KEP-490 (Testing, E2E tests): local volumes and pod affinity, several claims, provisioning.

use super::consistency::{node_of_volume, problems};
use super::report::Remark;
use super::scenario::{SOON, Scenario, nodes_of, together};
use super::world::{NODES, ROOM_GI};
use anyhow::{bail, ensure};
use berth_core::names;
use berth_e2e::objects;
use berth_e2e::wait::eventually;
use berth_provisioner::driver::NAME;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const NO_VOLUME: &str = "didn't find available persistent volumes to bind";

/// How often agreement is checked: a claim's phase is written after its binding, and its pod need not wait for that.
const LOOKS: usize = 50;

/// Checks that pods are where their volumes are, and that claims and volumes agree.
pub(crate) async fn check_agreement(scenario: &Scenario) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for _ in 0..LOOKS {
        let (pods, claims) = (scenario.pods().await?, scenario.claims().await?);
        found = problems(&pods, &claims, &scenario.volumes().await?);
        if found.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("{}\n{}", found.join("\n"), scenario.describe().await);
}

fn ensure_holds(message: &str, part: &str) -> anyhow::Result<()> {
    ensure!(message.contains(part), "expected {part:?} in {message:?}");
    Ok(())
}

/// Checks that nothing was reserved or bound for a claim.
async fn check_unbound(scenario: &Scenario, claim: &str) -> anyhow::Result<()> {
    let claims = scenario.claims().await?;
    let found = claims.iter().find(|object| object["metadata"]["name"] == claim);
    let volume = found.and_then(|object| object["spec"]["volumeName"].as_str());
    ensure!(volume.is_none(), "claim {claim} is bound to {volume:?}");
    for volume in scenario.volumes().await? {
        let reserved = volume["spec"]["claimRef"]["name"] == claim;
        ensure!(
            !reserved,
            "volume {} is kept for claim {claim}",
            volume["metadata"]["name"]
        );
    }
    Ok(())
}

pub(crate) async fn anti_affinity_with_volumes_on_each_node(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    for node in NODES {
        scenario.add_volumes(node, 1, "10Gi").await?;
    }
    scenario.add_stateful_set(3, together("podAntiAffinity")).await?;
    let nodes: BTreeSet<String> = scenario.placed(3).await?.into_values().collect();
    ensure!(nodes.len() == 3, "the pods share nodes: {nodes:?}");
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn anti_affinity_with_volumes_on_two_nodes(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    // Two on each: a lack of volumes does not keep the third pod off these nodes.
    for node in &NODES[..2] {
        scenario.add_volumes(node, 2, "10Gi").await?;
    }
    scenario.add_stateful_set(3, together("podAntiAffinity")).await?;
    scenario.placed(2).await?;
    let message = scenario.refused("db-2").await?;
    ensure_holds(&message, "0/3 nodes are available")?;
    ensure_holds(&message, NO_VOLUME)?;
    ensure_holds(&message, "didn't match pod anti-affinity rules")?;
    scenario.placed(2).await?;
    check_unbound(scenario, "data-db-2").await?;
    check_agreement(scenario).await?;
    // The missing volume appears.
    scenario.add_volumes_later("n2", 1, "10Gi").await?;
    scenario.placed(3).await?;
    check_agreement(scenario).await?;
    Ok(message)
}

pub(crate) async fn affinity_with_several_volumes_on_a_node(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    scenario.add_volumes("n1", 3, "10Gi").await?;
    scenario.add_stateful_set(3, together("podAffinity")).await?;
    let nodes = scenario.placed(3).await?;
    ensure!(nodes.values().all(|node| node == "n1"), "not all on n1: {nodes:?}");
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn affinity_with_one_volume_on_each_node(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    for node in NODES {
        scenario.add_volumes(node, 1, "10Gi").await?;
    }
    scenario.add_stateful_set(2, together("podAffinity")).await?;
    scenario.placed(1).await?;
    let message = scenario.refused("db-1").await?;
    ensure_holds(&message, NO_VOLUME)?;
    ensure_holds(&message, "didn't match pod affinity rules")?;
    scenario.placed(1).await?;
    check_unbound(scenario, "data-db-1").await?;
    check_agreement(scenario).await?;
    Ok(message)
}

pub(crate) async fn several_claims_with_enough_volumes_on_one_node(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    for (node, count) in [("n0", 2), ("n1", 3), ("n2", 1)] {
        scenario.add_volumes(node, count, "10Gi").await?;
    }
    for claim in ["a", "b", "c"] {
        scenario.add_claim(claim, "5Gi").await?;
    }
    scenario.add_pod("web", &["a", "b", "c"]).await?;
    let nodes = scenario.placed(1).await?;
    ensure!(nodes["web"] == "n1", "on {}", nodes["web"]);
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn several_claims_without_enough_volumes_on_one_node(
    scenario: &mut Scenario,
) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_local_class().await?;
    for (node, count) in [("n0", 2), ("n1", 2), ("n2", 1)] {
        scenario.add_volumes(node, count, "10Gi").await?;
    }
    for claim in ["a", "b", "c"] {
        scenario.add_claim(claim, "5Gi").await?;
    }
    scenario.add_pod("web", &["a", "b", "c"]).await?;
    let message = scenario.refused("web").await?;
    ensure_holds(&message, "0/3 nodes are available")?;
    ensure_holds(&message, NO_VOLUME)?;
    for claim in ["a", "b", "c"] {
        check_unbound(scenario, claim).await?;
    }
    Ok(message)
}

pub(crate) async fn provisioning_where_existing_volumes_do_not_suit(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_provisioning_class(true).await?;
    scenario.add_volumes("n0", 2, "1Gi").await?;
    scenario.add_claim("large", "5Gi").await?;
    scenario.add_pod("web", &["large"]).await?;
    let nodes = scenario.placed(1).await?;
    check_agreement(scenario).await?;
    let volumes = scenario.volumes().await?;
    let used = volumes
        .iter()
        .find(|volume| volume["spec"]["claimRef"]["name"] == "large");
    let used = used.cloned().unwrap_or_default();
    ensure!(
        used["spec"]["csi"]["driver"].is_string(),
        "not a provisioned volume: {used}"
    );
    ensure!(
        node_of_volume(&used) == nodes["web"],
        "provisioned elsewhere than {}: {used}",
        nodes["web"]
    );
    Ok(Remark::new())
}

pub(crate) async fn existing_volumes_before_provisioning(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_provisioning_class(true).await?;
    scenario.add_volumes("n2", 1, "10Gi").await?;
    scenario.add_claim("small", "5Gi").await?;
    scenario.add_pod("web", &["small"]).await?;
    let nodes = scenario.placed(1).await?;
    ensure!(nodes["web"] == "n2", "on {}", nodes["web"]);
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn provisioning_for_a_stateful_set(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_provisioning_class(true).await?;
    scenario.add_stateful_set(3, together("podAntiAffinity")).await?;
    let nodes: BTreeSet<String> = scenario.placed(3).await?.into_values().collect();
    ensure!(nodes.len() == 3, "the pods share nodes: {nodes:?}");
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn provisioning_elsewhere_when_a_node_is_full(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_provisioning_class(true).await?;
    for number in 0..3 {
        let claim = format!("c{number}");
        scenario.add_claim(&claim, "60Gi").await?;
        scenario.add_pod(&format!("web-{number}"), &[&claim]).await?;
    }
    let nodes: BTreeSet<String> = scenario.placed(3).await?.into_values().collect();
    ensure!(
        nodes.len() == 3,
        "two volumes of 60 GiB on a node with room for 100: {nodes:?}"
    );
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn immediate_claims_are_bound_without_pods(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_provisioning_class(false).await?;
    scenario.add_volumes("n0", 1, "10Gi").await?;
    scenario.add_claim("existing", "10Gi").await?;
    let bound = |claims: &[Value]| claims.iter().all(|claim| claim["status"]["phase"] == "Bound");
    scenario.claims_until("the claim is bound to the volume", bound).await?;
    scenario.add_claim("made", "5Gi").await?;
    scenario.claims_until("a volume is made for the other", bound).await?;
    scenario.add_pod("web", &["existing"]).await?;
    scenario.add_pod("api", &["made"]).await?;
    let nodes = scenario.placed(2).await?;
    ensure!(nodes["web"] == "n0", "on {}", nodes["web"]);
    check_agreement(scenario).await?;
    Ok(Remark::new())
}

pub(crate) async fn published_capacity_is_respected(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario
        .add(
            &json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
            "spec": {"storageCapacity": true, "attachRequired": false}}),
        )
        .await?;
    scenario.add_provisioning_class(true).await?;
    eventually("the capacity of each node is published", SOON, async || {
        let path = "/apis/storage.k8s.io/v1/csistoragecapacities";
        let published = scenario.kube.list(path).await?;
        let ours = published
            .iter()
            .filter(|object| object["storageClassName"] == scenario.class.as_str());
        Ok::<_, anyhow::Error>((ours.count() == NODES.len()).then_some(()))
    })
    .await?;
    scenario.add_claim("large", &format!("{}Gi", 2 * ROOM_GI)).await?;
    scenario.add_pod("greedy", &["large"]).await?;
    let message = scenario.refused("greedy").await?;
    ensure_holds(&message, "did not have enough free storage")?;
    scenario.add_claim("small", "5Gi").await?;
    scenario.add_pod("modest", &["small"]).await?;
    scenario.placed(1).await?;
    check_agreement(scenario).await?;
    Ok(message)
}

pub(crate) async fn a_pod_of_higher_priority_gets_the_room(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES[..1]).await?;
    let priority = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": scenario.class}, "value": 1000});
    scenario.add(&priority).await?;
    let pod = |name: &str| {
        let mut pod = objects::pod(&scenario.namespace, name, &[]);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("20");
        pod
    };
    let (low, mut high) = (pod("low"), pod("high"));
    high["spec"]["priorityClassName"] = json!(scenario.class);
    scenario.add(&low).await?;
    scenario.placed(1).await?;
    scenario.add(&high).await?;
    eventually("the pod of higher priority is placed instead", SOON, async || {
        let nodes = nodes_of(&scenario.pods().await?);
        Ok::<_, anyhow::Error>((nodes.len() == 1 && nodes.contains_key("high")).then_some(()))
    })
    .await?;
    Ok(Remark::new())
}

pub(crate) async fn a_scratch_volume_goes_with_its_claim(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    let class = objects::class(&scenario.class, objects::NO_PROVISIONER, false);
    scenario.add(&class).await?;
    let mut volume = objects::local_volume(&scenario.namespace, &scenario.class, "n0", "10Gi");
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    volume["spec"]["hostPath"] = json!({"path": format!("/tmp/{}", scenario.namespace)});
    if let Some(spec) = volume["spec"].as_object_mut() {
        spec.remove("local");
    }
    scenario.add(&volume).await?;
    scenario.add_claim("scratch", "5Gi").await?;
    let bound = |claims: &[Value]| claims.iter().all(|claim| claim["status"]["phase"] == "Bound");
    scenario.claims_until("the claim is bound", bound).await?;
    scenario
        .kube
        .delete(&scenario.path("persistentvolumeclaims/scratch"))
        .await?;
    eventually("the volume is gone", SOON, async || {
        let left = scenario.volumes().await?;
        Ok::<_, anyhow::Error>(left.is_empty().then_some(()))
    })
    .await?;
    Ok(Remark::new())
}

/// A scheduler has marked a claim that no pod has used: the controller deletes it, and its owner may create it again.
pub(crate) async fn a_claim_that_is_given_back_goes(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_local_class().await?;
    let claim = objects::claim(&scenario.namespace, "unused", &scenario.class, "5Gi");
    let created = scenario.add(&claim).await?;
    let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
    ensure!(!uid.is_empty(), "the claim has no UID: {created}");
    let marks = json!({names::CLEAN: uid, names::ROLLED_BACK_FOR: format!("db-0/gone/{uid}")});
    let path = scenario.path("persistentvolumeclaims/unused");
    let patch = json!({"metadata": {"annotations": marks}});
    scenario.kube.patch(&path, &patch).await?;
    scenario.claims_until("the claim is gone", <[Value]>::is_empty).await?;
    Ok(Remark::new())
}

/// Repeated events increase the count of the existing one, for each component.
pub(crate) async fn what_happens_again_is_counted(scenario: &mut Scenario) -> anyhow::Result<Remark> {
    scenario.add_nodes(&NODES).await?;
    scenario.add_provisioning_class(true).await?;
    scenario.add_claim("lonely", "5Gi").await?;
    scenario.add_claim("large", &format!("{}Gi", 2 * ROOM_GI)).await?;
    scenario.add_pod("greedy", &["large"]).await?;
    let expected = [
        ("lonely", "WaitForFirstConsumer"),
        ("large", "ProvisioningFailed"),
        ("greedy", "FailedScheduling"),
    ];
    let claim = scenario.path("persistentvolumeclaims/lonely");
    let mut round = 0;
    let counted = eventually("each event has a count", SOON, async || {
        // A change without effect triggers the controller.
        round += 1;
        let poke = json!({"metadata": {"labels": {"round": round.to_string()}}});
        scenario.kube.patch(&claim, &poke).await?;
        let events = scenario.kube.list(&scenario.path("events")).await?;
        let counted = |&(name, reason): &(&str, &str)| {
            events.iter().any(|event| {
                event["involvedObject"]["name"] == name
                    && event["reason"] == reason
                    && event["count"].as_u64() > Some(1)
            })
        };
        Ok::<_, anyhow::Error>(expected.iter().all(counted).then_some(()))
    });
    match counted.await {
        Ok(()) => Ok(Remark::new()),
        Err(error) => bail!("{error}\n{}", scenario.describe().await),
    }
}
