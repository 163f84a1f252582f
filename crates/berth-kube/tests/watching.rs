//! How a watch handles the responses of an API server, scripted one by one.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth_core::api::PersistentVolume;
use berth_kube::api::Api;
use berth_kube::watch::{Change, Difference, Problem, Sink, watch};
use berth_kube::{CancellationToken, Client};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Returns responses in order and records the request paths. After the last one it returns only 503.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<(StatusCode, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl tower_service::Service<Request<Body>> for Script {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.asked.lock().unwrap().push(request.uri().to_string());
        let answer = self.answers.lock().unwrap().pop_front();
        let (status, body) = answer.unwrap_or((StatusCode::SERVICE_UNAVAILABLE, String::new()));
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        ready(Ok(response))
    }
}

/// The time of the first problem since the watch last worked.
type Failing = Arc<Mutex<Option<tokio::time::Instant>>>;

struct Collect(mpsc::UnboundedSender<Difference<PersistentVolume>>);

/// Accepts everything, and records whether the watch works.
struct Listen(Failing);

impl Sink<PersistentVolume> for Listen {
    async fn take(&mut self, _difference: Difference<PersistentVolume>) -> bool {
        true
    }

    fn problem(&mut self, _problem: Problem<'_>) {
        self.0.lock().unwrap().get_or_insert_with(tokio::time::Instant::now);
    }

    fn works(&mut self) {
        *self.0.lock().unwrap() = None;
    }
}

impl Sink<PersistentVolume> for Collect {
    async fn take(&mut self, difference: Difference<PersistentVolume>) -> bool {
        self.0.send(difference).is_ok()
    }
}

fn volume(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()},
           "spec": {"capacity": {"storage": "1Gi"}}})
}

fn broken(name: &str, version: u64) -> Value {
    let mut object = volume(name, version);
    object["spec"]["capacity"]["storage"] = json!("plenty");
    object
}

fn list(version: u64, items: &[Value]) -> (StatusCode, String) {
    let metadata = json!({"resourceVersion": version.to_string()});
    (
        StatusCode::OK,
        json!({"metadata": metadata, "items": items}).to_string(),
    )
}

fn lines(events: &[(&str, Value)]) -> (StatusCode, String) {
    let lines = events
        .iter()
        .map(|(kind, object)| json!({"type": kind, "object": object}).to_string() + "\n");
    (StatusCode::OK, lines.collect())
}

/// Runs a watch on scripted responses. Returns the differences, each as short texts, and the requests.
async fn check(answers: Vec<(StatusCode, String)>, expected: &[&[&str]]) -> Vec<String> {
    let script = Script {
        answers: Arc::new(Mutex::new(answers.into())),
        asked: Arc::default(),
    };
    let asked = Arc::clone(&script.asked);
    let api = Api::new(Client::new(script, "default"), "test");
    let (sender, mut differences) = mpsc::unbounded_channel();
    let cancel = CancellationToken::new();
    let watching = tokio::spawn(watch(api, Collect(sender), cancel.clone()));
    for expected in expected {
        let difference = differences.recv().await.unwrap();
        let mut texts: Vec<String> = difference.changes.iter().map(text).collect();
        // By name: changes of one object keep their order.
        texts.sort_by_key(|text| text.split([' ', '@']).next().map(str::to_owned));
        assert_eq!(texts, *expected);
    }
    cancel.cancel();
    watching.await.unwrap();
    asked.lock().unwrap().clone()
}

