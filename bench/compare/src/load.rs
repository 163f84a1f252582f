//! Creates objects in a cluster, and records when they are done.

use anyhow::Context as _;
use berth_core::api::{PersistentVolume, PersistentVolumeClaim, Pod};
use berth_e2e::kube::Kube;
use berth_kube::CancellationToken;
use berth_kube::api::Api;
use berth_kube::resource::Watched;
use berth_kube::watch::{Change, Difference, Sink, watch};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Number of concurrent requests.
const CONCURRENCY: usize = 48;

/// Creates objects concurrently. Returns them as stored.
pub(crate) async fn create_all(kube: &Kube, objects: Vec<Value>) -> anyhow::Result<Vec<Value>> {
    let requests = objects.into_iter().map(|object| async move {
        let created = kube.create(&object).await;
        created.with_context(|| format!("cannot create {} {}", object["kind"], object["metadata"]["name"]))
    });
    stream::iter(requests).buffered(CONCURRENCY).try_collect().await
}

/// Creates objects, all at once or at a rate per second, and records when each was sent.
pub(crate) async fn create_timed(
    kube: &Kube,
    objects: Vec<Value>,
    rate: Option<usize>,
) -> anyhow::Result<HashMap<String, Instant>> {
    let begin = Instant::now();
    let requests = objects.into_iter().enumerate().map(|(number, object)| async move {
        if let Some(rate) = rate {
            let due = begin + Duration::from_secs(1) * u32::try_from(number)? / u32::try_from(rate)?;
            tokio::time::sleep_until(due.into()).await;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let sent = Instant::now();
        kube.create(&object)
            .await
            .with_context(|| format!("cannot create {name}"))?;
        anyhow::Ok((name, sent))
    });
    stream::iter(requests).buffer_unordered(CONCURRENCY).try_collect().await
}

/// A kind whose objects are done at some point.
pub(crate) trait Done: Watched {
    /// The object's name, if it is done.
    fn done(self) -> Option<String>;
}

impl Done for Pod {
    fn done(self) -> Option<String> {
        (!self.spec.node_name.is_empty()).then_some(self.metadata.name)
    }
}

impl Done for PersistentVolumeClaim {
    fn done(self) -> Option<String> {
        (self.status.phase == "Bound").then_some(self.metadata.name)
    }
}

impl Done for PersistentVolume {
    fn done(self) -> Option<String> {
        (!matches!(self.status.phase.as_str(), "" | "Pending")).then_some(self.metadata.name)
    }
}

/// When each object was first observed as done.
#[derive(Clone, Default)]
pub(crate) struct Times {
    seen: Arc<Mutex<HashMap<String, Instant>>>,
    news: Arc<Notify>,
}

impl Times {
    fn count(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The observations so far.
    pub(crate) fn seen(&self) -> HashMap<String, Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this many are done, or a timeout. Returns whether they are.
    pub(crate) async fn wait_for(&self, count: usize, limit: Duration) -> bool {
        let all = async {
            while self.count() < count {
                self.news.notified().await;
            }
        };
        tokio::time::timeout(limit, all).await.is_ok()
    }
}

impl<T: Done + Send> Sink<T> for Times {
    async fn take(&mut self, difference: Difference<T>) -> bool {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for change in difference.changes {
            if let Change::Applied(object) = change
                && let Some(name) = object.done()
            {
                seen.entry(name).or_insert(now);
            }
        }
        drop(seen);
        self.news.notify_one();
        true
    }
}

/// Watches a kind until the guard is dropped.
pub(crate) struct Watching {
    pub(crate) times: Times,
    cancel: CancellationToken,
}

impl Watching {
    pub(crate) fn start<T: Done + Send + 'static>(api: Api) -> Self {
        let (times, cancel) = (Times::default(), CancellationToken::new());
        tokio::spawn(watch::<T>(api, times.clone(), cancel.clone()));
        Self { times, cancel }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Waits until this many objects of a kind are done.
pub(crate) async fn wait_done<T: Done + Send + 'static>(
    kube: &Kube,
    what: &str,
    count: usize,
    limit: Duration,
) -> anyhow::Result<()> {
    let watching = Watching::start::<T>(kube.api().clone());
    let all = watching.times.wait_for(count, limit).await;
    anyhow::ensure!(
        all,
        "after {} s only {} of {count} {what}",
        limit.as_secs(),
        watching.times.count()
    );
    Ok(())
}

/// Number of write requests that the API server has handled so far.
pub(crate) async fn writes(kube: &Kube) -> anyhow::Result<u64> {
    let text = kube.api().get_path("/metrics").await?;
    Ok(count_writes(&String::from_utf8_lossy(&text)))
}

fn count_writes(metrics: &str) -> u64 {
    let of_line = |line: &str| {
        let (labels, value) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
        // Leases and events are written at their own pace, not per pod.
        let write = ["POST", "PUT", "PATCH", "APPLY", "DELETE"]
            .iter()
            .any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
        let aside = ["leases", "events", "tokenreviews", "subjectaccessreviews"]
            .iter()
            .any(|kind| labels.contains(&format!("resource=\"{kind}\"")));
        (write && !aside).then(|| value.parse::<f64>().ok())?
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counters are whole and not negative"
    )]
    metrics.lines().filter_map(of_line).map(|count| count as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_and_reads_and_leases_are_not() {
        let metrics = "# TYPE apiserver_request_total counter\n\
            apiserver_request_total{code=\"201\",resource=\"pods\",subresource=\"binding\",verb=\"POST\"} 7\n\
            apiserver_request_total{code=\"200\",resource=\"persistentvolumes\",verb=\"PATCH\"} 3\n\
            apiserver_request_total{code=\"200\",resource=\"leases\",verb=\"PUT\"} 90\n\
            apiserver_request_total{code=\"200\",resource=\"pods\",verb=\"LIST\"} 11\n\
            other{verb=\"POST\"} 5\n";
        assert_eq!(count_writes(metrics), 10);
    }

    #[tokio::test]
    async fn waiting_ends_when_all_are_done_or_time_is_over() {
        let times = Times::default();
        assert!(times.wait_for(0, Duration::ZERO).await);
        assert!(!times.wait_for(1, Duration::from_millis(1)).await);
        let now = Instant::now();
        times.seen.lock().unwrap().insert("a".into(), now);
        times.news.notify_one();
        assert!(times.wait_for(1, Duration::from_secs(60)).await);
    }
}
