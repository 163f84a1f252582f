//! Effects on an API server: guards, versions within a list, facts, lost responses.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_core::effect::{
    Delete, Effect, Event, EventType, Fact, Guard, Merge, ObjectKey, Patch, Refusal, Target, When,
};
use berth_kube::api::Api;
use berth_kube::executor::{Executor, Gone};
use berth_kube::recorder::recorder;
use berth_kube::resource::Resource;
use berth_kube::{CancellationToken, Client};
use common::gate::{Gate, HTML, Verdict};
use common::{Cluster, eventually};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const CLAIM: Kind = Kind::PersistentVolumeClaim;

struct World {
    cluster: Cluster,
    gate: Gate,
    executor: Executor,
    counted: Arc<Mutex<Vec<(String, &'static str)>>>,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::new();
        let gate = Gate::new(&cluster.server);
        let api = Api::new(Client::new(gate.clone(), "default"), "test");
        let (recorder, writer) = recorder(cluster.api.clone(), "tester", "tester-1");
        tokio::spawn(writer.run(CancellationToken::new()));
        let counted = Arc::new(Mutex::new(Vec::new()));
        let count = Arc::clone(&counted);
        let executor = Executor::new(api, recorder).counting(move |effect, result| {
            count.lock().unwrap().push((effect.name().to_owned(), result));
        });
        Self {
            cluster,
            gate,
            executor,
            counted,
        }
    }

    async fn with_claim() -> (Self, Target) {
        let world = Self::new();
        world.cluster.create(&claim("c", &json!([]))).await;
        let target = world.target(CLAIM, "default", "c").await;
        (world, target)
    }

    async fn target(&self, kind: Kind, namespace: &str, name: &str) -> Target {
        Target::of_value(&self.cluster.get(kind, namespace, name).await.unwrap())
    }

    async fn label(&self, key: &str) -> Option<String> {
        let claim = self.cluster.get(CLAIM, "default", "c").await.unwrap();
        claim["metadata"]["labels"][key].as_str().map(str::to_owned)
    }

    async fn edit(&self, patch: &Value) {
        let claims = Resource::of(CLAIM);
        let edited = self.cluster.api.merge_patch(claims, "default", "c", None, patch).await;
        edited.unwrap();
    }

    /// From now on, requests that contain this get a verdict.
    fn meet(&self, part: &'static str, verdict: Verdict) {
        self.gate.decide(move |asked| {
            if asked.contains(part) {
                verdict.clone()
            } else {
                Verdict::Pass
            }
        });
    }
}

fn claim(name: &str, finalizers: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "finalizers": finalizers},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn label(target: &Target, guard: Guard, key: &str) -> Effect {
    Effect::Patch(Patch {
        target: target.clone(),
        guard,
        subresource: None,
        merge: Merge::Json,
        body: json!({"metadata": {"labels": {key: "yes"}}}),
        name: "label",
    })
}

