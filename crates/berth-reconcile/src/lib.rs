//! How steps are run for keys and how their effects are carried out, without a runtime, a socket or a clock.
//!
//! A component that works on keys is a [`Reconciler`]. [`Keyed`] runs its steps by the rules that hold in every cluster: what is in
//! flight is not touched, answers are taken in before the next step on their objects, a refused key waits longer each time.
//! [`carry_out`] sends a list of effects to a [`Server`]. Whoever drives them brings time, watches and requests: `berth-kube` those of a
//! live cluster, `berth-faults` faulty ones.

mod carry;
mod keyed;
mod outcome;
mod queue;

pub use carry::{Server, Written, carry_out};
pub use keyed::{Keyed, Now, Reconciler, Stepped, Ticket, Work};
pub use outcome::{Answered, Gone, Outcome, Refused, Version};
pub use queue::{Failure, Queue};
