//! Invariants: always, and at the end.

mod always;
mod clean;
mod end;
mod held;

pub(crate) use always::Always;
pub(crate) use end::check;
