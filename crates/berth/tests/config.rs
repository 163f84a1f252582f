//! Reading scheduler configurations and feature gates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth::cli::{Bench, Cli, Command};
use berth::config::{
    ConfigArgs, Configuration, Election, FEATURE_GATES, GateArgs, OTHER_GATES, PROVISIONER_GATES, SCHEDULER_GATES,
    feature_gates,
};
use berth::flags::go;
use berth::input::NoProgress;
use berth_core::api;
use berth_core::binder::{CapacityScore, ScoreGate, VolumeGates};
use berth_core::score::Shape;
use berth_scheduler::extender::{Extender, Tls};
use berth_scheduler::framework::PluginName;
use berth_scheduler::profile::{DefaultSpread, FeatureGates, Profile, ScoringForm, ShapePoint, VolumeBindingArgs};
use berth_scheduler::queue::QueueTimes;
use berth_scheduler::scheduler::{DEFAULT_SCHEDULER_NAME, Settings, Together};
use clap::{CommandFactory as _, FromArgMatches as _, Parser as _};
use std::collections::BTreeMap;
use std::time::Duration;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn read(rest: &str) -> Result<Configuration, String> {
    Configuration::from_text(&"config.yaml".into(), &format!("{HEAD}{rest}")).map_err(|error| error.to_string())
}

#[track_caller]
fn profile(rest: &str) -> Profile {
    let configuration = read(rest).unwrap_or_else(|error| panic!("{error}"));
    configuration.profiles[0].profile.clone()
}

#[track_caller]
fn check_error(rest: &str, expected: &str) {
    assert_eq!(read(rest).expect_err("this must not be accepted"), expected);
}

#[test]
fn nothing_said_means_the_defaults() {
    assert_eq!(read("").unwrap(), Configuration::default());
    assert_eq!(read("profiles: []\n").unwrap(), Configuration::default());
    assert_eq!(profile("profiles: [{}]\n"), Profile::default());
    let full = "parallelism: 16\nclientConnection: {contentType: application/json}\n\
                enableProfiling: false\npercentageOfNodesToScore: 0\npodInitialBackoffSeconds: 1\npodMaxBackoffSeconds: 10\n";
    assert_eq!(read(full).unwrap(), Configuration::default());
}

#[test]
fn leader_election_and_connection_are_read() {
    let process = |rest: &str| read(rest).unwrap().process;
    let full = process(
        "leaderElection: {leaderElect: false, leaseDuration: 1m0s, renewDeadline: 40s, retryPeriod: 500ms,\n\
         \x20 resourceLock: leases, resourceName: ours, resourceNamespace: storage}\n\
         clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 50, burst: 100,\n\
         \x20 contentType: application/vnd.kubernetes.protobuf}\n",
    );
    let election = Election {
        elect: false,
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_millis(500),
        name: Some("ours".to_owned()),
        namespace: Some("storage".to_owned()),
    };
    assert_eq!(full.election, Some(election));
    assert!(!full.cold_standby);
    assert!(process("delayCacheUntilActive: true\n").cold_standby);
    assert_eq!(
        full.kubeconfig.unwrap().to_str(),
        Some("/etc/kubernetes/scheduler.conf")
    );
    assert_eq!(full.unused.len(), 3, "what has no effect is said: {:?}", full.unused);
    let block = process("leaderElection: {resourceName: ours}\n").election.unwrap();
    assert!(block.elect, "a block elects unless it says otherwise");
    for (block, field) in [
        ("{leaseDuration: 10s}", "leaseDuration"),
        ("{renewDeadline: 2s}", "renewDeadline"),
        ("{retryPeriod: soon}", "retryPeriod"),
        ("{resourceLock: endpoints}", "resourceLock"),
    ] {
        let problem = read(&format!("leaderElection: {block}\n")).unwrap_err();
        assert!(problem.contains(&format!("leaderElection.{field}: ")), "{problem}");
    }
}

#[test]
fn a_share_of_the_nodes_is_scored_if_asked_for() {
    let share = |rest: &str| profile(rest).percentage_of_nodes_to_score.map(std::num::NonZero::get);
    assert_eq!(share("percentageOfNodesToScore: 30\n"), Some(30));
    assert_eq!(share("percentageOfNodesToScore: 100\n"), None, "every node");
    assert_eq!(
        share("percentageOfNodesToScore: 30\nprofiles: [{percentageOfNodesToScore: 7}]\n"),
        Some(7)
    );
    assert_eq!(
        share("percentageOfNodesToScore: 30\nprofiles: [{percentageOfNodesToScore: 0}]\n"),
        None,
        "the profile's word counts"
    );
    check_error(
        "percentageOfNodesToScore: 101\n",
        "config.yaml: percentageOfNodesToScore: found 101, expected 0 to 100",
    );
    check_error(
        "profiles: [{percentageOfNodesToScore: -1}]\n",
        "config.yaml: profiles[0].percentageOfNodesToScore: found -1, expected 0 to 100",
    );
}

