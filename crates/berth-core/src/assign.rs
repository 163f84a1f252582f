//! Joint assignment: which volumes serve which claims of one pod.
//!
//! Assigns volumes to as many claims as possible, and among those assignments picks the one with the least total
//! capacity. The cost of an assignment depends only on the volumes used, and the sets of volumes that can be used
//! together form a matroid. It is therefore enough to offer the volumes from the smallest to the largest, and to keep
//! each one for which an augmenting path is found.
//!
//! If there are fewer volumes than claims, the other claims need new volumes. The sets of claims that can have volumes
//! together form a matroid too, and any of the largest such sets can use exactly the volumes found above. Which claims get
//! them is therefore a separate question: [`assign_in_order`] first serves those for which provisioning is hardest.

/// Maximum number of claims of a pod that are assigned together if they differ in more than size. Finding the best
/// assignment is cubic in their number: some milliseconds for this many. Pods have a few claims. A pod with more is
/// assigned claim by claim, as kube-scheduler does, so that it does not delay other pods.
pub const MAX_TOGETHER: usize = 128;

/// For each claim, the volumes that could serve it, as indexes into a list of volumes ordered from the most to the
/// least preferred. Returns the volume assigned to each claim. If two claims could swap volumes, the first one gets the
/// preferred volume.
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

/// Like [`assign`], but for volumes that can all be used together: claims are served in order, and a claim never loses its volume
/// to a later one. Each prefix of the order has as many claims served as possible.
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

/// Swaps volumes between claims at no cost, so that claims in order of size get volumes in order of size.
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

/// Finds a claim for a volume, moving other volumes to alternative claims. No claim loses its assignment. A chain of moves may
/// be as long as the number of claims, so it is kept in a list and not on the stack.
fn augment(
    volume: usize,
    claims_of: &[Vec<usize>],
    visited: &mut [bool],
    chain: &mut Vec<(usize, usize)>,
    assigned: &mut [Option<usize>],
) -> bool {
    // Usually no volume has to move.
    if let Some(&claim) = claims_of[volume].first()
        && assigned[claim].is_none()
    {
        assigned[claim] = Some(volume);
        return true;
    }
    // Volumes that look for a claim, each with the number of claims already tried. Each one gives way to its
    // predecessor.
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

    /// The most claims that can be served and the least total size for that number, by brute force.
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
        // Every claim except the last has its volume when the last volume is offered, and all of them have to move by
        // one.
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