fn delete(target: &Target, guard: Guard) -> Effect {
    Effect::Delete(Delete {
        target: target.clone(),
        guard,
        grace_seconds: None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_goes_on_from_the_version_that_it_left_and_ends_at_the_first_refusal() {
    let (world, target) = World::with_claim().await;
    let two = [
        label(&target, Guard::Version, "one"),
        label(&target, Guard::Version, "two"),
    ];
    let outcome = world.executor.carry_out(&two).await;
    assert_eq!((outcome.done, outcome.refused), (2, None));
    assert_eq!(world.label("two").await.as_deref(), Some("yes"));
    // In the next list, the version that was decided on is outdated.
    let three = [
        label(&target, Guard::Uid, "three"),
        Effect::Confirm(Fact::Unchanged(target.clone())),
        label(&target, Guard::Version, "four"),
    ];
    let outcome = world.executor.carry_out(&three[2..]).await;
    let refused = outcome.refused.unwrap();
    assert_eq!(refused.refusal, Refusal::Conflict(target.key.clone()));
    assert!(!refused.outage);
    let fresh = outcome.fresh.last().unwrap();
    assert_eq!(fresh.value().unwrap()["metadata"]["labels"]["two"], "yes");
    assert_eq!(fresh.object().unwrap().kind(), CLAIM);
    assert_eq!(world.label("four").await, None);
    // An effect that sets only its author's fields applies to any version, and later ones continue from there.
    let outcome = world.executor.carry_out(&three).await;
    assert_eq!((outcome.done, outcome.refused), (3, None));
    let counted = world.counted.lock().unwrap().clone();
    let results: Vec<&str> = counted.iter().map(|(_, result)| *result).collect();
    assert_eq!(results, ["ok", "ok", "conflict", "ok", "ok"]);
    assert!(counted.iter().all(|(name, _)| name == "label"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namesake_is_another_object() {
    let (world, target) = World::with_claim().await;
    world.cluster.remove(CLAIM, "default", "c").await;
    let gone = Gone {
        key: target.key.clone(),
        uid: target.uid.clone(),
    };
    let fact = [Effect::Confirm(Fact::Gone {
        key: target.key.clone(),
        uid: target.uid.clone(),
    })];
    for again in [false, true] {
        if again {
            world.cluster.create(&claim("c", &json!([]))).await;
        }
        for guard in [Guard::Version, Guard::Uid] {
            let outcome = world.executor.carry_out(&[label(&target, guard, "one")]).await;
            let refusal = outcome.refused.unwrap().refusal;
            assert_eq!(refusal, Refusal::NotFound(target.key.clone()), "{again} {guard:?}");
            assert_eq!(outcome.gone, std::slice::from_ref(&gone));
            // The target is gone, and another object with its name is kept.
            let outcome = world.executor.carry_out(&[delete(&target, guard)]).await;
            assert_eq!((outcome.refused, outcome.gone), (None, vec![gone.clone()]));
        }
        assert_eq!(world.executor.carry_out(&fact).await.refused, None);
    }
    assert_eq!(world.label("one").await, None);
    let any = Effect::Confirm(Fact::Gone {
        key: target.key,
        uid: String::new(),
    });
    let refused = world.executor.carry_out(&[any]).await.refused.unwrap();
    assert_eq!(refused.refusal, Refusal::Stale);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_was_lost_is_not_taken_for_made_because_the_pod_is_going() {
    let world = World::new();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "app"}]}});
    world.cluster.create(&pod).await;
    let target = world.target(Kind::Pod, "default", "p").await;
    let outcome = world.executor.carry_out(&[delete(&target, Guard::Uid)]).await;
    assert_eq!(outcome.refused, None);
    let remove = [Effect::Delete(Delete {
        target,
        guard: Guard::Uid,
        grace_seconds: Some(0),
    })];
    world.meet("DELETE", Verdict::Answer(StatusCode::BAD_GATEWAY, ""));
    let refused = world.executor.carry_out(&remove).await.refused.unwrap();
    assert!(matches!(refused.refusal, Refusal::Unavailable { in_doubt: true, .. }));
    world.meet("DELETE", Verdict::Pass);
    assert_eq!(world.executor.carry_out(&remove).await.refused, None);
    assert!(world.cluster.get(Kind::Pod, "default", "p").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_counts_if_it_was_made() {
    let (world, target) = World::with_claim().await;
    world.cluster.create(&claim("kept", &json!(["example.com/kept"]))).await;
    let kept = world.target(CLAIM, "default", "kept").await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    world.cluster.create(&pod).await;
    let pod = world.target(Kind::Pod, "default", "p").await;
    let bind = || Effect::Bind {
        pod: pod.clone(),
        node: "n1".to_owned(),
    };
    let create = || Effect::Create(Box::new(claim("new", &json!([]))));
    // Neither carried out nor answered: nothing is known, and nothing was done.
    for (part, effect) in [
        ("PATCH", label(&target, Guard::Version, "one")),
        ("DELETE", delete(&kept, Guard::Version)),
        ("POST", bind()),
        ("POST", create()),
    ] {
        world.meet(part, Verdict::Hang);
        let refused = world.executor.carry_out(&[effect]).await.refused.unwrap();
        let in_doubt = matches!(refused.refusal, Refusal::Unavailable { in_doubt: true, .. });
        assert!(in_doubt && refused.outage, "{refused:?}");
    }
    // Carried out and not answered.
    for (part, effects) in [
        (
            "PATCH",
            vec![
                label(&target, Guard::Version, "one"),
                label(&target, Guard::Version, "two"),
            ],
        ),
        ("DELETE", vec![delete(&kept, Guard::Version)]),
        ("POST", vec![bind()]),
        ("POST", vec![create()]),
    ] {
        world.meet(part, Verdict::Silent);
        let outcome = world.executor.carry_out(&effects).await;
        assert_eq!((outcome.done, outcome.refused), (effects.len(), None));
        assert!(!outcome.fresh.is_empty(), "what was read back is handed on");
    }
    world.meet("POST", Verdict::Pass);
    assert_eq!(world.label("two").await.as_deref(), Some("yes"));
    // It exists, and its author cannot be determined.
    let refused = world.executor.carry_out(&[create()]).await.refused.unwrap();
    let key = ObjectKey::new("PersistentVolumeClaim", "default", "new");
    assert_eq!(refused.refusal, Refusal::AlreadyExists(key));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_the_api_servers_say_nothing_about_objects() {
    let (world, target) = World::with_claim().await;
    for answer in [HTML, Verdict::Answer(StatusCode::OK, "{}")] {
        world.gate.decide(move |_| answer.clone());
        for effect in [
            label(&target, Guard::Version, "one"),
            Effect::Confirm(Fact::Gone {
                key: target.key.clone(),
                uid: target.uid.clone(),
            }),
            Effect::Confirm(Fact::ClaimUnused {
                claim: target.key.clone(),
            }),
        ] {
            let outcome = world.executor.carry_out(&[effect]).await;
            assert_eq!((outcome.done, outcome.gone), (0, vec![]));
            let refusal = outcome.refused.unwrap().refusal;
            assert!(matches!(refusal, Refusal::Unavailable { .. }), "{refusal:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_stays_for_its_finalizers_and_is_gone_with_the_last() {
    let world = World::new();
    world.cluster.create(&claim("c", &json!(["example.com/kept"]))).await;
    let target = world.target(CLAIM, "default", "c").await;
    let free = Effect::Patch(Patch {
        target: target.clone(),
        guard: Guard::Version,
        subresource: None,
        merge: Merge::Json,
        body: json!({"metadata": {"finalizers": []}}),
        name: "finalizers",
    });
    let outcome = world.executor.carry_out(&[delete(&target, Guard::Version)]).await;
    assert_eq!(outcome.refused, None);
    assert!(outcome.fresh[0].object().unwrap().metadata().is_deleting());
    assert_eq!(outcome.gone, []);
    let target = world.target(CLAIM, "default", "c").await;
    let outcome = world.executor.carry_out(&[free]).await;
    assert!(
        matches!(outcome.refused.unwrap().refusal, Refusal::Conflict(_)),
        "an old version"
    );
    let free = Effect::Patch(Patch {
        target: target.clone(),
        guard: Guard::Version,
        subresource: None,
        merge: Merge::Json,
        body: json!({"metadata": {"finalizers": []}}),
        name: "finalizers",
    });
    let outcome = world.executor.carry_out(&[free]).await;
    assert_eq!(outcome.refused, None);
    assert_eq!(outcome.gone.len(), 1);
    assert!(world.cluster.get(CLAIM, "default", "c").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_used_by_pods_whose_node_is_not_done_with_them() {
    let (world, target) = World::with_claim().await;
    let fact = [Effect::Confirm(Fact::ClaimUnused {
        claim: target.key.clone(),
    })];
    let pod = |node: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{node}"), "namespace": "default",
            "finalizers": ["example.com/kept"]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})
    };
    world.cluster.create(&pod("")).await;
    assert_eq!(world.executor.carry_out(&fact).await.refused, None, "it has no node");
    world.cluster.create(&pod("n1")).await;
    let refused = world.executor.carry_out(&fact).await.refused.unwrap();
    assert_eq!(refused.refusal, Refusal::Stale);
    // The node agent terminates the pod; a finalizer keeps the object.
    let pods = Resource::of(Kind::Pod);
    let options = json!({"gracePeriodSeconds": 0});
    let ended = world.cluster.api.delete_with(pods, "default", "pn1", &options).await;
    ended.unwrap();
    assert!(world.cluster.get(Kind::Pod, "default", "pn1").await.is_some());
    assert_eq!(world.executor.carry_out(&fact).await.refused, None, "it is shut down");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_never_takes_is_told_apart_from_what_it_cannot_take_now() {
    let (world, target) = World::with_claim().await;
    world.edit(&json!({"metadata": {"labels": {"a": "b"}}})).await;
    let wrong = Effect::Patch(Patch {
        target: target.clone(),
        guard: Guard::Uid,
        subresource: None,
        merge: Merge::Json,
        body: json!({"metadata": {"labels": {"a": "no label value at all!"}}}),
        name: "label",
    });
    let refused = world.executor.carry_out(&[wrong]).await.refused.unwrap();
    assert!(matches!(refused.refusal, Refusal::Invalid { .. }), "{refused:?}");
    let unknown = Effect::Create(Box::new(json!({"apiVersion": "example.com/v1", "kind": "Unknown",
        "metadata": {"name": "u"}})));
    let refused = world.executor.carry_out(&[unknown]).await.refused.unwrap();
    assert!(matches!(refused.refusal, Refusal::Invalid { .. }), "{refused:?}");
    let mut elsewhere = claim("c", &json!([]));
    elsewhere["metadata"]["namespace"] = json!("nowhere");
    let refused = world
        .executor
        .carry_out(&[Effect::Create(Box::new(elsewhere))])
        .await
        .refused;
    let namespace = ObjectKey::new("Namespace", "", "nowhere");
    assert_eq!(refused.unwrap().refusal, Refusal::NotFound(namespace));
    world.meet("PATCH", Verdict::Answer(StatusCode::FORBIDDEN, "{}"));
    let refused = world
        .executor
        .carry_out(&[label(&target, Guard::Uid, "one")])
        .await
        .refused
        .unwrap();
    let unavailable = matches!(refused.refusal, Refusal::Unavailable { in_doubt: false, .. });
    assert!(unavailable && refused.outage, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_under_their_own_source_and_looks_are_handed_on() {
    let (world, target) = World::with_claim().await;
    let event = |source: &'static str| {
        Effect::Event(Event {
            about: target.clone(),
            event_type: EventType::Warning,
            reason: "Testing",
            message: format!("from {source:?}"),
            source: source.into(),
        })
    };
    let again = Effect::LookAgain {
        key: target.key.clone(),
        when: When::Backoff,
    };
    let outcome = world.executor.carry_out(&[event(""), event("other"), again]).await;
    assert_eq!(outcome.again, [(target.key.clone(), When::Backoff)]);
    let sources = async || {
        let events = world.cluster.list(Resource::EVENTS).await;
        let source = |event: &Value| event["source"]["component"].as_str().unwrap().to_owned();
        let mut sources: Vec<String> = events.iter().map(source).collect();
        sources.sort();
        sources
    };
    eventually("both are written", || async { sources().await == ["other", "tester"] }).await;
    assert!(world.counted.lock().unwrap().is_empty(), "no write of its own");
}
