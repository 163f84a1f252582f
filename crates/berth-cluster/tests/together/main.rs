//! Pending pods are considered together: results on crowded clusters, one by one and together, and what is possible.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a cluster that cannot be read fails the test, and figures are for people"
)]

mod clusters;
mod limit;
mod play;

use clusters::{Crowd, FullNodes};
use limit::limit;
use play::{Result, play};
use std::ops::Range;

const DEFAULT_TRIES: usize = 200;

/// Number of clusters to play; use more for statistics, for example `CLUSTERS=40 cargo test --test together --
/// --nocapture`.
fn seeds(usual: u64) -> Range<u64> {
    let wanted = std::env::var("CLUSTERS").ok();
    0..wanted.and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
fn small_crowds_are_placed_as_well_as_can_be() {
    for seed in seeds(12) {
        let crowd = Crowd::new(seed, 2..4, 3..7);
        let objects = crowd.objects();
        let (one_by_one, together) = (play(&objects, 0), play(&objects, DEFAULT_TRIES));
        let most = limit(&crowd.nodes, &crowd.pods, together.placed());
        assert!(
            together.by_priority >= one_by_one.by_priority,
            "{seed}: {one_by_one:?} {together:?}"
        );
        assert_eq!(together.placed(), most, "{seed}: {one_by_one:?}");
    }
}

#[test]
fn crowded_disks_hold_more_pods_and_waste_less() {
    let (mut alone, mut both, mut most) = (Result::default(), Result::default(), 0);
    for seed in seeds(3) {
        let crowd = Crowd::new(seed, 3..21, 10..61);
        let objects = crowd.objects();
        let (one_by_one, together) = (play(&objects, 0), play(&objects, DEFAULT_TRIES));
        assert!(
            together.by_priority >= one_by_one.by_priority,
            "{seed}: {one_by_one:?} {together:?}"
        );
        let limit = limit(&crowd.nodes, &crowd.pods, together.placed());
        println!(
            "{seed}: {} pods {} {:.2} {} {:.2} {limit}",
            crowd.pods.len(),
            one_by_one.placed(),
            one_by_one.ratio(),
            together.placed(),
            together.ratio()
        );
        alone += one_by_one;
        both += together;
        most += limit;
    }
    println!(
        "disks: {} {:.2} {} {:.2} {most}",
        alone.placed(),
        alone.ratio(),
        both.placed(),
        both.ratio()
    );
    assert!(both.placed() * 100 >= most * 97, "{both:?} of {most}");
    assert!(both.ratio() <= 2.0, "{both:?}");
}

#[test]
fn full_nodes_hold_more_pods_or_no_more_fit() {
    let (mut failed, mut better, mut optimal) = (0, 0, 0);
    for seed in seeds(4) {
        let full = FullNodes::new(seed, 4);
        let objects = full.objects();
        let (one_by_one, together) = (play(&objects, 0), play(&objects, DEFAULT_TRIES));
        assert!(
            together.by_priority >= one_by_one.by_priority,
            "{seed}: {one_by_one:?} {together:?}"
        );
        println!(
            "{seed}: {} {} {:?} {:?}",
            full.pods(),
            full.is_optimal(&together.by_priority),
            one_by_one.by_priority,
            together.by_priority
        );
        if one_by_one.placed() < full.pods() {
            failed += 1;
            better += usize::from(together.by_priority > one_by_one.by_priority);
            optimal +=
                usize::from(full.is_optimal(&together.by_priority) && together.by_priority == one_by_one.by_priority);
        }
    }
    println!("full: {failed} {better} {optimal}");
    assert!((better + optimal) * 10 >= failed * 9);
}
