//! The index finds the volume that a walk over all volumes would choose.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth_controller::State;
use berth_core::api::{Object, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::ObjectKey;
use berth_testing::Manifest;
use proptest::prelude::*;
use serde_json::{Value, json};

const MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

fn modes() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(MODES.to_vec(), 1..=3)
}

fn volume() -> impl Strategy<Value = Value> {
    (
        (0..40_u32, 1..9_u32, modes(), prop::sample::select(vec!["now", "other"])),
        (
            prop::bool::weighted(0.2),
            prop::option::of(0..2_u32),
            prop::option::weighted(0.2, 0..2_u32),
            prop::bool::weighted(0.1),
        ),
    )
        .prop_map(|((name, size, modes, class), (block, label, reserved, pending))| {
            let mut volume = berth_testing::volume(&format!("v{name}"), class, size)
                .with("/spec/accessModes", modes)
                .with("/status/phase", if pending { "Pending" } else { "Available" });
            if block {
                volume = volume.with("/spec/volumeMode", json!("Block"));
            }
            if let Some(label) = label {
                volume = volume.with(
                    "/metadata/labels",
                    json!({"tier": format!("t{label}"), "name": format!("n{name}")}),
                );
            }
            if let Some(claim) = reserved {
                volume = volume.claimed_by(&format!("c{claim}"));
            }
            volume
        })
}

fn claim() -> impl Strategy<Value = Value> {
    (
        0..2_u32,
        1..9_u32,
        modes(),
        prop::option::weighted(0.3, 0..2_u32),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(name, size, modes, label, block)| {
            let mut claim = berth_testing::claim(&format!("c{name}"), "now", size).with("/spec/accessModes", modes);
            if let Some(label) = label {
                claim = claim.with("/spec/selector", json!({"matchLabels": {"tier": format!("t{label}")}}));
            }
            if block {
                claim = claim.with("/spec/volumeMode", json!("Block"));
            }
            claim
        })
}

fn decode_volume(value: Value) -> PersistentVolume {
    match Object::decode(&value) {
        Ok(Some(Object::PersistentVolume(volume))) => *volume,
        other => panic!("{other:?}"),
    }
}

fn decode_claim(value: Value) -> PersistentVolumeClaim {
    match Object::decode(&value) {
        Ok(Some(Object::PersistentVolumeClaim(claim))) => *claim,
        other => panic!("{other:?}"),
    }
}

/// The rank of a volume for a claim, best first: number of access modes, not reserved, size.
fn rank(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<(usize, bool, i64)> {
    let size = volume.spec.capacity["storage"].value();
    let fits = size >= claim.requested_bytes()
        && volume.spec.volume_mode == claim.spec.volume_mode
        && claim
            .spec
            .access_modes
            .iter()
            .all(|mode| volume.spec.access_modes.contains(mode));
    let selected = claim.spec.selector.as_ref().is_none_or(|selector| {
        selector
            .match_labels
            .iter()
            .all(|(key, value)| volume.metadata.labels.get(key) == Some(value))
    });
    let free = volume.status.phase == "Available" && selected && volume.class_name() == "now";
    match &volume.spec.claim_ref {
        _ if !fits => None,
        // Any reserved one is acceptable, regardless of size.
        Some(reference) => {
            (reference.name == claim.metadata.name).then_some((volume.spec.access_modes.len(), false, 0))
        }
        None => free.then_some((volume.spec.access_modes.len(), true, size)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_finds_what_a_walk_would(volumes in prop::collection::vec(volume(), 0..40), claim in claim(), gone in prop::collection::vec(0..40_u32, 0..5)) {
        let claim = decode_claim(claim);
        let mut state = State::default();
        for volume in volumes {
            state.apply_volume(decode_volume(volume));
        }
        for name in gone {
            state.remove_volume(&format!("v{name}"));
        }
        for delayed in [false, true] {
            let found = state.best_volume(&claim, delayed);
            let walk = state.volumes().filter_map(|volume| rank(volume, &claim)).filter(|(_, free, _)| !delayed || !free).min();
            prop_assert_eq!(found.and_then(|volume| rank(volume, &claim)), walk);
        }
    }

    #[test]
    fn a_volume_in_flight_is_not_chosen(volumes in prop::collection::vec(volume(), 1..20), claim in claim()) {
        let claim = decode_claim(claim);
        let mut state = State::default();
        for volume in volumes {
            state.apply_volume(decode_volume(volume.with("/spec/claimRef", Value::Null)));
        }
        while let Some(found) = state.best_volume(&claim, false) {
            let name = found.metadata.name.clone();
            state.hold(&ObjectKey::volume(&name));
            prop_assert_ne!(state.best_volume(&claim, false).map(|next| next.metadata.name.clone()), Some(name));
        }
    }
}
