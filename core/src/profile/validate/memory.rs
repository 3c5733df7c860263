//! Memory totals and bandwidth.

use super::expected::SIMILAR;
use super::{Faults, Strictness};
use crate::device::EstimatedFigure;
use crate::profile::estimate::PLAUSIBLE;

/// Data rates of memory in Gbit/s per pin, by kind: bandwidth is the rate times the width of the bus.
const DATA_RATES: [(&str, &[f64]); 11] = [
    ("GDDR5", &[5.0, 6.0, 7.23, 8.0]),
    ("GDDR5X", &[9.02, 10.0, 11.0, 11.42]),
    ("GDDR6", &[10.0, 12.0, 12.5, 13.0, 14.0, 14.5, 15.0, 15.5, 16.0, 17.0, 18.0, 20.0]),
    ("GDDR6X", &[19.0, 19.5, 21.0, 22.4, 23.0]),
    ("GDDR7", &[18.0, 24.0, 24.95, 28.0, 30.0]),
    ("HBM2", &[1.43, 1.7, 1.76, 1.92, 2.21, 2.43]),
    ("HBM2e", &[3.02, 3.19]),
    ("HBM3", &[5.2, 5.23]),
    ("HBM3e", &[6.25, 8.06, 8.33]),
    ("LPDDR5 unified", &[4.26, 6.4]),
    ("LPDDR5X unified", &[8.53]),
];

/// Widest bus of memory other than HBM, bits.
pub(crate) const WIDEST_WITHOUT_HBM: u32 = 512;

/// Tolerance of data rates: bandwidths are rounded to three or four digits.
const RATE_TOLERANCE: f64 = 0.006;

/// Margin of a user's data rate beyond those of its kind: other clocks, and the next generation.
const RATE_MARGIN: f64 = 1.5;

impl Faults<'_> {
    pub(super) fn memory(&mut self) {
        let memory = &self.profile.memory;
        // Drivers keep up to an eighth for themselves (ECC, firmware); nobody reports over 3% more than was sold.
        let nominal_mib = memory.nominal_mib as f64;
        let range = [nominal_mib * 7.0 / 8.0, nominal_mib * 1.03];
        let totals =
            [("memory.nvml_total_mib", &memory.nvml_total_mib), ("memory.cuda_total_mib", &memory.cuda_total_mib)];
        for (key, totals) in totals {
            for total in totals {
                self.check(
                    key,
                    *total as f64,
                    range,
                    "MiB",
                    "memory.nominal_mib, of which drivers keep up to an eighth",
                );
            }
        }
        let is_estimate = self.profile.estimated.contains(&EstimatedFigure::Bandwidth);
        let Some(gb_s) = memory.bandwidth_gb_s else { return };
        let Some(bits) = memory.bus_bits.filter(|bits| *bits > 0 && !is_estimate) else {
            let [low, high] = SIMILAR.map(|ratio| ratio * self.estimate.bandwidth_gb_s);
            self.check("memory.bandwidth_gb_s", gb_s, [low, high], "GB/s", &self.similar(PLAUSIBLE));
            return;
        };
        let kind = memory.kind.as_deref();
        if self.strictness == Strictness::User {
            let origin = format!("{bits} bits x the data rates of such memory, with a margin");
            self.check("memory.bandwidth_gb_s", gb_s, bandwidth_range(kind, bits), "GB/s", &origin);
            return;
        }
        let (rate, rates) = (gb_s * 8.0 / f64::from(bits), data_rates(kind, bits));
        if !rates.iter().any(|listed| (rate / listed - 1.0).abs() <= RATE_TOLERANCE) {
            let message = format!(" = {gb_s} over {bits} bits is {rate:.2} Gbit/s per pin, expected one of {rates:?}");
            self.add("memory.bandwidth_gb_s", message);
        }
    }
}

/// Plausible bandwidths of a bus, in GB/s: its width x the data rates of the memory.
pub(crate) fn bandwidth_range(kind: Option<&str>, bits: u32) -> [f64; 2] {
    let rates = data_rates(kind, bits);
    let [lowest, highest] =
        [rates.iter().copied().fold(f64::INFINITY, f64::min), rates.iter().copied().fold(0.0, f64::max)];
    [lowest / RATE_MARGIN, highest * RATE_MARGIN].map(|rate| rate * f64::from(bits) / 8.0)
}

/// Data rates of a kind of memory; for an unlisted kind, those of all memory with such a bus.
fn data_rates(kind: Option<&str>, bits: u32) -> Vec<f64> {
    let has_hbm = bits > WIDEST_WITHOUT_HBM;
    let is_kind = |(name, _): &&(&str, &[f64])| Some(*name) == kind;
    let with_bus = |(name, _): &&(&str, &[f64])| name.starts_with("HBM") == has_hbm;
    match DATA_RATES.iter().find(is_kind) {
        Some((_, rates)) => rates.to_vec(),
        None => DATA_RATES.iter().filter(with_bus).flat_map(|(_, rates)| *rates).copied().collect(),
    }
}
