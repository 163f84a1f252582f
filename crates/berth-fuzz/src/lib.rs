//! Feeds every reader of outside bytes with mutated inputs.
//!
//! A [`Target`] reads one input and checks what must hold of any input: no panic, and laws such as "a parsed quantity is parsed
//! again from its own text". Inputs are made from a corpus in this repository by [`mutate`], from a seed, so that a run can be repeated. An
//! input whose answer has a new shape joins the pool that further inputs are made from: that finds its way behind the first
//! check without instrumented code, which stable Rust does not have.
//!
//! [`Fuzz::run`] runs one target in this process. [`supervise`] runs it in a child with a limit on memory: a stack that overflows and an
//! allocation that fails end a process, and the input must survive that.

mod corpus;
mod fuzz;
pub mod mutate;
mod planted;
pub mod supervise;
pub mod targets;

pub use corpus::seeds;
pub use fuzz::{Finding, Fuzz, Report, Trouble};
pub use planted::PLANTED;

/// A reader of outside bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its directory in the corpus.
    pub name: &'static str,
    /// Reads an input and returns the shape of the answer. Panics if something is wrong.
    pub read: fn(&[u8]) -> Shape,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

/// What kind of answer an input got: a text in which everything that varies is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape(String);

/// Longer shapes differ in what they quote.
const SHAPE_CHARS_MAX: usize = 120;

impl Shape {
    /// The shape of an answer: quoted parts and numbers are left out.
    pub fn of(answer: &str) -> Self {
        let mut shape = String::new();
        let mut quoted = false;
        for c in answer.chars() {
            match c {
                '"' | '`' => quoted = !quoted,
                _ if quoted || c.is_ascii_digit() => {}
                _ if shape.len() >= SHAPE_CHARS_MAX => break,
                c => shape.push(c),
            }
        }
        Self(shape)
    }

    /// Both.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self(format!("{} / {}", self.0, other.0))
    }

    /// The shape of a result.
    pub fn of_result<T, E: std::fmt::Display>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::of("ok"),
            Err(error) => Self::of(&error.to_string()),
        }
    }
}
