//! Joint assignment: which volumes serve which claims of one pod.
//!
//! As many claims as possible get a volume, and of all such assignments the one with the least total
//! capacity is taken. The cost of an assignment depends only on the volumes used, and the sets of
//! volumes that can be used together form a matroid; so it is enough to offer the volumes from the
//! smallest to the largest, and to keep each one for which an augmenting path is found.
//!
//! If there are fewer volumes than claims, a volume has to be made for the others. The sets of claims that can have volumes
//! together form a matroid too, and any of the largest such sets can have the very volumes found above. So who gets them is
//! a question of its own: [`assign_in_order`] serves those first for whom a volume is hardest to make.

/// How many claims of a pod are assigned together if they differ in more than size. Finding the best assignment takes the
/// cube of their number: some milliseconds for this many. Pods have a few claims; one with more gets them assigned claim by
/// claim, as kube-scheduler does, so that no pod keeps others waiting.
pub const MAX_TOGETHER: usize = 128;

/// For each claim, the volumes that could serve it, as indexes into a list of volumes ordered from
/// the most to the least wanted. Returns for each claim the volume assigned to it. Of two claims that
/// could as well have each other's volume, the first one gets the more wanted.
///
/// ```
/// use berth_core::assign::assign;
/// // The first claim could use either volume, the second one only volume 0.
/// assert_eq!(assign(2, &[vec![0, 1], vec![0]]), [Some(1), Some(0)]);
/// ```
#[must_use]
pub fn assign(volumes: usize, candidates: &[Vec<usize>]) -> Vec<Option<usize>> {
    let mut claims_of: Vec<Vec<usize>> = vec![Vec::new(); volumes];
    for (claim, candidates) in candidates.iter().enumerate() {
        for volume in candidates {
            claims_of[*volume].push(claim);
        }
    }
    let mut assigned = vec![None; candidates.len()];
    let (mut visited, mut chain) = (vec![false; candidates.len()], Vec::new());
    for volume in 0..volumes {
        visited.fill(false);
        augment(volume, &claims_of, &mut visited, &mut chain, &mut assigned);
        if assigned.iter().all(Option::is_some) {
            break;
        }
    }
    untangle(candidates, &mut assigned);
    assigned
}

/// Like [`assign`], but for volumes all of which can be used together: claims are served in an order, and one that has got a volume
/// never loses it to a later one. Of each prefix of the order as many claims are served as can be.
///
/// ```
/// use berth_core::assign::assign_in_order;
/// // Both claims could use the only volume.
/// assert_eq!(assign_in_order(1, &[vec![0], vec![0]], [1, 0]), [None, Some(0)]);
/// ```
#[must_use]
pub fn assign_in_order(
    volumes: usize,
    candidates: &[Vec<usize>],
    order: impl IntoIterator<Item = usize>,
) -> Vec<Option<usize>> {
    let mut claim_of = vec![None; volumes];
    let (mut visited, mut chain) = (vec![false; volumes], Vec::new());
    for claim in order {
        visited.fill(false);
        augment(claim, candidates, &mut visited, &mut chain, &mut claim_of);
    }
    let mut assigned = vec![None; candidates.len()];
    for (volume, claim) in claim_of.into_iter().enumerate() {
        if let Some(claim) = claim {
            assigned[claim] = Some(volume);
        }
    }
    untangle(candidates, &mut assigned);
    assigned
}

/// Swaps volumes between claims where that costs nothing, so that claims in the order of their size get
/// volumes in the order of theirs.
fn untangle(candidates: &[Vec<usize>], assigned: &mut [Option<usize>]) {
    for first in 0..assigned.len() {
        for second in first + 1..assigned.len() {
            if let (Some(a), Some(b)) = (assigned[first], assigned[second])
                && a > b
                && candidates[first].contains(&b)
                && candidates[second].contains(&a)
            {
                assigned.swap(first, second);
            }
        }
    }
}

