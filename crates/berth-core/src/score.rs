//! The volume capacity score: how well the volumes for a pod's claims fit on a node.

use crate::symbols::Symbol;
use smallvec::SmallVec;

/// The highest score of a node.
pub const MAX_NODE_SCORE: i64 = 100;
/// The highest score of a point of a shape.
pub const MAX_SHAPE_SCORE: i64 = 10;

/// A point of a [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    /// Percent, 0 to 100.
    pub utilization: i64,
    /// 0 to 10.
    pub score: i64,
}

/// Why points do not form a shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// There are none.
    #[error("expected at least one point")]
    Empty,
    /// A utilization is out of range.
    #[error("point {0}: utilization {1} is not within 0 to 100")]
    Utilization(usize, i64),
    /// A score is out of range.
    #[error("point {0}: score {1} is not within 0 to 10")]
    Score(usize, i64),
    /// Utilizations are not increasing.
    #[error("point {0}: utilization {1} is not greater than that of the point before it")]
    Order(usize, i64),
}

/// Turns a utilization into a score: linear between its points, flat outside.
///
/// ```
/// use berth_core::score::{Shape, ShapePoint};
/// let point = |utilization, score| ShapePoint { utilization, score };
/// let shape = Shape::new(&[point(50, 0), point(80, 3), point(100, 5)])?;
/// assert_eq!(shape.score(40), 0);
/// assert_eq!(shape.score(90), 40);
/// # Ok::<(), berth_core::score::ShapeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(Vec<ShapePoint>);

impl Shape {
    /// A shape of points.
    ///
    /// # Errors
    /// If there are none, or they are out of range or out of order.
    pub fn new(points: &[ShapePoint]) -> Result<Self, ShapeError> {
        if points.is_empty() {
            return Err(ShapeError::Empty);
        }
        for (index, point) in points.iter().enumerate() {
            if !(0..=100).contains(&point.utilization) {
                return Err(ShapeError::Utilization(index, point.utilization));
            }
            if !(0..=MAX_SHAPE_SCORE).contains(&point.score) {
                return Err(ShapeError::Score(index, point.score));
            }
            if index > 0 && points[index - 1].utilization >= point.utilization {
                return Err(ShapeError::Order(index, point.utilization));
            }
        }
        let scale = MAX_NODE_SCORE / MAX_SHAPE_SCORE;
        Ok(Self(
            points
                .iter()
                .map(|point| ShapePoint {
                    utilization: point.utilization,
                    score: point.score * scale,
                })
                .collect(),
        ))
    }

    /// Fuller is better: the default of the capacity priority.
    #[must_use]
    pub fn closest_fit() -> Self {
        Self::linear(0, MAX_NODE_SCORE)
    }

    /// Emptier is better: the default of storage capacity scoring.
    #[must_use]
    pub fn most_room() -> Self {
        Self::linear(MAX_NODE_SCORE, 0)
    }

    fn linear(at_zero: i64, at_hundred: i64) -> Self {
        let point = |utilization, score| ShapePoint { utilization, score };
        Self(vec![point(0, at_zero), point(100, at_hundred)])
    }

    /// The score, 0 to 100, of a utilization in percent.
    #[must_use]
    pub fn score(&self, utilization: i64) -> i64 {
        let mut previous: Option<&ShapePoint> = None;
        for point in &self.0 {
            if utilization <= point.utilization {
                return previous.map_or(point.score, |previous| {
                    previous.score
                        + (point.score - previous.score) * (utilization - previous.utilization)
                            / (point.utilization - previous.utilization)
                });
            }
            previous = Some(point);
        }
        previous.map_or(0, |last| last.score)
    }
}

/// How many of a pod's claims use an existing volume on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Existing {
    /// Claims that could be provisioned instead.
    pub(crate) optional: usize,
    /// Those of them that use an existing volume.
    pub(crate) chosen: usize,
    /// Whether other claims use one, as they must on every node.
    pub(crate) others: bool,
}

impl Existing {
    /// Raises the score of a fit, so that a node where more claims use existing volumes ranks above every node where fewer do,
    /// and a node where all volumes are new ranks below all of them: from 0 to `most_of_new`.
    pub(crate) fn above_new(self, fit: i64, most_of_new: i64) -> i64 {
        if self.optional == 0 {
            return fit;
        }
        let count =
            |count: usize| i64::try_from(count).unwrap_or(i64::MAX / MAX_NODE_SCORE - 1) + i64::from(self.others);
        let (steps, step) = (count(self.optional), count(self.chosen));
        if step == 0 {
            return fit * most_of_new / MAX_NODE_SCORE;
        }
        let range = MAX_NODE_SCORE - most_of_new;
        let below = most_of_new + range * (step - 1) / steps;
        let height = (most_of_new + range * step / steps - below - 1).max(0);
        (below + 1 + fit * height / MAX_NODE_SCORE).min(MAX_NODE_SCORE)
    }
}

/// Requested bytes and the capacity they are taken from, by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByClass(SmallVec<[(Symbol, i64, i64); 2]>);

impl ByClass {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a claim that uses a volume: both amounts add up.
    pub(crate) fn add_volume(&mut self, class: Symbol, requested: i64, capacity: i64) {
        let entry = self.entry(class);
        entry.1 = entry.1.saturating_add(requested);
        entry.2 = entry.2.saturating_add(capacity);
    }

