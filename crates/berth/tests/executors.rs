//! One list of effects gives the same objects with both executors: on the embedded API server and on the cluster in
//! memory.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth_apiserver::{Clock, Server};
use berth_cluster::MemoryCluster;
use berth_core::effect::{Delete, Effect, Guard, Merge, ObjectKey, Patch, Refusal, Target};
use berth_kube::api::Api;
use berth_kube::executor::Executor;
use berth_kube::recorder::recorder;
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const KINDS: [&str; 3] = ["Pod", "PersistentVolumeClaim", "ReplicaSet"];
const NAMES: [&str; 2] = ["a", "b"];
const FINALIZERS: [&str; 4] = ["foregroundDeletion", "orphan", "example.com/one", "example.com/two"];

/// One of a few objects.
type Name = (&'static str, &'static str);

/// An action; its UIDs and versions depend on the cluster.
#[derive(Clone, Debug)]
enum Deed {
    Create {
        name: Name,
        owners: Vec<(Name, bool)>,
        finalizers: Vec<&'static str>,
    },
    /// A change of the object itself, of its status through the subresource, or of everything through either.
    Change {
        name: Name,
        body: Body,
        subresource: Option<&'static str>,
        guard: Guard,
        stale: bool,
    },
    Delete {
        name: Name,
        grace_seconds: Option<i64>,
        stale: bool,
    },
    Bind {
        name: &'static str,
        node: &'static str,
    },
}

#[derive(Clone, Debug)]
enum Body {
    Labels(Option<&'static str>),
    Finalizers(Vec<&'static str>),
    Spec(i64),
    Status(i64),
    /// A field that no change touches.
    Kept,
}

impl Body {
    fn of(&self, kind: &str) -> Value {
        match self {
            Self::Labels(value) => json!({"metadata": {"labels": {"app": value}}}),
            Self::Finalizers(finalizers) => json!({"metadata": {"finalizers": finalizers}}),
            Self::Spec(number) => match kind {
                "ReplicaSet" => json!({"spec": {"replicas": number}, "metadata": {"annotations": {"seen": "yes"}}}),
                "PersistentVolumeClaim" => json!({"spec": {"volumeName": "pv"}}),
                _ => json!({"spec": {"activeDeadlineSeconds": 600}}),
            },
            Self::Status(number) => match kind {
                "ReplicaSet" => json!({"status": {"replicas": number, "observedGeneration": number}}),
                "PersistentVolumeClaim" => json!({"status": {"phase": if *number > 1 { "Bound" } else { "Lost" }}}),
                _ => json!({"status": {"message": number.to_string(), "startTime": "2026-01-01T00:00:00Z"}}),
            },
            Self::Kept => json!({"metadata": {"generation": 40, "creationTimestamp": "2020-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 7}}),
        }
    }
}

fn new_object((kind, name): Name, owners: &[Value], finalizers: &[&str]) -> Value {
    let template = json!({"containers": [{"name": "main", "image": "example.com/app:1"}]});
    let (api_version, spec) = match kind {
        "ReplicaSet" => (
            "apps/v1",
            json!({"selector": {"matchLabels": {"app": "x"}}, "replicas": 0,
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": template}}),
        ),
        "PersistentVolumeClaim" => (
            "v1",
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "any"}),
        ),
        _ => ("v1", template),
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"namespace": "default", "name": name}, "spec": spec});
    if !owners.is_empty() {
        object["metadata"]["ownerReferences"] = json!(owners);
    }
    if !finalizers.is_empty() {
        object["metadata"]["finalizers"] = json!(finalizers);
    }
    object
}

fn key((kind, name): Name) -> ObjectKey {
    ObjectKey::new(kind, "default", name)
}

/// The state of one cluster.
#[derive(Default)]
struct Memory {
    /// Objects as last created.
    first: BTreeMap<ObjectKey, Target>,
    /// All uids that objects had, in order.
    uids: Vec<String>,
}

impl Memory {
    /// The effect of an action in this cluster, if its target exists.
    fn effect(&self, deed: &Deed, get: &dyn Fn(Name) -> Option<Value>) -> Option<Effect> {
        let target = |name: Name, stale: bool| match stale {
            true => self.first.get(&key(name)).cloned(),
            false => get(name).map(|found| Target::of_value(&found)),
        };
        Some(match deed {
            Deed::Create {
                name,
                owners,
                finalizers,
            } => {
                let owners = owners.iter().filter_map(|(owner, blocks)| {
                    let owner = get(*owner)?;
                    Some(json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"],
                        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
                        "blockOwnerDeletion": blocks}))
                });
                let owners: Vec<Value> = owners.collect();
                Effect::Create(Box::new(new_object(*name, &owners, finalizers)))
            }
            Deed::Change {
                name,
                body,
                subresource,
                guard,
                stale,
            } => Effect::Patch(Patch {
                target: target(*name, *stale)?,
                guard: *guard,
                subresource: *subresource,
                merge: Merge::Json,
                body: body.of(name.0),
                name: "change",
            }),
            Deed::Delete {
                name,
                grace_seconds,
                stale,
            } => Effect::Delete(Delete {
                target: target(*name, *stale)?,
                guard: Guard::Uid,
                grace_seconds: *grace_seconds,
            }),
            Deed::Bind { name, node } => Effect::Bind {
                pod: target(("Pod", name), false)?,
                node: (*node).to_owned(),
            },
        })
    }

    fn created(&mut self, object: Value) {
        self.uids.push(object["metadata"]["uid"].as_str().unwrap().to_owned());
        let target = Target::of_value(&object);
        self.first.insert(target.key.clone(), target);
    }

    /// An object without what differs between any two clusters.
    fn picture(&self, mut object: Value) -> Value {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in ["resourceVersion", "managedFields"] {
            metadata.remove(field);
        }
        let number = |uid: &Value| json!(self.uids.iter().position(|known| *uid == **known));
        metadata["uid"] = number(&metadata["uid"]);
        if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
            owners.iter_mut().for_each(|owner| owner["uid"] = number(&owner["uid"]));
        }
        drop_nulls(&mut object);
        object
    }
}

