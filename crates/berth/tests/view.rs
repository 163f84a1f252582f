//! The page of a cluster, as browsers and others ask for it: `berth up` serves it, and `berth view` beside a cluster.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use berth_core::api::Kind;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use support::{Berth, DEADLINE, Up};
use tempfile::TempDir;

/// A page by its address, as it was printed.
struct Page {
    host: String,
    token: String,
}

impl Page {
    fn of(lines: &[String]) -> Self {
        let address = lines.iter().find_map(|line| line.trim().strip_prefix("http://"));
        let (host, token) = address.unwrap().split_once("/#").unwrap();
        Self {
            host: host.to_owned(),
            token: token.to_owned(),
        }
    }

    /// Sends a request with these headers and gives what comes back, to be read.
    fn open(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream.write_all((request + "\r\n").as_bytes()).unwrap();
        BufReader::new(stream)
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut answer = String::new();
        self.open("GET", path, headers).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    fn ask(&self, path: &str) -> (u16, Value) {
        let bearer = self.bearer();
        let (status, _, body) = self.get(path, &[("Host", &self.host), ("Authorization", &bearer)]);
        (status, serde_json::from_str(&body).unwrap())
    }

    fn post(&self, path: &str, question: &Value) -> (u16, Value) {
        let (bearer, body) = (self.bearer(), question.to_string());
        let length = body.len().to_string();
        let headers = [
            ("Host", self.host.as_str()),
            ("Authorization", &bearer),
            ("Content-Length", &length),
        ];
        let mut stream = self.open("POST", path, &headers);
        stream.get_mut().write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (
            head.split(' ').nth(1).unwrap().parse().unwrap(),
            serde_json::from_str(body).unwrap_or_default(),
        )
    }

    fn follow(&self) -> Events {
        let bearer = self.bearer();
        Events(self.open(
            "GET",
            "/api/events",
            &[("Host", &self.host), ("Authorization", &bearer)],
        ))
    }
}

/// The events that a page is sent.
struct Events(BufReader<TcpStream>);

impl Events {
    fn next(&mut self) -> (String, Value) {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(event) = line.strip_prefix("event: ") {
                event.trim().clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return (name, serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next event of this name for which something is found.
    fn wait_for<T>(&mut self, event: &str, find: impl Fn(&Value) -> Option<T>) -> T {
        loop {
            let (name, data) = self.next();
            if let Some(found) = (name == event).then(|| find(&data)).flatten() {
                return found;
            }
        }
    }
}

#[tokio::test]
async fn a_page_sees_the_cluster_and_what_happens_on_it() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &[]).await;
    let page = Page::of(&up.greeting);
    let mut events = page.follow();
    let (first, everything) = events.next();
    assert_eq!(first, "everything");
    assert!(everything["state"]["nodes"].is_object());
    events.wait_for("standing", |standing| {
        standing["complete"].as_bool().filter(|complete| *complete)
    });
    let mut later = page.follow();
    let (_, everything) = later.next();
    assert_eq!(everything["state"]["nodes"].as_object().unwrap().len(), 9);
    assert_eq!(everything["failing"], json!([]));
    let node = &everything["state"]["nodes"]["node-a1"];
    assert_eq!((&node["zone"], &node["rack"]), (&json!("zone-a"), &json!("rack-1")));
    up.create_pod_with_claim("web", "zonal").await;
    let placed = |update: &Value| {
        let node = update.pointer("/update/pods/default~1web/node")?.as_str()?;
        (!node.is_empty()).then(|| node.to_owned())
    };
    let node = events.wait_for("update", placed);
    assert_eq!(later.wait_for("update", placed), node, "all pages see it");
    up.wait_for(Kind::Pod, "web", "/spec/nodeName", &node).await;
    // The past knows it, too.
    let (status, history) = page.ask("/api/history");
    assert_eq!(status, 200);
    let ticks = history["ticks"].as_array().unwrap();
    let mut moments = ticks.iter().flat_map(|tick| tick["moments"].as_array().unwrap());
    assert!(moments.any(|moment| moment["what"] == "podPlaced" && moment["pod"] == "default/web"));
    let (status, answer) = page.ask("/api/explain?kind=pod&namespace=default&name=web");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["answer"]["pod"], "default/web");
    assert_eq!(answer["answer"]["nodes"].as_array().unwrap().len(), 9);
    for kind in ["pvc", "node"] {
        let name = if kind == "node" { node.as_str() } else { "web" };
        let (status, answer) = page.ask(&format!("/api/explain?kind={kind}&namespace=default&name={name}"));
        assert_eq!(status, 200, "{answer}");
        assert!(!answer["answer"]["text"].as_array().unwrap().is_empty(), "{answer}");
    }
    let (status, answer) = page.post("/api/what-if", &json!({"what": "loseNode", "node": node}));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["steps"][1]["summary"]["readyNodes"], 8);
    let up_still = up.get(Kind::Node, &node).await.unwrap();
    assert_eq!(
        up_still.pointer("/metadata/annotations/berth.dev~1agent"),
        None,
        "nothing was changed"
    );
    let (_, answer) = page.post("/api/what-if", &json!({"what": "loseNode", "node": "nobody"}));
    assert!(answer["error"].as_str().unwrap().contains("nobody"), "{answer}");
    assert_eq!(page.post("/api/what-if", &json!({"what": "delete"})).0, 400);
    assert_eq!(page.ask("/api/explain?kind=pod&namespace=default&name=nobody").0, 404);
    assert_eq!(page.ask("/api/explain?kind=secret&namespace=default&name=web").0, 422);
    assert_eq!(page.ask("/api/explain?kind=pod").0, 400);
}

