//! What to add.

use crate::{Forever, SEED, clusters, running};
use berth_cluster::Objects;
use berth_cluster::simulation::Options;
use berth_plan::{Offers, Oracle, add, candidates_of_cluster, with_items};
use proptest::prelude::*;
use serde_json::Value;

fn offers(objects: &[Value]) -> Offers {
    let view: Objects = objects.iter().cloned().collect();
    Offers {
        nodes: candidates_of_cluster(&view),
        disks: None,
        capacity: true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: SEED, ..ProptestConfig::default() })]

    #[test]
    fn with_the_addition_everything_runs_and_without_any_item_of_it_something_does_not(
        (objects, [a, b]) in clusters::cluster()
    ) {
        let wanted = usize::try_from(a.replicas + b.replicas).unwrap();
        let mut watch = Forever;
        let mut oracle = Oracle::new(Options::default(), &mut watch);
        let answer = add(&mut oracle, &objects, &offers(&objects)).unwrap();
        let Some(addition) = &answer.addition else {
            // Nothing is needed, or nothing helps.
            prop_assert_eq!(answer.left.is_empty(), running(objects.clone()) == wanted);
            return Ok(());
        };
        let with_all = running(with_items(&objects, &addition.items));
        if answer.left.is_empty() {
            prop_assert_eq!(with_all, wanted);
        }
        prop_assert!(with_all > running(objects.clone()));
        prop_assert!(addition.is_minimal);
        for index in 0..addition.items.len() {
            let others = addition.items.iter().enumerate().filter(|(other, _)| *other != index);
            let others = with_items(&objects, others.map(|(_, item)| item));
            prop_assert!(running(others) < with_all, "without {:?}", addition.items[index].added);
        }
        prop_assert!(addition.cost >= answer.at_least || !addition.items.iter().all(berth_plan::Item::is_node));
    }
}
