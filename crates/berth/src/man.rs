//! `berth man`: manual pages, generated from the same text as `--help`.
//!
//! Each command's help ends with examples, remarks and the exit status; here they become separate sections.

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;
use std::path::PathBuf;

/// Arguments of `berth man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The command, e.g. `bench decide`. Defaults to berth itself.
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    pub command: Vec<String>,
    /// Write the pages of all commands to this directory. Created if missing.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// A command's page.
#[derive(Clone, Debug)]
pub struct Page {
    /// The full command, starting with `berth`.
    pub command: Vec<String>,
    /// The page in roff.
    pub roff: Vec<u8>,
}

impl Page {
    /// The file name that man expects.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.1", self.command.join("-"))
    }
}

/// Prints a page, or writes all of them.
///
/// # Errors
/// If there is no such command, or the pages cannot be written.
pub fn man(args: &ManArgs, command: Command, out: &mut dyn io::Write) -> anyhow::Result<()> {
    let pages = pages(command)?;
    if let Some(directory) = &args.dir {
        let failed = || format!("cannot write to {}", directory.display());
        std::fs::create_dir_all(directory).with_context(failed)?;
        for page in &pages {
            std::fs::write(directory.join(page.file_name()), &page.roff).with_context(failed)?;
        }
        return Ok(());
    }
    let page = pages.iter().find(|page| page.command[1..] == args.command);
    let page = page.with_context(|| format!("there is no command {:?}", args.command.join(" ")))?;
    Ok(out.write_all(&page.roff)?)
}

/// The pages of a command and of all commands below it.
///
/// # Errors
/// If a page cannot be rendered.
pub fn pages(mut command: Command) -> io::Result<Vec<Page>> {
    // This computes names and global options of subcommands.
    command.build();
    let mut pages = Vec::new();
    add(&command, &[], &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, above: &[String], pages: &mut Vec<Page>) -> io::Result<()> {
    let mut words = above.to_vec();
    words.push(command.get_name().to_owned());
    let roff = render(command, &words.join("-"))?;
    let below = command.get_subcommands();
    let below = below.filter(|command| !command.is_hide_set() && command.get_name() != "help");
    pages.push(Page {
        command: words.clone(),
        roff,
    });
    for command in below {
        add(command, &words, pages)?;
    }
    Ok(())
}

fn render(command: &Command, title: &str) -> io::Result<Vec<u8>> {
    let source = format!("berth {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .title(title)
        .source(source)
        .manual("Berth Manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let sections = sections(&after);
    for (heading, text, as_is) in [
        ("NOTES", sections.remarks, false),
        ("EXIT STATUS", sections.exit_status, false),
        ("EXAMPLES", sections.examples, true),
    ] {
        if text.is_empty() {
            continue;
        }
        let mut roff = Roff::new();
        roff.control("SH", [heading]);
        if as_is {
            roff.control("nf", []);
        }
        for line in text.lines() {
            match line {
                "" if !as_is => roff.control("PP", []),
                line => roff.text([roman(line)]),
            };
        }
        if as_is {
            roff.control("fi", []);
        }
        roff.to_writer(&mut page)?;
    }
    Ok(page)
}

/// The end of a command's help.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sections {
    examples: String,
    remarks: String,
    exit_status: String,
}

fn sections(after_help: &str) -> Sections {
    let mut sections = Sections::default();
    for paragraph in after_help.split("\n\n") {
        let examples = paragraph
            .strip_prefix("Examples:\n")
            .or_else(|| paragraph.strip_prefix("Example:\n"));
        if let Some(examples) = examples {
            sections.examples = examples.to_owned();
        } else if let Some(status) = paragraph.strip_prefix("Exit status: ") {
            sections.exit_status = status.to_owned();
        } else {
            if !sections.remarks.is_empty() {
                sections.remarks.push_str("\n\n");
            }
            sections.remarks.push_str(paragraph);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::{Sections, sections};

    #[test]
    fn the_end_of_a_help_is_taken_apart() {
        let found = sections("Examples:\n  a\n  b\n\nOne.\n\nTwo.\n\nExit status: 0 done.");
        let expected = Sections {
            examples: "  a\n  b".to_owned(),
            remarks: "One.\n\nTwo.".to_owned(),
            exit_status: "0 done.".to_owned(),
        };
        assert_eq!(found, expected);
    }
}
