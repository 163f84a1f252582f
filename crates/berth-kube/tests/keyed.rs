//! The loop for keyed work, with a reconciler that adds a label to every claim.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use berth_core::api::Kind;
use berth_core::backoff::Backoff;
use berth_core::effect::{Effect, Guard, Merge, ObjectKey, Patch, Target, When};
use berth_kube::api::Api;
use berth_kube::endpoint::Health;
use berth_kube::executor::{Answer, Executor};
use berth_kube::inbox::Inbox;
use berth_kube::keyed::{Job, Keyed, Live, Options, Reconciler, Version, Work};
use berth_kube::recorder::recorder;
use berth_kube::resource::{Resource, Whole};
use berth_kube::{CancellationToken, Client};
use common::gate::{Gate, Verdict};
use common::{Cluster, create_pair, eventually};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Steps that were run, with the name of the claim.
type Steps = Arc<Mutex<Vec<String>>>;

/// Adds a label to every claim; looks again at claims that specify a delay in seconds, and copies those that request
/// it.
#[derive(Default)]
struct Labeller {
    claims: BTreeMap<ObjectKey, Value>,
    steps: Steps,
}

impl Labeller {
    fn insert(&mut self, claim: Value) -> Vec<ObjectKey> {
        let key = Target::of_value(&claim).key;
        let version = |claim: &Value| {
            claim["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        if self
            .claims
            .get(&key)
            .is_some_and(|known| version(known) >= version(&claim))
        {
            return Vec::new();
        }
        self.claims.insert(key.clone(), claim);
        vec![key]
    }
}

impl Reconciler for Labeller {
    type Object = Whole;
    type Answer = Answer;
    type Job = Job<()>;
    type Report = ();

    fn apply(&mut self, object: Whole) -> Vec<ObjectKey> {
        self.insert(object.value)
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.claims.remove(key);
        Vec::new()
    }

    fn answered(&mut self, answer: &Answer) -> Vec<ObjectKey> {
        self.insert(answer.value().unwrap())
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        let target = Target::of_value(self.claims.get(key)?);
        Some(Version {
            uid: target.uid,
            resource_version: target.resource_version,
        })
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Job<()>> {
        self.steps.lock().unwrap().push(key.name.clone());
        let Some(claim) = self.claims.get(key) else {
            return Work::Effects(Vec::new());
        };
        if let Some(seconds) = claim["metadata"]["annotations"]["again"].as_str() {
            let at = now + SignedDuration::from_secs(seconds.parse().unwrap());
            let (key, when) = (key.clone(), When::At(at));
            return Work::Effects(vec![Effect::LookAgain { key, when }]);
        }
        let name = format!("{}-copy", key.name);
        let has_copy = self.claims.contains_key(&ObjectKey::claim("default", &name));
        if claim["metadata"]["annotations"]["copy"] == "yes" && !has_copy {
            let metadata = json!({"name": name, "namespace": "default", "labels": {"wanted": "yes"}});
            let copy = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
                "spec": claim["spec"]});
            let when = When::At(now + SignedDuration::from_secs(1));
            let again = Effect::LookAgain { key: key.clone(), when };
            return Work::Effects(vec![Effect::Create(Box::new(copy)), again]);
        }
        if claim["metadata"]["labels"]["wanted"] == "yes" {
            return Work::Effects(Vec::new());
        }
        Work::Effects(vec![Effect::Patch(Patch {
            target: Target::of_value(claim),
            guard: Guard::Version,
            subresource: None,
            merge: Merge::Json,
            body: json!({"metadata": {"labels": {"wanted": "yes"}}}),
            name: "label",
        })])
    }
}

impl Live for Labeller {
    fn all_keys(&self) -> Vec<ObjectKey> {
        self.claims.keys().cloned().collect()
    }
}

struct Running {
    cancel: CancellationToken,
    task: JoinHandle<()>,
    steps: Steps,
}

impl Running {
    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }

    fn steps_of(&self, name: &str) -> usize {
        let steps = self.steps.lock().unwrap();
        steps.iter().filter(|step| *step == name).count()
    }
}

fn start(gate: &Gate) -> Running {
    let api = Api::new(Client::new(gate.clone(), "default"), "test");
    let cancel = CancellationToken::new();
    let health = Health::default();
    let claims = Resource::of(Kind::PersistentVolumeClaim);
    let (inbox, watches) = Inbox::of_whole(&api, &[claims], &health, &cancel);
    let (recorder, _writer) = recorder(api.clone(), "tester", "tester-1");
    let options = Options {
        workers: 4,
        resync: Duration::from_secs(86400),
        backoff: Backoff::EFFECT,
        grace: Duration::from_secs(10),
        health,
    };
    let labeller = Labeller::default();
    let steps = Arc::clone(&labeller.steps);
    let keyed = Keyed::new(labeller, Executor::new(api, recorder), options, inbox);
    let stop = cancel.clone();
    let task = tokio::spawn(async move {
        keyed.run(stop).await;
        drop(watches);
    });
    Running { cancel, task, steps }
}

async fn edit(cluster: &Cluster, name: &str, patch: &Value) {
    let claims = Resource::of(Kind::PersistentVolumeClaim);
    cluster
        .api
        .merge_patch(claims, "default", name, None, patch)
        .await
        .unwrap();
}

