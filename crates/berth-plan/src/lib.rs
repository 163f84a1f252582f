//! Capacity planning: how much more fits on a cluster, what to add so that everything runs, and what can be removed.
//!
//! Every answer is checked by simulations of [`berth_cluster::simulation`], the same as in `berth simulate`. This crate
//! chooses what to try next. It reads no files and no clock: the caller passes objects, and a [`Watch`] that ends the
//! search.

mod add;
mod candidate;
mod disks;
mod fit;
mod item;
mod mixed;
mod need;
mod oracle;
mod search;
mod settled;
mod shrink;
mod standing;
mod storage;
mod survive;
mod template;

pub use add::{AddAnswer, Addition, Offers, add};
pub use candidate::{Candidate, Cost, of_cluster as candidates_of_cluster, zones};
pub use disks::DiskKind;
pub use fit::{Fit, Subject, SubjectError, fit};
pub use item::{Added, Item, with_items};
pub use need::{Need, What};
pub use oracle::{Halt, Oracle, Played, Watch};
pub use shrink::{Kept, Removed, Shrunk, Why, shrink};
pub use standing::{Standing, Waiting};
pub use survive::{LeastSpare, Loss, Survive, Survived, survive};
pub use template::{Supply, Template};
