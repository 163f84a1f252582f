//! Expires old events, as kube-apiserver does: no one deletes events.

use std::convert::Infallible;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::Api;
use crate::meta;
use crate::store::{Object, PageQuery};

const EVENTS: &str = "events";
/// How long an event is kept after it was last observed: the default of kube-apiserver.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// How often old events are removed. A minute more or less does not matter.
const INTERVAL: Duration = Duration::from_secs(60);

impl Api {
    /// Removes old events periodically.
    pub(crate) async fn keep_expiring(&self) -> Infallible {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.expire_events().await;
        }
    }

    /// Deletes the events that were last observed too long ago. Returns their number.
    pub(crate) async fn expire_events(&self) -> usize {
        let Ok(oldest) = self.now().checked_sub(KEPT) else {
            return 0;
        };
        let page = self.store.list(EVENTS, &PageQuery::all(""));
        let objects = page.map(|page| page.objects).unwrap_or_default();
        let old = objects.iter().filter(|event| is_before(event, oldest));
        let tickets: Vec<_> = old
            .filter_map(|event| {
                let (key, version) = (event.key(), event.version());
                // An event that has just changed is not old.
                self.store.delete(EVENTS, key, version, event.value()).ok()
            })
            .collect();
        let count = tickets.len();
        for ticket in tickets {
            if let Err(error) = ticket.durable().await {
                tracing::error!(%error, "could not delete an expired event");
            }
        }
        count
    }
}

/// Whether an event was last observed before a time.
fn is_before(event: &Object, time: Timestamp) -> bool {
    let is_old = |text: &str| text.parse::<Timestamp>().is_ok_and(|found| found < time);
    // Most events are recent, which is cheap to check here.
    if event
        .field(&["metadata", "creationTimestamp"])
        .is_some_and(|created| !is_old(&created))
    {
        return false;
    }
    let value = event.value();
    let times = [
        meta::text(&value, &["metadata", "creationTimestamp"]),
        meta::text(&value, &["lastTimestamp"]),
        meta::text(&value, &["eventTime"]),
        meta::text(&value, &["series", "lastObservedTime"]),
    ];
    times.iter().all(|text| text.is_empty() || is_old(text))
}
