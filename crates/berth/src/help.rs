//! The end of each command's help: examples, remarks and exit status.
//!
//! Example lines fit on a terminal, so that they can be pasted. Defaults come from the code that uses them.

use crate::config::known_gates;
use berth_kube::controller;

pub(crate) const AFTER_HELP: &str = "\
Examples:
  berth simulate -f examples/quickstart.yaml
  berth explain -f cluster.yaml --pod default/db-0
  berth explain --pod shop/db-0
  berth plan -f cluster.yaml -f new-workload.yaml
  berth snapshot -o cluster.yaml
  berth up
  berth view
  berth bench decide --nodes 5000 --pods 2000 --claims 1

Exit status: 0 success (explain: the pod fits a node; simulate: every pod has a node; plan: there is one), 1 explain: the pod fits \
no node; simulate: some pod is pending; plan: there is none; snapshot: nodes or pods are missing, 2 bad input or usage, 3 explain: the pod is pending \
for a reason other than room.";

pub(crate) const EXPLAIN_AFTER_HELP: &str = "\
Examples:
  berth explain
  berth explain pod/db-0 -n shop
  berth explain sts/db -n shop
  berth explain deploy/web -n shop
  berth explain pvc/data-db-0 -n shop
  berth explain pod/db-0 --context staging -o json
  berth explain pod/new -f new-pod.yaml --on-cluster
  berth explain -f cluster/ --pod default/db-0
  berth explain -f nodes.yaml -f storage.yaml -f pods.yaml --pod db-0
  K=nodes,pods,pv,pvc,sc,ns,csinodes,csidrivers,csistoragecapacities
  kubectl get $K -A -o json | berth explain -f - --pod shop/db-0
  berth explain -f cluster/ --pod db-0 --config scheduler.yaml \\
    --feature-gates StorageCapacityScoring=true

Preemption is evaluated as the scheduler would; the answer names the node and the pods that would be evicted. Manifests that no API \
server has stored are explained as if they had just been applied: workloads have created pods, and claims that bind immediately \
are bound. Kinds that you may not list are reported on standard error and left out; listing nodes and pods is required.

If the pod fits but is still pending, the answer starts with the reason: no scheduler serves its schedulerName, its provisioner \
fails or does not respond, binding timed out, it has scheduling gates, it waits for preempted pods to terminate, other pending pods \
get its place, it is being deleted, or no scheduler has tried it. The evidence is in events and leases; include them in files \
(kubectl get events,leases -A -o yaml).

Exit status: 0 the pod fits a node, 1 it fits none (even if preemption would help), 2 bad input or usage, or no cluster, \
3 it is pending for a reason other than room. For pvc/NAME, pv/NAME and node/NAME: 0 it can be used, 1 it cannot, 3 the claim waits for \
its provisioner or for the volume controller.";

pub(crate) const SIMULATE_AFTER_HELP: &str = "\
Examples:
  berth simulate -f examples/quickstart.yaml
  berth simulate
  berth simulate -f new-workload.yaml --on-cluster --context staging
  berth simulate -f cluster/ -f new-workload.yaml -o json
  berth simulate -f examples/scenarios/zone-loss.yaml \\
    --scenario examples/scenarios/zone-loss.scenario.yaml \\
    -o html > report.html
  berth simulate -f snapshot.yaml --overlay what-if.yaml --diff
  K=nodes,pods,pv,pvc,sc,ns,pc,csinodes,csidrivers,csistoragecapacities
  kubectl get $K,deploy,sts,ds,rs,jobs,controllerrevisions -A -o json \\
    | berth simulate -f - -f new-workload.yaml

Drivers that are not built in are simulated: their volumes get the topology that the CSINode objects describe, or the zone of the \
selected node if no CSINode names the driver. Without --config, the default profile schedules the pods of every scheduler.

Exit status: 0 every pod has a node, 1 some pod is pending or not running (see --fail-on), 2 bad input or usage.";

pub(crate) const PLAN_AFTER_HELP: &str = "\
Examples:
  berth plan -f cluster.yaml -f new-workload.yaml
  berth plan -f new-workload.yaml --on-cluster --context staging
  berth plan -f cluster.yaml --candidates prices.yaml -o json
  berth plan -f cluster.yaml -o yaml > plan.yaml
  berth simulate -f cluster.yaml --overlay plan.yaml
  berth plan --fit sts/db -f cluster.yaml
  berth plan --fit pod.yaml -f cluster.yaml -o json
  berth plan --survive zone -f cluster.yaml
  berth plan --survive nodes=1 --context staging
  berth plan --shrink -f cluster.yaml

By default, the answer is the cheapest addition found with which every pod runs: nodes, disks for existing nodes, or \
more published capacity, or nodes and disks together. With --fit, it is how many more replicas run without stopping any other pod; claims in the file of a pod \
come with every replica of it. With --survive, it is which pods would not run after a loss, and the cheapest spare nodes found with which all \
do. With --shrink, it is the most expensive nodes found that can be drained one after the other; bound local volumes and disruption \
budgets are respected.

