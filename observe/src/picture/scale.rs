//! Where figures lie on the page.

use super::Figure;
use gpu_tuned_core::Bytes;

pub(super) const WIDTH: f64 = 800.0;
pub(super) const HEIGHT: f64 = 460.0;
pub(super) const LEFT: f64 = 68.0;
pub(super) const RIGHT: f64 = WIDTH - 20.0;
pub(super) const TOP: f64 = 78.0;
pub(super) const BOTTOM: f64 = HEIGHT - 52.0;

/// What the bar of memory counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Mib,
    Gib,
}

/// Where figures lie on the page.
pub(super) struct Scale {
    pub(super) unit: Unit,
    /// Logarithms to the base 2 of the amounts of memory at the left and the right.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Samples per second at the top, and between lines of the grid.
    pub(super) most: f64,
    pub(super) step: f64,
}

impl Scale {
    pub(super) fn of(figure: &Figure) -> Self {
        let points = || figure.lines.iter().flat_map(|line| &line.points);
        let limits = figure.limits.iter().map(|limit| limit.memory);
        let all: Vec<Bytes> = points().map(|point| point.memory).chain(limits).collect();
        let most = all.iter().copied().max().unwrap_or(Bytes::from_mib(1024));
        let least = all.iter().copied().min().unwrap_or(most).max(Bytes(1));
        let unit = if most < Bytes::from_mib(1024) { Unit::Mib } else { Unit::Gib };
        let fastest =
            points().map(|point| point.interval.map_or(point.samples_per_s, |(_, most)| most)).fold(1.0, f64::max);
        let step = step(fastest * 1.06);
        let (from, to) = ((unit.of(least) / 1.1).log2(), (unit.of(most) * 1.1).log2());
        // Where the points lie close together there may be no two powers of two between them, and the bar would have no scale.
        let has_labels = from.ceil() < to.floor();
        let (from, to) = if has_labels { (from, to) } else { (from.floor(), to.ceil()) };
        Self { unit, from, to, most: (fastest * 1.06 / step).ceil() * step, step }
    }

    pub(super) fn x(&self, memory: Bytes) -> f64 {
        let share = (self.unit.of(memory).log2() - self.from) / (self.to - self.from);
        LEFT + share * (RIGHT - LEFT)
    }

    pub(super) fn y(&self, samples_per_s: f64) -> f64 {
        BOTTOM - samples_per_s / self.most * (BOTTOM - TOP)
    }
}

impl Unit {
    pub(super) fn of(self, memory: Bytes) -> f64 {
        match self {
            Self::Mib => memory.mib(),
            Self::Gib => memory.gib(),
        }
    }

    /// So much of it.
    pub(super) fn bytes(self, amount: f64) -> Bytes {
        let unit = match self {
            Self::Mib => 1 << 20,
            Self::Gib => 1 << 30,
        };
        Bytes((amount * f64::from(unit)) as u64)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mib => "MiB",
            Self::Gib => "GiB",
        }
    }
}

/// A round step that makes four to eight lines of a grid up to so much.
pub fn step(most: f64) -> f64 {
    let power = 10f64.powi(most.log10().floor() as i32 - 1);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    steps.into_iter().find(|step| most / step <= 8.0).unwrap_or(most)
}
