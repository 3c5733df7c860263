/// A figure at some micro-batches, and straight lines from each to the next.
///
/// Beyond the last point it rises as steeply as anywhere between the points; before the first it falls along the first
/// line, but not towards less than the micro-batch's share. With a single point, larger micro-batches take their multiple
/// of it and smaller ones as much: in each case rather too much than too little. A line whose slope was measured need not
/// meet the next point, may begin before its own, and says nothing of what is below it.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// In ascending order of the micro-batches; at least one.
    lines: Vec<Line>,
}

/// A figure at a micro-batch, and what is known of the line through it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub batch: u64,
    pub figure: f64,
    /// Of each sample more.
    pub slope: Option<f64>,
    /// The first micro-batch of the line, where it is not this one.
    pub from: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    /// The first micro-batch that it tells of.
    from: u64,
    /// The micro-batch of the figure.
    at: u64,
    figure: f64,
    slope: f64,
    is_measured: bool,
}

impl Curve {
    /// The curve through these points, in ascending order of their micro-batches; `None` without any.
    pub(crate) fn through(points: impl IntoIterator<Item = (u64, f64)>) -> Option<Self> {
        Self::along(points.into_iter().map(|(batch, figure)| Known { batch, figure, slope: None, from: None }))
    }

    /// The same, where some lines have a slope and a beginning of their own.
    pub(crate) fn along(points: impl IntoIterator<Item = Known>) -> Option<Self> {
        let points: Vec<_> = points.into_iter().collect();
        let last = points.last()?;
        let between =
            |pair: &[Known]| (pair[1].figure - pair[0].figure) / (pair[1].batch as f64 - pair[0].batch as f64);
        let highest = last.figure / last.batch as f64;
        let steepest = points.windows(2).map(between).reduce(f64::max).unwrap_or(highest).max(0.0);
        let line = |(index, point): (usize, &Known)| {
            let to_the_next = || points.get(index..index + 2).map_or(steepest, between);
            let after = index.checked_sub(1).map_or(1, |before| points[before].batch + 1);
            Line {
                from: point.from.unwrap_or(point.batch).clamp(after, point.batch),
                at: point.batch,
                figure: point.figure,
                slope: point.slope.unwrap_or_else(to_the_next),
                is_measured: point.slope.is_some(),
            }
        };
        Some(Self { lines: points.iter().enumerate().map(line).collect() })
    }

    /// The figure at a micro-batch.
    pub(crate) fn at(&self, batch: u64) -> f64 {
        let (first, line) = (self.lines[0], self.line(batch));
        if batch >= line.from {
            return line.said(batch);
        }
        let slope = if first.is_measured || self.lines.len() == 1 { 0.0 } else { first.slope };
        let begin = first.said(first.from);
        let share = begin * batch as f64 / first.from as f64;
        (begin - (first.from - batch) as f64 * slope).max(share).min(begin)
    }

    /// Whether a point was measured at this micro-batch.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.line(batch).at == batch
    }

    /// Whether a micro-batch is larger than every point.
    pub(crate) fn is_beyond(&self, batch: u64) -> bool {
        self.lines.last().is_some_and(|last| batch > last.at)
    }

    /// The smallest micro-batch of all points.
    pub(crate) fn first(&self) -> u64 {
        self.lines[0].at
    }

    /// The point whose line passes this micro-batch.
    pub(crate) fn point(&self, batch: u64) -> u64 {
        self.line(batch).at
    }

    /// The least figure for one sample at any of the points.
    pub(crate) fn least_per_sample(&self) -> f64 {
        self.lines.iter().map(|line| line.figure / line.at as f64).fold(f64::INFINITY, f64::min)
    }

    /// By how much the line of the next point lies above the figure at a micro-batch beyond a point, if it does. Where the one
    /// line gives way to the other is known only of micro-batches that were tried.
    pub(crate) fn next_above(&self, batch: u64) -> f64 {
        let (line, next) = (self.line(batch), self.lines.get(self.after(batch)));
        let next = next.filter(|next| batch > line.at && line.is_measured && next.is_measured);
        next.map_or(0.0, |next| (next.said(batch) - line.said(batch)).max(0.0))
    }

    fn line(&self, batch: u64) -> Line {
        self.lines[self.after(batch) - 1]
    }

    /// The number of the line after that of a micro-batch.
    fn after(&self, batch: u64) -> usize {
        self.lines.partition_point(|line| line.from <= batch).max(1)
    }
}

