//! Measures the server on this machine, in about a minute.
//!
//! `cargo run --release -p berth-apiserver --example load [OBJECTS]`, by default 100,000 objects.
//!
//! Writes go through the whole API (decoding, defaults, validation, managed fields) unless it says "store".

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use berth_apiserver::store::{Expect, Limits, Store};
use berth_apiserver::{ApiService, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower_service::Service;

type Answer<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WRITERS: usize = 8;
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "load", "tier": "back"}},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/app:1.0",
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}, "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": format!("data-{name}")}}]}})
}

fn report(what: &str, figure: impl std::fmt::Display) -> Answer<()> {
    writeln!(std::io::stdout(), "| {what:<58} | {figure:>26} |")?;
    Ok(())
}

fn per_second(count: usize, took: Duration) -> String {
    format!("{:.0} /s", count as f64 / took.as_secs_f64())
}

/// The resident memory of the process, in bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}

async fn send(service: &ApiService, method: &str, path: &str, body: Bytes) -> Answer<Bytes> {
    send_as(service, method, path, body, "application/json").await
}

async fn send_as(service: &ApiService, method: &str, path: &str, body: Bytes, media_type: &str) -> Answer<Bytes> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media_type)
        .body(Full::new(body))?;
    let response = service.clone().call(request).await?;
    let code = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if code.is_success() {
        Ok(body)
    } else {
        Err(format!("{method} {path}: {code} {body:?}").into())
    }
}

/// Creates pods from several tasks concurrently. Returns how long that took.
async fn create(service: &ApiService, prefix: &str, count: usize, writers: usize) -> Answer<Duration> {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let (service, prefix) = (service.clone(), prefix.to_owned());
        tasks.spawn(async move {
            for number in (writer..count).step_by(writers) {
                let body = pod(&format!("{prefix}-{number:06}")).to_string();
                send(&service, "POST", PODS, body.into()).await?;
            }
            Answer::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}

/// Reads a watch until `count` events have arrived.
async fn follow(service: ApiService, from: u64, count: usize) -> Answer<()> {
    let path = format!("{PODS}?watch=1&resourceVersion={from}");
    let request = Request::builder().uri(path).body(Full::new(Bytes::new()))?;
    let mut body = service.clone().call(request).await?.into_body();
    let mut seen = 0;
    while seen < count {
        let Some(frame) = body.frame().await else {
            return Err("the watch ended".into());
        };
        if let Ok(chunk) = frame?.into_data() {
            seen += chunk.iter().filter(|byte| **byte == b'\n').count();
        }
    }
    Ok(())
}

async fn watched_writes(service: &ApiService, from: u64, count: usize, watchers: usize) -> Answer<Duration> {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..watchers {
        tasks.spawn(follow(service.clone(), from, count));
    }
    create(service, &format!("watched{watchers}"), count, WRITERS).await?;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(started.elapsed())
}

fn store_writes(store: &Store, count: usize, writers: usize) -> Answer<Duration> {
    let started = Instant::now();
    let outcome: Answer<()> = std::thread::scope(|scope| {
        let work = |writer: usize| {
            for number in (writer..count).step_by(writers) {
                let key = format!("default/p-{number}");
                store.put("pods", &key, Expect::Absent, pod(&key))?.wait()?;
            }
            Answer::Ok(())
        };
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || work(writer))).collect();
        for thread in threads {
            thread.join().map_err(|_| "a writer panicked")??;
        }
        Ok(())
    });
    outcome?;
    Ok(started.elapsed())
}