#[tokio::test]
async fn nobody_reads_it_who_should_not() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--components", "api"]).await;
    let page = Page::of(&up.greeting);
    let (host, bearer) = (page.host.as_str(), page.bearer());
    let (status, head, body) = page.get("/", &[("Host", host)]);
    assert_eq!(status, 200);
    assert!(body.contains("<title>Berth</title>"));
    for header in [
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "referrer-policy: no-referrer",
        "cross-origin-resource-policy: same-origin",
        "frame-ancestors 'none'",
        "script-src 'self';",
    ] {
        assert!(head.contains(header), "{header} in {head}");
    }
    for path in [
        "/api/events",
        "/api/history",
        "/api/explain?kind=node&namespace=&name=n",
    ] {
        assert_eq!(page.get(path, &[("Host", host)]).0, 401, "{path} without a token");
        let wrong = [("Host", host), ("Authorization", "Bearer 0123456789")];
        assert_eq!(page.get(path, &wrong).0, 401, "{path} with another token");
        let known = ("Authorization", bearer.as_str());
        let rebound = [("Host", "evil.example"), known];
        assert_eq!(page.get(path, &rebound).0, 421, "{path} by another name");
        let foreign = [("Host", host), ("Origin", "http://evil.example"), known];
        assert_eq!(page.get(path, &foreign).0, 403, "{path} from another page");
        let framed = [("Host", host), ("Sec-Fetch-Site", "cross-site"), known];
        assert_eq!(page.get(path, &framed).0, 403, "{path} from another site");
    }
    let known = [("Host", host), ("Authorization", bearer.as_str())];
    for path in ["/api/", "/api/secrets", "/nothing.js", "/../Cargo.toml"] {
        assert_eq!(page.get(path, &known).0, 404, "{path}");
    }
    let mut answer = String::new();
    page.open("POST", "/", &known).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test]
async fn pages_that_read_nothing_hold_nobody_up() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--nodes", "200", "--components", "api,nodes"]).await;
    let page = Page::of(&up.greeting);
    let stuck: Vec<Events> = (0..20).map(|_| page.follow()).collect();
    let mut events = page.follow();
    events.wait_for("standing", |standing| {
        standing["complete"].as_bool().filter(|complete| *complete)
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}});
    up.create(&node).await;
    events.wait_for("update", |update| update.pointer("/update/nodes/late").cloned());
    drop(stuck);
}

/// More than the server has places for: they connect and say nothing, stop in the middle of a body, or never read their events.
#[tokio::test]
async fn clients_that_do_not_go_on_keep_nobody_out() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--components", "api,nodes"]).await;
    let page = Page::of(&up.greeting);
    let bearer = page.bearer();
    let host = ("Host", page.host.as_str());
    let known = ("Authorization", bearer.as_str());
    let mut held: Vec<_> = (0..200).map(|_| page.open("GET", "/", &[])).collect();
    held.extend((0..200).map(|_| TcpStream::connect(&page.host).map(BufReader::new).unwrap()));
    let is_served = || {
        assert_eq!(page.get("/", &[host]).0, 200);
        assert_eq!(page.ask("/api/history").0, 200);
        assert_eq!(page.follow().next().0, "everything");
    };
    is_served();
    held.extend((0..200).map(|_| page.open("POST", "/api/what-if", &[host, known, ("Content-Length", "100")])));
    is_served();
    held.extend((0..200).map(|_| page.open("GET", "/api/events", &[host, known])));
    is_served();
    drop(held);
}

#[tokio::test]
async fn a_token_of_somebody_else_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "planted").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let pipe = directory.path().join("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for (path, problem) in [(&path, "may be written by others"), (&pipe, "is not a regular file")] {
        let path = path.to_str().unwrap();
        for command in ["up", "view"] {
            let refused = Berth::start(&[command, "--token-file", path]);
            let line = refused.logs(problem);
            assert!(line.contains(&format!("cannot read the token in {path}")), "{line}");
        }
    }
}

#[tokio::test]
async fn it_is_served_beside_a_cluster_and_left_out_on_request() {
    let directory = TempDir::new().unwrap();
    let up = Up::start(directory.path(), &["--no-view"]).await;
    assert!(
        !up.greeting.iter().any(|line| line.contains("http://")),
        "{:#?}",
        up.greeting
    );
    let kubeconfig = up.kubeconfig.to_str().unwrap().to_owned();
    let kubeconfig = kubeconfig.as_str();
    let mut view = Berth::start(&["view", "--kubeconfig", kubeconfig]);
    let page = Page::of(&view.read_until("Press Ctrl-C to stop"));
    let mut events = page.follow();
    events.wait_for("standing", |standing| {
        standing["complete"].as_bool().filter(|complete| *complete)
    });
    let (_, everything) = page.follow().next();
    assert_eq!(everything["state"]["nodes"].as_object().unwrap().len(), 9);
    assert_eq!(view.stop().code(), Some(0));
    // A cluster that is not there is told at once.
    drop(up);
    let gone = Berth::start(&["view", "--kubeconfig", kubeconfig]);
    gone.logs("cannot reach the cluster at https://127.0.0.1");
}
