//! Clients that write, read and watch at the same time, and record what they are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

use super::history::{Answer, Asked, Call, Change, Snapshot, State, Time, Watched};
use crate::service::ApiService;
use crate::store::EventKind;
use crate::store::torn_disk::Random;

const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";
/// Few, so that clients meet.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A defect for the check to find, in what clients record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// Some reads are answered from a cache.
    StaleReads,
    /// Watches leave some changes out.
    WatchGaps,
    /// Watches deliver some changes twice.
    WatchRepeats,
}

/// Time and marks, shared by all clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(super) fn tick(&self) -> Time {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// A client of one life of the server.
pub(super) struct Client {
    pub(super) service: ApiService,
    pub(super) off: watch::Receiver<bool>,
    pub(super) clock: Clock,
    pub(super) random: Random,
    pub(super) defect: Defect,
    pub(super) calls: Vec<Call>,
}

impl Client {
    /// Writes and reads until the power is cut.
    pub(super) async fn work(mut self) -> Vec<Call> {
        let mut seen: [Option<State>; NAMES.len()] = [None; NAMES.len()];
        while !*self.off.borrow() {
            let index = self.random.below(NAMES.len());
            let asked = self.choose(seen[index]);
            let answer = self.call(NAMES[index], asked, seen[index]).await;
            match answer {
                Answer::Is(state) => seen[index] = Some(state),
                Answer::Missing | Answer::Deleted => seen[index] = None,
                Answer::Listed(all) => {
                    for (name, seen) in NAMES.iter().zip(&mut seen) {
                        *seen = all.objects.get(*name).copied();
                    }
                }
                Answer::Exists | Answer::Conflict | Answer::Unknown => {}
            }
        }
        self.calls
    }

    fn choose(&mut self, seen: Option<State>) -> Asked {
        let mark = self.clock.tick();
        match (self.random.below(10), seen) {
            (0, _) => Asked::List,
            (1 | 2, _) => Asked::Get,
            (3, _) => Asked::Touch,
            (4, _) => Asked::Patch { mark },
            (5, Some(seen)) => Asked::Delete { expected: seen.version },
            (6..=8, Some(seen)) => Asked::Update {
                expected: seen.version,
                mark,
            },
            _ => Asked::Create { mark },
        }
    }

    async fn call(&mut self, name: &str, asked: Asked, seen: Option<State>) -> Answer {
        let invoked = self.clock.tick();
        let told = ask(&self.service, name, asked).await;
        let returned = self.clock.tick();
        // Without power there is no process: what it said since then was not heard.
        let mut answer = match *self.off.borrow() {
            true => Answer::Unknown,
            false => understand(asked, told),
        };
        if self.defect == Defect::StaleReads
            && let (Asked::Get, Some(seen)) = (asked, seen)
            && answer != Answer::Unknown
            && self.random.below(4) == 0
        {
            answer = Answer::Is(seen);
        }
        self.calls.push(Call {
            name: if asked == Asked::List {
                String::new()
            } else {
                name.to_owned()
            },
            asked,
            invoked,
            returned,
            answer: answer.clone(),
        });
        answer
    }

    /// Lists, and watches from there in several parts until the power is cut.
    pub(super) async fn follow(mut self) -> (Vec<Call>, Vec<Watched>) {
        let mut watches = Vec::new();
        let Answer::Listed(listed) = self.call("", Asked::List, None).await else {
            return (self.calls, watches);
        };
        let mut from = listed.version;
        while !*self.off.borrow() {
            let most = 1 + self.random.below(60);
            let watched = self.watch(from, most).await;
            from = watched.changes.last().map_or(from, |(_, change)| change.state.version);
            watches.push(watched);
        }
        (self.calls, watches)
    }

    /// Watches until a number of changes was delivered, or the power is cut.
    async fn watch(&mut self, from: u64, most: usize) -> Watched {
        let mut watched = Watched {
            from,
            changes: Vec::new(),
        };
        let path = format!("{OBJECTS}?watch=true&resourceVersion={from}");
        let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
        let Ok(response) = self.service.call(request).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let mut off = self.off.clone();
        while watched.changes.len() < most {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                _ = off.wait_for(|off| *off) => break,
            };
            let Some(Ok(frame)) = frame else { break };
            let time = self.clock.tick();
            if *self.off.borrow() {
                break;
            }
            let bytes = frame.into_data().unwrap();
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.deliver(&mut watched, time, change(&serde_json::from_slice(line).unwrap()));
            }
        }
        watched
    }

    fn deliver(&mut self, watched: &mut Watched, time: Time, change: Change) {
        let times = match (self.defect, self.random.below(30)) {
            (Defect::WatchGaps, 0) => 0,
            (Defect::WatchRepeats, 0) => 2,
            _ => 1,
        };
        watched.changes.extend(std::iter::repeat_n((time, change), times));
    }
}

async fn ask(service: &ApiService, name: &str, asked: Asked) -> (u16, Value) {
    let object = |mark: u64| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"mark": mark.to_string()}});
    let place = format!("{OBJECTS}/{name}");
    let (method, path, body) = match asked {
        Asked::Create { mark } => ("POST", OBJECTS.to_owned(), object(mark)),
        Asked::Update { expected, mark } => {
            let mut object = object(mark);
            object["metadata"]["resourceVersion"] = expected.to_string().into();
            ("PUT", place, object)
        }
        Asked::Patch { mark } => ("PATCH", place, json!({"data": {"mark": mark.to_string()}})),
        Asked::Touch => ("PATCH", place, json!({})),
        Asked::Delete { expected } => {
            let preconditions = json!({"resourceVersion": expected.to_string()});
            ("DELETE", place, json!({"preconditions": preconditions}))
        }
        Asked::Get => ("GET", place, Value::Null),
        Asked::List => ("GET", OBJECTS.to_owned(), Value::Null),
    };
    let media_type = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type);
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let Ok(response) = service.clone().call(request).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    (code, serde_json::from_slice(&body.to_bytes()).unwrap())
}

fn understand(asked: Asked, (code, body): (u16, Value)) -> Answer {
    match (asked, code, body["reason"].as_str()) {
        (Asked::List, 200, _) => Answer::Listed(Snapshot {
            version: version(&body),
            objects: body["items"].as_array().unwrap().iter().map(named_state).collect(),
        }),
        (Asked::Delete { .. }, 200, _) => Answer::Deleted,
        (_, 200 | 201, _) => Answer::Is(named_state(&body).1),
        (_, 404, _) => Answer::Missing,
        (_, 409, Some("AlreadyExists")) => Answer::Exists,
        (_, 409, Some("Conflict")) => Answer::Conflict,
        _ => panic!("{asked:?} was answered with {code} {body}"),
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

pub(super) fn named_state(object: &Value) -> (String, State) {
    let state = State {
        version: version(object),
        mark: object["data"]["mark"].as_str().unwrap().parse().unwrap(),
    };
    (object["metadata"]["name"].as_str().unwrap().to_owned(), state)
}

fn change(event: &Value) -> Change {
    let kind = match event["type"].as_str() {
        Some("ADDED") => EventKind::Added,
        Some("MODIFIED") => EventKind::Modified,
        Some("DELETED") => EventKind::Deleted,
        _ => panic!("{event}"),
    };
    let (name, state) = named_state(&event["object"]);
    Change { kind, name, state }
}