async fn lists(objects: usize) -> Answer<()> {
    let server = Server::builder().build()?;
    let service = server.service();
    let before = resident_bytes();
    create(&service, "list", objects, WRITERS).await?;
    let one = send(&service, "GET", &format!("{PODS}/list-000000"), Bytes::new())
        .await?
        .len();
    let each = (resident_bytes().saturating_sub(before)) / objects.max(1);
    report(
        "memory per pod, with history, index and all",
        format!("{each} bytes (JSON: {one})"),
    )?;

    let started = Instant::now();
    let body = send(&service, "GET", PODS, Bytes::new()).await?;
    report(
        &format!("list {objects} pods at once ({} MB)", body.len() >> 20),
        format!("{:.0?}", started.elapsed()),
    )?;
    drop(body);
    let started = Instant::now();
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let page = send(
            &service,
            "GET",
            &format!("{PODS}?limit=500&continue={token}"),
            Bytes::new(),
        )
        .await?;
        pages += 1;
        let list: Value = serde_json::from_slice(&page)?;
        match list["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    report(
        &format!("list them in {pages} pages, decoded"),
        format!("{:.0?}", started.elapsed()),
    )?;
    let started = Instant::now();
    send(
        &service,
        "GET",
        &format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"),
        Bytes::new(),
    )
    .await?;
    report(
        "list those of one node (none) by field selector",
        format!("{:.0?}", started.elapsed()),
    )?;
    Ok(())
}

/// Changes a few pods over and over while watchers follow, one of them much too slowly. The server's memory must not grow
/// with the number of changes.
async fn churn(objects: usize, changes: usize) -> Answer<()> {
    let server = Server::builder().build()?;
    let service = server.service();
    create(&service, "churn", objects, WRITERS).await?;
    let from = server.store().version();
    let path = format!("{PODS}?watch=1&resourceVersion={from}");
    let request = Request::builder().uri(path).body(Full::new(Bytes::new()))?;
    let sleeper = service.clone().call(request).await?.into_body();
    let mut resident = Vec::new();
    // The first round fills the history; further ones must not add to it.
    for round in 0..4 {
        let from = server.store().version();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..WRITERS {
            tasks.spawn(follow(service.clone(), from, changes / 4));
        }
        for number in 0..changes / 4 {
            let path = format!("{PODS}/churn-{:06}/status", number % objects);
            let patch = json!({"status": {"message": format!("{round}-{number}")}}).to_string();
            send_as(&service, "PATCH", &path, patch.into(), "application/merge-patch+json").await?;
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        resident.push(resident_bytes() >> 20);
    }
    drop(sleeper);
    let all: Vec<String> = resident.iter().map(usize::to_string).collect();
    report(
        &format!("memory in MB after each quarter of {changes} changes"),
        all.join(", "),
    )
}

async fn writes(name: &str, data_dir: Option<&Path>, count: usize) -> Answer<()> {
    let mut builder = Server::builder();
    if let Some(directory) = data_dir {
        builder = builder.data_dir(directory);
    }
    let server = Arc::new(builder.build()?);
    let service = server.service();
    for writers in [1, WRITERS, 64] {
        let count = if writers == 1 { count / 8 } else { count };
        let took = create(&service, &format!("w{writers}"), count, writers).await?;
        report(
            &format!("API writes, {name}, {writers} at once"),
            per_second(count, took),
        )?;
    }
    for watchers in [1, WRITERS] {
        let from = server.store().version();
        let took = watched_writes(&service, from, count, watchers).await?;
        report(
            &format!("watch events, {name}, {watchers} watchers, {WRITERS} writers"),
            per_second(count * watchers, took),
        )?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Answer<()> {
    let objects = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse())?;
    report("what", "figure")?;
    report(&"-".repeat(58), "-".repeat(26))?;
    lists(objects).await?;
    churn(1000, objects).await?;
    let memory = Store::in_memory(Limits::default());
    report(
        "store writes, in memory, 1 thread",
        per_second(50_000, store_writes(&memory, 50_000, 1)?),
    )?;
    let directory = tempfile::tempdir()?;
    for writers in [1, 64] {
        let disk = Store::open(&directory.path().join(format!("store-{writers}")), Limits::default())?;
        let count = writers * 200;
        report(
            &format!("store writes, on disk, {writers} threads"),
            per_second(count, store_writes(&disk, count, writers)?),
        )?;
    }
    writes("in memory", None, 16_000).await?;
    writes("on disk", Some(&directory.path().join("api")), 4_000).await
}