#[test]
fn plugins_are_enabled_disabled_and_weighted() {
    let found = profile(
        "profiles:\n- plugins:\n    score:\n      disabled: [{name: ImageLocality}]\n      enabled: [{name: NodeResourcesFit, weight: 7}]\n    filter:\n      disabled: [{name: NodePorts}]\n",
    );
    assert!(!found.scores.iter().any(|(name, _)| *name == PluginName::ImageLocality));
    assert!(found.scores.contains(&(PluginName::NodeResourcesFit, 7)));
    assert!(
        found.scores.contains(&(PluginName::TaintToleration, 3)),
        "others keep their weight"
    );
    assert!(!found.filters.contains(&PluginName::NodePorts));
    assert_eq!(found.filters.len(), Profile::default().filters.len() - 1);

    let found = profile(
        "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: '*'}]\n      enabled: [{name: VolumeBinding, weight: 5}, {name: NodeName}, {name: DefaultBinder}]\n",
    );
    assert_eq!(found.filters, [PluginName::VolumeBinding, PluginName::NodeName]);
    assert_eq!(found.scores, [(PluginName::VolumeBinding, 5)]);

    let found = profile("profiles:\n- plugins:\n    multiPoint:\n      enabled: [{name: TaintToleration}]\n");
    assert!(
        found.scores.contains(&(PluginName::TaintToleration, 1)),
        "named without a weight it has weight 1"
    );
    assert_eq!(found.filters, Profile::default().filters, "and it stays in its place");
}

#[test]
fn arguments_of_plugins_are_read() {
    let found = profile(
        "profiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args:\n      apiVersion: kubescheduler.config.k8s.io/v1\n      kind: VolumeBindingArgs\n      bindTimeoutSeconds: 60\n      shape: [{utilization: 50, score: 0}, {utilization: 80, score: 3}, {utilization: 100, score: 5}]\n      storageClassWeights:\n      - local-ssd: \"5\"\n      - local-hdd: 3\n  - name: InterPodAffinity\n    args: {hardPodAffinityWeight: 9}\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        type: MostAllocated\n        resources: [{name: cpu, weight: 2}, {name: memory}]\n  - name: NodeResourcesBalancedAllocation\n    args: {resources: [{name: cpu, weight: 1}]}\n  - name: PodTopologySpread\n    args: {defaultingType: List}\n  - name: DefaultPreemption\n    args: {minCandidateNodesPercentage: 10, minCandidateNodesAbsolute: 100}\n",
    );
    let point = |utilization, score| ShapePoint { utilization, score };
    let args = &found.volume_binding;
    assert_eq!(args.bind_timeout, Duration::from_secs(60));
    let shape = Shape::new(&[point(50, 0), point(80, 3), point(100, 5)]).unwrap();
    assert_eq!(args.score.shape, Some(shape));
    assert_eq!(args.score.class_weights.get("local-hdd"), Some(&3));
    assert_eq!(args.score.class_weights.get("local-ssd"), Some(&5));
    assert_eq!(found.hard_pod_affinity_weight, 9);
    assert_eq!(found.scoring_strategy.form, ScoringForm::MostAllocated);
    assert_eq!(
        found.scoring_strategy.resources,
        [("cpu".to_owned(), 2), ("memory".to_owned(), 1)]
    );
    assert_eq!(found.balanced_resources, ["cpu"]);
    assert_eq!(found.default_spread, DefaultSpread::list(Vec::new()));
}

#[test]
fn arguments_can_change_pods() {
    let configuration = read(
        "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {ignoredResources: [example.com/foo], ignoredResourceGroups: [gpu.example.com]}\n  - name: NodeAffinity\n    args:\n      addedAffinity:\n        requiredDuringSchedulingIgnoredDuringExecution:\n          nodeSelectorTerms:\n          - matchExpressions: [{key: pool, operator: In, values: [a]}]\n          - matchExpressions: [{key: pool, operator: In, values: [b]}]\n",
    );
    let profile = configuration.unwrap().profiles.remove(0).profile;
    let pod: api::Pod = serde_json::from_value(serde_json::json!({
        "spec": {
            "containers": [{"resources": {"requests": {"cpu": 1, "example.com/foo": 1, "example.com/bar": 1, "gpu.example.com/a": 1}}}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}, {}]}}}}
    }))
    .unwrap();
    let pod = profile.adapt(&pod).into_owned();
    let requests: Vec<_> = pod.spec.containers[0].resources.requests.keys().collect();
    assert_eq!(requests, ["cpu", "example.com/bar"]);
    let affinity = pod.spec.affinity.unwrap().node_affinity.unwrap();
    let terms = affinity.required.unwrap().node_selector_terms;
    let keys: Vec<Vec<_>> = terms
        .iter()
        .map(|term| {
            term.match_expressions
                .iter()
                .map(|found| format!("{}{:?}", found.key, found.values))
                .collect()
        })
        .collect();
    assert_eq!(
        keys,
        [["disk[]", "pool[\"a\"]"], ["disk[]", "pool[\"b\"]"]],
        "an empty term matches nothing and is left out"
    );
    check_error(
        "profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Like}]}]}}}\n",
        "config.yaml: profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: found \"Like\", expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt",
    );
}

