//! Finds races automatically: every component of Berth on one cluster in memory, in virtual time, from a seed.
//!
//! Two schedulers and two controllers with their leases, two provisioners, workload controllers and node agents run the same steps as live.
//! Each sees the cluster through its own watches, which are late, cut, duplicated or have to list again. Requests are lost, refused or
//! late; processes are killed, paused and lose their leases; storage backends hang, forget and lie; and users act meanwhile. Invariants are
//! checked after each write and, once faults have stopped, at the end.
//!
//! One thread, no runtime, no clock: a seed always gives the same story. A failing story is shrunk to a few steps.
//!
//! ```text
//!   story ──▶ ┌───────────┐ ──watches (late, cut, twice)────▶ processes ──▶ jobs
//!   (steps)   │ simulator │ ◀──requests (lost, refused, late)───────────────┘
//!             └───────────┘ ──▶ world (objects, logs), driver ──▶ invariants
//! ```

mod chance;
mod component;
mod components;
mod driver;
mod executor;
mod explore;
mod invariants;
mod keyed;
mod mutation;
mod objects;
mod play;
mod port;
mod process;
mod shrink;
mod simulator;
mod story;
mod trace;
mod user;
mod world;

pub use explore::{Explored, Scenario, explore};
pub use mutation::Mutation;
pub use play::{Outcome, play, retell};
pub use shrink::shrink;
pub use story::Story;
