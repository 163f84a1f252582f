//! Runs steps for keys and carries out their effects, without a runtime, a socket or a clock.
//!
//! A component that works on keys is a [`Reconciler`]. [`Keyed`] runs its steps by rules that hold in every cluster: objects in flight
//! are not touched, responses are applied before the next step on their objects, and a refused key waits longer each time. [`carry_out`]
//! sends a list of effects to a [`Server`]. The caller provides time, watches and requests: `berth-kube` those of a live cluster,
//! `berth-faults` faulty ones.

mod carry;
mod keyed;
mod outcome;
mod queue;

pub use carry::{Server, Written, carry_out};
pub use keyed::{Keyed, Now, Reconciler, Stepped, Ticket, Work};
pub use outcome::{Answered, Gone, Outcome, Refused, Version};
pub use queue::{Failure, Queue};
