//! Command lines of the external-provisioner, from public charts of CSI drivers, start `berth provisioner`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use berth::cli::{Cli, Command};
use berth::config::PROVISIONER_GATES;
use berth::flags::accepted::flags;
use berth::flags::go;
use berth::provisioner::{ProvisionerArgs, Unused};
use berth_core::api::Kind;
use berth_kube::resource::Resource;
use berth_testing::{Manifest, claim, class, node, object, pod};
use clap::{CommandFactory as _, FromArgMatches as _};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Duration;
use support::{Berth, Up, eventually};
use tempfile::TempDir;

/// Arguments of the container `csi-provisioner`, by driver, with the defaults of each chart.
const CHARTS: &[(&str, &str)] = &[
    (
        "aws-ebs-csi-driver",
        "--timeout=60s --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=2 --feature-gates=Topology=true \
         --extra-create-metadata --leader-election=true --leader-election-lease-duration=30s \
         --leader-election-renew-deadline=20s --leader-election-retry-period=5s --default-fstype=ext4 --kube-api-qps=20 \
         --kube-api-burst=100 --worker-threads=100 --retry-interval-max=30m",
    ),
    (
        "gcp-compute-persistent-disk-csi-driver",
        "--v=5 --csi-address=/csi/csi.sock --feature-gates=Topology=true --http-endpoint=:22011 \
         --leader-election-namespace=gce-pd-csi-driver --timeout=250s --extra-create-metadata --leader-election \
         --default-fstype=ext4 --controller-publish-readonly=true",
    ),
    (
        "ceph-csi-rbd",
        "--csi-address=unix:///csi/csi-provisioner.sock --v=1 --timeout=60s --leader-election=true \
         --retry-interval-start=500ms --default-fstype=ext4 --extra-create-metadata=true \
         --feature-gates=HonorPVReclaimPolicy=true --prevent-volume-mode-conversion=true --feature-gates=Topology=true \
         --immediate-topology=false",
    ),
    (
        "ceph-csi-rbd of former days",
        "--csi-address=unix:///csi/csi-provisioner.sock --v=5 --timeout=60s --enable-leader-election=true \
         --leader-election-type=leases --retry-interval-start=500ms",
    ),
    (
        "csi-driver-host-path",
        "-v=5 --csi-address=/csi/csi.sock --feature-gates=Topology=true",
    ),
    (
        "csi-driver-host-path on every node",
        "-v=5 --csi-address=/csi/csi.sock --feature-gates=Topology=true --enable-capacity --capacity-ownerref-level=0 \
         --node-deployment=true --strict-topology=true --immediate-topology=false --worker-threads=5",
    ),
    (
        "topolvm",
        "--csi-address=/run/topolvm/csi-topolvm.sock --feature-gates=Topology=true --leader-election \
         --leader-election-namespace=topolvm-system --enable-capacity --capacity-ownerref-level=2",
    ),
    (
        "openebs lvm-localpv",
        "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=5 --feature-gates=Topology=true --strict-topology \
         --leader-election --enable-capacity=true --extra-create-metadata=true --default-fstype=ext4",
    ),
];

