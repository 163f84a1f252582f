//! Traces of components in the cluster: events, and the leases that they hold.
//!
//! Decisions do not read them. They show whether components are active.

use crate::component::{BERTH_LEASE, KUBE_LEASE};
use berth_core::api::{ObjectMeta, StorageClass};
use berth_kube::announce::Announcement;
use berth_kube::resource::Resource;
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// A lease that was not renewed for this long beyond its duration has expired. Clocks differ by less.
const GRACE: Duration = Duration::from_secs(60);

/// The collected evidence.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub(super) events: Vec<Event>,
    pub(super) leases: Vec<Lease>,
    /// The kinds that were listed, by their plural.
    pub(super) listed: BTreeSet<String>,
}

impl Evidence {
    /// Adds an event or a lease. Returns `false` if it is neither.
    pub fn take(&mut self, object: &Value) -> bool {
        match object.get("kind").and_then(Value::as_str) {
            Some("Event") => self.events.push(Event::of(object)),
            Some("Lease") => self.leases.push(Lease::of(object)),
            _ => return false,
        }
        true
    }

    /// Whether leases were read. A file without any may be a part of a cluster.
    pub(super) fn has_leases(&self) -> bool {
        !self.leases.is_empty() || self.listed.contains(Resource::LEASES.plural)
    }

    /// Whether events were read.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty() || self.listed.contains(Resource::EVENTS.plural)
    }

    /// When the last of it was written: the approximate time of a file.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        let events = self.events.iter().filter_map(|event| event.last);
        events.chain(self.leases.iter().filter_map(|lease| lease.renewed)).max()
    }

    /// The events about an object, not about an earlier one of its name.
    pub(super) fn about<'e>(&'e self, kind: &'e str, object: &'e ObjectMeta) -> impl Iterator<Item = &'e Event> + 'e {
        self.events.iter().filter(move |event| {
            let is_same = event.uid.is_empty() || object.uid.is_empty() || event.uid == object.uid;
            event.kind == kind && event.namespace == object.namespace && event.name == object.name && is_same
        })
    }
}

impl Evidence {
    /// The latest event of a class's provisioner about a claim. An event from before the class was created is about another
    /// class of its name.
    pub(super) fn latest_of_provisioner<'e>(
        &'e self,
        claim: &'e ObjectMeta,
        class: &StorageClass,
    ) -> Option<&'e Event> {
        let created = class.metadata.creation_timestamp.as_deref();
        let created: Option<Timestamp> = created.and_then(|created| created.parse().ok());
        let is_older = |event: &Event| event.last.zip(created).is_some_and(|(last, created)| last < created);
        let events = self.about("PersistentVolumeClaim", claim);
        let own = events.filter(|event| event.is_of(&class.provisioner) && !is_older(event));
        own.max_by_key(|event| event.last)
    }
}

/// An event about an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    kind: String,
    namespace: String,
    name: String,
    /// Empty if the writer did not know it.
    uid: String,
    pub(super) reason: String,
    pub(super) message: String,
    /// The component that reported it.
    pub(super) source: String,
    pub(super) first: Option<Timestamp>,
    pub(super) last: Option<Timestamp>,
    pub(super) count: u64,
}

impl Event {
    /// Parses an event of either form, `v1` or `events.k8s.io/v1`. Unreadable fields are empty.
    fn of(event: &Value) -> Self {
        let text = |pointers: &[&str]| {
            let found = pointers.iter().filter_map(|pointer| event.pointer(pointer)?.as_str());
            found
                .map(str::to_owned)
                .find(|text| !text.is_empty())
                .unwrap_or_default()
        };
        let time = |pointers: &[&str]| text(pointers).parse().ok();
        let created = ["/eventTime", "/metadata/creationTimestamp"];
        let first = time(&["/firstTimestamp", "/deprecatedFirstTimestamp", created[0], created[1]]);
        let last = time(&[
            "/series/lastObservedTime",
            "/lastTimestamp",
            "/deprecatedLastTimestamp",
            created[0],
            created[1],
        ]);
        let counts = ["/series/count", "/count", "/deprecatedCount"];
        let count = counts.iter().find_map(|pointer| event.pointer(pointer)?.as_u64());
        Self {
            kind: text(&["/involvedObject/kind", "/regarding/kind"]),
            namespace: text(&["/involvedObject/namespace", "/regarding/namespace"]),
            name: text(&["/involvedObject/name", "/regarding/name"]),
            uid: text(&["/involvedObject/uid", "/regarding/uid"]),
            reason: text(&["/reason"]),
            message: text(&["/message", "/note"]),
            source: text(&["/source/component", "/reportingComponent", "/reportingController"]),
            first,
            last,
            count: count.unwrap_or(1).max(1),
        }
    }

    /// Whether a provisioner reports that it could not create a volume.
    pub(super) fn is_failed_provisioning(&self) -> bool {
        self.reason == "ProvisioningFailed"
    }

    /// How often it happened, and when last: ` 4 times, last 2 min ago`. Empty if unknown.
    pub(super) fn times(&self, now: Timestamp) -> String {
        let times = match self.count {
            1 => String::new(),
            many => format!(" {many} times"),
        };
        let last = self.last.map(|last| format!(", last {} ago", ago(now, last)));
        format!("{times}{}", last.unwrap_or_default())
    }

    /// Whether a component with this name reported it. Sidecars of CSI drivers append the name of their pod.
    pub(super) fn is_of(&self, component: &str) -> bool {
        let rest = self.source.strip_prefix(component);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    }
}

/// A lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) holder: String,
    pub(super) renewed: Option<Timestamp>,
    duration: Duration,
    /// What its holder announces, if it is a scheduler of Berth.
    announced: Option<Announcement>,
}

impl Lease {
    fn of(lease: &Value) -> Self {
        let text = |pointer: &str| {
            lease
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
        Self {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            holder: text("/spec/holderIdentity"),
            renewed: text("/spec/renewTime").parse().ok(),
            duration: Duration::from_secs(seconds.unwrap_or(15)),
            announced: Announcement::of(lease),
        }
    }

    /// Whether its holder, if there is one, serves pods with this `schedulerName`; `None` if that is unknown.
    pub(super) fn serves(&self, scheduler: &str) -> Option<bool> {
        let named = self.name == scheduler || self.name == format!("{BERTH_LEASE}.{scheduler}");
        let usual = [KUBE_LEASE, BERTH_LEASE].contains(&self.name.as_str()) && scheduler == DEFAULT_SCHEDULER_NAME;
        match self.announced.as_ref().map(|announced| &announced.scheduler_names) {
            Some(Some(names)) => Some(names.iter().any(|name| name == scheduler)),
            // A scheduler of Berth that does not list its profiles.
            Some(None) if !named && !usual => None,
            _ => Some(named || usual),
        }
    }

    /// The values of `schedulerName` that its holder lists.
    pub(super) fn scheduler_names(&self) -> &[String] {
        let names = self
            .announced
            .as_ref()
            .and_then(|announced| announced.scheduler_names.as_deref());
        names.unwrap_or_default()
    }

    /// Whether it is held.
    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        let until = self
            .renewed
            .and_then(|renewed| renewed.checked_add(self.duration + GRACE).ok());
        !self.holder.is_empty() && until.is_some_and(|until| until >= now)
    }
}

/// How long ago it was: `12 min`.
pub(super) fn ago(now: Timestamp, then: Timestamp) -> String {
    lasting(now.as_second().saturating_sub(then.as_second()))
}

/// A time in seconds as text: `12 min`.
pub(super) fn lasting(seconds: i64) -> String {
    match seconds.max(0) {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