#[test]
fn unknown_fields_are_named_all_of_them() {
    check_error(
        "paralelism: 16\nprofiles:\n- schedulerNam: x\n  plugins: {filters: {}, score: {enabled: [{nam: x, name: NodeName}]}}\n  pluginConfig:\n  - name: VolumeBinding\n    args: {bindTimeout: 3, shape: [{utilisation: 1}]}\n",
        "config.yaml: unknown fields: paralelism, profiles[0].plugins.filters, profiles[0].plugins.score.enabled[0].nam, \
         profiles[0].schedulerNam, profiles[0].pluginConfig[0].args.bindTimeout, \
         profiles[0].pluginConfig[0].args.shape[0].utilisation; check the spelling, or remove them",
    );
}

#[test]
fn broken_values_are_named_with_what_was_expected() {
    check_error(
        "profiles: 5\n",
        "config.yaml: profiles: invalid type: integer `5`, expected a sequence",
    );
    check_error(
        "profiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args: {shape: [{utilization: 200, score: 1}]}\n",
        "config.yaml: profiles[0].pluginConfig[0].args.shape[0].utilization: found 200, expected 0 to 100",
    );
    check_error(
        "profiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args: {storageClassWeights: [{ssd: heavy}]}\n",
        "config.yaml: profiles[0].pluginConfig[0].args.storageClassWeights[0].ssd: found \"heavy\", expected a whole number from 0 up, such as \"5\"",
    );
    check_error(
        "profiles:\n- pluginConfig:\n  - name: VolumeBinding\n    args: {kind: NodeAffinityArgs}\n",
        "config.yaml: profiles[0].pluginConfig[0].args.kind: found \"NodeAffinityArgs\", expected \"VolumeBindingArgs\"",
    );
    check_error(
        "profiles: [{schedulerName: a}, {schedulerName: a}]\n",
        "config.yaml: profiles[1].schedulerName: found \"a\" a second time, expected another name",
    );
    let spread = |constraints: &str| {
        format!(
            "profiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args: {{defaultingType: List, defaultConstraints: [{constraints}]}}\n"
        )
    };
    let good = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}";
    for (broken, problem) in [
        (
            "{topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}".to_owned(),
            "[0].maxSkew: found 0, expected 1 or more",
        ),
        (
            "{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}".to_owned(),
            "[0].topologyKey: expected the name of a node label",
        ),
        (
            "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}".to_owned(),
            "[0].whenUnsatisfiable: found \"Never\", expected DoNotSchedule or ScheduleAnyway",
        ),
        (
            good.replace('}', ", labelSelector: {}}"),
            "[0].labelSelector: expected none: the pods that count are those of the pod's services and its owner",
        ),
        (
            good.replace('}', ", minDomains: 2}"),
            "[0].minDomains: expected 1 or more, and only with `whenUnsatisfiable: DoNotSchedule`",
        ),
        (
            good.replace('}', ", nodeTaintsPolicy: Maybe}"),
            "[0].nodeTaintsPolicy: found \"Maybe\", expected Honor or Ignore",
        ),
        (
            format!("{good}, {good}"),
            "[1]: zone with ScheduleAnyway is listed twice; keep one",
        ),
    ] {
        check_error(
            &spread(&broken),
            &format!("config.yaml: profiles[0].pluginConfig[0].args.defaultConstraints{problem}"),
        );
    }
    let error = read("profiles:\n- plugins: {filter: {enabled: [{name: Coscheduling}]}}\n").unwrap_err();
    assert!(
        error.starts_with("config.yaml: profiles[0].plugins.filter.enabled[0].name: found \"Coscheduling\", expected a plugin: one of NodeUnschedulable, "),
        "{error}"
    );
    let error = Configuration::from_text(&"c".into(), "apiVersion: v1\nkind: Pod\n").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("expected \"kubescheduler.config.k8s.io/v1\""),
        "{error}"
    );
    let error = read("a: [\n").unwrap_err();
    assert!(error.contains("not YAML"), "{error}");
}

