//! What a page about a cluster shows: nodes in their zones and racks, pods, claims, volumes and pools, each as a small row.
//!
//! A [`Model`] is fed with the objects that watches bring. It keeps the rows and hands out what changed since it was last
//! asked, as an [`Update`]. Whoever applies every update to an empty [`State`] has the rows of the model. [`History`] keeps
//! updates of the past, within bounds, so that any moment of it can be shown again.
//!
//! Pure: the time is a parameter, and objects come in as values. Rows say what objects say; nothing is decided here.

mod entry;
mod history;
mod model;
mod moment;
mod overview;
mod place;
mod recording;
mod rows;
mod shared;
mod tables;

pub use entry::Entry;
pub use history::{History, ROWS_MAX};
pub use model::{Model, Tick};
pub use moment::Moment;
pub use overview::{Overview, Rack, Storage, Sum, WaitingPod, Zone};
pub use recording::{RecordedStep, Recording};
pub use rows::{Amount, ClaimRow, ClassRow, NodeRow, PodRow, PoolRow, VolumeRow, WorkloadRow};
pub use shared::Shared;
pub use tables::{Changes, State, Table, Update};
