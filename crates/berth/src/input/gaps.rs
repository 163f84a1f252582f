//! What should be in the input and is not, since whoever read the cluster could not read it all.
//!
//! `berth snapshot` writes the gaps of its file as comments at the top, so that other programs read the file all the same.

/// How the first line of a snapshot begins.
pub(crate) const SNAPSHOT_MARK: &str = "# A cluster as `berth snapshot` ";
/// How a line that names a gap begins.
pub(crate) const GAP_MARK: &str = "# Missing: ";

/// What could not be read, each a line: the plural of a kind, a colon and why; or a remark of another form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps(Vec<String>);

impl Gaps {
    /// Takes note of a gap, once.
    pub fn add(&mut self, gap: impl Into<String>) {
        let gap = gap.into();
        if !self.0.contains(&gap) {
            self.0.push(gap);
        }
    }

    /// The gaps, each a line.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Why there are none of a kind, or not all of them, if that is so.
    #[must_use]
    pub fn why(&self, plural: &str) -> Option<&str> {
        self.iter().find_map(|gap| gap.strip_prefix(plural)?.strip_prefix(": "))
    }

    /// The gaps for a person, those for the same reason in one line.
    #[must_use]
    pub fn told(&self) -> Vec<String> {
        let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
        for gap in self.iter() {
            let (what, why) = gap.split_once(": ").unwrap_or((gap, ""));
            match told.iter_mut().find(|(known, _)| *known == why) {
                Some((_, names)) => names.push(what),
                None => told.push((why, vec![what])),
            }
        }
        let line = |(why, names): (&str, Vec<&str>)| match why {
            "" => format!("missing: {}", names.join(", ")),
            why => format!("missing: {}: {why}", names.join(", ")),
        };
        told.into_iter().map(line).collect()
    }

    /// Takes note of the gaps that a snapshot names in the comments at its top.
    pub(super) fn read_comments(&mut self, text: &str) {
        let comments = text.lines().take_while(|line| line.starts_with('#'));
        for line in comments.filter(|_| text.starts_with(SNAPSHOT_MARK)) {
            if let Some(gap) = line.strip_prefix(GAP_MARK) {
                self.add(gap);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gaps;

    #[test]
    fn only_the_head_of_a_snapshot_names_gaps() {
        let head = "# A cluster as `berth snapshot` 1.0 saw it.\n# Missing: pods: this user may not list them\n";
        let gaps = |text: &str| {
            let mut gaps = Gaps::default();
            gaps.read_comments(text);
            gaps
        };
        let found = gaps(&format!("{head}---\n# Missing: nodes: no\n"));
        assert_eq!(found.iter().collect::<Vec<_>>(), ["pods: this user may not list them"]);
        assert_eq!(found.why("pods"), Some("this user may not list them"));
        assert_eq!(found.why("pod"), None);
        let mut more = found;
        more.add("services: this user may not list them");
        more.add("of shop only: so there is more room");
        assert_eq!(
            more.told(),
            [
                "missing: pods, services: this user may not list them",
                "missing: of shop only: so there is more room"
            ]
        );
        assert_eq!(gaps("# Missing: pods: but nobody knows who says so\n"), Gaps::default());
    }
}
