//! The class examples of KEP-490 (Restricting Topology), verbatim, on the built-in provisioners.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::api::Object;
use berth_core::effect::Effect;
use berth_provisioner::answer::conclude;
use berth_provisioner::builtin::Builtin;
use berth_provisioner::change::Action;
use berth_provisioner::reclaim::{Reclaim, reclaim};
use berth_provisioner::settings::Settings;
use berth_provisioner::step::{Decision, step};
use berth_testing::topology_design::{FANCY, MULTI_ZONAL, STANDARD, ZONAL, multi_zonal_in_one_zone};
use berth_testing::{Carried, Manifest, claim, node};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::cluster::{Cluster, claim_of};
use support::yaml;

const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";

struct World {
    cluster: Cluster,
    builtin: Builtin,
    calls: usize,
    failed: usize,
}

impl World {
    fn new(documents: &str, nodes: Vec<Value>, claims: Vec<Value>) -> Self {
        let all = yaml(documents).into_iter().chain(nodes).chain(claims).collect();
        Self {
            cluster: Cluster::with(all),
            builtin: Builtin::default(),
            calls: 0,
            failed: 0,
        }
    }

    fn settings(&self) -> Vec<Settings> {
        berth_provisioner::builtin::PROVISIONERS.map(Settings::builtin).into()
    }

    fn carry_out(&mut self, actions: &[Action]) {
        let mut carried = Carried::default();
        for action in actions {
            match action {
                Action::DeleteBacking(backing) => self.builtin.delete(&backing.handle),
                Action::Api(effect) => self.cluster.apply(effect, &mut carried).unwrap(),
                Action::Unprotect(snapshot) => panic!("{snapshot}"),
            }
        }
    }

    /// One pass of all provisioners over all claims and volumes.
    fn provision(&mut self) {
        for settings in self.settings() {
            let state = self.cluster.state();
            for claim in state.claims() {
                match step(claim, &state, &settings, Timestamp::UNIX_EPOCH) {
                    Decision::Nothing(_) => {}
                    Decision::Bid(bid) => panic!("{bid:?}"),
                    Decision::Expand(expansion) => panic!("{expansion:?}"),
                    Decision::Act(conclusion) => self.carry_out(&conclusion.actions),
                    Decision::Ask(attempt) => {
                        self.calls += 1;
                        let answer = self.builtin.provision(&attempt.request, state.nodes());
                        self.failed += usize::from(answer.is_err());
                        let conclusion = conclude(&attempt, &answer, &settings);
                        self.carry_out(&conclusion.actions);
                    }
                }
            }
            for volume in state.volumes() {
                if let Reclaim::Act(actions) = reclaim(volume, &state, &settings) {
                    self.carry_out(&actions);
                }
            }
        }
    }

    /// All components take turns until nothing changes.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.cluster.control();
            let moved = self.cluster.schedule();
            self.provision();
            self.cluster.control();
            if !moved {
                return;
            }
        }
        panic!("still moving");
    }

    fn volume(&self, claim: &str) -> &Value {
        let mut found = self
            .cluster
            .of_kind("PersistentVolume")
            .filter(|volume| claim_of(volume) == claim);
        let volume = found
            .next()
            .unwrap_or_else(|| panic!("no volume for {claim}: {:?}", self.cluster.told(claim)));
        assert!(found.next().is_none(), "two volumes for {claim}");
        volume
    }
}

fn zones(zones: &[&str]) -> Vec<Value> {
    let labels = |zone: &str| node(&format!("node-{zone}")).labels(&[(BETA_ZONE, zone), (BETA_REGION, "us-central1")]);
    zones.iter().map(|zone| labels(zone)).collect()
}

fn affinity(expressions: &Value) -> Value {
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}})
}

fn zone_in(zones: &[&str]) -> Value {
    affinity(&json!([{"key": BETA_ZONE, "operator": "In", "values": zones}]))
}