fn parse(line: &str) -> ProvisionerArgs {
    let words = std::iter::once("/csi-provisioner").chain(line.split_whitespace());
    let command = Cli::command();
    let arguments = go::arguments(&command, words.map(OsString::from));
    let matches = command.try_get_matches_from(arguments);
    let matches = matches.unwrap_or_else(|error| panic!("{line}: {error}"));
    match Cli::from_arg_matches(&matches).unwrap().command {
        Command::Provisioner(args) => *args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn argument_lists_of_public_charts_are_read() {
    let [ebs, gce, ceph, old_ceph, _, on_nodes, topolvm, _] = CHARTS else {
        panic!("one is missing")
    };
    let read = |(_, line): &(&str, &str)| {
        let args = parse(line);
        args.gates.read().unwrap();
        assert!(args.gates.of_provisioner("Topology").unwrap());
        args
    };
    CHARTS.iter().for_each(|chart| drop(read(chart)));
    let args = read(ebs);
    assert_eq!((args.timeout, args.workers), (Duration::from_secs(60), Some(100)));
    assert_eq!(
        args.csi_address.as_deref(),
        Some("/var/lib/csi/sockets/pluginproxy/csi.sock")
    );
    assert_eq!(args.extra_create_metadata, Some(true));
    assert_eq!(args.sidecar.leader_election, Some(true));
    assert_eq!(args.sidecar.leader_election_renew_deadline, Duration::from_secs(20));
    assert_eq!(args.sidecar.retry_interval_max, Duration::from_secs(30 * 60));
    assert_eq!(args.sidecar.verbosity, Some(2));
    let warnings: Vec<String> = args.sidecar.unused.warnings().collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("--kube-api-qps has no effect: "),
        "{warnings:?}"
    );
    let args = read(gce);
    assert_eq!(args.sidecar.http_endpoint, ":22011");
    assert_eq!(
        args.sidecar.leader_election_namespace.as_deref(),
        Some("gce-pd-csi-driver")
    );
    assert_eq!(args.sidecar.controller_publish_readonly, Some(true));
    let args = read(ceph);
    assert_eq!(args.gates.feature_gates.len(), 2, "both count");
    assert_eq!(args.sidecar.immediate_topology, Some(false));
    assert_eq!(
        args.gates.warnings(PROVISIONER_GATES).unwrap(),
        Vec::<String>::new(),
        "Berth honours reclaim policies"
    );
    let args = read(old_ceph);
    assert_eq!(args.sidecar.leader_election, Some(true));
    assert_eq!(args.sidecar.retry_interval_start, Duration::from_millis(500));
    let args = read(on_nodes);
    assert_eq!(args.capacity.capacity_ownerref_level, Some(0));
    assert_eq!(
        (args.strict_topology, args.sidecar.immediate_topology),
        (Some(true), Some(false))
    );
    assert_eq!(
        (args.sidecar.node_deployment, args.sidecar.enable_capacity),
        (Some(true), Some(true))
    );
    assert_eq!(read(topolvm).capacity.capacity_ownerref_level, Some(2));
}

#[test]
fn every_flag_without_effect_is_accepted_and_said_to_have_none() {
    for flag in flags::<Unused>() {
        let line = match flag.is_switch {
            true => format!("--{}", flag.name),
            false => format!("--{} -1", flag.name),
        };
        let warnings: Vec<String> = parse(&line).sidecar.unused.warnings().collect();
        assert_eq!(warnings, [format!("--{} has no effect: {}", flag.name, flag.instead)]);
        let empty = format!("--{}=", flag.name);
        assert_eq!(
            parse(&empty).sidecar.unused.warnings().count(),
            0,
            "a chart left it empty"
        );
    }
}

#[test]
fn gates_that_are_set_otherwise_are_told() {
    let args =
        parse("--feature-gates=Topology=false,HonorPVReclaimPolicy=false --feature-gates VolumeAttributesClass=true");
    assert!(!args.gates.of_provisioner("Topology").unwrap());
    assert!(args.gates.of_provisioner("VolumeAttributesClass").unwrap());
    assert!(!args.gates.of_provisioner("CrossNamespaceVolumeDataSource").unwrap());
    let warnings = args.gates.warnings(PROVISIONER_GATES).unwrap();
    assert_eq!(
        warnings,
        ["feature gate HonorPVReclaimPolicy has no effect: Berth works as if it were true"]
    );
    assert!(parse("--feature-gates=Topologies=true").gates.read().is_err());
}

#[test]
fn the_socket_of_sidecars_is_the_default_under_their_name() {
    assert_eq!(parse("").csi_address.as_deref(), Some("/run/csi/socket"));
}

const DRIVER: &str = "dir.berth.dev";

/// A control plane with one node and a driver, in a directory in which the provisioner is named `csi-provisioner`.
async fn cluster(publishes: bool, objects: Vec<Value>) -> (TempDir, Up, Berth) {
    let directory = TempDir::new().unwrap();
    let csi = directory.path().join("csi");
    let driver = Berth::start(&["csi-driver", "--dir", csi.to_str().unwrap(), "--node", "n1=10Gi"]);
    driver.read_until("nodes:");
    let spec = json!({"attachRequired": false, "podInfoOnMount": true, "storageCapacity": publishes});
    let mut all = vec![
        node("n1").allocatable("cpu", "4").allocatable("memory", "8Gi"),
        class("dir", DRIVER),
        object("storage.k8s.io/v1", "CSIDriver", DRIVER).with("/spec", spec),
    ];
    all.extend(objects);
    let file = directory.path().join("cluster.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
    std::fs::write(&file, list.to_string()).unwrap();
    let sockets = format!("unix://{}/nodes/{{node}}.sock", csi.display());
    let arguments = [
        "--components",
        "api,scheduler,controller,nodes",
        "--csi-address",
        &sockets,
    ];
    let file = ["-f", file.to_str().unwrap()];
    let up = Up::start(directory.path(), &[&arguments[..], &file].concat()).await;
    let program = directory.path().join("csi-provisioner");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_berth"), &program).unwrap();
    (directory, up, driver)
}

/// Starts a provisioner with the arguments of a chart and the socket of the test.
fn provisioner(directory: &TempDir, up: &Up, chart: &str, socket: &str, environment: &[(&str, &str)]) -> Berth {
    let (_, line) = CHARTS.iter().find(|(name, _)| *name == chart).unwrap();
    let address = format!("--csi-address={}", directory.path().join("csi").join(socket).display());
    let words = line.split_whitespace();
    let mut words: Vec<&str> = words.filter(|word| !word.starts_with("--csi-address=")).collect();
    words.push(&address);
    let kubeconfig = ("KUBECONFIG", up.kubeconfig.to_str().unwrap());
    let environment = [environment, &[kubeconfig]].concat();
    Berth::start_as(&directory.path().join("csi-provisioner"), &words, &environment)
}

#[tokio::test]
async fn a_provisioner_of_one_node_serves_it_and_takes_over_what_was_published() {
    // What the previous program published, under its own name.
    let published = json!({"topology.dir.berth.dev/node": "n1"});
    let before = object("storage.k8s.io/v1", "CSIStorageCapacity", "csisc-before")
        .with("/metadata/namespace", json!("default"))
        .with(
            "/metadata/labels",
            json!({"csi.storage.k8s.io/drivername": DRIVER,
                "csi.storage.k8s.io/managed-by": "external-provisioner-n1"}),
        )
        .with("/storageClassName", json!("dir"))
        .with("/nodeTopology", json!({"matchLabels": published}))
        .with("/capacity", json!("1Gi"));
    let objects = vec![before, pod("provisioner", &[])];
    let (directory, up, _driver) = cluster(true, objects).await;
    let environment = [
        ("NODE_NAME", "n1"),
        ("NAMESPACE", "default"),
        ("POD_NAME", "provisioner"),
    ];
    let chart = "csi-driver-host-path on every node";
    let _provisioner = provisioner(&directory, &up, chart, "nodes/n1.sock", &environment);
    eventually(
        "what was published before is not left beside what is true",
        async || {
            let all = up.list(Resource::of(Kind::CsiStorageCapacity)).await;
            all.len() == 1 && all[0]["capacity"] == "10Gi"
        },
    )
    .await;
    up.create(&claim("data", "dir", 4)).await;
    up.create(&pod("db", &["data"])).await;
    up.wait_for(Kind::Pod, "db", "/status/phase", "Running").await;
}

#[tokio::test]
async fn a_leader_holds_the_lease_of_the_external_provisioner() {
    let (directory, up, _driver) = cluster(false, vec![claim("data", "dir", 4), pod("db", &["data"])]).await;
    let environment = [("POD_NAMESPACE", "default")];
    let provisioner = provisioner(&directory, &up, "aws-ebs-csi-driver", "csi.sock", &environment);
    up.wait_for(Kind::Pod, "db", "/status/phase", "Running").await;
    let lease = up.api.get(Resource::LEASES, "default", "dir-berth-dev").await.unwrap();
    let lease: Value = serde_json::from_slice(&lease.unwrap()).unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 30);
    provisioner.logs("--kube-api-qps has no effect");
    eventually("the volume has its object", async || {
        up.list(Resource::of(Kind::PersistentVolume)).await.len() == 1
    })
    .await;
}
