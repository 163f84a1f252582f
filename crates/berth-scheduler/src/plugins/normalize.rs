//! Turns raw scores into scores from 0 to 100.

use crate::framework::MAX_NODE_SCORE;

/// The share of the highest raw score; all 0 if that is 0.
pub(super) fn to_share_of_best(scores: &mut [i64]) {
    let best = scores.iter().copied().max().unwrap_or(0);
    if best == 0 {
        return;
    }
    for score in scores {
        *score = MAX_NODE_SCORE * *score / best;
    }
}

/// What is left of the highest raw score; all 100 if that is 0.
pub(super) fn to_share_of_best_reversed(scores: &mut [i64]) {
    let best = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = if best == 0 {
            MAX_NODE_SCORE
        } else {
            MAX_NODE_SCORE - MAX_NODE_SCORE * *score / best
        };
    }
}
