//! Runs every example under `examples/plan` and compares the answer with its comments.
//!
//! `# plan:` specifies arguments, and the following lines the result: `# exit:` the exit status, `# answer:` words of the text,
//! in order.

use crate::berth;
use std::path::Path;

struct Asked {
    arguments: String,
    exit: Option<i32>,
    answers: Vec<String>,
}

fn asked(text: &str) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for line in text.lines() {
        if let Some(arguments) = line.strip_prefix("# plan:") {
            all.push(Asked {
                arguments: arguments.to_owned(),
                exit: None,
                answers: Vec::new(),
            });
        } else if let (Some(code), Some(last)) = (line.strip_prefix("# exit: "), all.last_mut()) {
            last.exit = Some(code.parse().unwrap());
        } else if let (Some(words), Some(last)) = (line.strip_prefix("# answer: "), all.last_mut()) {
            last.answers.push(words.to_owned());
        }
    }
    all
}

#[test]
fn every_example_answers_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plan");
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    let mut questions = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = format!("examples/plan/{}", file.file_name().unwrap().to_string_lossy());
        for asked in asked(&text) {
            questions += 1;
            let words: Vec<&str> = asked.arguments.split_whitespace().collect();
            let output = berth(&[&["plan", "-f", &name], words.as_slice()].concat());
            let told = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
            let about = format!("{name} {}\n{told}", asked.arguments);
            assert_eq!(output.status.code(), asked.exit, "{about}");
            assert!(!asked.answers.is_empty(), "{name} expects nothing");
            // Lines are wrapped at the width of the terminal.
            let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut rest = told.as_str();
            for answer in asked.answers {
                let at = rest
                    .find(&answer)
                    .unwrap_or_else(|| panic!("{answer:?} is not in {about}"));
                rest = &rest[at + answer.len()..];
            }
        }
    }
    assert!(questions > 0, "the examples ask nothing");
}
