//! Existing and new volumes are one assignment: compared with brute force.

#![allow(clippy::expect_used, reason = "a story that cannot be told is a failed test")]

mod support;

use berth_core::names::NO_PROVISIONER;
use berth_testing::{Manifest, capacity, node};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::{binder_of, mk_pod, prepare};

/// How volumes of a class are provisioned, and how capacity is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// No provisioner.
    Static,
    /// Capacity is published as objects: the free space, and for some the largest volume.
    Objects,
    /// Capacity is published in the status of the driver: the largest volume.
    Status,
    /// No capacity is published, but volumes can be created only in zone a.
    Unlimited,
}

impl Class {
    const ALL: [Self; 4] = [Self::Static, Self::Objects, Self::Status, Self::Unlimited];

    fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Objects => "objects",
            Self::Status => "status",
            Self::Unlimited => "unlimited",
        }
    }

    fn object(self) -> Value {
        let class = berth_testing::class(self.name(), NO_PROVISIONER);
        match self {
            Self::Static => class,
            Self::Objects | Self::Status => class.with("/provisioner", format!("{}.example.com", self.name())),
            Self::Unlimited => {
                let zones = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]);
                class
                    .with("/provisioner", "unlimited.example.com")
                    .with("/allowedTopologies", zones)
            }
        }
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const NODES: [(&str, &str); 3] = [("n0", "a"), ("n1", "a"), ("n2", "b")];
const MODES: [&[&str]; 3] = [
    &["ReadWriteOnce"],
    &["ReadWriteOnce", "ReadOnlyMany"],
    &["ReadOnlyMany"],
];

#[derive(Clone, Debug)]
struct Volume {
    gi: u32,
    class: Class,
    /// A node, a zone by affinity, a zone by label, or anywhere.
    place: u8,
    modes: usize,
    block: bool,
    gold: bool,
    reserved: Option<usize>,
}

#[derive(Clone, Debug)]
struct Claim {
    gi: u32,
    class: Class,
    modes: usize,
    block: bool,
    gold: bool,
}

#[derive(Clone, Debug)]
struct Pool {
    gi: u32,
    largest: Option<u32>,
    /// A node, or all.
    node: Option<usize>,
}

#[derive(Clone, Debug)]
struct World {
    volumes: Vec<Volume>,
    claims: Vec<Claim>,
    objects: Vec<Pool>,
    status: Vec<Pool>,
}

fn class() -> impl Strategy<Value = Class> {
    proptest::sample::select(&Class::ALL[..])
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.2)
}

fn world() -> impl Strategy<Value = World> {
    // Few classes at a time, so that claims compete.
    (class(), class()).prop_flat_map(|(one, other)| {
        let class = move || proptest::sample::select(vec![one, one, other]);
        let volume = (
            1..9_u32,
            class(),
            0..8_u8,
            0..3_usize,
            rarely(),
            any::<bool>(),
            prop::option::weighted(0.15, 0..5_usize),
        );
        let volume = volume.prop_map(|(gi, class, place, modes, block, gold, reserved)| Volume {
            gi,
            class,
            place,
            modes,
            block,
            gold,
            reserved,
        });
        let claim = (1..9_u32, class(), 0..3_usize, rarely(), prop::bool::weighted(0.3));
        let claim = claim.prop_map(|(gi, class, modes, block, gold)| Claim {
            gi,
            class,
            modes,
            block,
            gold,
        });
        let pool = || {
            let pool = (1..14_u32, prop::option::of(1..9_u32), prop::option::of(0..NODES.len()));
            pool.prop_map(|(gi, largest, node)| Pool {
                gi,
                largest: largest.map(|largest| largest.min(gi)),
                node,
            })
        };
        let many = |pool| prop::collection::vec(pool, 0..4);
        let volumes = prop::collection::vec(volume, 0..7);
        (volumes, prop::collection::vec(claim, 1..6), many(pool()), many(pool())).prop_map(
            |(volumes, claims, objects, status)| World {
                volumes,
                claims,
                objects,
                status,
            },
        )
    })
}

