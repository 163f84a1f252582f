//! One provisioner per node: they compete for Immediate claims.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use berth_core::effect::{Effect, When};
use berth_core::names;
use berth_provisioner::answer::Then;
use berth_provisioner::bids::Delays;
use berth_provisioner::capacity::Available;
use berth_provisioner::change::Action;
use berth_provisioner::course::{Course, Next};
use berth_provisioner::settings::{Abilities, Settings};
use berth_provisioner::state::State;
use berth_provisioner::step::{Decision, Idle, step};
use berth_testing::{Carried, Manifest, class, csi_node, node};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::cluster::Cluster;

const DRIVER: &str = "disk.example.com";
const KEY: &str = "topology.disk.example.com/node";

fn world(class_edit: impl FnOnce(&mut Value)) -> Cluster {
    let mut now = class("now", DRIVER).immediate();
    class_edit(&mut now);
    let claim = berth_testing::claim("data", "now", 2)
        .uid("u-1")
        .annotation(names::STORAGE_PROVISIONER, DRIVER);
    let mut all = vec![now, claim];
    for name in ["n0", "n1"] {
        all.push(node(name).label(KEY, name));
        all.push(csi_node(name, &[(DRIVER, &[KEY])]));
    }
    Cluster::with(all)
}

fn on(node: &str) -> Settings {
    let mut settings = Settings::csi(DRIVER);
    settings.node = Some(node.to_owned());
    settings.immediate = Some(Delays::default());
    settings.abilities = Some(Abilities {
        capacity: true,
        ..Abilities::default()
    });
    settings
}

fn decide(state: &State, settings: &Settings, now: Timestamp) -> Decision {
    step(state.claim("default", "data").unwrap(), state, settings, now)
}

/// Waits until the provisioner of a node tries to get the claim. Returns its decision then.
fn wait(state: &mut State, settings: &Settings, now: &mut Timestamp) -> Decision {
    for _ in 0..3 {
        let decision = decide(state, settings, *now);
        let Decision::Act(conclusion) = &decision else {
            return decision;
        };
        let [Action::Api(Effect::LookAgain { when: When::At(at), .. })] = conclusion.actions.as_slice() else {
            panic!("{conclusion:?}")
        };
        let claim = state.claim("default", "data").unwrap().clone();
        state.concluded(&claim, &conclusion.then, *now);
        *now = *at;
    }
    panic!("it waits for ever")
}

#[test]
fn the_first_to_write_its_node_gets_the_claim() {
    let mut cluster = world(|_| {});
    let mut state = cluster.state();
    let mut now = Timestamp::UNIX_EPOCH;
    let Decision::Bid(bid) = wait(&mut state, &on("n0"), &mut now) else {
        panic!()
    };
    assert!(now > Timestamp::UNIX_EPOCH, "it waits first");
    let segment = &bid.query.as_ref().unwrap().item.segment;
    assert_eq!(json!(**segment), json!({KEY: "n0"}), "it asks about its own node");
    let mut course = Course::of_bid(bid);
    assert!(matches!(course.next(), Next::Capacity(_)));
    course.has_room(Some(&Available {
        bytes: 3 << 30,
        maximum_volume_size: None,
    }));
    let Next::Write(effects) = course.next() else { panic!() };
    cluster.apply(&effects[0], &mut Carried::default()).unwrap();
    let state = cluster.state();
    assert_eq!(decide(&state, &on("n1"), now), Decision::Nothing(Idle::OtherNode));
    assert!(matches!(decide(&state, &on("n0"), now), Decision::Ask(attempt) if attempt.node.as_deref() == Some("n0")));
}

#[test]
fn a_node_without_space_waits_longer() {
    let mut state = world(|_| {}).state();
    let mut now = Timestamp::UNIX_EPOCH;
    let Decision::Bid(bid) = wait(&mut state, &on("n0"), &mut now) else {
        panic!()
    };
    let mut course = Course::of_bid(bid);
    course.has_room(Some(&Available {
        bytes: 1,
        maximum_volume_size: None,
    }));
    assert!(matches!(course.next(), Next::Write(effects) if matches!(effects[0], Effect::LookAgain { .. })));
    course.written(None, || None);
    let Next::End(ended) = course.next() else { panic!() };
    assert!(
        matches!(ended.then, Some(Then::Wait(wait)) if wait.until > now && wait.tries == 1),
        "{ended:?}"
    );
}

#[test]
fn some_claims_are_not_competed_for() {
    let decide = |cluster: &Cluster, settings: &Settings| decide(&cluster.state(), settings, Timestamp::UNIX_EPOCH);
    let mut off = on("n0");
    off.immediate = None;
    assert_eq!(decide(&world(|_| {}), &off), Decision::Nothing(Idle::OtherNode));
    let delayed = world(|class| class["volumeBindingMode"] = json!("WaitForFirstConsumer"));
    assert_eq!(
        decide(&delayed, &on("n0")),
        Decision::Nothing(Idle::WaitingForFirstConsumer)
    );
    let elsewhere = world(|class| {
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": KEY, "values": ["n1"]}]}]);
    });
    assert_eq!(decide(&elsewhere, &on("n0")), Decision::Nothing(Idle::OtherNode));
    assert!(
        matches!(decide(&elsewhere, &on("n1")), Decision::Act(_)),
        "there it waits for its turn"
    );
}
