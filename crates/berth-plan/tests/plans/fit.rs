//! How many more fit.

use crate::clusters::{self, Ask};
use crate::{Forever, SEED, running};
use berth_cluster::key_for;
use berth_cluster::simulation::Options;
use berth_plan::{Oracle, Subject, fit};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: SEED, ..ProptestConfig::default() })]

    #[test]
    fn so_many_replicas_run_and_one_more_does_not((objects, [a, b]) in clusters::cluster()) {
        let subject = Subject::of_cluster(&objects, &key_for("StatefulSet", "default", "a")).unwrap();
        let mut watch = Forever;
        let mut oracle = Oracle::new(Options::default(), &mut watch);
        let found = fit(&mut oracle, &objects, &subject).unwrap();
        // Number of pods that do not run with this many more replicas.
        let unrun = |more: usize| {
            let replicas = a.replicas + u32::try_from(more).unwrap();
            let mut objects = objects.clone();
            let set = clusters::set("a", &Ask { replicas, ..a.clone() });
            *objects.iter_mut().find(|object| object["metadata"]["name"] == "a").unwrap() = set;
            usize::try_from(replicas + b.replicas).unwrap() - running(objects)
        };
        prop_assert_eq!(unrun(found.fits), unrun(0), "{} fit", found.fits);
        prop_assert!(unrun(found.fits + 1) > unrun(0), "{} fit", found.fits);
        prop_assert!(found.with_one_more.is_some() && !found.time_up);
    }
}