#[test]
fn extenders_are_read_and_asked_by_live_schedulers_only() {
    let configuration = read(
        "extenders:
- {urlPrefix: 'http://127.0.0.1:9/first', filterVerb: filter, ignorable: true}
- urlPrefix: https://extender.kube-system.svc/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  preemptVerb: preempt
  weight: 3
  enableHTTPS: true
  tlsConfig: {serverName: extender}
  httpTimeout: 2s
  nodeCacheCapable: true
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}, {name: example.com/fpga}]
",
    )
    .unwrap();
    let [strict, ignorable] = &*configuration.extenders else {
        panic!("{:?}", configuration.extenders)
    };
    assert!(ignorable.extender.ignorable, "asked last");
    assert_eq!(ignorable.extender.timeout, Duration::from_secs(5));
    let expected = Extender {
        url_prefix: "https://extender.kube-system.svc/scheduler".to_owned(),
        filter_verb: "filter".to_owned(),
        prioritize_verb: "prioritize".to_owned(),
        bind_verb: "bind".to_owned(),
        preempt_verb: "preempt".to_owned(),
        weight: 3,
        timeout: Duration::from_secs(2),
        node_cache_capable: true,
        managed_resources: ["example.com/gpu".to_owned(), "example.com/fpga".to_owned()].into(),
        ignorable: false,
        tls: Tls {
            // Without a CA certificate any is accepted, as in kube-scheduler.
            insecure: true,
            server_name: Some("extender".to_owned()),
            ..Tls::default()
        },
    };
    assert_eq!(strict.extender, expected);
    assert_eq!(configuration.profiles[0].profile.ignored_resources, ["example.com/gpu"]);
    assert_eq!(configuration.live_settings().extenders.len(), 2);
    assert_eq!(configuration.settings().extenders.len(), 0);
    let warning = configuration.files_warning().unwrap();
    assert!(
        warning.contains("https://extender.kube-system.svc/scheduler"),
        "{warning}"
    );
    let shown = configuration.shown()["kubescheduler.config.k8s.io"].to_string();
    let again = Configuration::from_text(&"shown".into(), &shown).unwrap();
    assert_eq!(again.extenders, configuration.extenders);
    for (broken, problem) in [
        (
            "urlPrefix: localhost",
            "[0].urlPrefix: found \"localhost\", expected an address such as http://127.0.0.1:8888/scheduler",
        ),
        (
            "urlPrefix: 'http://e', prioritizeVerb: p",
            "[0].weight: found 0, expected 1 or more, because prioritizeVerb is set",
        ),
        (
            "urlPrefix: 'http://e', managedResources: [{name: cpu}]",
            "[0].managedResources[0].name: found \"cpu\", expected an extended resource such as example.com/gpu",
        ),
        (
            "urlPrefix: 'http://e', bindVerb: b}, {urlPrefix: 'http://f', bindVerb: b",
            ": found bindVerb on 2 extenders, expected it on one at most",
        ),
        (
            "urlPrefix: 'http://e', tlsConfig: {certData: YQ==}",
            "[0].tlsConfig: expected a certificate and its key, or neither",
        ),
    ] {
        check_error(
            &format!("extenders: [{{{broken}}}]\n"),
            &format!("config.yaml: extenders{problem}"),
        );
    }
}

#[test]
fn pods_choose_their_profile_by_name() {
    let configuration = read("profiles: [{schedulerName: default-scheduler}, {schedulerName: batch}]\n").unwrap();
    let mut pod = api::Pod::default();
    pod.metadata.name = "p".to_owned();
    assert_eq!(
        configuration.profile_for(&pod).unwrap().scheduler_name,
        "default-scheduler"
    );
    pod.spec.scheduler_name = Some("batch".to_owned());
    assert_eq!(configuration.profile_for(&pod).unwrap().scheduler_name, "batch");
    pod.spec.scheduler_name = Some("other".to_owned());
    assert_eq!(
        configuration.profile_for(&pod).unwrap_err().to_string(),
        "pod p wants scheduler \"other\", for which the configuration has no profile; it has \"default-scheduler\", \"batch\""
    );
}

#[test]
fn feature_gates_are_read() {
    assert!(feature_gates("").unwrap().volume_capacity_priority);
    let gates = feature_gates("VolumeCapacityPriority=false, StorageCapacityScoring=true").unwrap();
    assert!(!gates.volume_capacity_priority && gates.storage_capacity_scoring == Some(true));
    for (given, expected) in [
        ("", ScoreGate::ExistingAndNew),
        ("StorageCapacityScoring=true", ScoreGate::StorageCapacityScoring),
        ("StorageCapacityScoring=false", ScoreGate::VolumeCapacityPriority),
        ("VolumeCapacityPriority=false", ScoreGate::StorageCapacityScoring),
        (
            "VolumeCapacityPriority=false,StorageCapacityScoring=true,StorageCapacityScoring=false",
            ScoreGate::Off,
        ),
    ] {
        assert_eq!(feature_gates(given).unwrap().score_gate(), expected, "{given}");
    }
    let gates = feature_gates("kube:VolumeLimitScaling=false,kube:TaintTolerationComparisonOperators=true").unwrap();
    assert!(!gates.volume_limit_scaling && gates.taint_toleration_comparison_operators);
    assert!(feature_gates("other:VolumeLimitScaling=false").is_err());
    assert_eq!(
        feature_gates("Volumes=true").unwrap_err().to_string(),
        "there is no feature gate \"Volumes\"; known are VolumeScheduling (default true), CSIStorageCapacity (default true), VolumeCapacityPriority (default true), StorageCapacityScoring (default new volumes only), VolumeLimitScaling (default true), TaintTolerationComparisonOperators (default false), PersistentVolumeClaimUnusedSinceTime (default true), Topology (default true)"
    );
    assert_eq!(
        feature_gates("StorageCapacityScoring=maybe").unwrap_err().to_string(),
        "found \"StorageCapacityScoring=maybe\", expected NAME=true or NAME=false, several separated by commas"
    );
}