fn text(change: &Change<PersistentVolume>) -> String {
    match change {
        Change::Applied(volume) => format!("{}@{}", volume.metadata.name, volume.metadata.resource_version),
        Change::Removed { name: (_, name), .. } => format!("{name} gone"),
        Change::Broken { name: (_, name), .. } => format!("{name} broken"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_followed_from_its_version_and_the_watch_goes_on_where_it_ended() {
    let asked = check(
        vec![
            list(7, &[volume("a", 3), volume("b", 7)]),
            lines(&[("MODIFIED", volume("a", 8)), ("ADDED", volume("c", 9))]),
            lines(&[("DELETED", volume("b", 10)), ("BOOKMARK", volume("", 20))]),
            lines(&[("ADDED", volume("d", 21))]),
        ],
        &[&["a@3", "b@7"], &["a@8", "c@9"], &["b gone"], &["d@21"]],
    )
    .await;
    let from = |version: &str| format!("resourceVersion={version}");
    assert!(!asked[0].contains("watch=true"));
    assert!(
        asked[1].contains("watch=true") && asked[1].ends_with(&from("7")),
        "{}",
        asked[1]
    );
    assert!(asked[2].ends_with(&from("9")), "{}", asked[2]);
    assert!(asked[3].ends_with(&from("20")), "the bookmark counts: {}", asked[3]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_made_again_under_its_name_is_gone_first() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
    let again = |make: fn(&str, u64) -> Value, version: u64| {
        let mut again = make("a", version);
        again["metadata"]["uid"] = json!(format!("uid-{version}"));
        again
    };
    check(
        vec![
            list(7, &[volume("a", 3), volume("b", 7)]),
            lines(&[("ERROR", gone)]),
            list(9, &[again(volume, 9), volume("b", 8)]),
            lines(&[("ADDED", again(volume, 10))]),
            lines(&[("ADDED", again(broken, 11))]),
        ],
        &[
            &["a@3", "b@7"],
            &["a gone", "a@9", "b@8"],
            &["a gone", "a@10"],
            &["a gone", "a broken"],
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_everything_that_differs_comes_as_one_difference() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"});
    check(
        vec![
            list(7, &[volume("a", 1), volume("b", 2), volume("c", 3)]),
            lines(&[("ERROR", gone)]),
            list(30, &[volume("a", 1), volume("b", 25), volume("d", 28)]),
        ],
        &[&["a@1", "b@2", "c@3"], &["b@25", "c gone", "d@28"]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_set_aside_and_does_not_count_as_gone() {
    let (_, gone) = list(0, &[]);
    check(
        vec![
            list(7, &[volume("a", 1), broken("b", 2)]),
            lines(&[("MODIFIED", broken("a", 8)), ("ADDED", volume("c", 9))]),
            (StatusCode::GONE, gone),
            list(12, &[broken("a", 8), broken("b", 2), volume("c", 9)]),
        ],
        &[&["a@1", "b broken"], &["a broken", "c@9"], &["a broken", "b broken"]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_asked_again() {
    let unavailable = || (StatusCode::SERVICE_UNAVAILABLE, "down".to_owned());
    check(
        vec![
            unavailable(),
            (StatusCode::OK, "no JSON at all".to_owned()),
            list(7, &[volume("a", 1)]),
            unavailable(),
            lines(&[("MODIFIED", volume("a", 8))]),
        ],
        &[&["a@1"], &["a@8"]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_read_page_by_page() {
    let page = json!({"metadata": {"resourceVersion": "7", "continue": "abc=="}, "items": [volume("a", 1)]});
    let asked = check(
        vec![(StatusCode::OK, page.to_string()), list(7, &[volume("b", 2)])],
        &[&["a@1", "b@2"]],
    )
    .await;
    assert!(asked[1].ends_with("continue=abc%3D%3D"), "{}", asked[1]);
}

/// A server whose pages lead back to earlier ones is asked again later, and keeps nothing of what it sent.
#[tokio::test(start_paused = true)]
async fn a_list_that_goes_in_circles_is_given_up() {
    let page = |token: &str| {
        let page = json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": [volume("a", 1)]});
        (StatusCode::OK, page.to_string())
    };
    let asked = check(
        vec![page("x"), page("y"), page("x"), list(8, &[volume("b", 2)])],
        &[&["b@2"]],
    )
    .await;
    assert!(!asked[3].contains("continue="), "{asked:?}");
}

/// A server that forgets every list before its second page is asked again later, and not in a loop.
#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_are_always_gone_begins_anew_after_a_while() {
    let page = || {
        let page = json!({"metadata": {"resourceVersion": "7", "continue": "abc"}, "items": [volume("a", 1)]});
        (StatusCode::OK, page.to_string())
    };
    let gone = || (StatusCode::GONE, list(0, &[]).1);
    let asked = check(
        vec![
            page(),
            gone(),
            page(),
            gone(),
            page(),
            gone(),
            list(7, &[volume("a", 1)]),
        ],
        &[&["a@1"]],
    )
    .await;
    let limited = |path: &String| path.contains("limit=") && !path.contains("continue=");
    let limits: Vec<bool> = asked.iter().map(limited).collect();
    assert_eq!(
        limits[..7],
        [true, false, false, false, true, false, false],
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_404_takes_nothing_away() {
    let html = || (StatusCode::NOT_FOUND, "<html>no such page</html>".to_owned());
    let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "gone", "details": {}});
    let refused = || (StatusCode::NOT_FOUND, status.to_string());
    let (_, expired) = list(0, &[]);
    check(
        vec![
            html(),
            list(7, &[volume("a", 1)]),
            html(),
            refused(),
            (StatusCode::GONE, expired),
            refused(),
            html(),
            list(9, &[volume("a", 1), volume("b", 9)]),
        ],
        &[&["a@1"], &["b@9"]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn pages_that_expire_are_asked_for_in_one_piece() {
    let page = json!({"metadata": {"resourceVersion": "7", "continue": "abc"}, "items": [volume("a", 1)]});
    let asked = check(
        vec![
            (StatusCode::OK, page.to_string()),
            (StatusCode::GONE, String::new()),
            list(9, &[volume("a", 1), volume("b", 2)]),
        ],
        &[&["a@1", "b@2"]],
    )
    .await;
    assert!(
        !asked[2].contains("limit") && !asked[2].contains("continue"),
        "{}",
        asked[2]
    );
}

/// Responses to a list and to a watch, with counters.
#[derive(Clone)]
struct Answers(
    Arc<dyn Fn(bool) -> (StatusCode, String) + Send + Sync>,
    Arc<Mutex<usize>>,
);

impl tower_service::Service<Request<Body>> for Answers {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        *self.1.lock().unwrap() += 1;
        let (status, body) = (self.0)(request.uri().to_string().contains("watch=true"));
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        ready(Ok(response))
    }
}

/// Number of requests in an hour of the paused clock if the server responds like this to list and watch.
async fn requests_in_an_hour(answer: impl Fn(bool) -> (StatusCode, String) + Send + Sync + 'static) -> usize {
    let count = Arc::<Mutex<usize>>::default();
    let client = Client::new(Answers(Arc::new(answer), Arc::clone(&count)), "default");
    let (sender, _differences) = mpsc::unbounded_channel();
    let cancel = CancellationToken::new();
    let watching = tokio::spawn(watch(Api::new(client, "test"), Collect(sender), cancel.clone()));
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    cancel.cancel();
    watching.await.unwrap();
    let count = *count.lock().unwrap();
    assert!(count > 50, "it goes on: {count}");
    count
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_followed_is_not_kept_busy() {
    let asked = requests_in_an_hour(|is_watch| if is_watch { lines(&[]) } else { list(7, &[]) }).await;
    assert!(asked < 200, "watches that end at once: {asked}");
    let asked = requests_in_an_hour(|is_watch| {
        if is_watch {
            (StatusCode::GONE, String::new())
        } else {
            list(7, &[])
        }
    });
    let asked = asked.await;
    assert!(asked < 400, "versions that are too old at once: {asked}");
    let asked = requests_in_an_hour(|is_watch| {
        let error = json!({"kind": "Status", "code": 500, "message": "out of order"});
        if is_watch {
            lines(&[("ERROR", error)])
        } else {
            list(7, &[])
        }
    });
    let asked = asked.await;
    assert!(asked < 400, "errors in the stream: {asked}");
}

/// Sends one chunk and then nothing, without ending.
struct Silent(Option<Bytes>);

impl hyper::body::Body for Silent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(bytes) => Poll::Ready(Some(Ok(hyper::body::Frame::data(bytes)))),
            None => Poll::Pending,
        }
    }
}

/// A server whose watches deliver this and then fall silent. Records when they were opened.
#[derive(Clone)]
struct FallsSilent(&'static str, Arc<Mutex<Vec<tokio::time::Instant>>>);

impl tower_service::Service<Request<Body>> for FallsSilent {
    type Response = Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let body = if request.uri().to_string().contains("watch=true") {
            self.1.lock().unwrap().push(tokio::time::Instant::now());
            Silent(Some(Bytes::from_static(self.0.as_bytes()))).boxed_unsync()
        } else {
            Full::new(Bytes::from(list(7, &[]).1)).boxed_unsync()
        };
        ready(Ok(Response::new(body)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_opened_anew() {
    const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n";
    // A server with bookmarks sends them about every minute; for others only the end of the watch is known.
    for (brings, seconds) in [(BOOKMARK, 100), ("\n", 310)] {
        let opened = Arc::<Mutex<Vec<_>>>::default();
        let client = Client::new(FallsSilent(brings, Arc::clone(&opened)), "default");
        let (sender, _differences) = mpsc::unbounded_channel();
        let cancel = CancellationToken::new();
        let watching = tokio::spawn(watch(Api::new(client, "test"), Collect(sender), cancel.clone()));
        tokio::time::sleep(std::time::Duration::from_secs(1000)).await;
        cancel.cancel();
        watching.await.unwrap();
        let opened = opened.lock().unwrap();
        assert_eq!((opened[1] - opened[0]).as_secs(), seconds, "{brings:?}");
    }
}

/// Each of these used to be repeated forever, while no changes were observed.
#[tokio::test(start_paused = true)]
async fn a_place_from_which_the_server_does_not_go_on_is_given_up() {
    let refused = |code: u16| {
        let status = json!({"kind": "Status", "code": code, "reason": "BadRequest", "message": "invalid version"});
        (StatusCode::from_u16(code).unwrap(), status.to_string())
    };
    let nonsense = || (StatusCode::OK, "nonsense\n".to_owned());
    for refusals in [
        vec![refused(400)],
        vec![refused(422)],
        vec![nonsense()],
        vec![refused(500); 3],
        vec![lines(&[]); 3],
    ] {
        let before = vec![list(7, &[volume("a", 3)])];
        let after = vec![list(9, &[volume("a", 9)])];
        let relisted = 1 + refusals.len();
        let asked = check([before, refusals, after].concat(), &[&["a@3"], &["a@9"]]).await;
        assert!(!asked[relisted].contains("watch=true"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_can_only_list_does_not_say_that_the_watch_works() {
    let status = |code: u16| (StatusCode::from_u16(code).unwrap(), String::new());
    let nonsense = (StatusCode::OK, "nonsense\n".to_owned());
    for refusal in [status(400), status(404), status(410), status(500), nonsense, lines(&[])] {
        let told = refusal.clone();
        let answer = move |is_watch| if is_watch { refusal.clone() } else { list(7, &[]) };
        let client = Client::new(Answers(Arc::new(answer), Arc::default()), "default");
        let (cancel, failing, began) = (
            CancellationToken::new(),
            Failing::default(),
            tokio::time::Instant::now(),
        );
        let sink = Listen(Arc::clone(&failing));
        let watching = tokio::spawn(watch(Api::new(client, "test"), sink, cancel.clone()));
        tokio::time::sleep(std::time::Duration::from_secs(600)).await;
        let since = failing.lock().unwrap().map(|since| (since - began).as_secs());
        assert!(since.is_some_and(|since| since < 5), "{told:?}: {since:?}");
        cancel.cancel();
        watching.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_open_works_though_nothing_happens() {
    let opened = Arc::<Mutex<Vec<_>>>::default();
    let client = Client::new(FallsSilent("\n", opened), "default");
    let failing = Arc::new(Mutex::new(Some(tokio::time::Instant::now())));
    let (cancel, sink) = (CancellationToken::new(), Listen(Arc::clone(&failing)));
    let watching = tokio::spawn(watch(Api::new(client, "test"), sink, cancel.clone()));
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(*failing.lock().unwrap(), None);
    cancel.cancel();
    watching.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_version_may_be_any_text() {
    let metadata = json!({"resourceVersion": "7 #\u{1}ä"});
    let page = json!({"metadata": metadata, "items": [volume("a", 3)]}).to_string();
    let asked = check(
        vec![(StatusCode::OK, page), lines(&[("ADDED", volume("b", 8))])],
        &[&["a@3"], &["b@8"]],
    )
    .await;
    assert!(asked[1].ends_with("resourceVersion=7%20%23%01%C3%A4"), "{}", asked[1]);
}

/// Lines and pages that are valid, nearly valid, or garbage.
fn answer() -> impl Strategy<Value = (StatusCode, String)> {
    let version = prop_oneof![
        any::<u64>().prop_map(Value::from),
        "[0-9a-z %#]{0,4}".prop_map(Value::from)
    ];
    let object = (version, any::<bool>()).prop_map(|(version, is_broken)| {
        let mut object = if is_broken { broken("a", 1) } else { volume("a", 1) };
        object["metadata"]["resourceVersion"] = version;
        object
    });
    let kind = prop::sample::select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"]);
    let line = (kind, object.clone()).prop_map(|(kind, object)| json!({"type": kind, "object": object}).to_string());
    let page = (prop::collection::vec(object, 0..3), "[a-z]{0,2}").prop_map(|(items, token)| {
        json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}).to_string()
    });
    let text = prop_oneof![4 => line, 2 => page, 1 => ".{0,40}"];
    let cut = (text, any::<prop::sample::Index>(), any::<bool>()).prop_map(|(text, at, is_cut)| {
        let end = text
            .char_indices()
            .map(|(index, _)| index)
            .nth(at.index(text.chars().count().max(1)));
        text[..end.filter(|_| is_cut).unwrap_or(text.len())].to_owned()
    });
    let status = prop::sample::select(vec![200, 200, 200, 200, 400, 403, 410, 429, 500]);
    (status, prop::collection::vec(cut, 0..4))
        .prop_map(|(status, lines)| (StatusCode::from_u16(status).unwrap(), lines.join("\n")))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever a server responds, the next readable list is applied.
    #[test]
    fn a_watch_gets_over_any_answers(answers in prop::collection::vec(answer(), 0..8)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut script: Vec<_> = answers;
            // After a watch ends at once a few times, or is refused, it lists again.
            for _ in 0..8 {
                script.push(list(99, &[volume("last", 99)]));
            }
            let script = Script { answers: Arc::new(Mutex::new(script.into())), asked: Arc::default() };
            let api = Api::new(Client::new(script, "default"), "test");
            let (sender, mut differences) = mpsc::unbounded_channel();
            let cancel = CancellationToken::new();
            let watching = tokio::spawn(watch(api, Collect(sender), cancel.clone()));
            let seen = async {
                while let Some(difference) = differences.recv().await {
                    if difference.changes.iter().any(|change| text(change) == "last@99") {
                        return;
                    }
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(3600), seen).await.unwrap();
            cancel.cancel();
            watching.await.unwrap();
        });
    }
}