/// A null field is the same as a missing one to every client.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The result of an action, without its message.
fn outcome(refusal: Option<&Refusal>) -> &'static str {
    match refusal {
        None => "done",
        Some(Refusal::AlreadyExists(_)) => "already exists",
        Some(Refusal::NotFound(_)) => "not found",
        Some(Refusal::Conflict(_)) => "conflict",
        Some(Refusal::Stale) => "stale",
        Some(Refusal::Invalid { .. }) => "invalid",
        Some(Refusal::Unavailable { .. }) => "unavailable",
    }
}

/// The clock of both clusters.
#[derive(Default)]
struct Seconds(AtomicI64);

impl Clock for Seconds {
    fn now(&self) -> Timestamp {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

struct Live {
    server: Server,
    executor: Executor,
    memory: Memory,
}

impl Live {
    fn new(clock: Arc<Seconds>) -> Self {
        let server = Server::builder().service_accounts(true).clock(clock).build().unwrap();
        let api = Api::new(Client::new(server.service(), "default"), "test");
        let (recorder, writer) = recorder(api.clone(), "tester", "tester");
        tokio::spawn(writer.run(CancellationToken::new()));
        let executor = Executor::new(api, recorder);
        Self {
            server,
            executor,
            memory: Memory::default(),
        }
    }

    async fn objects(&self) -> BTreeMap<Name, Value> {
        let mut found = BTreeMap::new();
        for kind in KINDS {
            let resource = Resource::named(kind).unwrap();
            for name in NAMES {
                if let Some(bytes) = self.executor.api().get(resource, "default", name).await.unwrap() {
                    found.insert((kind, name), serde_json::from_slice(&bytes).unwrap());
                }
            }
        }
        found
    }

    async fn carry_out(&mut self, deed: &Deed) -> Option<(&'static str, Vec<Value>)> {
        let known = self.objects().await;
        let effect = self.memory.effect(deed, &|name| known.get(&name).cloned())?;
        let refused = self.executor.carry_out(&[effect]).await.refused;
        self.server.collect_garbage().await;
        let mut found = self.objects().await;
        if let (Deed::Create { name, .. }, None) = (deed, &refused) {
            // Its owners may have been about to be deleted, and it with them.
            found
                .get(name)
                .into_iter()
                .for_each(|made| self.memory.created(made.clone()));
        }
        let pictures = std::mem::take(&mut found)
            .into_values()
            .map(|object| self.memory.picture(object));
        Some((
            outcome(refused.as_ref().map(|refused| &refused.refusal)),
            pictures.collect(),
        ))
    }
}

#[derive(Default)]
struct Virtual {
    cluster: MemoryCluster,
    memory: Memory,
}

impl Virtual {
    fn get(&self, name: Name) -> Option<Value> {
        self.cluster.objects().find(&key(name)).cloned()
    }

    fn carry_out(&mut self, deed: &Deed, now: Timestamp) -> Option<(&'static str, Vec<Value>)> {
        let effect = self.memory.effect(deed, &|name| self.get(name))?;
        let refused = self.cluster.carry_out(&[effect], now).refused;
        if let (Deed::Create { name, .. }, None) = (deed, &refused) {
            self.get(*name).into_iter().for_each(|made| self.memory.created(made));
        }
        let found = KINDS.iter().flat_map(|kind| NAMES.map(|name| (*kind, name)));
        let mut found: Vec<Name> = found.collect();
        found.sort_unstable();
        let pictures = found
            .into_iter()
            .filter_map(|name| Some(self.memory.picture(self.get(name)?)));
        Some((outcome(refused.as_ref()), pictures.collect()))
    }
}

fn names() -> impl Strategy<Value = Name> {
    (prop::sample::select(&KINDS[..]), prop::sample::select(&NAMES[..]))
}

fn deeds() -> impl Strategy<Value = Deed> {
    let finalizers = || prop::sample::subsequence(&FINALIZERS[..], 0..=2);
    let body = prop_oneof![
        prop::option::of(prop::sample::select(&["x", "y"][..])).prop_map(Body::Labels),
        finalizers().prop_map(Body::Finalizers),
        (1..4_i64).prop_map(Body::Spec),
        (1..4_i64).prop_map(Body::Status),
        Just(Body::Kept),
    ];
    let guard = prop_oneof![Just(Guard::Uid), Just(Guard::Version)];
    prop_oneof![
        3 => (names(), prop::collection::vec((names(), any::<bool>()), 0..3), finalizers())
            .prop_map(|(name, owners, finalizers)| Deed::Create { name, owners, finalizers }),
        4 => (names(), body, prop::option::of(Just("status")), guard, prop::bool::weighted(0.2))
            .prop_map(|(name, body, subresource, guard, stale)| Deed::Change { name, body, subresource, guard, stale }),
        3 => (names(), prop::option::of(prop::sample::select(&[0_i64, 5, 60][..])), prop::bool::weighted(0.2))
            .prop_map(|(name, grace_seconds, stale)| Deed::Delete { name, grace_seconds, stale }),
        1 => (prop::sample::select(&NAMES[..]), prop::sample::select(&["n1", "n2"][..]))
            .prop_map(|(name, node)| Deed::Bind { name, node }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn effects_leave_the_same_objects_on_a_server_and_in_memory(deeds in prop::collection::vec(deeds(), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(Seconds::default());
            let mut live = Live::new(Arc::clone(&clock));
            let mut virtual_ = Virtual::default();
            for (number, deed) in deeds.iter().enumerate() {
                clock.0.fetch_add(3, Ordering::SeqCst);
                let on_server = live.carry_out(deed).await;
                let in_memory = virtual_.carry_out(deed, clock.now());
                prop_assert_eq!(on_server, in_memory, "after deed {}: {:?}", number, deed);
            }
            live.server.shutdown();
            Ok(())
        })?;
    }
}
