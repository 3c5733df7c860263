//! Scale of plots of memory and speed.

use gpu_tuned_core::Bytes;

use super::MemorySpeedPlot;
use super::svg::{Area, step};

/// Unit of the memory axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    bytes: f64,
    pub(super) name: &'static str,
}

/// Scale from figures to positions on the page.
pub(super) struct Scale {
    pub(super) area: Area,
    pub(super) unit: Unit,
    /// Logarithms to base 2 of the memory at the left and the right, in the unit.
    from: f64,
    to: f64,
    /// Samples per second at the top, and between grid lines.
    pub(super) max: f64,
    pub(super) step: f64,
}

impl Scale {
    pub(super) fn new(plot: &MemorySpeedPlot, area: Area) -> Self {
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let amounts = points().map(|point| point.memory).chain(plot.marks.iter().map(|mark| mark.memory));
        let all: Vec<Bytes> = amounts.chain(plot.limits.iter().map(|limit| limit.memory)).collect();
        let max = all.iter().copied().max().unwrap_or(Bytes::from_mib(1024));
        let min = all.iter().copied().min().unwrap_or(max).max(Bytes(1));
        let unit = if max < Bytes::from_mib(1024) { Unit::MIB } else { Unit::GIB };
        let speeds = points().map(|point| point.interval.map_or(point.samples_per_s, |(_, max)| max));
        let fastest = speeds.chain(plot.marks.iter().map(|mark| mark.samples_per_s)).fold(1.0, f64::max);
        let step = step(fastest * 1.06);
        let (from, to) = ((unit.amount(min) / 1.1).log2(), (unit.amount(max) * 1.1).log2());
        // Between points that lie close together there may be no two powers of two to label.
        let has_labels = from.ceil() < to.floor();
        let (from, to) = if has_labels { (from, to) } else { (from.floor(), to.ceil()) };
        Self { area, unit, from, to, max: (fastest * 1.06 / step).ceil() * step, step }
    }

    pub(super) fn x(&self, memory: Bytes) -> f64 {
        let share = (self.unit.amount(memory).log2() - self.from) / (self.to - self.from);
        self.area.left + share * (self.area.right - self.area.left)
    }

    pub(super) fn y(&self, samples_per_s: f64) -> f64 {
        self.area.bottom - samples_per_s / self.max * (self.area.bottom - self.area.top)
    }

    /// Labelled amounts of memory: powers of two, and one and a half of each where they are few.
    pub(super) fn labels(&self) -> Vec<f64> {
        let powers = || (self.from.floor() as i32..=self.to.floor() as i32).map(|power| 2f64.powi(power));
        let has_few = self.to.floor() - self.from.ceil() < 3.0;
        let between = powers().filter(|_| has_few).map(|power| 1.5 * power);
        let mut labels: Vec<f64> = powers().chain(between).collect();
        labels.retain(|amount| (self.from..=self.to).contains(&amount.log2()));
        labels.sort_by(f64::total_cmp);
        labels
    }

    /// Position of a batch.
    pub(super) fn position(&self, memory: Bytes, samples_per_s: f64) -> [f64; 2] {
        [self.x(memory), self.y(samples_per_s)]
    }
}

impl Unit {
    const MIB: Self = Self { bytes: (1 << 20) as f64, name: "MiB" };
    const GIB: Self = Self { bytes: (1 << 30) as f64, name: "GiB" };

    pub(super) fn amount(self, memory: Bytes) -> f64 {
        memory.0 as f64 / self.bytes
    }

    pub(super) fn to_bytes(self, amount: f64) -> Bytes {
        Bytes((amount * self.bytes) as u64)
    }
}