impl World {
    fn made(&self) -> Vec<Value> {
        let mut made: Vec<Value> = Class::ALL.iter().map(|class| class.object()).collect();
        made.extend(NODES.map(|(name, zone)| node(name).label(ZONE, zone)));
        for (index, volume) in self.volumes.iter().enumerate() {
            let object = berth_testing::volume(&format!("pv{index}"), volume.class.name(), volume.gi);
            let mut object = object.access_modes(MODES[volume.modes]);
            if volume.block {
                object["spec"]["volumeMode"] = json!("Block");
            }
            if volume.gold {
                object = object.label("tier", "gold");
            }
            object = match volume.place {
                0..=2 => object.on(NODES[volume.place as usize].0),
                3 => object.reached_by(ZONE, &["a"]),
                4 => object.label(ZONE, "a"),
                5 => object.label(ZONE, "b__c"),
                _ => object,
            };
            if let Some(claim) = volume.reserved {
                object = object.claimed_by(&format!("c{claim}"));
            }
            made.push(object);
        }
        for (index, claim) in self.claims.iter().enumerate() {
            let name = format!("c{index}");
            let object = berth_testing::claim(&name, claim.class.name(), claim.gi).uid(&format!("uid-{name}"));
            let mut object = object.access_modes(MODES[claim.modes]);
            if claim.block {
                object["spec"]["volumeMode"] = json!("Block");
            }
            if claim.gold {
                object["spec"]["selector"] = json!({"matchLabels": {"tier": "gold"}});
            }
            made.push(object);
        }
        let driver =
            |name: &str| json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name}});
        let mut objects = driver("objects.example.com");
        objects["spec"] = json!({"storageCapacity": true});
        made.push(objects);
        for (index, pool) in self.objects.iter().enumerate() {
            let labels = pool
                .node
                .map_or(json!({}), |node| json!({"kubernetes.io/hostname": NODES[node].0}));
            let largest = pool.largest.map(|gi| format!("{gi}Gi"));
            let pool = capacity(&format!("o{index}"), "objects", pool.gi).with("/maximumVolumeSize", json!(largest));
            made.push(pool.with("/nodeTopology/matchLabels", labels));
        }
        let mut status = driver("status.example.com");
        status["spec"] = json!({"capacityTracking": true});
        let pools = self.status.iter().enumerate().map(|(index, pool)| {
            let nodes: Vec<&str> = pool.node.iter().map(|node| NODES[*node].0).collect();
            json!({"name": format!("s{index}"), "nodeList": nodes, "capacity": format!("{}Gi", pool.gi)})
        });
        let pools: Vec<_> = pools.collect();
        status["status"] = json!({"storage": [{"storageClassName": "status", "pools": pools}]});
        made.push(status);
        made
    }

    fn reaches(&self, volume: usize, node: usize) -> bool {
        match self.volumes[volume].place {
            place @ 0..=2 => usize::from(place) == node,
            3 | 4 => NODES[node].1 == "a",
            5 => NODES[node].1 == "b",
            _ => true,
        }
    }

    /// Whether claim and volume match in kind, apart from modes and labels.
    fn alike(&self, volume: usize, claim: usize) -> bool {
        let (volume, claim) = (&self.volumes[volume], &self.claims[claim]);
        volume.class == claim.class && volume.gi >= claim.gi && volume.block == claim.block
    }

    fn reserved(&self, claim: usize) -> Vec<usize> {
        let volumes = 0..self.volumes.len();
        volumes
            .filter(|volume| self.volumes[*volume].reserved == Some(claim) && self.alike(*volume, claim))
            .collect()
    }

    /// The existing volumes that a claim may use on a node.
    fn choices(&self, claim: usize, node: usize) -> Vec<usize> {
        let reserved = self.reserved(claim);
        if !reserved.is_empty() {
            let mut reachable: Vec<_> = reserved
                .into_iter()
                .filter(|volume| self.reaches(*volume, node))
                .collect();
            reachable.sort_by_key(|volume| (self.volumes[*volume].gi, *volume));
            reachable.truncate(1);
            return reachable;
        }
        let suits = |volume: &usize| {
            let (found, wanted) = (&self.volumes[*volume], &self.claims[claim]);
            found.reserved.is_none()
                && self.alike(*volume, claim)
                && MODES[wanted.modes].iter().all(|mode| MODES[found.modes].contains(mode))
                && (!wanted.gold || found.gold)
                && self.reaches(*volume, node)
        };
        (0..self.volumes.len()).filter(suits).collect()
    }

    /// Whether volumes can be created for all of these claims on a node.
    fn makeable(&self, claims: &[usize], node: usize) -> bool {
        let of_class = |class: Class| {
            claims
                .iter()
                .map(|claim| &self.claims[*claim])
                .filter(move |claim| claim.class == class)
        };
        let here = |pool: &&Pool| pool.node.is_none_or(|found| found == node);
        let objects: Vec<&Pool> = self.objects.iter().filter(here).collect();
        let sizes: Vec<u32> = of_class(Class::Objects).map(|claim| claim.gi).collect();
        let mut room: Vec<u32> = objects.iter().map(|pool| pool.gi).collect();
        claims.iter().all(|claim| !self.claims[*claim].gold)
            && of_class(Class::Static).next().is_none()
            && (of_class(Class::Unlimited).next().is_none() || NODES[node].1 == "a")
            && of_class(Class::Status).all(|claim| self.status.iter().filter(here).any(|pool| pool.gi >= claim.gi))
            && packs(&sizes, &objects, &mut room)
    }

    /// The most existing volumes on a node and the fewest gibibytes for that number, existing and new together, by brute force.
    fn best(
        &self,
        claim: usize,
        node: usize,
        used: &mut BTreeSet<usize>,
        new: &mut Vec<usize>,
    ) -> Option<(usize, u32)> {
        if claim == self.claims.len() {
            let made = new.iter().map(|claim| self.claims[*claim].gi).sum();
            return self.makeable(new, node).then_some((0, made));
        }
        new.push(claim);
        let mut best = self.best(claim + 1, node, used, new);
        new.pop();
        for volume in self.choices(claim, node) {
            if !used.insert(volume) {
                continue;
            }
            let rest = self.best(claim + 1, node, used, new);
            used.remove(&volume);
            let found = rest.map(|(count, gi)| (count + 1, gi + self.volumes[volume].gi));
            best = match (best, found) {
                (Some(best), Some(found)) if (found.0, best.1) > (best.0, found.1) => Some(found),
                (None, found) => found,
                (best, _) => best,
            };
        }
        best
    }
}