Exit status: 0 every pod runs with what the plan adds (--fit: at least one more replica fits; --shrink: some node can be removed), 1 some pod \
would not run (--fit, --shrink: none), 2 bad input or usage.";

pub(crate) const SNAPSHOT_AFTER_HELP: &str = "\
Examples:
  berth snapshot -o cluster.yaml
  berth snapshot --context staging --anonymize -o cluster.yaml
  berth snapshot --events -o cluster.yaml
  berth snapshot -n shop -n kube-system \\
    | berth explain -f - --pod shop/db-0
  berth snapshot | berth simulate -f - -f new-workload.yaml

The file contains nodes, pods, claims, volumes, storage classes, CSI nodes, drivers, capacity and attachments, namespaces, \
priority classes, services, disruption budgets and workloads, in a stable order, with only the fields that decisions read. Secrets \
and config maps are never read; environment variables, commands, driver parameters and unrelated annotations are left out. Names \
and labels are included unless you pass --anonymize. Kinds that you may not list are reported on standard error and in the file. \
A new file is readable by its owner only.

Exit status: 0 success, 1 written without nodes or pods, which you may not list, 2 bad usage, no cluster, or the file cannot be \
written.";

pub(crate) const TRANSLATE_AFTER_HELP: &str = "\
Examples:
  berth snapshot --anonymize --names names.json -o cluster.yaml
  berth explain -f cluster.yaml | berth translate --names names.json

Exit status: 0 success, 2 bad input or usage.";

pub(crate) const BENCH_AFTER_HELP: &str = "\
Examples:
  berth bench decide --nodes 5000 --pods 2000 --claims 1
  berth bench simulate --nodes 1000 --pods 10000

Exit status: 0 success, 2 bad usage.";

pub(crate) const COMPLETIONS_AFTER_HELP: &str = "\
Examples:
  source <(berth completions bash)
  berth completions bash \\
    > ~/.local/share/bash-completion/completions/berth
  berth completions zsh > ~/.zfunc/_berth
  berth completions fish > ~/.config/fish/completions/berth.fish

Exit status: 0 success, 2 bad usage.";

pub(crate) const MAN_AFTER_HELP: &str = "\
Examples:
  berth man | man -l -
  berth man explain | man -l -
  berth man bench decide | man -l -
  berth man --dir ~/.local/share/man/man1

Exit status: 0 success, 2 bad usage, or the pages cannot be written.";

pub(crate) const SCHEMA_AFTER_HELP: &str = "\
Examples:
  berth schema scenario > scenario.schema.json
  berth schema candidates > candidates.schema.json

Editors use it to complete and check files; with the YAML language server, start a file with:
  # yaml-language-server: $schema=scenario.schema.json

Exit status: 0 success, 2 bad usage.";

pub(crate) const VERSION_AFTER_HELP: &str = "\
Examples:
  berth version

Exit status: 0 success.";

pub(crate) const UP_AFTER_HELP: &str = "\
Examples:
  berth up
  berth up --listen 127.0.0.1:6443 --data-dir ./cluster
  berth up -f examples/quickstart.yaml
  berth up --nodes 30 --zones 3 --disks 4x500Gi
  berth up --view 127.0.0.1:8080
  berth up --components api,controller --token-file ./token

Without -f, berth generates a cluster: 9 nodes in 3 zones of 3 racks, two local disks per node, and classes for local, rack, zonal \
and regional storage; --nodes, --zones and --disks change its size. An empty -f starts an empty cluster. Node agents simulate kubelets; no container is started. The kubeconfig is written to --kubeconfig, to \
DIR/kubeconfig with --data-dir, or to a temporary directory.

To inject failures, annotate a node with berth.dev/agent: stop (no heartbeats: the node is not ready after 50 s, and its pods are \
deleted 5 min later), refuse (rejects new pods), cordon, or run. For example: kubectl annotate node node-a1 berth.dev/agent=stop. \
kubectl cordon, uncordon and drain work, too.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or a component failed.";

pub(crate) const VIEW_AFTER_HELP: &str = "\
Examples:
  berth view
  berth view --context staging
  berth view --listen 127.0.0.1:8080
  berth view --terminal

The address contains a token, which the browser keeps for the tab; without it the page shows nothing. Other origins can neither read \
nor embed the page, and it needs nothing from the Internet. berth up serves it, too.

Keys with --terminal: arrows or j, k, h and l move, Tab switches between pending pods and zones, Enter explains a pod or a node or \
opens a zone, / filters, Esc goes back, q quits.

Kinds that you may not list are reported and left out. berth view needs the rights list and watch on the kinds that berth explain \
lists; events and leases are listed when a pod is explained.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or no cluster.";

