//! Makes an input from others: by bytes, by lines, and by the structure of JSON.

use serde_json::{Map, Number, Value, json};

/// Longer inputs are cut. Bounds on size have tests of their own; many small inputs find more.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// A small random number generator: a run can be repeated from its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator. Seeds that are near each other give unrelated numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    /// A number below a limit; zero if the limit is.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A number below the usual limit, and now and then below a larger one.
    fn rarely_more(&mut self, usual: usize, rare: usize) -> usize {
        let limit = if self.one_in(8) { rare } else { usual };
        self.below(limit)
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

/// What inputs are made from.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    inputs: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

/// Words that readers treat in a special way, whatever their format.
const WORDS: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1e309",
    "9223372036854775808",
    "-9223372036854775809",
    "1Gi",
    "0.1m",
    "9e999",
    "\"",
    "\\u0000",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "---\n",
    "- ",
    "&a",
    "*a",
    "<<: ",
    "!!binary ",
    "|\n",
    ">-\n",
    "%",
    "\u{FEFF}",
    "\u{1b}[31m",
    "\u{85}",
    "$patch",
    "$retainKeys",
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "~1",
    "~0",
    "/-",
    "/",
    "\0",
    "\r\n",
    "\t",
];
const MOST_WORDS: usize = 4000;
const MOST_INPUTS: usize = 2000;

impl Pool {
    /// A pool of seeds, with the words in them.
    #[must_use]
    pub fn new(seeds: &[Vec<u8>]) -> Self {
        let mut pool = Self {
            inputs: Vec::new(),
            words: WORDS.iter().map(|word| word.as_bytes().to_vec()).collect(),
        };
        for seed in seeds {
            let words = seed.split(|byte| !byte.is_ascii_alphanumeric() && !b"-_./".contains(byte));
            pool.words
                .extend(words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec));
            pool.add(seed.clone());
        }
        pool.words.sort_unstable();
        pool.words.dedup();
        pool.words.truncate(MOST_WORDS);
        pool
    }

    /// Adds an input, until the pool is full.
    pub fn add(&mut self, input: Vec<u8>) {
        if self.inputs.len() < MOST_INPUTS {
            self.inputs.push(input);
        }
    }

    /// A new input.
    pub fn draw(&self, random: &mut Random) -> Vec<u8> {
        let mut input = random.pick(&self.inputs).cloned().unwrap_or_default();
        let edits = 1 + random.rarely_more(3, 12);
        for _ in 0..edits {
            let structured = random.below(3) > 0;
            let edited = structured.then(|| self.edit_json(&input, random)).flatten();
            input = edited.unwrap_or_else(|| self.edit_bytes(input, random));
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn edit_bytes(&self, mut input: Vec<u8>, random: &mut Random) -> Vec<u8> {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(16)).min(input.len());
        match random.below(10) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.below(256).try_into().unwrap_or(0),
            2 => drop(input.drain(at..end)),
            3 => input.insert(at, random.below(256).try_into().unwrap_or(0)),
            4 => {
                let part = input[at..end].to_vec();
                let copies = 1 + random.rarely_more(3, 400);
                drop(input.splice(at..at, part.repeat(copies)));
            }
            5 => {
                let other = random.pick(&self.inputs).map_or(&[][..], Vec::as_slice);
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 => edit_lines(&mut input, random),
            7 => edit_number(&mut input, at, random),
            _ => {
                let word = random.pick(&self.words).map_or(&[][..], Vec::as_slice);
                let until = if random.one_in(2) { at } else { end };
                drop(input.splice(at..until, word.iter().copied()));
            }
        }
        input
    }

    /// Changes a value inside a JSON document, or in one of its lines. `None` if there is none.
    fn edit_json(&self, input: &[u8], random: &mut Random) -> Option<Vec<u8>> {
        if let Ok(mut document) = serde_json::from_slice::<Value>(input) {
            self.edit_value(&mut document, random);
            return serde_json::to_vec(&document).ok();
        }
        let mut lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
        let at = random.below(lines.len());
        let mut document: Value = serde_json::from_slice(lines.get(at)?).ok()?;
        self.edit_value(&mut document, random);
        let line = serde_json::to_vec(&document).ok()?;
        lines[at] = &line;
        Some(lines.join(&b'\n'))
    }

    fn edit_value(&self, document: &mut Value, random: &mut Random) {
        // Deeper places are as likely as the top: most of an object is there.
        let goes_on = !random.one_in(4);
        match document {
            Value::Object(fields) if goes_on && !fields.is_empty() => {
                let at = random.below(fields.len());
                if let Some((_, below)) = fields.iter_mut().nth(at) {
                    self.edit_value(below, random);
                }
            }
            Value::Array(items) if goes_on && !items.is_empty() => {
                let at = random.below(items.len());
                self.edit_value(&mut items[at], random);
            }
            Value::Object(fields) if random.below(3) > 0 => self.edit_fields(fields, random),
            Value::Array(items) if random.below(3) > 0 => self.edit_items(items, random),
            place => *place = self.value(random),
        }
    }

    fn edit_fields(&self, fields: &mut Map<String, Value>, random: &mut Random) {
        let names: Vec<String> = fields.keys().cloned().collect();
        match (random.below(4), random.pick(&names)) {
            (0, Some(name)) => drop(fields.remove(name)),
            (1, Some(name)) => {
                let value = fields.remove(name).unwrap_or_default();
                fields.insert(self.word(random), value);
            }
            (2, Some(name)) => {
                let value = fields.get(name).cloned().unwrap_or_default();
                fields.insert(self.word(random), value);
            }
            _ => drop(fields.insert(self.word(random), self.value(random))),
        }
    }

    fn edit_items(&self, items: &mut Vec<Value>, random: &mut Random) {
        let at = random.below(items.len());
        match random.below(4) {
            0 if !items.is_empty() => drop(items.remove(at)),
            1 if !items.is_empty() => {
                let copies = 1 + random.rarely_more(2, 300);
                let item = items[at].clone();
                items.extend(std::iter::repeat_n(item, copies));
            }
            2 if !items.is_empty() => {
                let other = random.below(items.len());
                items.swap(at, other);
            }
            _ => items.insert(at, self.value(random)),
        }
    }

    fn word(&self, random: &mut Random) -> String {
        let word = random.pick(&self.words).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(word).into_owned()
    }

    fn value(&self, random: &mut Random) -> Value {
        match random.below(14) {
            0 => Value::Null,
            1 => json!(random.one_in(2)),
            2 => json!(i64::MIN),
            3 => json!(u64::MAX),
            4 => Number::from_f64([1e308, -0.0, 0.5, 1e-308][random.below(4)]).map_or(Value::Null, Value::Number),
            5 => json!(random.below(1000)),
            6 => json!("a".repeat(random.below(300))),
            7 => json!(""),
            8 => json!({}),
            9 => json!([]),
            10 if random.one_in(4) => nested(random.below(200), random),
            11 => random
                .pick(&self.inputs)
                .and_then(|other| serde_json::from_slice(other).ok())
                .map_or(Value::Null, |other| part(other, random)),
            _ => json!(self.word(random)),
        }
    }
}

