//! The one list of what should run and does not, for the verdict, the table, the page and the exit status.

use super::Simulation;
use super::missing::{Replicas, wanted_pods};
use super::outcome::{PodOutcome, Said, full_name, join};
use super::playback::Waiting;
use crate::{field, key_of, status};

impl Simulation {
    /// Every pod that should run and does not, given the outcome for the existing ones.
    pub(super) fn not_running(&self, pods: &[PodOutcome], said: &Said<'_>, replicas: &Replicas<'_>) -> Vec<Waiting> {
        let waiting = pods.iter().filter(|pod| pod.is_waiting()).map(|pod| Waiting {
            pod: pod.pod.clone(),
            node: pod.node.clone(),
            message: pod.message.clone(),
        });
        let absent = missing_pods(said, replicas).chain(failed_jobs(self));
        waiting.chain(absent).collect()
    }

    /// Evicted pods that nothing creates again. They no longer exist, so they do not count as not running.
    pub(super) fn evicted(&self) -> Vec<Waiting> {
        let evicted = self.lost.evicted(self.objects(), self.events()).into_iter();
        let evicted = evicted.map(|evicted| Waiting {
            pod: join(evicted.namespace, evicted.name),
            node: String::new(),
            message: evicted.message,
        });
        evicted.collect()
    }
}

/// The pods that workloads want and that do not exist.
fn missing_pods<'a>(said: &'a Said<'_>, replicas: &'a Replicas<'_>) -> impl Iterator<Item = Waiting> + 'a {
    replicas.missing.iter().flat_map(|(workload, count)| {
        let why = said
            .event(workload)
            .map_or_else(String::new, |event| format!(": {}", event.message));
        let wanted = wanted_pods(workload);
        let pod = Waiting {
            pod: format!("a pod of {} {}", field::kind(workload), full_name(workload)),
            node: String::new(),
            message: format!("{count} of {wanted} pods do not exist{why}"),
        };
        std::iter::repeat_n(pod, *count)
    })
}

/// One pod for each Job that has failed. Those in the input that had failed before are history.
fn failed_jobs(simulation: &Simulation) -> impl Iterator<Item = Waiting> + '_ {
    simulation.objects().of_kind("Job").filter_map(|job| {
        let failed = status::find(job, "Failed").filter(|condition| condition["status"] == "True")?;
        (!simulation.failed_before.contains(&key_of(job))).then(|| Waiting {
            pod: format!("a pod of Job {}", full_name(job)),
            node: String::new(),
            message: format!("the Job has failed: {}", field::text(failed, "/message")),
        })
    })
}
