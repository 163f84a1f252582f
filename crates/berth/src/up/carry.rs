//! Carries out the effects of embedded steps on an API server, and keeps the view true to what was written.

use berth_cluster::{Objects, field};
use berth_core::api::Kind;
use berth_core::effect::{Effect, Refusal};
use berth_kube::CancellationToken;
use berth_kube::api::Api;
use berth_kube::executor::Executor;
use berth_kube::recorder::recorder;
use berth_kube::resource::Resource;
use serde_json::Value;
use tokio::task::JoinHandle;

/// The kinds that embedded steps read and write.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::of(Kind::Node),
        Resource::of(Kind::Pod),
        Resource::of(Kind::PersistentVolume),
        Resource::of(Kind::PersistentVolumeClaim),
        Resource::of(Kind::CsiDriver),
        Resource::of(Kind::StatefulSet),
        Resource::of(Kind::ReplicaSet),
        Resource::of(Kind::ReplicationController),
        Resource::DEPLOYMENTS,
        Resource::DAEMON_SETS,
        Resource::JOBS,
        Resource::CRON_JOBS,
        Resource::CONTROLLER_REVISIONS,
        Resource::of(Kind::PodDisruptionBudget),
        Resource::LEASES,
    ]
}

/// Where effects go.
pub(super) struct Carrier {
    executor: Executor,
    writer: JoinHandle<()>,
}

impl Carrier {
    pub(super) fn new(api: Api, cancel: CancellationToken) -> Self {
        let (recorder, writer) = recorder(api.clone(), "berth", "berth");
        Self {
            executor: Executor::new(api, recorder),
            writer: tokio::spawn(writer.run(cancel)),
        }
    }

    /// Waits until the events that were told are written.
    pub(super) async fn finish(self) {
        drop(self.executor);
        // A writer that failed has nothing left to be waited for.
        let _ = self.writer.await;
    }

    /// Carries out effects until the first that is refused. The objects that changed are put into the view, and so is what was
    /// found out of the one that was refused: the next step must not meet the same again.
    pub(super) async fn carry_out(
        &mut self,
        effects: &[Effect],
        view: &mut Objects,
    ) -> (Vec<Value>, Result<(), Refusal>) {
        let outcome = self.executor.carry_out(effects).await;
        let mut changed = Vec::new();
        for gone in outcome.gone {
            let known = view.find(&gone.key);
            if known.is_some_and(|known| gone.uid.is_empty() || field::uid(known) == gone.uid) {
                changed.extend(view.remove(&gone.key));
            }
        }
        for object in outcome.fresh.iter().filter_map(|answer| answer.value()) {
            view.insert(object.clone());
            changed.push(object);
        }
        let result = outcome.refused.map_or(Ok(()), |refused| Err(refused.refusal));
        (changed, result)
    }
}
