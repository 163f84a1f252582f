//! A row that is in several tables at once: in that of now, in that of the past, and among what changed.

use serde::{Serialize, Serializer};
use std::ops::Deref;
use std::sync::Arc;

/// A row that costs its memory once, however many tables hold it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shared<R>(Arc<R>);

impl<R> Shared<R> {
    pub(crate) fn new(row: R) -> Self {
        Self(Arc::new(row))
    }
}

impl<R: Clone> Shared<R> {
    /// To be changed. What others hold stays as it is.
    pub(crate) fn own(&mut self) -> &mut R {
        Arc::make_mut(&mut self.0)
    }
}

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Deref for Shared<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0
    }
}

impl<R: Serialize> Serialize for Shared<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        R::serialize(self, serializer)
    }
}
