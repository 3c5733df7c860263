/// A figure at some micro-batches, and straight lines from each to the next.
///
/// Beyond the last point it rises as steeply as anywhere between the points; before the first it falls along the first
/// line, but not towards less than the micro-batch's share. With a single point, larger micro-batches take their multiple
/// of it and smaller ones as much: in each case rather too much than too little. A line whose slope was measured need not
/// meet the next point, and says nothing of what is below it.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// In ascending order of the micro-batches; at least one.
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    from: u64,
    figure: f64,
    slope: f64,
    is_measured: bool,
}

impl Curve {
    /// The curve through these points, in ascending order of their micro-batches; `None` without any.
    pub(crate) fn through(points: impl IntoIterator<Item = (u64, f64)>) -> Option<Self> {
        Self::along(points.into_iter().map(|(batch, figure)| (batch, figure, None)))
    }

    /// The same, where some points have the slope of the line that they begin.
    pub(crate) fn along(points: impl IntoIterator<Item = (u64, f64, Option<f64>)>) -> Option<Self> {
        let points: Vec<_> = points.into_iter().collect();
        let &(last, highest, _) = points.last()?;
        let between = |pair: &[(u64, f64, _)]| (pair[1].1 - pair[0].1) / (pair[1].0 as f64 - pair[0].0 as f64);
        let steepest = points.windows(2).map(between).reduce(f64::max).unwrap_or(highest / last as f64).max(0.0);
        let line = |(index, &(from, figure, slope)): (usize, &(u64, f64, Option<f64>))| {
            let to_the_next = || points.get(index..index + 2).map_or(steepest, between);
            Line { from, figure, slope: slope.unwrap_or_else(to_the_next), is_measured: slope.is_some() }
        };
        Some(Self { lines: points.iter().enumerate().map(line).collect() })
    }

    /// The figure at a micro-batch.
    pub(crate) fn at(&self, batch: u64) -> f64 {
        let (first, line) = (self.lines[0], self.line(batch));
        if batch >= line.from {
            return line.figure + (batch - line.from) as f64 * line.slope;
        }
        let slope = if first.is_measured || self.lines.len() == 1 { 0.0 } else { first.slope };
        let share = first.figure * batch as f64 / first.from as f64;
        (first.figure - (first.from - batch) as f64 * slope).max(share).min(first.figure)
    }

    /// Whether a point was measured at this micro-batch.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.line(batch).from == batch
    }

    /// The smallest micro-batch of all points.
    pub(crate) fn first(&self) -> u64 {
        self.lines[0].from
    }

    /// The point whose line passes this micro-batch.
    pub(crate) fn point(&self, batch: u64) -> u64 {
        self.line(batch).from
    }

    /// The least figure for one sample at any of the points.
    pub(crate) fn least_per_sample(&self) -> f64 {
        self.lines.iter().map(|line| line.figure / line.from as f64).fold(f64::INFINITY, f64::min)
    }

    fn line(&self, batch: u64) -> Line {
        let after = self.lines.partition_point(|line| line.from <= batch);
        self.lines[after.saturating_sub(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::Curve;

    /// Reserved MiB of the transformer of 27 M parameters on an H200.
    const TRANSFORMER: [(u64, f64); 4] = [(8, 1477.0), (32, 4738.0), (64, 8833.0), (256, 31872.0)];

    #[test]
    fn lines_join_the_points_and_go_on_as_steeply_as_they_ever_were() {
        let curve = Curve::through(TRANSFORMER).expect("points");
        for (batch, figure) in TRANSFORMER {
            assert!(curve.has(batch));
            assert!((curve.at(batch) - figure).abs() < 1e-9);
        }
        assert!(!curve.has(128));
        // Measured at 128: 16000.
        assert!((curve.at(128) / 16000.0 - 1.0).abs() < 0.04, "{}", curve.at(128));
        let beyond = (curve.at(512) - curve.at(256)) / 256.0;
        assert!((beyond - (4738.0 - 1477.0) / 24.0).abs() < 1e-9, "{beyond}");
        assert!((8.0..=1477.0).contains(&curve.at(1)), "{}", curve.at(1));
    }

    #[test]
    fn a_measured_slope_leads_up_to_a_jump() {
        let curve = Curve::along([(16, 2425.0, Some(144.0)), (144, 18554.0, Some(128.0))]).expect("points");
        for (batch, figure) in [(16, 2425.0), (96, 13945.0), (143, 20713.0), (144, 18554.0), (256, 32890.0)] {
            assert!((curve.at(batch) - figure).abs() < 1e-9, "{batch}: {}", curve.at(batch));
        }
        assert!((curve.at(4) - 2425.0).abs() < 1e-9);
        assert_eq!([15, 16, 143, 144, 512].map(|batch| curve.point(batch)), [16, 16, 16, 144, 144]);
    }

    #[test]
    fn one_point_bounds_from_above() {
        let curve = Curve::through([(64, 100.0)]).expect("a point");
        assert!((curve.at(128) - 200.0).abs() < 1e-9 && (curve.at(1) - 100.0).abs() < 1e-9);
        assert!(Curve::through([]).is_none());
    }
}