#[test]
fn end_to_end_zonal_example() {
    let mut world = World::new(
        STANDARD,
        zones(&["us-central1-a", "us-central1-b"]),
        vec![claim("my-pvc", "standard", 100)],
    );
    world.cluster.control();
    world.provision();
    assert_eq!(world.calls, 0, "nothing is made before a pod comes");
    world.settle();
    let volume = world.volume("my-pvc");
    let spec = &volume["spec"];
    assert_eq!(spec["capacity"], json!({"storage": "100Gi"}));
    assert_eq!(spec["storageClassName"], "standard");
    assert_eq!(spec["gcePersistentDisk"]["fsType"], "ext4");
    assert_eq!(spec["nodeAffinity"], zone_in(&["us-central1-a"]));
    assert_eq!(spec["persistentVolumeReclaimPolicy"], "Delete");
    let annotations = &volume["metadata"]["annotations"];
    assert_eq!(annotations["pv.kubernetes.io/provisioned-by"], "kubernetes.io/gce-pd");
    let uid = world.cluster.get("PersistentVolumeClaim", "my-pvc").unwrap()["metadata"]["uid"].as_str();
    assert_eq!(volume["metadata"]["name"], format!("pvc-{}", uid.unwrap()));
    assert_eq!(spec["claimRef"]["uid"].as_str(), uid);
    let name = volume["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        world.cluster.told("my-pvc"),
        [format!("ProvisioningSucceeded: Successfully provisioned volume {name}")]
    );
}

#[test]
fn a_volume_goes_when_its_claim_does() {
    let mut world = World::new(
        STANDARD,
        zones(&["us-central1-a"]),
        vec![claim("my-pvc", "standard", 100)],
    );
    world.settle();
    assert_eq!(world.builtin.volumes(), 1);
    world.cluster.delete("PersistentVolumeClaim", "my-pvc");
    world.settle();
    assert_eq!(world.builtin.volumes(), 0);
    assert_eq!(world.cluster.of_kind("PersistentVolume").count(), 0);
}

#[test]
fn zonal_example() {
    let nodes = zones(&["us-central1-a", "us-central1-b", "us-central1-c"]);
    let claims = (0..6)
        .map(|index| claim(&format!("data-web-{index}"), "zonal-class", 1))
        .collect();
    let mut world = World::new(ZONAL, nodes, claims);
    world.settle();
    let mut per_zone = [0, 0];
    for index in 0..6 {
        let affinity = &world.volume(&format!("data-web-{index}"))["spec"]["nodeAffinity"];
        per_zone[usize::from(*affinity == zone_in(&["us-central1-b"]))] += 1;
        let allowed = [zone_in(&["us-central1-a"]), zone_in(&["us-central1-b"])];
        assert!(allowed.contains(affinity), "{affinity}");
    }
    assert_eq!(
        per_zone,
        [3, 3],
        "the claims of a StatefulSet are spread over the allowed zones"
    );
}