proptest::proptest! {
    #[test]
    fn any_configuration_is_read_or_refused(rest in "(profiles|plugins|args|name|shape|[:\\-\\[\\]{} \n,0-9a-c]){0,40}") {
        let _ = read(&rest);
    }
}

/// The output of `/configz` gives the same decisions when it is read as a file.
#[test]
fn what_is_shown_can_be_read_again() {
    let full = r"
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
profiles:
- schedulerName: one
  plugins:
    multiPoint: {disabled: [{name: ImageLocality}]}
    score: {enabled: [{name: VolumeBinding, weight: 7}]}
  pluginConfig:
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 30, shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}, ignoredResources: [example.com/foo]}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeTaintsPolicy: Honor}]}
- schedulerName: two
  percentageOfNodesToScore: 30
  plugins: {postFilter: {disabled: [{name: '*'}]}}
";
    for text in ["", full] {
        let configuration = read(text).unwrap();
        let shown = configuration.shown();
        let again = shown["kubescheduler.config.k8s.io"].to_string();
        let again = Configuration::from_text(&"shown".into(), &again).unwrap();
        assert_eq!(again.times, configuration.times);
        assert_eq!(again.profiles.len(), configuration.profiles.len());
        for (again, profile) in again.profiles.iter().zip(&configuration.profiles) {
            assert_eq!(again.scheduler_name, profile.scheduler_name);
            assert_eq!(again.profile, profile.profile);
        }
        assert_eq!(shown["featureGates"]["VolumeCapacityPriority"], true);
    }
}

#[test]
fn backoff_is_obeyed_and_checked() {
    let times = read("podInitialBackoffSeconds: 3\npodMaxBackoffSeconds: 30\n")
        .unwrap()
        .times;
    let seconds = (times.initial_backoff.as_secs(), times.max_backoff.as_secs());
    assert_eq!(seconds, (3, 30));
    check_error(
        "podInitialBackoffSeconds: 0\n",
        "config.yaml: podInitialBackoffSeconds: found 0, expected 1 or more",
    );
    check_error(
        "podInitialBackoffSeconds: 11\n",
        "config.yaml: podMaxBackoffSeconds: found 10, expected at least podInitialBackoffSeconds, which is 11",
    );
}

/// Every field of a configuration that affects decisions, set to a non-default value.
const EVERY_FIELD: &str = r"
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
percentageOfNodesToScore: 30
together: {triesPerPod: 7, timePerPod: 3ms}
profiles:
- schedulerName: default-scheduler
  plugins:
    filter: {disabled: [{name: NodePorts}]}
    score: {disabled: [{name: ImageLocality}]}
    postFilter: {disabled: [{name: DefaultPreemption}]}
  pluginConfig:
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}]}}}
  - name: NodeResourcesFit
    args:
      ignoredResources: [example.com/foo]
      ignoredResourceGroups: [gpu.example.com]
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu, weight: 1}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 9, ignorePreferredTermsOfExistingPods: true}
  - name: PodTopologySpread
    args: {defaultingType: List}
  - name: VolumeBinding
    args:
      bindTimeoutSeconds: 30
      shape: [{utilization: 0, score: 5}]
      storageClassWeights: [{local: 5}]
";

