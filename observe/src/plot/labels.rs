//! Labels beside points.

use super::svg::Area;

/// Height of a label of 12 px.
const HEIGHT: f64 = 12.0;
/// Space at each side of a label.
const GAP: f64 = 2.0;

/// The places that are taken in a plot.
pub(super) struct Labels {
    bounds: Area,
    taken: Vec<Area>,
}

impl Labels {
    /// Creates labels for an area without any.
    pub(super) const fn new(bounds: Area) -> Self {
        Self { bounds, taken: Vec::new() }
    }

    /// Keeps labels away from a symbol.
    pub(super) fn avoid(&mut self, [x, y]: [f64; 2], radius: f64) {
        self.taken.push(Area { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius });
    }

    /// Finds a free place for a label of this width around a point, and takes it. Returns the middle of the label's base line; `None` if every place
    /// overlaps something.
    pub(super) fn place(&mut self, [x, y]: [f64; 2], radius: f64, width: f64) -> Option<[f64; 2]> {
        let half = width / 2.0 + GAP;
        let (beside, away) = (radius + half + 2.0, radius + 2.0);
        let middles = [
            [x, y - away - HEIGHT / 2.0],
            [x, y + away + HEIGHT / 2.0],
            [x + beside, y],
            [x - beside, y],
            [x + half, y + away + HEIGHT / 2.0],
            [x - half, y - away - HEIGHT / 2.0],
            [x + half, y - away - HEIGHT / 2.0],
            [x - half, y + away + HEIGHT / 2.0],
        ];
        let (found, area) = middles.into_iter().find_map(|[x, y]| {
            let (top, bottom) = (y - HEIGHT / 2.0, y + HEIGHT / 2.0);
            let area = Area { left: x - half, right: x + half, top, bottom };
            let is_free = area.is_inside(self.bounds) && !self.taken.iter().any(|other| area.overlaps(*other));
            is_free.then_some(([x, bottom - 2.0], area))
        })?;
        self.taken.push(area);
        Some(found)
    }
}

impl Area {
    fn is_inside(self, other: Self) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }

    fn overlaps(self, other: Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

#[cfg(test)]
mod tests {
    use super::{Area, Labels};

    #[test]
    fn labels_avoid_symbols_each_other_and_the_edge() {
        let mut labels = Labels::new(Area { left: 0.0, right: 100.0, top: 0.0, bottom: 60.0 });
        labels.avoid([50.0, 30.0], 3.0);
        let placed: Vec<_> = (0..9).map_while(|_| labels.place([50.0, 30.0], 3.0, 13.8)).collect();
        assert!((2..9).contains(&placed.len()), "{placed:?}");
        for (index, [x, y]) in placed.iter().enumerate() {
            assert!((8.9..=91.1).contains(x) && (10.0..=60.0).contains(y), "{placed:?}");
            let overlaps = |other: &[f64; 2]| (other[0] - x).abs() < 17.0 && (other[1] - y).abs() < 12.0;
            assert!(!placed[..index].iter().any(overlaps), "{placed:?}");
        }
    }
}
