//! Plays a few stories: the same seed gives the same story, and none fails.
#![allow(clippy::unwrap_used)]

use berth_faults::{Mutation, Story, play, retell, shrink};

/// As many as a debug build plays in some seconds; `.ci/run` plays thousands.
const SEEDS: u64 = 20;

#[test]
fn nothing_goes_wrong_in_the_first_stories() {
    for seed in 0..SEEDS {
        let outcome = play(&Story::of(seed), None);
        assert_eq!(outcome.failure, None, "cargo run -p berth-faults -- --seed {seed}");
        assert!(outcome.changes > 0);
    }
}

#[test]
fn the_same_seed_gives_the_same_story() {
    for seed in [3, 5, 8] {
        assert_eq!(Story::of(seed), Story::of(seed));
        assert_eq!(retell(&Story::of(seed), None), retell(&Story::of(seed), None));
        assert_ne!(retell(&Story::of(seed), None), retell(&Story::of(seed + 1), None));
    }
}

#[test]
fn a_story_can_be_written_down_and_read_again() {
    let story = Story::of(7);
    let text = serde_json::to_string(&story).unwrap();
    assert_eq!(serde_json::from_str::<Story>(&text).unwrap(), story);
}

#[test]
fn bugs_are_found_and_their_stories_are_short() {
    let name = "doubt-is-success";
    let mutation = Mutation::named(name);
    assert!(mutation.is_some(), "{name}");
    let fails = |seed: &u64| play(&Story::of(*seed), mutation).failure.is_some();
    let seed = (0..400).find(fails).unwrap();
    let story = shrink(&Story::of(seed), mutation);
    assert!(story.len() <= 12, "{name}, seed {seed}: {} steps", story.len());
    assert!(play(&story, mutation).failure.is_some() && play(&story, None).failure.is_none());
}
