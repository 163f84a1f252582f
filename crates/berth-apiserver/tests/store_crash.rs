//! A writer is killed at random points, many times. Every confirmed write must be complete afterwards.
//!
//! The test starts itself again as the writer: that process runs only `writer_process`, with the directory in its
//! environment, and prints a line for each write once the store has confirmed it.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use berth_apiserver::store::{Expect, Limits, PageQuery, Store};
use serde_json::{Value, json};

const DIRECTORY: &str = "BERTH_CRASH_TEST_DIRECTORY";
const KILLS: usize = 60;
const WRITERS: usize = 4;
const KEYS: u64 = 8;

/// A small random number generator: the points of the kills need to vary, not to be secret.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The body contains its number at both ends, so that half of it is detected.
fn body(writer: usize, number: u64) -> Value {
    let filling = "x".repeat((number % 3000) as usize);
    json!({"a": number, "filling": filling, "metadata": {"name": format!("{writer}")}, "z": number})
}

fn write_for_ever(store: &Store, writer: usize) {
    let out = std::io::stdout();
    let start = store.version();
    for step in 0.. {
        let number = start + step;
        let key = format!("ns/{writer}-{}", number % KEYS);
        let current = store.latest("pods", &key);
        let ticket = match &current {
            None => store.put("pods", &key, Expect::Absent, body(writer, number)),
            Some(object) if number % 5 == 4 => store.delete("pods", &key, object.version(), object.value()),
            Some(object) => store.put("pods", &key, Expect::Version(object.version()), body(writer, number)),
        };
        let event = ticket.unwrap().wait().unwrap();
        let gone = event.kind == berth_apiserver::store::EventKind::Deleted;
        let mut out = out.lock();
        // The pipe breaks when the parent has ended; there is nothing left to test then.
        if writeln!(out, "done {key} {} {}", event.version(), u8::from(gone))
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
}

/// Not a separate test: the body of the process that is killed.
#[test]
fn writer_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else {
        return;
    };
    let store = Store::open(directory.as_ref(), Limits::default()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write_for_ever(store, writer));
        }
    });
}

/// Runs the writer until it has printed `lines` lines and a little longer, kills it, and returns its output.
fn killed_writer(directory: &std::path::Path, lines: u64, longer: Duration) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_process", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = Vec::new();
    while (said.len() as u64) < lines {
        let mut line = String::new();
        if output.read_line(&mut line).unwrap() == 0 {
            break;
        }
        said.push(line);
    }
    let until = Instant::now() + longer;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said.extend(output.lines().map_while(Result::ok).map(|line| line + "\n"));
    said
}

/// By key, the version of the last confirmed write and whether it was a deletion.
fn last_done(said: &[String], done: &mut HashMap<String, (u64, bool)>) -> u64 {
    let mut writes = 0;
    for line in said.iter().filter(|line| line.ends_with('\n')) {
        // The first line follows the test runner's own output.
        let words: Vec<_> = line.split_whitespace().skip_while(|word| *word != "done").collect();
        if let ["done", key, version, gone] = words[..] {
            writes += 1;
            done.insert(key.to_owned(), (version.parse().unwrap(), gone == "1"));
        }
    }
    writes
}

#[test]
fn what_was_done_survives_a_kill_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ u64::from(std::process::id()));
    let mut done = HashMap::new();
    let mut writes = 0;
    for _ in 0..KILLS {
        let lines = random.below(60);
        let longer = Duration::from_micros(random.below(4000));
        let said = killed_writer(directory.path(), lines, longer);
        writes += last_done(&said, &mut done);

        let store = Store::open(directory.path(), Limits::default()).unwrap();
        let everything = PageQuery::all("");
        for object in store.list("pods", &everything).unwrap().objects {
            let value = object.value();
            assert_eq!(value["a"], value["z"], "half a write of {}", object.key());
            assert!(object.version() <= store.version());
        }
        let mut moved = 0;
        for (key, (version, gone)) in &done {
            let found = store.get("pods", key);
            match &found {
                Some(object) if *gone => assert!(object.version() > *version, "{key} came back"),
                Some(object) => assert!(object.version() >= *version, "{key} went back"),
                None => assert!(*gone || store.version() > *version, "{key} was lost"),
            }
            let expected = (!*gone).then_some(*version);
            moved += usize::from(found.map(|object| object.version()) != expected);
        }
        assert!(
            moved <= WRITERS,
            "{moved} keys differ, each writer can have one write under way"
        );
        // The content of the reopened store is the new baseline.
        done.retain(|key, (version, gone)| {
            *gone = store.get("pods", key).is_none();
            *version = store
                .get("pods", key)
                .map_or(store.version(), |object| object.version());
            true
        });
    }
    assert!(writes > 100, "only {writes} writes were done between the kills");
}
