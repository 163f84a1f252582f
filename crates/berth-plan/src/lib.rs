//! Capacity planning: how much more fits on a cluster, what to add so that everything runs, and what can go.
//!
//! Every answer is checked by simulations of [`berth_cluster::simulation`], the ones that `berth simulate` plays. This crate
//! chooses what to try next. It reads no files and no clock: the caller hands objects in, and says through a [`Watch`]
//! when the search has to end.

mod fit;
mod oracle;
mod standing;

pub use fit::{Fit, Subject, SubjectError, fit};
pub use oracle::{Halt, Oracle, Played, Watch};
pub use standing::{Standing, Waiting};
