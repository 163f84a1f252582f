//! The latest changes of a sequence, so that holders of cached answers can update them where they are stale.
//!
//! A reader remembers the number up to which it has read. The changes it missed are either still recorded, or so old
//! that recomputing the answer costs less than updating it.

/// Default minimum number of recorded changes. A reader that missed more recomputes its answer at the cost of one
/// evaluation per node, about the same as updating that many entries.
const DEFAULT_LIMIT: usize = 4096;

/// A sequence of changes that records the latest ones.
///
/// ```
/// use berth_core::journal::Journal;
/// let mut journal = Journal::default();
/// let seen = journal.next();
/// journal.push('a');
/// journal.push('b');
/// assert_eq!(journal.since(seen), Some(&['a', 'b'][..]));
/// journal.forget();
/// assert_eq!(journal.since(seen), None);
/// ```
#[derive(Clone, Debug)]
pub struct Journal<T> {
    /// The first one has the number `before`.
    entries: Vec<T>,
    before: u64,
    limit: usize,
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }
}

impl<T> Journal<T> {
    /// A journal that records at least this many changes, and at most twice as many.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self {
            entries: Vec::new(),
            before: 0,
            limit,
        }
    }

    /// The number of the next change: the position of a reader that has read everything.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.before + self.entries.len() as u64
    }

    /// Adds a change.
    pub fn push(&mut self, change: T) {
        if self.entries.len() >= 2 * self.limit {
            self.before += self.limit as u64;
            self.entries.drain(..self.limit);
        }
        self.entries.push(change);
    }

    /// Records that anything may have changed: every reader has to recompute.
    pub fn forget(&mut self) {
        self.before = self.next() + 1;
        self.entries.clear();
    }

    /// The changes from a number on, or `None` if some of them are no longer recorded.
    #[must_use]
    pub fn since(&self, number: u64) -> Option<&[T]> {
        let skip = usize::try_from(number.checked_sub(self.before)?).ok()?;
        self.entries.get(skip..)
    }
}

impl<T: PartialEq> Journal<T> {
    /// Whether a change is recorded. The latest are checked first.
    #[must_use]
    pub fn remembers(&self, change: &T) -> bool {
        self.entries.iter().rev().any(|entry| entry == change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_changes_are_remembered() {
        let mut journal = Journal::with_limit(2);
        for change in 0..5 {
            journal.push(change);
        }
        assert_eq!(journal.next(), 5);
        assert_eq!(journal.since(5), Some(&[][..]));
        assert_eq!(journal.since(3), Some(&[3, 4][..]));
        assert_eq!(journal.since(1), None, "it is forgotten");
        assert_eq!(journal.since(6), None, "it has not happened");
    }
}
