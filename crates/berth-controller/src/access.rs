//! Access modes as a set.

use std::cmp::Ordering;

const MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// A set of access modes, ordered by how many there are: the fewest come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessModes(u8);

impl AccessModes {
    /// The set of these modes. A mode that Kubernetes does not know is left out.
    #[must_use]
    pub fn of(modes: &[String]) -> Self {
        let bits = MODES
            .iter()
            .enumerate()
            .filter(|(_, known)| modes.iter().any(|mode| mode == *known))
            .fold(0, |bits, (position, _)| bits | 1 << position);
        Self(bits)
    }

    /// Whether all modes of the other set are in this one.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// How many modes there are.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl Ord for AccessModes {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.count(), self.0).cmp(&(other.count(), other.0))
    }
}

impl PartialOrd for AccessModes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
