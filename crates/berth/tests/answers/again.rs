//! A pod that has a node, as the page explains it: compared with other nodes, with volumes to choose from.

use crate::{class, node};
use berth::cli::{Cli, Command};
use berth::explain::{self, Answer, Report};
use berth::input::Source;
use clap::Parser as _;

fn compared(yaml: &str) -> (Report, Vec<String>) {
    let Command::Explain(args) = Cli::parse_from(["berth", "explain", "--pod", "target"]).command else {
        panic!()
    };
    let source = Source::Text {
        name: "cluster.yaml".into(),
        bytes: yaml.as_bytes().to_vec(),
    };
    match explain::answer_sources(&args, &[source], &[]).unwrap() {
        (Answer::Pod(report), remarks) => (*report, remarks),
        other => panic!("{other:?}"),
    }
}

fn volume(name: &str, node: &str, size: &str, claim: &str) -> String {
    let (phase, reference) = match claim {
        "" => ("Available", String::new()),
        claim => (
            "Bound",
            format!(", claimRef: {{namespace: default, name: {claim}, uid: {claim}}}"),
        ),
    };
    format!(
        "---\n{{apiVersion: v1, kind: PersistentVolume, metadata: {{name: {name}, uid: {name}}}, spec: {{capacity: {{storage: {size}}}, \
         accessModes: [ReadWriteOnce], storageClassName: local, local: {{path: /d}}, nodeAffinity: {{required: {{nodeSelectorTerms: \
         [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{node}]}}]}}]}}}}{reference}}}, \
         status: {{phase: {phase}}}}}\n"
    )
}

fn pod(name: &str, phase: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: default, uid: {name}}}, spec: {{priority: 0, nodeName: n1, \
         containers: [{{name: c, image: i}}], volumes: [{{name: d, persistentVolumeClaim: {{claimName: data}}}}]}}, \
         status: {{phase: {phase}}}}}\n"
    )
}

fn cluster(annotations: &str, phase: &str) -> String {
    let claim = format!(
        "---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: data, namespace: default, uid: data, annotations: {{{annotations}}}}}, \
         spec: {{accessModes: [ReadWriteOnce], storageClassName: local, volumeName: disk1, resources: {{requests: {{storage: 8Gi}}}}}}, \
         status: {{phase: Bound}}}}\n"
    );
    let volumes = volume("disk1", "n1", "10Gi", "data") + &volume("disk2", "n2", "20Gi", "");
    node("n1", "")
        + &node("n2", "")
        + &class("local", "kubernetes.io/no-provisioner")
        + &volumes
        + &claim
        + &pod("target", phase)
}

const CHOSEN: &str = "pv.kubernetes.io/bind-completed: 'yes', pv.kubernetes.io/bound-by-controller: 'yes'";

#[test]
fn the_volumes_of_a_placed_pod_are_chosen_again() {
    for phase in ["Running", "Pending"] {
        let (report, remarks) = compared(&cluster(CHOSEN, phase));
        let totals: Vec<_> = report
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.fits))
            .collect();
        assert_eq!(totals, [("n1", true), ("n2", true)], "{phase}");
        let volumes = |index: usize| report.nodes[index].volumes.as_ref().unwrap().existing.clone();
        assert_eq!(volumes(0).values().collect::<Vec<_>>(), ["disk1"]);
        assert_eq!(volumes(1).values().collect::<Vec<_>>(), ["disk2"]);
        assert!(report.nodes[0].total > report.nodes[1].total, "disk1 fits more closely");
        let told = "explained as if its claim data were not bound and its volume were free";
        assert!(remarks.iter().any(|remark| remark == told), "{remarks:?}");
    }
}

#[test]
fn claims_that_bind_a_pod_whatever_node_it_gets_stay_bound() {
    let named_by_a_user = cluster("pv.kubernetes.io/bind-completed: 'yes'", "Running");
    let shared = cluster(CHOSEN, "Running") + &pod("other", "Running");
    let at_once = cluster(CHOSEN, "Running").replace("WaitForFirstConsumer", "Immediate");
    for yaml in [named_by_a_user, shared, at_once] {
        let (report, remarks) = compared(&yaml);
        let fitting: Vec<_> = report.nodes.iter().filter(|node| node.fits).collect();
        assert_eq!(fitting.len(), 1, "{yaml}");
        assert_eq!(fitting[0].name, "n1");
        assert!(
            !remarks.iter().any(|remark| remark.contains("not bound")),
            "{remarks:?}"
        );
    }
}
