//! Kinds that are missing from the input because they could not be read from the cluster.

/// What could not be read, one line each: the plural of a kind, a colon and the reason; or a remark of another form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps(Vec<String>);

impl Gaps {
    /// Records a gap, once.
    pub fn add(&mut self, gap: impl Into<String>) {
        let gap = gap.into();
        if !self.0.contains(&gap) {
            self.0.push(gap);
        }
    }

    /// The gaps, one line each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Why a kind is missing or incomplete, if it is.
    #[must_use]
    pub fn why(&self, plural: &str) -> Option<&str> {
        self.iter().find_map(|gap| gap.strip_prefix(plural)?.strip_prefix(": "))
    }

    /// The gaps as text, grouped by reason.
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
}

#[cfg(test)]
mod tests {
    use super::Gaps;

    #[test]
    fn gaps_for_the_same_reason_are_told_together() {
        let mut gaps = Gaps::default();
        gaps.add("pods: this user may not list them");
        gaps.add("services: this user may not list them");
        gaps.add("of shop only: so there is more room");
        assert_eq!(gaps.why("pods"), Some("this user may not list them"));
        assert_eq!(gaps.why("pod"), None);
        assert_eq!(
            gaps.told(),
            [
                "missing: pods, services: this user may not list them",
                "missing: of shop only: so there is more room"
            ]
        );
    }
}