impl Line {
    fn said(&self, batch: u64) -> f64 {
        let apart = batch as f64 - self.at as f64;
        if batch == self.at { self.figure } else { (self.figure + apart * self.slope).max(0.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, Known};

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
        let known = |batch, figure, slope| Known { batch, figure, slope: Some(slope), from: None };
        let curve = Curve::along([known(16, 2425.0, 144.0), known(144, 18554.0, 128.0)]).expect("points");
        for (batch, figure) in [(16, 2425.0), (96, 13945.0), (143, 20713.0), (144, 18554.0), (256, 32890.0)] {
            assert!((curve.at(batch) - figure).abs() < 1e-9, "{batch}: {}", curve.at(batch));
        }
        assert!((curve.at(4) - 2425.0).abs() < 1e-9);
        assert_eq!([15, 16, 143, 144, 512].map(|batch| curve.point(batch)), [16, 16, 16, 144, 144]);
    }

    #[test]
    fn a_point_may_stand_anywhere_in_its_line() {
        let known = |batch, figure, slope, from| Known { batch, figure, slope: Some(slope), from: Some(from) };
        let curve = Curve::along([known(64, 9337.0, 144.0, 16), known(256, 32890.0, 128.0, 144)]).expect("points");
        for (batch, figure) in [(16, 2425.0), (64, 9337.0), (143, 20713.0), (144, 18554.0), (512, 65658.0)] {
            assert!((curve.at(batch) - figure).abs() < 1e-9, "{batch}: {}", curve.at(batch));
        }
        // Below the first line its beginning counts as it is.
        assert!((curve.at(4) - 2425.0).abs() < 1e-9);
        assert_eq!([4, 16, 143, 144, 512].map(|batch| curve.point(batch)), [64, 64, 64, 256, 256]);
        assert_eq!([16, 64, 144, 256].map(|batch| curve.has(batch)), [false, true, false, true]);
        assert_eq!(curve.first(), 64);
        // No line goes back to the point of another, or below nothing.
        let odd = Curve::along([known(8, 100.0, 50.0, 1), known(16, 200.0, 10.0, 2)]).expect("points");
        assert_eq!([1, 8, 9].map(|batch| (odd.point(batch), odd.at(batch))), [(8, 0.0), (8, 100.0), (16, 130.0)]);
    }

    #[test]
    fn the_next_line_is_known_to_lie_above() {
        // Of a transformer on an H200 nothing was tried between 32 and 64; it held 5881 MiB at 40.
        let known = |batch, figure, slope, from| Known { batch, figure, slope: Some(slope), from: Some(from) };
        let lines = [known(16, 2939.2, 103.97, 16), known(128, 18555.2, 144.03, 64), known(256, 32890.2, 128.0, 148)];
        let curve = Curve::along(lines).expect("points");
        assert!(curve.at(40) < 5500.0 && curve.at(40) + curve.next_above(40) > 5879.0, "{}", curve.next_above(40));
        // Where the next line lies below, at the last line, and at the points.
        assert!([18, 130, 147, 148, 512, 16, 128, 256].iter().all(|batch| curve.next_above(*batch) < 1e-9));
    }

    #[test]
    fn one_point_bounds_from_above() {
        let curve = Curve::through([(64, 100.0)]).expect("a point");
        assert!((curve.at(128) - 200.0).abs() < 1e-9 && (curve.at(1) - 100.0).abs() < 1e-9);
        assert!(Curve::through([]).is_none());
    }
}