/// Some part of a document.
fn part(mut document: Value, random: &mut Random) -> Value {
    while !random.one_in(3) {
        let below = match &mut document {
            Value::Object(fields) => {
                let at = random.below(fields.len());
                fields.values_mut().nth(at).map(Value::take)
            }
            Value::Array(items) => {
                let at = random.below(items.len());
                items.get_mut(at).map(Value::take)
            }
            _ => None,
        };
        match below {
            Some(below) => document = below,
            None => break,
        }
    }
    document
}

fn nested(depth: usize, random: &mut Random) -> Value {
    let in_lists = random.one_in(2);
    (0..depth).fold(
        Value::Null,
        |inner, _| if in_lists { json!([inner]) } else { json!({"a": inner}) },
    )
}

/// Repeats, removes, swaps or indents a line.
fn edit_lines(input: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<Vec<u8>> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (at, other) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(5) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at].clone()),
        2 => lines.swap(at, other),
        3 => lines[at].insert(0, b' '),
        _ if lines[at].first() == Some(&b' ') => drop(lines[at].remove(0)),
        _ => lines[at].reverse(),
    }
    *input = lines.join(&b'\n');
}

/// Replaces the number after a place with an extreme one.
fn edit_number(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(start) = input[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|offset| at + offset)
    else {
        return;
    };
    let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let numbers = [
        "0",
        "-1",
        "2147483648",
        "4294967296",
        "9223372036854775807",
        "18446744073709551616",
        "1e400",
        "00",
        "1.5",
    ];
    let number = numbers[random.below(numbers.len())];
    drop(input.splice(start..start + digits, number.bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_and_another_one_others() {
        let pool = Pool::new(&[
            br#"{"a": [1, {"b": "c"}], "d": null}"#.to_vec(),
            b"key: value\n- 12Gi\n".to_vec(),
        ]);
        let draw = |seed: u64| {
            let mut random = Random::new(seed);
            (0..500).map(|_| pool.draw(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut different = draw(1);
        different.sort();
        different.dedup();
        assert!(different.len() > 400, "only {} of 500 inputs differ", different.len());
        let documents = different
            .iter()
            .filter(|input| serde_json::from_slice::<Value>(input).is_ok())
            .count();
        assert!(documents > 50, "only {documents} are still JSON");
    }
}
