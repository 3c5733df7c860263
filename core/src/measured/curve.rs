/// A figure at some micro-batches, and straight lines between them.
///
/// Beyond the last point it rises as steeply as anywhere between the points; before the first it falls along the first
/// line, but not towards less than the micro-batch's share. With a single point, larger micro-batches take their multiple
/// of it and smaller ones as much: in each case rather too much than too little.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Micro-batches in ascending order, and the figures at them; at least one.
    points: Vec<(u64, f64)>,
    steepest: f64,
}

impl Curve {
    /// The curve through these points, in ascending order of their micro-batches; `None` without any.
    pub(crate) fn through(points: impl IntoIterator<Item = (u64, f64)>) -> Option<Self> {
        let points: Vec<_> = points.into_iter().collect();
        let &(last, highest) = points.last()?;
        let slopes = points.windows(2).map(|line| slope(line[0], line[1]));
        let steepest = slopes.reduce(f64::max).unwrap_or(highest / last as f64).max(0.0);
        Some(Self { points, steepest })
    }

    /// The figure at a micro-batch.
    pub(crate) fn at(&self, batch: u64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at < batch);
        let before = after.checked_sub(1).map(|before| self.points[before]);
        match (before, self.points.get(after)) {
            (_, Some(&(at, figure))) if at == batch => figure,
            (Some(before), Some(&after)) => on_line(before, slope(before, after), batch),
            (Some(before), None) => on_line(before, self.steepest, batch),
            (None, Some(&first)) => {
                let falling = self.points.get(1).map_or(0.0, |second| slope(first, *second));
                let share = first.1 * batch as f64 / first.0 as f64;
                on_line(first, falling, batch).max(share).min(first.1)
            }
            (None, None) => 0.0,
        }
    }

    /// Whether a point was measured at this micro-batch.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.points.iter().any(|(at, _)| *at == batch)
    }

    /// The least figure for one sample at any of the points.
    pub(crate) fn least_per_sample(&self) -> f64 {
        self.points.iter().map(|(batch, figure)| figure / *batch as f64).fold(f64::INFINITY, f64::min)
    }
}

fn slope(a: (u64, f64), b: (u64, f64)) -> f64 {
    (b.1 - a.1) / (b.0 as f64 - a.0 as f64)
}

fn on_line((from, figure): (u64, f64), slope: f64, at: u64) -> f64 {
    figure + (at as f64 - from as f64) * slope
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
    fn one_point_bounds_from_above() {
        let curve = Curve::through([(64, 100.0)]).expect("a point");
        assert!((curve.at(128) - 200.0).abs() < 1e-9 && (curve.at(1) - 100.0).abs() < 1e-9);
        assert!(Curve::through([]).is_none());
    }
}
