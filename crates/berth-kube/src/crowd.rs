//! A limit on connections that keeps no new client out: if there are too many, the oldest is closed.

use crate::endpoint::lock;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// A limited number of connections. When it is exceeded, the oldest is closed.
pub struct Crowd {
    max: usize,
    /// Tokens that close each connection, oldest first. Also cancelled when a connection ends.
    oldest_first: Mutex<VecDeque<CancellationToken>>,
}

impl Crowd {
    /// A crowd of at most `max` connections.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let oldest_first = Mutex::default();
        Self { max, oldest_first }
    }

    /// Adds a connection, and closes the oldest if there are too many now. The connection ends when `stay` is cancelled,
    /// and cancels it when it ends or leaves the crowd.
    pub fn enter(&self, stay: &CancellationToken) {
        let mut oldest_first = lock(&self.oldest_first);
        oldest_first.retain(|stay| !stay.is_cancelled());
        if oldest_first.len() >= self.max
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.cancel();
        }
        oldest_first.push_back(stay.clone());
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Crowd")
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Crowd;
    use tokio_util::sync::CancellationToken;

    #[test]
    fn the_oldest_makes_room_and_who_left_takes_none() {
        let crowd = Crowd::new(2);
        let guests: Vec<_> = (0..4).map(|_| CancellationToken::new()).collect();
        crowd.enter(&guests[0]);
        crowd.enter(&guests[1]);
        assert!(!guests[0].is_cancelled());
        crowd.enter(&guests[2]);
        assert!(guests[0].is_cancelled());
        guests[2].cancel();
        crowd.enter(&guests[3]);
        assert!(!guests[1].is_cancelled(), "one had left");
    }
}