pub(crate) const SCHEDULER_AFTER_HELP: &str = "\
Examples:
  berth scheduler --kubeconfig ~/.kube/config --config scheduler.yaml
  berth scheduler --leader-elect=false --listen 0.0.0.0:10259

Pods select it with the schedulerName of one of its profiles. Without a configuration that is default-scheduler: Berth replaces \
kube-scheduler.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or a fatal error.";

/// The help of the controller ends with the fields of its configuration and their defaults.
pub(crate) fn controller_after_help() -> String {
    let choices = |field: &str| match field {
        "zoneUpgrade" => " (or DryRun, On)",
        "protection" => " (or UsedByPods, Bound)",
        _ => "",
    };
    let fields = controller_defaults().into_iter();
    let fields: Vec<String> = fields
        .map(|(field, usual)| format!("{field}: {usual}{}", choices(field)))
        .collect();
    format!(
        "\
Examples:
  berth controller --kubeconfig ~/.kube/config
  berth controller --leader-elect --config controller.yaml

Configuration fields and their defaults: {}.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or a fatal error.",
        fields.join(", ")
    )
}

/// The fields of the controller's configuration, with their defaults.
#[must_use]
pub fn controller_defaults() -> Vec<(&'static str, String)> {
    let usual = controller::Options::default();
    let settings = &usual.settings;
    vec![
        ("volumeScheduling", settings.volume_scheduling.to_string()),
        (
            "requireDelayedBindingScheduler",
            usual.required_scheduler.is_some().to_string(),
        ),
        ("bindForPlacedPods", settings.bind_for_placed_pods.to_string()),
        ("zoneUpgrade", format!("{:?}", settings.zone_upgrade)),
        ("protection", format!("{:?}", settings.protection)),
        ("ephemeralClaims", settings.ephemeral_claims.to_string()),
        ("workers", usual.workers.to_string()),
        ("resyncSeconds", usual.resync.as_secs().to_string()),
    ]
}

/// The help of `--feature-gates`.
pub(crate) fn feature_gates() -> String {
    format!("Feature gates: {}", known_gates())
}

pub(crate) const PROVISIONER_AFTER_HELP: &str = "\
Examples:
  berth provisioner --kubeconfig ~/.kube/config \\
    --csi-address unix:///csi/csi.sock --leader-elect
  berth provisioner --kubeconfig ~/.kube/config
  berth provisioner --csi-address unix:///csi/csi.sock --leader-elect \\
    --capacity objects --capacity-ownerref-level 2
  berth provisioner --csi-address unix:///csi/csi.sock \\
    --node-name worker-1 --capacity driver-status --capacity-ephemeral

Configuration fields: csiAddress, capacityNamespace (where to publish capacity), workers. Flags take precedence.

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage, or a fatal error.";

pub(crate) const CSI_DRIVER_AFTER_HELP: &str = "\
Examples:
  berth csi-driver --dir /tmp/csi --node node-1=10Gi --node node-2=20Gi
  berth up -f cluster.yaml \\
    --csi-address unix:///tmp/csi/nodes/{node}.sock \\
    --components api,scheduler,controller,nodes
  berth provisioner --csi-address unix:///tmp/csi/csi.sock \\
    --capacity objects

Exit status: 0 stopped by Ctrl-C or SIGTERM, 2 bad input or usage.";

pub(crate) const DECIDE_AFTER_HELP: &str = "\
Examples:
  berth bench decide --nodes 5000 --volumes-per-node 10 --pods 2000
  berth bench decide --nodes 5000 --pods 2000 --shapes 2000
  berth bench decide --nodes 100000 --pods 1000 --claims 2 -o json

The cluster is generated in memory from the seed: nodes of several sizes in three or more zones, WaitForFirstConsumer local volumes \
of 10Gi to 500Gi, and pods with requests, labels and claims of 5Gi to 100Gi. Each pod is decided with all plugins and every node, \
on one thread, and takes its node and volumes before the next one.

A measurement covers decoding the pod, filters, scores, and reserving the node and volumes in memory, without an API server or \
network. Identical pods share verdicts, so the number of shapes matters. Without --shapes, each pod has one of 6 random requests \
and each claim one of 6 random sizes. With as many shapes as pods, no two are alike.

Exit status: 0 success, 2 bad usage.";

pub(crate) const BENCH_SIMULATE_AFTER_HELP: &str = "\
Examples:
  berth bench simulate --nodes 1000 --pods 10000
  berth bench simulate --pods 10000 --write-input cluster.json
  berth simulate -f cluster.json -o html > report.html

The cluster is generated: nodes in three zones of ten racks with six local disks each, and StatefulSets whose pods have one claim \
each. Every second set uses local disks, the others zonal volumes that are provisioned. Every third starts its pods in order.

Exit status: 0 success, 2 bad usage.";