/// Whether sizes fit into pools, by brute force.
fn packs(sizes: &[u32], pools: &[&Pool], room: &mut [u32]) -> bool {
    let Some((size, rest)) = sizes.split_first() else {
        return true;
    };
    (0..pools.len()).any(|at| {
        let largest = pools[at].largest.unwrap_or(pools[at].gi);
        if room[at] < *size || largest < *size {
            return false;
        }
        room[at] -= size;
        let fits = packs(rest, pools, room);
        room[at] += size;
        fits
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn existing_and_new_volumes_are_one_assignment(world in world()) {
        let mut binder = binder_of(&world.made());
        let names: Vec<String> = (0..world.claims.len()).map(|index| format!("c{index}")).collect();
        let pod = mk_pod(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let prepared = prepare(&mut binder, &pod).expect("claims can be considered");
        for (node, (name, _)) in NODES.iter().enumerate() {
            let expected = world.best(0, node, &mut BTreeSet::new(), &mut Vec::new());
            let found = binder.on_node(&prepared, binder.node(name).expect("there"));
            let Ok(found) = found else {
                prop_assert_eq!(expected, None, "on {}", name);
                continue;
            };
            let (bindings, provisions) = binder.describe(&found);
            let number = |name: &str| name.trim_start_matches(|c: char| c.is_alphabetic()).parse::<usize>().expect("a number");
            let mut taken = BTreeSet::new();
            for (claim, volume) in &bindings {
                prop_assert!(world.choices(number(claim), node).contains(&number(volume)), "{} took {}", claim, volume);
                prop_assert!(taken.insert(number(volume)), "{} was given twice", volume);
            }
            let new: Vec<usize> = provisions.iter().map(|claim| number(claim)).collect();
            prop_assert_eq!(bindings.len() + new.len(), world.claims.len());
            prop_assert!(world.makeable(&new, node), "{:?} cannot be made on {}", provisions, name);
            let existing = taken.iter().map(|volume| world.volumes[*volume].gi);
            let gi = existing.chain(new.iter().map(|claim| world.claims[*claim].gi)).sum::<u32>();
            prop_assert_eq!(Some((bindings.len(), gi)), expected, "on {}", name);
        }
    }
}
