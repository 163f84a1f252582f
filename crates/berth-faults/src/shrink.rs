//! Shortens a failing story as far as possible.

use crate::mutation::Mutation;
use crate::play::play;
use crate::story::Story;

/// Removes steps as long as the story still fails in the same way.
#[must_use]
pub fn shrink(story: &Story, mutation: Option<Mutation>) -> Story {
    let kind = |story: &Story| play(story, mutation).failure.map(|failure| kind_of(&failure));
    let wanted = kind(story);
    let mut best = story.clone();
    if wanted.is_none() {
        return best;
    }
    loop {
        let before = best.len();
        let mut size = best.len().div_ceil(2).max(1);
        loop {
            let mut start = 0;
            while start < best.len() {
                let mut shorter = best.clone();
                let end = (start + size).min(shorter.len());
                shorter.steps.drain(start..end);
                if kind(&shorter) == wanted {
                    best = shorter;
                } else {
                    start += size;
                }
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
        if best.len() == before {
            return best;
        }
    }
}

/// The kind of a failure: its message without names and numbers.
fn kind_of(failure: &str) -> String {
    let is_word = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '\'');
    let words: Vec<&str> = failure.split_whitespace().take(12).filter(is_word).collect();
    words.join(" ")
}
