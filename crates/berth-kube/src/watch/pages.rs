//! Bounds on a list that is read page by page: a server that never ends it must not fill the memory.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

/// A list with more pages is invalid: ten million objects are more than any cluster holds.
const PAGES_MAX: usize = 10_000;
/// A list with more objects is invalid, whatever the size of its pages: six times the pods of the largest clusters that Kubernetes supports.
const OBJECTS_MAX: usize = 1_000_000;
/// A longer list is invalid: that is the largest database that etcd is meant for, and JSON is about as long as what it stores.
const BYTES_MAX: usize = 8 << 30;

/// The part of a list that was read.
#[derive(Debug, Default)]
pub(super) struct Pages {
    bytes: usize,
    objects: usize,
    /// Tokens of the pages so far, as hashes: a token may be long.
    tokens: HashSet<u64>,
    hasher: RandomState,
}

impl Pages {
    /// Records a page.
    pub(super) fn read(&mut self, bytes: usize, objects: usize) -> Result<(), &'static str> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.objects = self.objects.saturating_add(objects);
        if self.bytes > BYTES_MAX {
            return Err("a list of more than 8 GiB");
        }
        if self.objects > OBJECTS_MAX {
            return Err("a list of more than 1,000,000 objects");
        }
        Ok(())
    }

    /// Records the token of the next page.
    pub(super) fn proceed(&mut self, token: &str) -> Result<(), &'static str> {
        let is_new = self.tokens.insert(self.hasher.hash_one(token));
        if !is_new || self.tokens.len() > PAGES_MAX {
            return Err("a list without an end");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends() {
        let mut pages = Pages::default();
        for page in 0..PAGES_MAX {
            assert_eq!(pages.read(1 << 19, 100), Ok(()));
            assert_eq!(pages.proceed(&page.to_string()), Ok(()));
        }
        assert!(pages.proceed("one more").is_err(), "too many pages");
        assert!(pages.read(4 << 30, 0).is_err(), "too many bytes");
        assert!(Pages::default().read(0, OBJECTS_MAX + 1).is_err(), "too many objects");
    }

    #[test]
    fn no_page_is_read_twice() {
        let mut pages = Pages::default();
        assert_eq!(pages.proceed("a"), Ok(()));
        assert_eq!(pages.proceed("b"), Ok(()));
        assert!(pages.proceed("a").is_err());
    }
}
