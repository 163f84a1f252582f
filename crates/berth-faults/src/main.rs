//! Plays stories from seeds until one fails.
//!
//! Exit status 0 if none failed, 1 if one did: it is shrunk and printed.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use berth_faults::{Mutation, Scenario, Story, explore, play, retell, shrink};
use clap::Parser;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

// Stories allocate many small, short-lived objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Finds races: runs random histories of faults and user actions on a cluster in memory
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds to play, as FROM..TO
    #[arg(long, value_parser = range, default_value = "0..10000")]
    seeds: Range<u64>,
    /// One seed to run and print in full
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// A story to run and print in full, as written by -o
    #[arg(long, conflicts_with_all = ["seeds", "seed"])]
    story: Option<PathBuf>,
    /// Stop after this many minutes
    #[arg(long)]
    minutes: Option<f64>,
    /// Enable a bug, to see whether it is found
    #[arg(long, value_parser = mutation)]
    mutation: Option<Mutation>,
    /// For each bug, print how many seeds it takes to find it
    #[arg(long)]
    mutations: bool,
    /// Explore every order of messages with this many schedulers and pods, such as 2,2
    #[arg(long, value_parser = scenario)]
    explore: Option<(usize, usize)>,
    /// Maximum number of overtaken messages
    #[arg(long, default_value_t = 1, requires = "explore")]
    overtaken: usize,
    /// Without a user
    #[arg(long, requires = "explore")]
    no_user: bool,
    /// Maximum number of states
    #[arg(long, default_value_t = 10_000_000, requires = "explore")]
    states: usize,
    /// Number of threads
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Continue after a failure, and count
    #[arg(long)]
    keep_going: bool,
    /// Do not shrink
    #[arg(long)]
    no_shrink: bool,
    /// File to which the story of a failure is written
    #[arg(short, long)]
    output: Option<PathBuf>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("expected FROM..TO")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(number(from)?..number(to)?)
}

fn scenario(text: &str) -> Result<(usize, usize), String> {
    let (schedulers, pods) = text.split_once(',').ok_or("expected SCHEDULERS,PODS")?;
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    Ok((number(schedulers)?, number(pods)?))
}

fn mutation(name: &str) -> Result<Mutation, String> {
    let names = || Mutation::ALL.map(|mutation| mutation.told().0).join(", ");
    Mutation::named(name).ok_or_else(|| format!("no such bug; there are {}", names()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some((schedulers, pods)) = arguments.explore {
        let scenario = Scenario::new(schedulers, pods, arguments.overtaken, !arguments.no_user);
        let explored = explore(&scenario, arguments.states);
        println!(
            "{} states, {} messages, {} ends{}",
            explored.states,
            explored.steps,
            explored.ends,
            if explored.complete { "" } else { ": not all" }
        );
        return match explored.failure {
            Some((path, why)) => {
                path.iter().for_each(|line| println!("{line}"));
                println!("WRONG: {why}");
                ExitCode::FAILURE
            }
            None => ExitCode::SUCCESS,
        };
    }
    if arguments.mutations {
        return find_mutations(&arguments);
    }
    if let Some(path) = &arguments.story {
        let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let story = read.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        return match story {
            Ok(story) => tell(&story, &arguments),
            Err(problem) => {
                eprintln!("{}: {problem}", path.display());
                ExitCode::from(2)
            }
        };
    }
    if let Some(seed) = arguments.seed {
        return tell(&Story::of(seed), &arguments);
    }
    search(&arguments)
}

/// Prints a story in full.
fn tell(story: &Story, arguments: &Arguments) -> ExitCode {
    let failure = play(story, arguments.mutation).failure;
    let story = match &failure {
        Some(_) if !arguments.no_shrink => shrink(story, arguments.mutation),
        _ => story.clone(),
    };
    retell(&story, arguments.mutation)
        .iter()
        .for_each(|line| println!("{line}"));
    match failure {
        Some(_) => {
            keep(&story, arguments);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn keep(story: &Story, arguments: &Arguments) {
    if let Some(path) = &arguments.output
        && let Ok(text) = serde_json::to_string_pretty(story)
        && let Err(error) = std::fs::write(path, text)
    {
        eprintln!("{}: {error}", path.display());
    }
}

/// Prints a table row for each bug: its name, what is wrong, after how many seeds it was found, and how.
fn find_mutations(arguments: &Arguments) -> ExitCode {
    let mut missed = false;
    for mutation in Mutation::ALL {
        let (name, wrong) = mutation.told();
        let found = arguments.seeds.clone().find_map(|seed| {
            let failure = play(&Story::of(seed), Some(mutation)).failure?;
            Some((seed - arguments.seeds.start + 1, failure))
        });
        match found {
            Some((seeds, failure)) => println!("| `{name}` | {wrong} | {seeds} | {failure} |"),
            None => {
                missed = true;
                println!("| `{name}` | {wrong} | not found | |");
            }
        }
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Plays all seeds.
fn search(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let deadline = arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let next = AtomicU64::new(arguments.seeds.start);
    let (played, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let first = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let is_late = deadline.is_some_and(|deadline| begun.elapsed() > deadline);
                    if seed >= arguments.seeds.end || is_late {
                        break;
                    }
                    let outcome = play(&Story::of(seed), arguments.mutation);
                    played.fetch_add(1, Ordering::Relaxed);
                    if let Some(failure) = outcome.failure {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("seed {seed}: {failure}");
                        if let Ok(mut first) = first.lock() {
                            let known: &mut Option<u64> = &mut first;
                            *known = Some(known.map_or(seed, |known| known.min(seed)));
                        }
                        if !arguments.keep_going {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let (played, failed) = (played.into_inner(), failed.into_inner());
    let rate = played as f64 / begun.elapsed().as_secs_f64();
    println!("{played} seeds, {failed} failed, {rate:.0} a second");
    match first.into_inner().ok().flatten() {
        Some(seed) => {
            println!("cargo run --release -p berth-faults -- --seed {seed}");
            if !arguments.keep_going {
                return tell(&Story::of(seed), arguments);
            }
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
