//! One line per test, and a summary at the end.

use std::fmt::Write as _;
use std::future::Future;
use std::time::{Duration, Instant};

/// A remark about a passed test, such as a figure.
pub(crate) type Remark = String;

/// The results of the tests.
#[derive(Debug, Default)]
pub(crate) struct Report {
    only: Vec<String>,
    /// The names of all tests, selected or not.
    names: Vec<String>,
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    /// A report of the tests whose names contain one of these texts, or of all if there are none.
    pub(crate) fn new(only: Vec<String>) -> Self {
        Self {
            only,
            ..Self::default()
        }
    }

    /// Whether a test is selected. Called for every test.
    pub(crate) fn wants(&mut self, name: &str) -> bool {
        self.names.push(name.to_owned());
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }

    /// Whether all tests are selected.
    pub(crate) fn is_whole(&self) -> bool {
        self.only.is_empty()
    }

    /// Runs a test and prints the result. Returns `false` if it failed.
    pub(crate) async fn run(
        &mut self,
        name: &str,
        limit: Duration,
        test: impl Future<Output = anyhow::Result<Remark>>,
    ) -> bool {
        let start = Instant::now();
        let result = match tokio::time::timeout(limit, test).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("did not end within {} s", limit.as_secs())),
        };
        println!("{}", line(name, start.elapsed(), &result));
        match result {
            Ok(_) => {
                self.passed += 1;
                true
            }
            Err(_) => {
                self.failed.push(name.to_owned());
                false
            }
        }
    }

    /// Counts a test that could not be started.
    pub(crate) fn broken(&mut self, name: &str, error: &anyhow::Error) {
        println!("{}", line(name, Duration::ZERO, &Err(anyhow::anyhow!("{error:#}"))));
        self.failed.push(name.to_owned());
    }

    /// The texts that match no test: probably misspelt.
    fn unknown(&self) -> Vec<&str> {
        let texts = self.only.iter().map(String::as_str);
        let unknown = texts.filter(|text| !self.names.iter().any(|name| name.contains(text)));
        unknown.collect()
    }

    /// Prints the summary. Returns `true` if something was run, everything requested was run, and nothing failed.
    pub(crate) fn finish(&self, elapsed: Duration) -> bool {
        let mut text = format!(
            "{} passed, {} failed, in {:.1} s",
            self.passed,
            self.failed.len(),
            elapsed.as_secs_f64()
        );
        for name in &self.failed {
            let _ = write!(text, "\n  failed: {name}");
        }
        let unknown = self.unknown();
        if !unknown.is_empty() {
            let _ = write!(text, "\nno test's name holds {unknown:?}. There are:");
            for name in &self.names {
                let _ = write!(text, "\n  {name}");
            }
        }
        println!("{text}");
        self.passed > 0 && self.failed.is_empty() && unknown.is_empty()
    }
}

fn line(name: &str, elapsed: Duration, result: &anyhow::Result<Remark>) -> String {
    let seconds = elapsed.as_secs_f64();
    match result {
        Ok(remark) if remark.is_empty() => format!("PASS {seconds:>6.1} s  {name}"),
        Ok(remark) => format!("PASS {seconds:>6.1} s  {name}: {remark}"),
        Err(error) => {
            let problem = format!("{error:#}").replace('\n', "\n    ");
            format!("FAIL {seconds:>6.1} s  {name}\n    {problem}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_and_sums_tell_what_happened() {
        let mut report = Report::new(vec!["a".to_owned()]);
        assert!(report.wants("bar") && !report.wants("foo"));
        let limit = Duration::from_secs(60);
        assert!(report.run("good", limit, async { Ok(Remark::new()) }).await);
        assert!(!report.run("bad", limit, async { anyhow::bail!("no") }).await);
        assert!(!report.run("late", Duration::ZERO, std::future::pending()).await);
        assert!(!report.finish(Duration::ZERO));
        assert_eq!((report.passed, report.failed.len()), (1, 2));
        let error = Err(anyhow::anyhow!("one\ntwo"));
        assert_eq!(
            line("n", Duration::from_millis(1500), &error),
            "FAIL    1.5 s  n\n    one\n    two"
        );
    }

    /// The result of a run in which all selected tests pass.
    async fn ends_well(only: &[&str], tests: &[&str]) -> bool {
        let mut report = Report::new(only.iter().map(ToString::to_string).collect());
        for name in tests {
            if report.wants(name) {
                let test = async { Ok(Remark::new()) };
                report.run(name, Duration::from_secs(60), test).await;
            }
        }
        report.finish(Duration::ZERO)
    }

    #[tokio::test]
    async fn a_run_without_tests_has_not_passed() {
        assert!(ends_well(&[], &["faults: one", "skew: two"]).await);
        assert!(ends_well(&["faults"], &["faults: one", "skew: two"]).await);
        assert!(!ends_well(&["fautls"], &["faults: one", "skew: two"]).await);
        assert!(!ends_well(&["faults", "skwe"], &["faults: one", "skew: two"]).await);
        assert!(!ends_well(&[], &[]).await);
    }
}
