//! Writes events that inform users about their objects.
//!
//! A repeated event increases the count of the existing one, written at growing intervals. Many different messages with
//! the same reason about one object become one combined event. Events never delay the work: when too many are queued,
//! new ones are dropped and counted.

use crate::api::Api;
use crate::resource::Resource;
use berth_core::effect::{Event, EventType, Target};
use berth_core::time::seconds;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use rustc_hash::FxHashMap;
use serde_json::json;
use std::hash::Hash;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of queued events. One claim has at most a few, so this covers thousands of claims.
const QUEUE: usize = 16_384;
/// Number of events in one generation of the deduplication memory. The last two generations are kept, so an event is
/// written anew only if this many others were recorded in between.
const GENERATION: usize = 32_768;
/// Number of different messages with the same reason about one object before they are combined, as in Kubernetes.
const SIMILAR: usize = 10;
/// For how long messages count as similar, as in Kubernetes.
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// The first repetition is written after this time, and each further one after twice the previous interval.
const REPEAT_AFTER: Duration = Duration::from_secs(5);
/// Maximum interval between writes of a repeated event.
const REPEAT_AT_MOST: Duration = Duration::from_secs(300);
/// Maximum length of an object name.
const MAX_NAME: usize = 253;
/// How long writing the remaining events may take when the component stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Accepts events.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Event>,
    dropped: Counter,
}

/// Writes the events: run it alongside the component.
pub struct Writer {
    api: Api,
    component: String,
    instance: String,
    queue: mpsc::Receiver<Event>,
    written: Memory<Same, Written>,
    similar: Memory<Similar, (Vec<String>, Instant)>,
    serial: u64,
}

/// A map that forgets entries that were not used for a while.
struct Memory<K, V> {
    young: FxHashMap<K, V>,
    old: FxHashMap<K, V>,
}

impl<K: Hash + Eq + Clone, V> Memory<K, V> {
    fn new() -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
        }
    }

    /// An entry. Reading it keeps it alive.
    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    fn insert(&mut self, key: K, value: V) -> &mut V {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).insert_entry(value).into_mut()
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

/// Two events with this key are the same.
type Same = (Target, EventType, &'static str, String);
/// Two events with this key are similar.
type Similar = (Target, EventType, &'static str);

struct Written {
    name: String,
    count: u64,
    repeat_at: Instant,
    interval: Duration,
}

/// A recorder for a component (for example `persistentvolume-controller`) of this instance, and its writer. Events with
/// their own source are written under that.
#[must_use]
pub fn recorder(api: Api, component: impl Into<String>, instance: impl Into<String>) -> (Recorder, Writer) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let recorder = Recorder {
        queue: sender,
        dropped: Counter::default(),
    };
    let writer = Writer {
        api,
        component: component.into(),
        instance: instance.into(),
        queue,
        written: Memory::new(),
        similar: Memory::new(),
        serial: 0,
    };
    (recorder, writer)
}

impl Recorder {
    /// Counts dropped events here.
    #[must_use]
    pub(crate) fn counting(mut self, dropped: Counter) -> Self {
        self.dropped = dropped;
        self
    }

    /// Records an event, to be written soon.
    pub fn tell(&self, event: Event) {
        if self.queue.try_send(event.bounded()).is_err() {
            self.dropped.inc();
        }
    }

    /// Number of events dropped because too many were queued.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}

impl Writer {
    /// Writes events until cancelled, then the remaining ones for a short time.
    pub async fn run(mut self, cancel: CancellationToken) {
        while let Some(Some(event)) = cancel.run_until_cancelled(self.queue.recv()).await {
            self.write(event).await;
        }
        self.queue.close();
        let drain = async {
            while let Some(event) = self.queue.recv().await {
                self.write(event).await;
            }
        };
        if timeout(DRAIN, drain).await.is_err() {
            tracing::warn!("stopped before all events were written");
        }
    }

    async fn write(&mut self, mut event: Event) {
        // The version changes with every write to the object, and must not make events differ.
        let resource_version = std::mem::take(&mut event.about.resource_version);
        self.combine(&mut event);
        let same: Same = (
            event.about.clone(),
            event.event_type,
            event.reason,
            event.message.clone(),
        );
        if let Some(written) = self.written.get_mut(&same) {
            written.count += 1;
            if Instant::now() < written.repeat_at {
                return;
            }
            written.interval = written.interval.saturating_mul(2).min(REPEAT_AT_MOST);
            written.repeat_at = Instant::now() + written.interval;
            let patch = json!({"count": written.count, "lastTimestamp": time()});
            let namespace = namespace_of(&event.about);
            let patched = self
                .api
                .merge_patch(Resource::EVENTS, namespace, &written.name, None, &patch)
                .await;
            match patched {
                Ok(_) => return,
                // It has expired: write it anew.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::debug!(%error, "could not count an event");
                    return;
                }
            }
        }
        self.create(same, &event, &resource_version).await;
    }

    /// Replaces the message if too many different ones of this kind were recorded recently.
    fn combine(&mut self, event: &mut Event) {
        let similar = (event.about.clone(), event.event_type, event.reason);
        let now = Instant::now();
        if self.similar.get_mut(&similar).is_none() {
            self.similar.insert(similar.clone(), (Vec::new(), now));
        }
        let Some((messages, since)) = self.similar.get_mut(&similar) else {
            return;
        };
        if now.duration_since(*since) > SIMILAR_WINDOW {
            messages.clear();
            *since = now;
        }
        if messages.contains(&event.message) {
            return;
        }
        if messages.len() < SIMILAR {
            messages.push(event.message.clone());
        } else {
            event.message = format!("(combined from similar events): {}", event.reason);
        }
    }

    async fn create(&mut self, same: Same, event: &Event, resource_version: &str) {
        self.serial += 1;
        let about = &event.about;
        let source: &str = if event.source.is_empty() {
            &self.component
        } else {
            &event.source
        };
        let now = Timestamp::now();
        let name = event_name(&about.key.name, now.as_nanosecond(), self.serial);
        let namespace = namespace_of(about);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.key.kind,
                "namespace": about.key.namespace,
                "name": about.key.name,
                "uid": about.uid,
                "resourceVersion": resource_version,
            },
            "type": event.event_type.name(),
            "reason": event.reason,
            "message": event.message,
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": self.instance,
            "firstTimestamp": time(),
            "lastTimestamp": time(),
            "count": 1,
        });
        match self.api.create(Resource::EVENTS, namespace, &object).await {
            Ok(_) => {
                let written = Written {
                    name,
                    count: 1,
                    repeat_at: Instant::now() + REPEAT_AFTER,
                    interval: REPEAT_AFTER,
                };
                self.written.insert(same, written);
            }
            Err(error) => {
                self.written.remove(&same);
                tracing::debug!(%error, "could not write an event");
            }
        }
    }
}

