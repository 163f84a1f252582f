//! Amounts of 64 nodes at a time as floating point numbers, so that the compiler can use vector instructions that do not exist for
//! integers: division and conversion.
//!
//! All of it is exact: amounts are below [`MAX_EXACT`], a hundred times as much is still an integer, and quotients are truncated like
//! integer ones. Loops over lanes select between numbers without branching, and divide by 1 instead of 0.

use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;

/// Nodes in a row: those of a word of a mask.
pub(super) const LANES: usize = 64;

/// Amounts up to this are divided as floating point numbers: a hundred times as much is still exact.
pub(super) const MAX_EXACT: i64 = 1 << 46;

/// From here on floating point numbers are integers, and the lower bits of one are its value.
const WHOLE: f64 = (1_u64 << 52) as f64;

/// The offered and used amounts of a resource by node, and what the pod adds.
pub(super) struct Amounts<'a> {
    pub(super) allocatable: &'a [i64],
    pub(super) used: &'a [i64],
    pub(super) wanted: i64,
}

/// The amounts of a row of nodes, each exact as a floating point number.
pub(super) struct Row<'a> {
    allocatable: &'a [i64; LANES],
    used: &'a [i64; LANES],
    /// What the pod adds.
    pub(super) wanted: f64,
}

impl<'a> Amounts<'a> {
    /// Whether a node has any of the resource.
    pub(super) fn is_on(&self, node: NodeId) -> bool {
        self.allocatable[node.index()] != 0
    }

    /// The requested share of the resource on a node, from 0 to 1.
    pub(super) fn fraction(&self, node: NodeId, with_pod: bool) -> f64 {
        let added = if with_pod { self.wanted } else { 0 };
        let used = self.used[node.index()].saturating_add(added);
        (used as f64 / self.allocatable[node.index()] as f64).min(1.0)
    }

    /// The amounts of a row; `None` if it is the last one and incomplete, or if any of them is too large.
    pub(super) fn row(&self, index: usize) -> Option<Row<'a>> {
        let row = Row {
            allocatable: lanes(self.allocatable, index)?,
            used: lanes(self.used, index)?,
            wanted: float(self.wanted)?,
        };
        let both = row.allocatable.iter().zip(row.used);
        let bits = both.fold(0, |bits, (allocatable, used)| bits | allocatable | used);
        (0..MAX_EXACT).contains(&bits).then_some(row)
    }
}

impl Row<'_> {
    /// The offered and used amount of a node.
    #[inline(always)]
    pub(super) fn lane(&self, lane: usize) -> (f64, f64) {
        (unchecked(self.allocatable[lane]), unchecked(self.used[lane]))
    }
}

fn lanes(column: &[i64], index: usize) -> Option<&[i64; LANES]> {
    column.get(index * LANES..)?.first_chunk()
}

/// An amount; `None` if it is negative or too large.
pub(super) fn float(amount: i64) -> Option<f64> {
    (0..MAX_EXACT).contains(&amount).then(|| unchecked(amount))
}

#[inline(always)]
fn unchecked(amount: i64) -> f64 {
    f64::from_bits(WHOLE.to_bits() | amount as u64) - WHOLE
}

/// A non-negative integer.
#[inline(always)]
pub(super) fn integer(number: f64) -> i64 {
    ((number + WHOLE).to_bits() ^ WHOLE.to_bits()) as i64
}

/// The integer part of a non-negative number.
#[inline(always)]
pub(super) fn floor(number: f64) -> f64 {
    let nearest = (number + WHOLE) - WHOLE;
    nearest - if nearest > number { 1.0 } else { 0.0 }
}

/// The truncated quotient of two non-negative integers.
#[inline(always)]
pub(super) fn quotient(part: f64, whole: f64) -> f64 {
    let quotient = floor(part / whole);
    quotient - if quotient * whole > part { 1.0 } else { 0.0 }
}

/// The totals that the scores of a plugin are added to.
pub(crate) struct Totals<'a> {
    /// The nodes that are scored.
    pub(crate) nodes: &'a NodeMask,
    /// The weight of the plugin.
    pub(crate) weight: i64,
    /// By node.
    pub(crate) totals: &'a mut [i64],
}

impl Totals<'_> {
    /// Lends these totals.
    pub(super) fn reborrow(&mut self) -> Totals<'_> {
        Totals {
            nodes: self.nodes,
            weight: self.weight,
            totals: self.totals,
        }
    }

    /// Adds the weighted scores of all rows with any of the nodes. Returns the nodes whose rows have no scores.
    pub(super) fn add_rows(self, scores: impl Fn(usize) -> Option<[f64; LANES]>) -> Vec<NodeId> {
        let mut left = Vec::new();
        let weight = float(self.weight);
        for (index, _) in self.nodes.words().iter().enumerate().filter(|(_, word)| **word != 0) {
            let totals = self.totals.get_mut(index * LANES..);
            let totals = totals.and_then(|totals| totals.first_chunk_mut::<LANES>());
            match (totals, weight, scores(index)) {
                (Some(totals), Some(weight), Some(scores)) => {
                    for lane in 0..LANES {
                        totals[lane] += integer(scores[lane] * weight);
                    }
                }
                _ => left.extend(self.nodes.in_word(index)),
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Quotients equal integer ones.
        #[test]
        fn divides_exactly((whole, part) in (1..MAX_EXACT).prop_flat_map(|whole| (Just(whole), 0..=whole * 100)),
                           times in 0..=100_i64) {
            for part in [part, whole * times, (whole * times - 1).max(0)] {
                prop_assert_eq!(integer(quotient(part as f64, whole as f64)), part / whole);
            }
        }

        #[test]
        fn amounts_survive(amount in 0..MAX_EXACT) {
            prop_assert_eq!(float(amount), Some(amount as f64));
            prop_assert_eq!(float(amount).map(integer), Some(amount));
            prop_assert_eq!((float(amount + MAX_EXACT), float(-amount - 1)), (None, None));
            let row = |amount: i64, wanted: i64| {
                let (allocatable, mut used) = ([3; LANES], [0; LANES]);
                used[1] = amount;
                let amounts = Amounts { allocatable: &allocatable, used: &used, wanted };
                amounts.row(0).map(|row| row.lane(1))
            };
            prop_assert_eq!(row(amount, 1), Some((3.0, amount as f64)));
            prop_assert_eq!((row(amount + MAX_EXACT, 1), row(-amount - 1, 1), row(amount, -1)), (None, None, None));
        }
    }
}