async fn is_labelled(cluster: &Cluster, name: &str) -> bool {
    let claim = cluster.get(Kind::PersistentVolumeClaim, "default", name).await;
    claim.is_some_and(|claim| claim["metadata"]["labels"]["wanted"] == "yes")
}

#[tokio::test(start_paused = true)]
async fn what_another_takes_back_is_not_written_again_and_again() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    let gate = Gate::new(&cluster.server);
    let running = start(&gate);
    // Another writer removes the label whenever it is set.
    for _ in 0..590 {
        sleep(Duration::from_millis(100)).await;
        if is_labelled(&cluster, "c").await {
            edit(&cluster, "c", &json!({"metadata": {"labels": {"wanted": null}}})).await;
        }
    }
    assert_eq!(
        gate.asked("PATCH "),
        2,
        "once more after a slip, and then not for a minute"
    );
    sleep(Duration::from_secs(10)).await;
    assert_eq!(gate.asked("PATCH "), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_backs_off_and_news_bring_it_back() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| match asked.starts_with("PATCH ") {
        true => Verdict::Answer(StatusCode::UNPROCESSABLE_ENTITY, "no"),
        false => Verdict::Pass,
    });
    let running = start(&gate);
    sleep(Duration::from_secs(300)).await;
    let tries = gate.asked("PATCH ");
    assert!((10..30).contains(&tries), "{tries}");
    gate.decide(|_| Verdict::Pass);
    edit(&cluster, "c", &json!({"metadata": {"labels": {"other": "yes"}}})).await;
    let changed = tokio::time::Instant::now();
    eventually("it is labelled", || is_labelled(&cluster, "c")).await;
    assert!(changed.elapsed() < Duration::from_secs(2));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_is_run_again_at_the_time_that_it_asked_for() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    edit(&cluster, "c", &json!({"metadata": {"annotations": {"again": "60"}}})).await;
    let gate = Gate::new(&cluster.server);
    let running = start(&gate);
    sleep(Duration::from_secs(59)).await;
    assert_eq!(running.steps_of("c"), 1);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(running.steps_of("c"), 2);
    // A change comes first.
    edit(&cluster, "c", &json!({"metadata": {"annotations": {"again": null}}})).await;
    eventually("it is labelled", || is_labelled(&cluster, "c")).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_write_finds_gone_is_forgotten_before_the_watch_says_so() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    let gate = Gate::new(&cluster.server);
    // Watches are silent: everything known comes from the first list and from responses.
    gate.decide(|asked| match asked {
        asked if asked.contains("watch=true") => Verdict::Hang,
        asked if asked.starts_with("PATCH ") => Verdict::Answer(StatusCode::SERVICE_UNAVAILABLE, "down"),
        _ => Verdict::Pass,
    });
    let running = start(&gate);
    eventually("it was tried", || async { gate.asked("PATCH ") > 0 }).await;
    cluster.remove(Kind::PersistentVolumeClaim, "default", "c").await;
    gate.decide(|asked| match asked.contains("watch=true") {
        true => Verdict::Hang,
        false => Verdict::Pass,
    });
    sleep(Duration::from_secs(30)).await;
    let tries = gate.asked("PATCH ");
    sleep(Duration::from_secs(90)).await;
    assert_eq!(gate.asked("PATCH "), tries, "it is not there");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_is_not_made_again_while_the_watch_is_silent() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    edit(&cluster, "c", &json!({"metadata": {"annotations": {"copy": "yes"}}})).await;
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| match asked.contains("watch=true") {
        true => Verdict::Hang,
        false => Verdict::Pass,
    });
    let running = start(&gate);
    eventually("its step saw the copy", || async { running.steps_of("c") > 1 }).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(gate.asked("POST "), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_went_before_its_answer_came_is_not_taken_for_there() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    edit(&cluster, "c", &json!({"metadata": {"annotations": {"copy": "yes"}}})).await;
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| match asked.starts_with("POST ") {
        true => Verdict::Slow(Duration::from_secs(5)),
        false => Verdict::Pass,
    });
    let running = start(&gate);
    let copy = || async {
        cluster
            .get(Kind::PersistentVolumeClaim, "default", "c-copy")
            .await
            .is_some()
    };
    eventually("the copy is made", copy).await;
    cluster.remove(Kind::PersistentVolumeClaim, "default", "c-copy").await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(gate.asked("POST "), 1, "the answer is on its way");
    eventually("the copy is made again", copy).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_and_went_while_the_watch_was_cut_is_not_taken_for_there() {
    let cluster = Cluster::new();
    create_pair(&cluster, "c").await;
    edit(&cluster, "c", &json!({"metadata": {"annotations": {"copy": "yes"}}})).await;
    let gate = Gate::new(&cluster.server);
    gate.decide(|asked| match asked.contains("watch=true") {
        true => Verdict::Hang,
        false => Verdict::Pass,
    });
    let running = start(&gate);
    eventually("its step saw the copy", || async { running.steps_of("c") > 1 }).await;
    cluster.remove(Kind::PersistentVolumeClaim, "default", "c-copy").await;
    // The watch delivers neither the copy nor its deletion. It has to list again.
    gate.decide(|asked| match asked.contains("watch=true") {
        true => Verdict::Answer(StatusCode::GONE, "too old"),
        false => Verdict::Pass,
    });
    sleep(Duration::from_secs(120)).await;
    edit(&cluster, "c", &json!({"metadata": {"labels": {"other": "yes"}}})).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(gate.asked("POST "), 2, "the copy is made again");
    running.stop().await;
}
