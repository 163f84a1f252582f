//! What happens to claims and volumes, as stories: objects, what a user does, and the result.

// Test helpers may panic too; the lints exempt only the test functions themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod beside_binding;
mod binding;
mod clean;
#[path = "../common/mod.rs"]
mod common;
mod held;
mod story;
mod waiting;
