//! Runs a target on many inputs, in this process.

use crate::Target;
use crate::mutate::{Pool, Random};
use crate::{Shape, seeds};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

/// An input may take this long. The largest takes some milliseconds, in a build without optimisation: the rest is for a machine that
/// is busy with something else.
const SLOW: Duration = Duration::from_secs(2);
/// How often a slow input is read again before it counts: it may have waited for a processor.
const SECOND_LOOKS: usize = 3;
/// A target whose every input fails has been understood.
const FINDINGS_MAX: usize = 20;

/// A run of one target.
#[derive(Clone, Debug)]
pub struct Fuzz {
    /// The target.
    pub target: Target,
    /// The first number of the generator.
    pub seed: u64,
    /// Stop after so many inputs.
    pub inputs: u64,
    /// Stop at this time.
    pub until: Option<Instant>,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It panicked, with this message.
    Panic(String),
    /// It took this long.
    Slow(Duration),
    /// The process ended, for this reason.
    Died(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Panic(message) => write!(formatter, "panic: {message}"),
            Self::Slow(time) => write!(formatter, "slow: {time:?}"),
            Self::Died(how) => write!(formatter, "the process ended: {how}"),
        }
    }
}

/// An input that a target did not stand.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The input.
    pub input: Vec<u8>,
    /// What was wrong.
    pub trouble: Trouble,
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many inputs were read.
    pub inputs: u64,
    /// How many kinds of answers there were.
    pub shapes: usize,
    /// What was wrong, once for each kind of trouble.
    pub findings: Vec<Finding>,
}

impl Fuzz {
    /// Reads all seeds, then mutated inputs. `about_to` is called with each input before it is read.
    ///
    /// # Errors
    /// If the seeds cannot be read.
    pub fn run(&self, about_to: &mut dyn FnMut(&[u8])) -> std::io::Result<Report> {
        let seeds: Vec<Vec<u8>> = seeds(self.target.name)?.into_iter().map(|(_, seed)| seed).collect();
        Ok(self.run_on(seeds, about_to))
    }

    /// Like [`Self::run`], from these seeds.
    pub fn run_on(&self, seeds: Vec<Vec<u8>>, about_to: &mut dyn FnMut(&[u8])) -> Report {
        let mut random = Random::new(self.seed);
        let mut pool = Pool::new(&seeds);
        let mut shapes = BTreeSet::new();
        let mut known = BTreeSet::new();
        let mut report = Report::default();
        let mut seeds = seeds.into_iter();
        while report.inputs < self.inputs && self.until.is_none_or(|until| Instant::now() < until) {
            let input = seeds.next().unwrap_or_else(|| pool.draw(&mut random));
            about_to(&input);
            report.inputs += 1;
            match read(self.target, &input) {
                Ok(shape) => {
                    if shapes.insert(shape) {
                        pool.add(input);
                    }
                }
                Err(trouble) => {
                    if known.insert(Shape::of(&trouble.to_string())) && report.findings.len() < FINDINGS_MAX {
                        report.findings.push(Finding { input, trouble });
                    }
                }
            }
        }
        report.shapes = shapes.len();
        report
    }
}

/// Reads one input, with a second look at a slow one.
///
/// # Errors
/// What was wrong.
pub(crate) fn read(target: Target, input: &[u8]) -> Result<Shape, Trouble> {
    let (shape, mut time) = timed(target, input)?;
    for _ in 0..SECOND_LOOKS {
        if time < SLOW {
            return Ok(shape);
        }
        time = time.min(timed(target, input)?.1);
    }
    if time < SLOW {
        Ok(shape)
    } else {
        Err(Trouble::Slow(time))
    }
}

fn timed(target: Target, input: &[u8]) -> Result<(Shape, Duration), Trouble> {
    let started = Instant::now();
    let shape = quietly(|| (target.read)(input)).map_err(Trouble::Panic)?;
    Ok((shape, started.elapsed()))
}

thread_local! {
    /// The message of the last panic, while a target runs on this thread.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Catches a panic and returns its message, without printing it.
fn quietly<T>(task: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_caught = CAUGHT.with(|caught| {
                let mut caught = caught.borrow_mut();
                let is_caught = caught.is_some();
                *caught = caught.take().map(|_| panic.to_string());
                is_caught
            });
            if !is_caught {
                usual(panic);
            }
        }));
    });
    CAUGHT.with(|caught| *caught.borrow_mut() = Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(task));
    let message = CAUGHT.with(|caught| caught.borrow_mut().take()).unwrap_or_default();
    result.map_err(|_| message)
}
