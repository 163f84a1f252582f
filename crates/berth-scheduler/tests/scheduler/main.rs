//! Stories of a scheduler on an API of the tests' own: initial objects, what happens, expected objects.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a story that cannot be told fails the test"
)]

mod api;
mod events;
mod faults;
mod objects;
mod obstacles;
mod oversleeping;
mod preemption;
mod random;
mod stateful;
mod world;
