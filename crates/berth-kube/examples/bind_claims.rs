//! Measures how fast claims are bound: a number of Immediate claims against as many volumes, on the embedded API
//! server.
//!
//! `cargo run --release -p berth-kube --example bind_claims -- 1000 10000` prints one JSON object for each number.

use berth_apiserver::Server;
use berth_controller::{Protection, Settings};
use berth_core::api::{Kind, PersistentVolumeClaim};
use berth_kube::api::Api;
use berth_kube::controller::{Options, run};
use berth_kube::resource::Resource;
use berth_kube::watch::{Change, Difference, Sink, watch};
use berth_kube::{CancellationToken, Client};
use serde_json::json;
use std::error::Error;
use std::io::Write;
use std::time::Instant;

/// Counts claims until all are bound.
struct Bound {
    expected: usize,
    names: std::collections::HashSet<String>,
    done: CancellationToken,
}

impl Sink<PersistentVolumeClaim> for Bound {
    async fn take(&mut self, difference: Difference<PersistentVolumeClaim>) -> bool {
        for change in difference.changes {
            if let Change::Applied(claim) = change
                && claim.status.phase == "Bound"
            {
                self.names.insert(claim.metadata.name);
            }
        }
        if self.names.len() == self.expected {
            self.done.cancel();
        }
        true
    }
}

async fn measure(count: usize, protection: Protection) -> Result<serde_json::Value, Box<dyn Error>> {
    let server = Server::builder().build()?;
    let client = Client::new(server.service(), "default");
    let api = Api::new(client.clone(), "example");
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "now"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"});
    api.create(Resource::of(Kind::StorageClass), "", &class).await?;
    for number in 0..count {
        let size = format!("{}Gi", number % 100 + 1);
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("v{number}")}, "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "now",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/d"}}});
        api.create(Resource::of(Kind::PersistentVolume), "", &volume).await?;
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("c{number}"), "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "now", "resources": {"requests": {"storage": "1Gi"}}}});
        api.create(Resource::of(Kind::PersistentVolumeClaim), "default", &claim)
            .await?;
    }
    let cancel = CancellationToken::new();
    let done = CancellationToken::new();
    let sink = Bound {
        expected: count,
        names: std::collections::HashSet::new(),
        done: done.clone(),
    };
    let counting = tokio::spawn(watch(api.clone(), sink, cancel.clone()));
    let options = Options {
        settings: Settings {
            protection,
            ..Settings::default()
        },
        ..Options::default()
    };
    let begin = Instant::now();
    let running = tokio::spawn(run(client, options, cancel.clone()));
    done.cancelled().await;
    let seconds = begin.elapsed().as_secs_f64();
    cancel.cancel();
    running.await??;
    counting.await?;
    Ok(
        json!({"claims": count, "volumes": count, "bind_s": seconds, "claims_per_s": count as f64 / seconds,
        "ms_per_claim": seconds * 1000.0 / count as f64}),
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    for argument in std::env::args().skip(1) {
        let figures = measure(argument.parse()?, Protection::Off).await?;
        writeln!(out, "{figures}")?;
    }
    Ok(())
}