/// The settings of [`EVERY_FIELD`] with all gates inverted, after checking that no field has its default.
fn every_field_set(path: &std::path::Path) -> Settings {
    std::fs::write(path, format!("{HEAD}{EVERY_FIELD}")).unwrap();
    let args = ConfigArgs {
        config: Some(path.to_owned()),
        gates: GateArgs {
            feature_gates: vec![GATES.to_owned()],
        },
    };
    let settings = args.read().unwrap().settings();
    // Without `..`: a new field must be set above.
    let Settings {
        profiles,
        times,
        together,
        hold_volumes: _,
        // It follows from the identity of the process, not from the configuration.
        replica: _,
        // Only a live scheduler asks them.
        extenders: _,
    } = settings.clone();
    assert_ne!(together.tries_per_pod, Together::default().tries_per_pod);
    assert_ne!(together.time_per_pod, Together::default().time_per_pod);
    let QueueTimes {
        initial_backoff,
        max_backoff,
        // No configuration of Kubernetes has a field for it.
        flush_after: _,
        await_claims: _,
    } = times;
    let usual = QueueTimes::default();
    assert_ne!(initial_backoff, usual.initial_backoff);
    assert_ne!(max_backoff, usual.max_backoff);
    let Profile {
        filters,
        scores,
        added_affinity,
        ignored_resources,
        ignored_resource_groups,
        scoring_strategy,
        balanced_resources,
        hard_pod_affinity_weight,
        ignore_preferred_terms_of_existing_pods,
        default_spread,
        percentage_of_nodes_to_score,
        preempts,
        volume_binding,
        gates,
    } = profiles[DEFAULT_SCHEDULER_NAME].clone();
    let usual = Profile::default();
    assert_ne!(filters, usual.filters);
    assert_ne!(scores, usual.scores);
    assert_ne!(added_affinity, usual.added_affinity);
    assert_ne!(ignored_resources, usual.ignored_resources);
    assert_ne!(ignored_resource_groups, usual.ignored_resource_groups);
    assert_ne!(scoring_strategy, usual.scoring_strategy);
    assert_ne!(balanced_resources, usual.balanced_resources);
    assert_ne!(hard_pod_affinity_weight, usual.hard_pod_affinity_weight);
    assert!(ignore_preferred_terms_of_existing_pods && !usual.ignore_preferred_terms_of_existing_pods);
    assert_ne!(default_spread, usual.default_spread);
    assert_ne!(percentage_of_nodes_to_score, usual.percentage_of_nodes_to_score);
    assert!(!preempts && usual.preempts);
    let VolumeBindingArgs { bind_timeout, score } = volume_binding;
    assert_ne!(bind_timeout, usual.volume_binding.bind_timeout);
    let CapacityScore { shape, class_weights } = score;
    assert!(shape.is_some() && !class_weights.is_empty());
    let FeatureGates {
        volume_capacity_priority,
        storage_capacity_scoring,
        volume_limit_scaling,
        taint_toleration_comparison_operators,
        volumes:
            VolumeGates {
                volume_scheduling,
                csi_storage_capacity,
                claim_unused_since_time,
            },
    } = gates;
    assert!(!volume_capacity_priority && storage_capacity_scoring == Some(true));
    assert!(!volume_scheduling && !csi_storage_capacity && !claim_unused_since_time);
    assert!(!volume_limit_scaling && taint_toleration_comparison_operators);
    settings
}

const GATES: &str = "VolumeScheduling=false,CSIStorageCapacity=false,VolumeCapacityPriority=false,StorageCapacityScoring=true,\
                     VolumeLimitScaling=false,TaintTolerationComparisonOperators=true,PersistentVolumeClaimUnusedSinceTime=false";

