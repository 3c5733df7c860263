//! Figures expected from other figures, each with its tolerance.

use crate::profile::estimate::PLAUSIBLE;

/// Half of the last printed digit of a figure.
const ROUNDING: f64 = 0.06;

/// A figure that follows from others.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub value: f64,
    /// Smallest and largest allowed ratio to the value.
    pub ratios: [f64; 2],
    pub origin: String,
}

impl Expected {
    /// The allowed range.
    pub(super) fn range(&self) -> [f64; 2] {
        let [low, high] = self.ratios.map(|ratio| ratio * self.value);
        [low.min(self.value - ROUNDING).max(f64::MIN_POSITIVE), high.max(self.value + ROUNDING)]
    }
}

/// Ratios within a relative tolerance.
pub(super) const fn within(tolerance: f64) -> [f64; 2] {
    [1.0 - tolerance, 1.0 + tolerance]
}

/// Ratios of figures of one class of GPUs.
pub(super) const SIMILAR: [f64; 2] = [1.0 / PLAUSIBLE, PLAUSIBLE];

/// Formats a bound with three significant digits.
pub(super) fn number(bound: f64) -> String {
    let digits = (2.0 - bound.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0);
    let text = format!("{bound:.*}", digits as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
