//! Schedules of cron jobs: five fields, or a predefined word. The next run is not computed here.

use std::ops::RangeInclusive;

/// Fields in order, with their valid values and the names of some of them.
const FIELDS: [(RangeInclusive<u32>, &[&str]); 5] = [
    (0..=59, &[]),
    (0..=23, &[]),
    (1..=31, &[]),
    (1..=12, &MONTHS),
    (0..=6, &DAYS),
];
/// The first one is 1.
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
/// The first one is 0.
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const DESCRIPTORS: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// What is wrong with a schedule.
pub(crate) fn problem(schedule: &str) -> Option<String> {
    if schedule.starts_with('@') {
        return descriptor_problem(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (found, shown) = (fields.len(), fields.join(" "));
        return Some(format!("expected exactly 5 fields, found {found}: [{shown}]"));
    }
    let mut pairs = fields.iter().zip(&FIELDS);
    pairs.find_map(|(field, (values, words))| {
        let parts = field.split(',').filter(|part| !part.is_empty());
        parts
            .map(|part| range_problem(part, values, words))
            .find_map(Result::err)
    })
}

fn descriptor_problem(schedule: &str) -> Option<String> {
    if DESCRIPTORS.contains(&schedule) {
        return None;
    }
    let Some(duration) = schedule.strip_prefix("@every ") else {
        return Some(format!("unrecognized descriptor: {schedule}"));
    };
    let wrong = || format!("failed to parse duration {schedule}: time: invalid duration {duration:?}");
    (!is_duration(duration)).then(wrong)
}

/// Numbers with units, for example `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['+', '-']);
    let is_empty = rest.is_empty();
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
        let after = units.iter().filter_map(|unit| number.strip_prefix(unit));
        match after.min_by_key(|after| after.len()) {
            Some(after) if number.len() < rest.len() => rest = after,
            _ => return false,
        }
    }
    !is_empty
}

/// `*`, a number or a range, and a step after a slash.
fn range_problem(part: &str, values: &RangeInclusive<u32>, words: &[&str]) -> Result<(), String> {
    let (range, step) = match part.split('/').collect::<Vec<_>>().as_slice() {
        [range] => (*range, None),
        [range, step] => (*range, Some(*step)),
        _ => return Err(format!("too many slashes: {part}")),
    };
    let bounds: Vec<&str> = range.split('-').collect();
    let (start, mut end) = match bounds.as_slice() {
        ["*" | "?", ..] => (*values.start(), *values.end()),
        [only] => (number(only, words)?, number(only, words)?),
        [start, end] => (number(start, words)?, number(end, words)?),
        _ => return Err(format!("too many hyphens: {part}")),
    };
    let is_single = bounds.len() == 1;
    let step = match step {
        None => 1,
        Some(step) => {
            let step = number(step, &[])?;
            // `3/15` means from 3 on.
            if is_single {
                end = *values.end();
            }
            step
        }
    };
    if start < *values.start() {
        let minimum = values.start();
        return Err(format!(
            "beginning of range ({start}) below minimum ({minimum}): {part}"
        ));
    }
    if end > *values.end() {
        let maximum = values.end();
        return Err(format!("end of range ({end}) above maximum ({maximum}): {part}"));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {part}"
        ));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

fn number(text: &str, words: &[&str]) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(index) = words.iter().position(|word| *word == lower) {
        let first = if words.len() == MONTHS.len() { 1 } else { 0 };
        return Ok(first + u32::try_from(index).unwrap_or(0));
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        ));
    }
    text.parse()
        .map_err(|_| format!("negative number ({text}) not allowed: {text}"))
}