/// Two nodes and a pod that only the configuration keeps off the larger node, and allows to request what no node has.
const TWO_POOLS: &str = r#"
{apiVersion: v1, kind: Node, metadata: {name: n-a, labels: {pool: a}}, status: {allocatable: {cpu: 1, memory: 1Gi, pods: 9}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n-b, labels: {pool: b}}, status: {allocatable: {cpu: 9, memory: 9Gi, pods: 9}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec: {containers: [{name: main, image: app, resources: {requests: {example.com/foo: 1, gpu.example.com/a: 1}, limits: {example.com/foo: 1, gpu.example.com/a: 1}}}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec: {containers: [{name: main, image: app, resources: {requests: {gpu.example.com/a: 1}, limits: {gpu.example.com/a: 1}}}]}
"#;

/// A configuration reaches every command that decides: live scheduler, `up`, `simulate`, `explain` and `bench`.
#[test]
fn every_command_decides_with_the_whole_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let (config, objects) = (dir.path().join("config.yaml"), dir.path().join("objects.yaml"));
    let expected = every_field_set(&config);
    std::fs::write(&objects, TWO_POOLS).unwrap();
    let (config, objects) = (config.to_str().unwrap(), objects.to_str().unwrap());
    let parse = |words: &[&str]| {
        let given = ["--config", config, "--feature-gates", GATES];
        Cli::try_parse_from(["berth"].iter().chain(words).chain(&given))
            .unwrap()
            .command
    };
    let Command::Scheduler(args) = parse(&["scheduler"]) else {
        panic!()
    };
    let live = berth::component::scheduler_options(&args.decisions.read().unwrap());
    assert_eq!(live.settings, expected);
    let Command::Up(args) = parse(&["up"]) else { panic!() };
    assert_eq!(berth::up::scheduler_options(&args).unwrap().settings, expected);
    let Command::Simulate(args) = parse(&["simulate", "-f", objects]) else {
        panic!()
    };
    let mut simulated = berth::simulate::load(&args, &mut std::io::empty(), &mut NoProgress).unwrap();
    assert_eq!(simulated.simulation.settings(), &expected);
    simulated.simulation.run(&mut |_| {});
    let outcome = simulated.simulation.outcome();
    let nodes: Vec<_> = outcome
        .pods
        .iter()
        .map(|pod| (pod.pod.as_str(), pod.node.as_str()))
        .collect();
    assert_eq!(nodes, [("default/p", "n-a"), ("default/set-0", "n-a")]);
    // An existing pod, and one that its workload would create.
    for pod in ["default/p", "default/set-0"] {
        let Command::Explain(args) = parse(&["explain", "-f", objects, "--pod", pod]) else {
            panic!()
        };
        let explained = berth::explain::explain(&args, &mut std::io::empty(), &mut NoProgress).unwrap();
        let fitting: Vec<_> = explained.report.nodes.iter().filter(|node| node.fits).collect();
        assert_eq!(
            fitting.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
            ["n-a"]
        );
        let weights: BTreeMap<String, i64> = expected.profiles[DEFAULT_SCHEDULER_NAME]
            .scores
            .iter()
            .map(|(plugin, weight)| (plugin.to_string(), *weight))
            .collect();
        assert_eq!(explained.report.weights, weights);
    }
    let Command::Bench {
        what: Bench::Decide(args),
    } = parse(&["bench", "decide"])
    else {
        panic!()
    };
    let bench = args.decisions.read().unwrap().settings();
    assert_eq!(bench, expected);
}

#[test]
fn broken_gates_are_named_by_their_argument() {
    let args = ConfigArgs {
        config: None,
        gates: GateArgs {
            feature_gates: vec!["Volumes=true".to_owned()],
        },
    };
    let error = args.read().unwrap_err().to_string();
    assert!(
        error.starts_with("--feature-gates: there is no feature gate \"Volumes\""),
        "{error}"
    );
}

#[test]
fn gates_of_kubernetes_are_known_once_each() {
    let own = FEATURE_GATES.iter().map(|(name, _)| *name);
    let others = OTHER_GATES.iter().copied();
    let scheduler: Vec<&str> = SCHEDULER_GATES.iter().map(|gate| gate.name).collect();
    let mut all: Vec<&str> = own.chain(others).chain(scheduler.iter().copied()).collect();
    for name in &all {
        feature_gates(&format!("{name}=true")).unwrap();
    }
    let of_provisioner = PROVISIONER_GATES.iter().map(|gate| gate.name);
    all.extend(of_provisioner.filter(|name| !scheduler.contains(name)));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}

/// The command line of kubeadm, with everything that other tools add.
#[test]
fn the_command_line_of_kube_scheduler_is_read() {
    let line = "kube-scheduler --authentication-kubeconfig=/etc/kubernetes/scheduler.conf \
                --authorization-kubeconfig=/etc/kubernetes/scheduler.conf --bind-address=127.0.0.1 \
                --kubeconfig=/etc/kubernetes/scheduler.conf --leader-elect=true --secure-port=10259 --profiling=false \
                --tls-min-version=VersionTLS12 -v=2 --logging-format=json \
                --feature-gates=DynamicResourceAllocation=true,SchedulerQueueingHints=true,SchedulerQueueingHint=true \
                --leader-elect-resource-namespace=kube-system --leader-elect-retry-period=3s \
                --pod-max-in-unschedulable-pods-duration=1m";
    let read = |line: &str| {
        let command = Cli::command();
        let words = line.split_whitespace().map(std::ffi::OsString::from);
        let matches = command.clone().try_get_matches_from(go::arguments(&command, words));
        Cli::from_arg_matches(&matches.unwrap_or_else(|error| panic!("{error}"))).unwrap()
    };
    let Command::Scheduler(args) = read(&line.replace(",SchedulerQueueingHint=true", "")).command else {
        panic!()
    };
    assert_eq!(args.component.leader_elect, Some(true));
    assert_eq!(args.component.leader_elect_namespace.as_deref(), Some("kube-system"));
    let kubernetes = &args.kubernetes;
    assert_eq!(kubernetes.usual_lease, "kube-scheduler", "one of both works at a time");
    assert_eq!(
        kubernetes.generic.leader_elect_retry_period,
        Some(Duration::from_secs(3))
    );
    assert_eq!(
        kubernetes.pod_max_in_unschedulable_pods_duration,
        Duration::from_secs(60)
    );
    assert_eq!(kubernetes.generic.verbosity, Some(2));
    let warnings: Vec<String> = kubernetes.unused.warnings().collect();
    assert_eq!(warnings.len(), 5, "{warnings:#?}");
    let gates = args.decisions.gates.warnings(SCHEDULER_GATES).unwrap();
    assert_eq!(
        gates,
        ["feature gate DynamicResourceAllocation has no effect: Berth works as if it were false"]
    );
    let Command::Scheduler(args) = read(line).command else {
        panic!()
    };
    assert!(args.decisions.read().is_err(), "a gate that nobody knows is a mistake");
}

/// The generic flags of kube-controller-manager, as kubeadm and others set them, start the controller.
#[test]
fn the_generic_flags_of_kube_controller_manager_are_read() {
    let line = "berth controller --authentication-kubeconfig=/etc/kubernetes/controller-manager.conf \
                --authorization-kubeconfig=/etc/kubernetes/controller-manager.conf --bind-address=127.0.0.1 --secure-port=10257 \
                --kubeconfig=/etc/kubernetes/controller-manager.conf --leader-elect=true --leader-elect-renew-deadline=8s \
                --leader-elect-retry-period=1s --leader-elect-resource-name=kube-controller-manager \
                --leader-elect-resource-namespace=kube-system --kube-api-qps=50 --kube-api-burst=100 --profiling=false \
                --controllers=*,bootstrapsigner --volume-host-allow-local-loopback=false --volume-host-cidr-denylist=10.0.0.0/8 \
                -v=2 --feature-gates=HonorPVReclaimPolicy=true";
    let command = Cli::command();
    let words = line.split_whitespace().map(std::ffi::OsString::from);
    let matches = command.clone().try_get_matches_from(go::arguments(&command, words));
    let Command::Controller(args) = Cli::from_arg_matches(&matches.unwrap()).unwrap().command else {
        panic!()
    };
    let (generic, unused) = (&args.kubernetes.generic, &args.kubernetes.unused);
    assert_eq!(generic.verbosity, Some(2));
    assert_eq!(generic.secure.secure_port, 10257);
    assert_eq!(generic.leader_elect_retry_period, Some(Duration::from_secs(1)));
    assert_eq!(
        generic.leader_elect_resource_name.as_deref(),
        Some("kube-controller-manager")
    );
    let warnings: Vec<String> = unused.warnings().collect();
    assert_eq!(warnings.len(), 8, "{warnings:#?}");
}

/// A file that kube-scheduler writes with all of its defaults says nothing that Berth does not do by default, except for the shape of 1.37.
#[test]
fn the_complete_default_files_of_kube_scheduler_are_read() {
    for version in 30..=37 {
        let path = format!("{}/tests/defaults/1.{version}.yaml", env!("CARGO_MANIFEST_DIR"));
        let configuration = Configuration::from_file(std::path::Path::new(&path)).unwrap();
        let mut settings = configuration.settings();
        let profile = settings.profiles.get_mut("default-scheduler").unwrap();
        let shape = profile.volume_binding.score.shape.take();
        assert_eq!(shape.is_some(), version == 37, "{path}");
        assert_eq!(settings, Configuration::default().settings(), "{path}");
        let election = configuration.process.election.unwrap();
        assert_eq!(election.name.as_deref(), Some("kube-scheduler"));
    }
}

#[test]
fn plugins_and_points_of_any_version_are_known() {
    let old = "profiles: [{plugins: {filter: {disabled: [{name: EBSLimits}, {name: GCEPDLimits}, {name: AzureDiskLimits}, {name: CinderLimits}]}}}]";
    read(old).unwrap();
    let new = "profiles: [{plugins: {placementGenerate: {enabled: [{name: TopologyPlacementGenerator}]}, \
               placementScore: {enabled: [{name: PodGroupPodsCount}]}, podGroupPostFilter: {disabled: [{name: '*'}]}, \
               preEnqueue: {enabled: [{name: DeferredPodScheduling}]}}}]";
    read(new).unwrap();
    let error =
        read("profiles: [{pluginConfig: [{name: DynamicResources, args: {filterTimeout: soon}}]}]").unwrap_err();
    let field = "profiles[0].pluginConfig[0].args.filterTimeout";
    assert!(error.contains(field), "{error}");
}

#[test]
fn preemption_can_be_disabled_where_kube_scheduler_looks_for_it() {
    for (plugins, preempts) in [
        ("{}", true),
        ("{postFilter: {disabled: [{name: DefaultPreemption}]}}", false),
        ("{postFilter: {disabled: [{name: '*'}]}}", false),
        (
            "{postFilter: {disabled: [{name: '*'}], enabled: [{name: DefaultPreemption}]}}",
            true,
        ),
        ("{multiPoint: {disabled: [{name: DefaultPreemption}]}}", false),
        (
            "{multiPoint: {disabled: [{name: '*'}]}, postFilter: {enabled: [{name: DefaultPreemption}]}}",
            true,
        ),
    ] {
        let configuration = read(&format!("profiles: [{{plugins: {plugins}}}]")).unwrap();
        assert_eq!(configuration.profiles[0].profile.preempts, preempts, "{plugins}");
    }
}