#[test]
fn multi_zonal_example() {
    let nodes = zones(&["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]);
    let mut world = World::new(MULTI_ZONAL, nodes, vec![claim("c", "multi-zonal-class", 10)]);
    world.settle();
    let spec = &world.volume("c")["spec"];
    let values = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"];
    let chosen: Vec<&str> = values.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(chosen.len(), 2, "two out of the three zones");
    assert!(chosen.iter().all(|zone| *zone < "us-central1-d"), "{chosen:?}");
    assert!(chosen[0] < chosen[1]);
}

#[test]
fn multi_zonal_with_a_selected_node_takes_its_zone() {
    let delayed = MULTI_ZONAL.replace("parameters:", "volumeBindingMode: WaitForFirstConsumer\nparameters:");
    for zone in ["us-central1-a", "us-central1-b", "us-central1-c"] {
        let mut world = World::new(
            &delayed,
            zones(&["us-central1-a", "us-central1-b", "us-central1-c"]),
            vec![],
        );
        let mut wanted = claim("c", "multi-zonal-class", 10);
        wanted["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": format!("node-{zone}")});
        world.cluster.create(wanted);
        world.settle();
        let affinity = world.volume("c")["spec"]["nodeAffinity"].to_string();
        assert!(affinity.contains(zone), "{affinity}");
    }
}

#[test]
fn multi_zonal_example_that_fails() {
    let one_zone = multi_zonal_in_one_zone();
    let nodes = zones(&["us-central1-a", "us-central1-b", "us-central1-c"]);
    let mut world = World::new(&one_zone, nodes, vec![claim("c", "multi-zonal-class", 10)]);
    world.settle();
    assert_eq!(world.cluster.of_kind("PersistentVolume").count(), 0);
    assert_eq!(
        world.cluster.told("c")[0],
        "ProvisioningFailed: failed to provision volume with StorageClass \"multi-zonal-class\": a regional volume \
         needs two zones of one region, but the class allows only failure-domain.beta.kubernetes.io/zone=us-central1-a"
    );
}

#[test]
fn two_zones_must_be_of_one_region() {
    let nodes = vec![
        node("n1").labels(&[(BETA_ZONE, "us-central1-a"), (BETA_REGION, "us-central1")]),
        node("n2").labels(&[(BETA_ZONE, "us-central1-b"), (BETA_REGION, "elsewhere")]),
    ];
    let mut world = World::new(MULTI_ZONAL, nodes, vec![claim("c", "multi-zonal-class", 10)]);
    world.settle();
    assert!(
        world.cluster.told("c")[0].contains("no two in one region"),
        "{:?}",
        world.cluster.told("c")
    );
}

#[test]
fn multi_label_example() {
    let racks = [
        ("a", "rack1"),
        ("a", "rack2"),
        ("b", "rack1"),
        ("b", "rack2"),
        ("c", "rack1"),
    ];
    let nodes = racks.map(|(zone, rack)| {
        node(&format!("n-{zone}-{rack}")).labels(&[("zone", &format!("us-central1-{zone}")), ("rack", rack)])
    });
    let claims = (0..9)
        .map(|index| claim(&format!("d-{index}"), "something-fancy", 1))
        .collect();
    let mut world = World::new(FANCY, nodes.into(), claims);
    world.settle();
    let place = |zone: &str, rack: &str| {
        affinity(&json!([{"key": "rack", "operator": "In", "values": [rack]},
                         {"key": "zone", "operator": "In", "values": [zone]}]))
    };
    let allowed = [
        place("us-central1-a", "rack1"),
        place("us-central1-b", "rack1"),
        place("us-central1-b", "rack2"),
    ];
    let mut seen = [0, 0, 0];
    for index in 0..9 {
        let affinity = &world.volume(&format!("d-{index}"))["spec"]["nodeAffinity"];
        let at = allowed.iter().position(|one| one == affinity);
        seen[at.unwrap_or_else(|| panic!("{affinity} is not allowed"))] += 1;
    }
    assert_eq!(seen, [3, 3, 3]);
}

#[test]
fn a_selected_node_outside_the_allowed_racks_is_rejected() {
    let delayed = FANCY.replace(
        "parameters:\n",
        "volumeBindingMode: WaitForFirstConsumer\nparameters:\n",
    );
    let nodes = vec![
        node("a2").labels(&[("zone", "us-central1-a"), ("rack", "rack2")]),
        node("b2").labels(&[("zone", "us-central1-b"), ("rack", "rack2")]),
    ];
    let mut world = World::new(&delayed, nodes, vec![claim("c", "something-fancy", 1)]);
    world.settle();
    assert!(world.cluster.told("c")[0].contains("\"a2\" is in none of the allowed topologies"));
    assert_eq!(
        world.volume("c")["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][1]["values"],
        json!(["us-central1-b"])
    );
}

const LOCAL: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
provisioner: berth.dev/local
volumeBindingMode: WaitForFirstConsumer
parameters:
  berth.dev/capacity: 10Gi
";

#[test]
fn two_claims_whose_pool_holds_one_of_them() {
    let nodes = vec![node("n1"), node("n2")];
    let claims = vec![claim("c1", "local", 6), claim("c2", "local", 6)];
    let mut world = World::new(LOCAL, nodes, claims);
    world.settle();
    let host = |claim: &str| {
        let term = &world.volume(claim)["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
        term["matchExpressions"][0]["values"][0].as_str().unwrap().to_owned()
    };
    assert_eq!((host("c1").as_str(), host("c2").as_str()), ("n1", "n2"));
    assert_eq!(
        world.cluster.told("c2")[0],
        "ProvisioningFailed: failed to provision volume with StorageClass \"local\": not enough room in pool \
         \"local\" for 6Gi: 4Gi free in kubernetes.io/hostname=n1"
    );
    assert_eq!((world.calls, world.failed), (3, 1));
    assert!(
        world.volume("c1")["spec"]["local"]["path"]
            .as_str()
            .unwrap()
            .starts_with("/var/lib/berth/volumes/pvc-")
    );
}

#[test]
fn a_node_fills_up_while_pods_come() {
    let nodes = (0..4).map(|index| node(&format!("n{index}"))).collect();
    let mut world = World::new(LOCAL, nodes, vec![]);
    for index in 0..12 {
        world.cluster.create(claim(&format!("c{index}"), "local", 3));
        world.settle();
    }
    // Three of 3Gi on each of the four nodes. The scheduler of this test ignores capacity, so each claim tries every
    // node before the one that has space: 0, 1, 2 or 3 failures each.
    assert_eq!(world.builtin.volumes(), 12);
    assert_eq!(world.cluster.of_kind("PersistentVolume").count(), 12);
    assert_eq!((world.calls, world.failed), (12 + 18, 18));
    world.cluster.create(claim("one-too-many", "local", 3));
    world.settle();
    assert_eq!(
        world.cluster.told("one-too-many").len(),
        4,
        "refused by every node, and free to be scheduled again"
    );
    let left = world.cluster.get("PersistentVolumeClaim", "one-too-many").unwrap();
    assert!(left["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null());
}

#[test]
fn what_is_taken_is_read_back_from_the_cluster() {
    let nodes = vec![node("n1")];
    let mut world = World::new(LOCAL, nodes, vec![claim("c1", "local", 6)]);
    world.settle();
    let state = world.cluster.state();
    let mut restarted = Builtin::default();
    for volume in state.volumes() {
        restarted.observe(volume, state.class(volume.class_name()));
    }
    let class = state.class("local").unwrap();
    let segments = Builtin::segments(class, state.nodes());
    assert_eq!(segments.len(), 1);
    for builtin in [&world.builtin, &restarted] {
        assert_eq!(builtin.available(class, &segments[0]).unwrap(), Some(4 << 30));
    }
    restarted.delete(&state.volumes().next().unwrap().metadata.name);
    assert_eq!(restarted.available(class, &segments[0]).unwrap(), Some(10 << 30));
}

#[test]
fn a_full_zone_sends_an_immediate_claim_to_the_next() {
    let limited = ZONAL.replace(
        "type: pd-standard",
        "berth.dev/capacity: 10Gi\n  berth.dev/capacity.us-central1-a: 1Gi",
    );
    let claims = (0..2)
        .map(|index| claim(&format!("data-{index}"), "zonal-class", 5))
        .collect();
    let mut world = World::new(&limited, zones(&["us-central1-a", "us-central1-b"]), claims);
    world.settle();
    for index in 0..2 {
        assert_eq!(
            world.volume(&format!("data-{index}"))["spec"]["nodeAffinity"],
            zone_in(&["us-central1-b"])
        );
    }
    assert_eq!(world.failed, 0);
}

#[test]
fn broken_parameters_are_named() {
    let broken = LOCAL.replace("10Gi", "plenty");
    let mut world = World::new(&broken, vec![node("n1")], vec![claim("c", "local", 1)]);
    world.settle();
    assert!(world.cluster.told("c")[0].contains("parameter \"berth.dev/capacity\" of the class: \"plenty\""));
}

fn gce(parameters: Value, allowed: Value) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "z"},
        "provisioner": "kubernetes.io/gce-pd", "parameters": parameters, "allowedTopologies": allowed})
}

/// In-tree plugins accepted zones as class parameters: they count as allowed topologies.
#[test]
fn zones_of_parameters_are_obeyed() {
    for parameters in [
        json!({"zone": "us-central1-b"}),
        json!({"zones": "us-central1-b , us-central1-c"}),
    ] {
        let nodes = zones(&["us-central1-a", "us-central1-b", "us-central1-c"]);
        let claims = (0..6).map(|index| claim(&format!("data-{index}"), "z", 1));
        let mut world = World::new("", nodes, claims.collect());
        world.cluster.create(gce(parameters.clone(), json!([])));
        world.settle();
        for index in 0..6 {
            let terms = &world.volume(&format!("data-{index}"))["spec"]["nodeAffinity"]["required"];
            let zone = &terms["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0];
            assert_ne!(zone, "us-central1-a", "{parameters}");
        }
    }
}

#[test]
fn zones_are_named_in_one_way() {
    let here = json!([{"matchLabelExpressions": [{"key": BETA_ZONE, "values": ["us-central1-a"]}]}]);
    for (parameters, allowed, words) in [
        (
            json!({"zone": "us-central1-a"}),
            here,
            "parameter \"zone\" names zones, and so do allowedTopologies",
        ),
        (
            json!({"zone": "us-central1-a", "zones": "us-central1-a"}),
            json!([]),
            "parameters \"zone\" and \"zones\" both name zones",
        ),
    ] {
        let class = gce(parameters, allowed);
        let error = Object::decode(&class).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        // An API server accepts such a class: an event on the claim explains why it gets no volume.
        let broken = Object::StorageClass(serde_json::from_value(class).unwrap());
        let mut world = World::new("", zones(&["us-central1-a"]), vec![claim("data", "z", 1)]);
        world.cluster.create(gce(json!({}), json!([])));
        world.cluster.control();
        let mut state = world.cluster.state();
        state.apply(&broken);
        let settings = Settings::builtin("kubernetes.io/gce-pd");
        let decision = step(state.claims().next().unwrap(), &state, &settings, Timestamp::UNIX_EPOCH);
        let Decision::Act(conclusion) = decision else {
            panic!("{decision:?}")
        };
        let Action::Api(Effect::Event(event)) = &conclusion.actions[0] else {
            panic!("{conclusion:?}")
        };
        assert!(event.message.contains(words), "{}", event.message);
    }
}