/// Finds a place for a volume, moving others to their alternatives. Whatever was assigned stays so. A chain of moves may be as
/// long as there are claims, so it is kept in a list and not on the stack.
fn augment(
    volume: usize,
    claims_of: &[Vec<usize>],
    visited: &mut [bool],
    chain: &mut Vec<(usize, usize)>,
    assigned: &mut [Option<usize>],
) -> bool {
    // Mostly nobody has to move.
    if let Some(&claim) = claims_of[volume].first()
        && assigned[claim].is_none()
    {
        assigned[claim] = Some(volume);
        return true;
    }
    // Volumes that look for a claim, each with how many of its claims it has asked. One gives way to the one before it.
    chain.clear();
    chain.push((volume, 0));
    while let Some((volume, asked)) = chain.last_mut() {
        let Some(&claim) = claims_of[*volume].get(*asked) else {
            chain.pop();
            continue;
        };
        *asked += 1;
        if std::mem::replace(&mut visited[claim], true) {
            continue;
        }
        if let Some(other) = assigned[claim] {
            chain.push((other, 0));
            continue;
        }
        for (volume, asked) in &*chain {
            assigned[claims_of[*volume][*asked - 1]] = Some(*volume);
        }
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most claims that can be served and, for that many, the least total size: by trying all.
    fn exhaustive(sizes: &[u32], candidates: &[Vec<usize>], claim: usize, used: &mut Vec<bool>) -> (usize, u32) {
        let Some(volumes) = candidates.get(claim) else {
            return (0, 0);
        };
        let mut best = exhaustive(sizes, candidates, claim + 1, used);
        for volume in volumes {
            if !used[*volume] {
                used[*volume] = true;
                let (count, total) = exhaustive(sizes, candidates, claim + 1, used);
                used[*volume] = false;
                let found = (count + 1, total + sizes[*volume]);
                if found.0 > best.0 || found.0 == best.0 && found.1 < best.1 {
                    best = found;
                }
            }
        }
        best
    }

    #[test]
    fn a_chain_of_moves_may_be_long() {
        // Each claim but the last has its volume when the last volume comes, and all of them have to move on by one.
        let claims = 200_000;
        let candidates: Vec<Vec<usize>> = (0..claims).map(|claim| vec![claim, claim + 1]).collect();
        let mut claims_of = vec![Vec::new(); claims + 1];
        for (claim, volumes) in candidates.iter().enumerate() {
            volumes.iter().for_each(|volume| claims_of[*volume].push(claim));
        }
        let mut assigned: Vec<_> = (1..claims).map(Some).chain([None]).collect();
        let moved = augment(0, &claims_of, &mut vec![false; claims], &mut Vec::new(), &mut assigned);
        assert!(moved);
        let mut in_order = assigned.iter().enumerate();
        assert!(in_order.all(|(claim, volume)| *volume == Some(claim)));
    }

    proptest! {
        #[test]
        fn finds_the_best_assignment(
            mut sizes in proptest::collection::vec(1..20_u32, 1..10),
            edges in proptest::collection::vec(proptest::collection::btree_set(0..10_usize, 0..6), 1..6),
        ) {
            sizes.sort_unstable();
            let candidates: Vec<Vec<usize>> = edges
                .iter()
                .map(|edges| edges.iter().copied().filter(|volume| *volume < sizes.len()).collect())
                .collect();
            let assigned = assign(sizes.len(), &candidates);
            let used: Vec<usize> = assigned.iter().flatten().copied().collect();
            for (claim, volume) in assigned.iter().enumerate() {
                prop_assert!(volume.is_none_or(|volume| candidates[claim].contains(&volume)));
            }
            let distinct: std::collections::BTreeSet<_> = used.iter().collect();
            prop_assert_eq!(distinct.len(), used.len());
            let total = used.iter().map(|volume| sizes[*volume]).sum::<u32>();
            let expected = exhaustive(&sizes, &candidates, 0, &mut vec![false; sizes.len()]);
            prop_assert_eq!((used.len(), total), expected);
        }
    }
}
