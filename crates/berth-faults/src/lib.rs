//! Finds races by itself: every component of Berth on one cluster in memory, in virtual time, from a seed.
//!
//! Two schedulers and two controllers with their leases, two provisioners, workload controllers and node agents run the very steps that run
//! live. Each sees the cluster through watches of its own, which are late, cut, doubled or have to list again; requests are
//! lost, refused or late; processes are killed, paused and deposed; storage backends hang, forget and lie; and users act meanwhile.
//! After each write it is checked what must hold always, and when faults have stopped, what must hold in the end.
//!
//! One thread, no runtime, no clock: a seed gives the same story each time. A story that fails is shrunk to few steps.
//!
//! ```text
//!   story ──▶ ┌───────────┐ ──watches (late, cut, doubled)──▶ processes ──▶ jobs
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
