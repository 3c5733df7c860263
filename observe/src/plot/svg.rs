//! Scales and parts that plots share.

use core::fmt::{self, Write as _};

use gpu_tuned_core::Bytes;

use super::MemorySpeedPlot;

/// Opens an SVG with its style, ground and title.
pub(super) fn open(text: &mut String, height: f64, title: &str, subtitle: &str, style: &str) -> fmt::Result {
    let title = escaped(title);
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{title}{subtitle}</title>\n<style>\n{style}</style>\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"22\">{title}</text>",
    )
}

/// Escapes text for an element.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(super) const WIDTH: f64 = 800.0;
pub(super) const HEIGHT: f64 = 460.0;
pub(super) const LEFT: f64 = 68.0;
pub(super) const RIGHT: f64 = WIDTH - 20.0;
pub(super) const TOP: f64 = 78.0;
pub(super) const BOTTOM: f64 = HEIGHT - 52.0;

/// Unit of the memory axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unit {
    bytes: f64,
    pub(super) name: &'static str,
}

/// Scale from figures to positions on the page.
pub(super) struct Scale {
    pub(super) unit: Unit,
    /// Logarithms to base 2 of the memory at the left and the right, in the unit.
    pub(super) from: f64,
    pub(super) to: f64,
    /// Samples per second at the top, and between grid lines.
    pub(super) max: f64,
    pub(super) step: f64,
}

impl Scale {
    pub(super) fn new(plot: &MemorySpeedPlot) -> Self {
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let limits = plot.limits.iter().map(|limit| limit.memory);
        let all: Vec<Bytes> = points().map(|point| point.memory).chain(limits).collect();
        let max = all.iter().copied().max().unwrap_or(Bytes::from_mib(1024));
        let min = all.iter().copied().min().unwrap_or(max).max(Bytes(1));
        let unit = if max < Bytes::from_mib(1024) { Unit::MIB } else { Unit::GIB };
        let fastest =
            points().map(|point| point.interval.map_or(point.samples_per_s, |(_, max)| max)).fold(1.0, f64::max);
        let step = step(fastest * 1.06);
        let (from, to) = ((unit.amount(min) / 1.1).log2(), (unit.amount(max) * 1.1).log2());
        // Between points that lie close together there may be no two powers of two to label.
        let has_labels = from.ceil() < to.floor();
        let (from, to) = if has_labels { (from, to) } else { (from.floor(), to.ceil()) };
        Self { unit, from, to, max: (fastest * 1.06 / step).ceil() * step, step }
    }

    pub(super) fn x(&self, memory: Bytes) -> f64 {
        let share = (self.unit.amount(memory).log2() - self.from) / (self.to - self.from);
        LEFT + share * (RIGHT - LEFT)
    }

    pub(super) fn y(&self, samples_per_s: f64) -> f64 {
        BOTTOM - samples_per_s / self.max * (BOTTOM - TOP)
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

/// Returns a round step that makes four to eight grid lines up to `max`.
pub fn step(max: f64) -> f64 {
    let power = 10f64.powi(max.log10().floor() as i32 - 1);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    steps.into_iter().find(|step| max / step <= 8.0).unwrap_or(max)
}
