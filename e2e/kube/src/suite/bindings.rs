//! Many bindings in progress, for tests in which something happens in the middle of them.

use super::consistency::problems;
use super::report::Remark;
use super::scenario::{Scenario, nodes_of};
use anyhow::bail;
use berth_e2e::kube::Kube;
use berth_e2e::objects;
use berth_e2e::wait::eventually;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Number of nodes. There are more volumes than claims, so that there is a choice.
const NODES: usize = 40;
const VOLUMES_PER_NODE: usize = 6;
/// Number of concurrent requests of the tests.
const CONCURRENCY: usize = 16;
/// Timeout for recovery after a fault. A killed leader is replaced after 15 s.
const RECOVERY: Duration = Duration::from_secs(120);
/// Delay before the API server is asked again.
const RETRY: Duration = Duration::from_millis(50);

/// Pods with one local claim each, being created in the background.
pub(crate) struct Bindings {
    pub(crate) count: usize,
    /// How many pods may be created.
    gate: Arc<Semaphore>,
    released: usize,
    creating: JoinSet<anyhow::Result<()>>,
    namespace: String,
    kube: Kube,
}

impl Bindings {
    /// Creates nodes, volumes and claims, and starts creating pods.
    pub(crate) async fn start(scenario: &mut Scenario, count: usize) -> anyhow::Result<Self> {
        let mut bindings = Self::prepare(scenario, count).await?;
        bindings.release(count);
        Ok(bindings)
    }

    /// Creates nodes, volumes and claims. Pods are created when they are [released](Self::release).
    pub(crate) async fn prepare(scenario: &mut Scenario, count: usize) -> anyhow::Result<Self> {
        Self::prepare_for(scenario, count, &["default-scheduler"]).await
    }

    /// Creates nodes, volumes and claims, for pods of these schedulers in turn.
    pub(crate) async fn prepare_for(
        scenario: &mut Scenario,
        count: usize,
        schedulers: &[&str],
    ) -> anyhow::Result<Self> {
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
        let pods = (0..count).zip(schedulers.iter().cycle()).map(|(number, &scheduler)| {
            let mut pod = objects::pod(&namespace, &format!("p{number:03}"), &[&format!("c{number:03}")]);
            pod["spec"]["schedulerName"] = json!(scheduler);
            pod
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

    /// Allows this many pods in total to be created.
    pub(crate) fn release(&mut self, count: usize) {
        let more = count.min(self.count).saturating_sub(self.released);
        self.released += more;
        self.gate.add_permits(more);
    }

    /// Number of pods with a node. `None` while it cannot be determined.
    async fn placed(&self) -> Option<usize> {
        let path = format!("/api/v1/namespaces/{}/pods?resourceVersion=0", self.namespace);
        let asked = tokio::time::timeout(Duration::from_secs(2), self.kube.list(&path)).await;
        Some(nodes_of(&asked.ok()?.ok()?).len())
    }

    /// Waits until at least this many pods have a node.
    pub(crate) async fn until(&self, count: usize) -> anyhow::Result<usize> {
        let what = format!("{count} pods have a node");
        let placed = eventually(&what, RECOVERY, async || {
            let placed = self.placed().await;
            Ok::<_, anyhow::Error>(placed.filter(|&placed| placed >= count))
        });
        Ok(placed.await?)
    }

    /// Waits for full recovery. Returns how long that took.
    pub(crate) async fn recover(mut self, scenario: &Scenario, at: usize) -> anyhow::Result<Remark> {
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

/// Creates an object, retrying as often as necessary: the API server may be unavailable.
async fn create_in_the_end(kube: &Kube, object: &Value) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        match kube.create(object).await {
            Ok(_) => return Ok(()),
            // An earlier attempt succeeded after all.
            Err(error) if error.is_conflict() => return Ok(()),
            Err(error) if start.elapsed() > RECOVERY => return Err(error.into()),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}