    /// Adds a claim to provision: its pool's capacity counts once.
    pub(crate) fn add_provisioned(&mut self, class: Symbol, requested: i64, capacity: i64) {
        let entry = self.entry(class);
        entry.1 = entry.1.saturating_add(requested);
        entry.2 = capacity;
    }

    fn entry(&mut self, class: Symbol) -> &mut (Symbol, i64, i64) {
        let at = self.0.iter().position(|(found, ..)| *found == class);
        let at = at.unwrap_or_else(|| {
            self.0.push((class, 0, 0));
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// The weighted mean of the classes' scores, rounded half away from zero.
    pub(crate) fn score(&self, shape: &Shape, weight: impl Fn(Symbol) -> i64) -> i64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for (class, requested, capacity) in &self.0 {
            let weight = weight(*class) as f64;
            sum += shape.score(utilization(*requested, *capacity).into()) as f64 * weight;
            weights += weight;
        }
        if weights == 0.0 {
            return 0;
        }
        (sum / weights).round() as i64
    }
}

/// Percentage of a capacity that a request takes, rounded down; 100 if it does not fit.
pub(crate) fn utilization(requested: i64, capacity: i64) -> u8 {
    if capacity == 0 || requested > capacity {
        return 100;
    }
    // Dividing 128 bits takes several times as long, and few volumes are that large.
    let percent = match requested.checked_mul(100) {
        Some(hundredfold) => hundredfold / capacity,
        None => (i128::from(requested) * 100 / i128::from(capacity)) as i64,
    };
    percent.clamp(0, 100) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_line_truncates_towards_zero() {
        let points = [(0, 10), (30, 3)].map(|(utilization, score)| ShapePoint { utilization, score });
        let shape = Shape::new(&points).unwrap();
        assert_eq!(shape.score(-1), 100);
        assert_eq!(shape.score(0), 100);
        assert_eq!(shape.score(1), 98, "100 - 70 / 30, truncated to 100 - 2");
        assert_eq!(shape.score(31), 30);
    }

    #[test]
    fn more_existing_volumes_are_above_fewer_however_they_fit() {
        let beside = |most_of_new, chosen, optional, others, fit| {
            let existing = Existing {
                optional,
                chosen,
                others,
            };
            existing.above_new(fit, most_of_new)
        };
        assert_eq!(
            [0, 50, 100].map(|fit| beside(25, 0, 1, false, fit)),
            [0, 12, 25],
            "new ones"
        );
        assert_eq!([0, 50, 100].map(|fit| beside(25, 1, 1, false, fit)), [26, 63, 100]);
        let score = |chosen, optional, others, fit| beside(0, chosen, optional, others, fit);
        for fit in [0, 1, 50, 100] {
            assert_eq!(score(0, 0, true, fit), fit, "no claim has a choice");
            assert_eq!(score(1, 1, false, fit), fit.max(1), "one claim has");
        }
        for optional in 1..8 {
            for others in [false, true] {
                for chosen in 0..optional {
                    let (fewer, more) = (
                        score(chosen, optional, others, 100),
                        score(chosen + 1, optional, others, 0),
                    );
                    assert!(fewer < more, "{chosen} of {optional}: {fewer}, and one more: {more}");
                }
                assert_eq!(score(optional, optional, others, 100), 100);
            }
        }
        assert!(
            (0..=100).contains(&score(400, 500, true, 100)),
            "steps may be finer than scores"
        );
    }

    #[test]
    fn the_default_shapes_are_linear() {
        for utilization in [0, 1, 33, 50, 100] {
            assert_eq!(Shape::closest_fit().score(utilization), utilization);
            assert_eq!(Shape::most_room().score(utilization), 100 - utilization);
        }
        assert_eq!(Shape::closest_fit().score(250), 100);
    }

    #[test]
    fn bad_points_are_refused_with_their_number() {
        let shape = |points: &[(i64, i64)]| {
            Shape::new(
                &points
                    .iter()
                    .map(|(utilization, score)| ShapePoint {
                        utilization: *utilization,
                        score: *score,
                    })
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(shape(&[]), Err(ShapeError::Empty));
        assert_eq!(shape(&[(0, 0), (101, 5)]), Err(ShapeError::Utilization(1, 101)));
        assert_eq!(shape(&[(0, 11)]), Err(ShapeError::Score(0, 11)));
        assert_eq!(shape(&[(50, 1), (50, 2)]), Err(ShapeError::Order(1, 50)));
    }

    #[test]
    fn classes_are_averaged_and_weighted() {
        let mut by_class = ByClass::default();
        let mut symbols = crate::symbols::Symbols::default();
        let (ssd, hdd) = (symbols.intern("ssd"), symbols.intern("hdd"));
        by_class.add_volume(ssd, 50, 100);
        by_class.add_volume(hdd, 10, 100);
        assert_eq!(by_class.score(&Shape::closest_fit(), |_| 1), 30);
        let weight = |class| if class == ssd { 3 } else { 1 };
        assert_eq!(by_class.score(&Shape::closest_fit(), weight), 40);
        by_class.add_volume(ssd, 50, 0);
        assert_eq!(by_class.score(&Shape::closest_fit(), |_| 1), 55);
    }
}