/// A unique event name, derived from the object's name, which is truncated if the result would be too long.
fn event_name(object: &str, nanoseconds: i128, serial: u64) -> String {
    let suffix = format!(".{nanoseconds:x}{:04x}", serial & 0xffff);
    let length = object.floor_char_boundary(MAX_NAME.saturating_sub(suffix.len()));
    // The truncated part must not end in a dot, because a dot follows.
    let object = object[..length].trim_end_matches(['.', '-']);
    format!("{object}{suffix}")
}

/// Events about cluster-scoped objects are in the default namespace, as in Kubernetes.
fn namespace_of(about: &Target) -> &str {
    if about.key.namespace.is_empty() {
        "default"
    } else {
        &about.key.namespace
    }
}

fn time() -> String {
    seconds(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::{GENERATION, MAX_NAME, Memory, event_name, recorder};
    use crate::api::Api;
    use berth_apiserver::Server;
    use berth_core::effect::{Event, EventType, Target};

    /// A driver may say megabytes, and the last ten thousands of events are remembered.
    #[tokio::test]
    async fn a_message_is_cut_before_it_is_kept() {
        let server = Server::builder().build().unwrap();
        let api = Api::new(kube::Client::new(server.service(), "default"), "test");
        let (recorder, mut writer) = recorder(api, "test", "test");
        let cut = |message: String| {
            recorder.tell(Event {
                about: Target::default(),
                event_type: EventType::Warning,
                reason: "Failed",
                message,
                source: "".into(),
            });
        };
        cut("\u{e9}".repeat(1 << 20));
        cut("x".repeat(1024));
        let event = writer.queue.recv().await.unwrap();
        assert_eq!(event.message, format!("{} ...", "\u{e9}".repeat(510)));
        assert!(event.message.capacity() < 2048);
        assert_eq!(writer.queue.recv().await.unwrap().message.len(), 1024);
    }

    #[test]
    fn names_of_events_are_no_longer_than_names_may_be() {
        assert_eq!(event_name("claim", 0x17, 3), "claim.170003");
        for length in 230..=253 {
            let object = "a.".repeat(127)[..length].to_owned();
            let name = event_name(&object, i128::from(u64::MAX), u64::MAX);
            assert!(name.len() <= MAX_NAME && !name.contains(".."), "{name}");
            assert!(name.starts_with("a.a."));
        }
    }

    #[test]
    fn what_is_asked_for_is_remembered_and_the_rest_goes_in_time() {
        let mut memory = Memory::new();
        memory.insert(0, "kept");
        memory.insert(1, "forgotten");
        for key in 2..3 * GENERATION {
            memory.insert(key, "other");
            if key % 1000 == 0 {
                assert_eq!(memory.get_mut(&0), Some(&mut "kept"));
            }
        }
        assert_eq!(memory.get_mut(&1), None);
        assert!(memory.young.len() + memory.old.len() <= 2 * GENERATION);
    }
}
