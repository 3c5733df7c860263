//! Ranges of single figures.

use super::Faults;
use super::expected::SIMILAR;
use crate::profile::estimate::{PLAUSIBLE, PLAUSIBLE_MEMORY};
use crate::profile::{Peak, Profile};

/// Widths of a memory bus in bits: one chip of GDDR, up to twelve stacks of HBM.
pub(crate) const BUS_BITS: [f64; 2] = [32.0, 12_288.0];
/// L2 caches in MiB.
pub(crate) const L2_MIB: [f64; 2] = [0.1, 1024.0];
/// Board power in watts.
pub(crate) const TDP_W: [f64; 2] = [4.0, 5000.0];

/// Origin of ranges that are wide enough for all known GPUs and the next generations.
const KNOWN: &str = "GPUs from a Jetson to a GB300, with a margin";

impl Faults<'_> {
    pub(super) fn ranges(&mut self) {
        let Profile { memory, compute, board, .. } = self.profile;
        let nominal_mib = memory.nominal_mib as f64;
        let similar = self.similar(PLAUSIBLE_MEMORY);
        self.check("memory.nominal_mib", nominal_mib, self.estimate.memory_mib(), "MiB", &similar);
        let similar = self.similar(PLAUSIBLE);
        let clock = SIMILAR.map(|ratio| ratio * self.estimate.clock_mhz);
        for (key, figure, range, unit, origin) in [
            ("memory.bus_bits", memory.bus_bits.map(f64::from), BUS_BITS, "bit", KNOWN),
            ("compute.sm_count", compute.sm_count.map(f64::from), self.estimate.sm_counts(), "SMs", &similar),
            ("compute.boost_mhz", compute.boost_mhz, clock, "MHz", &similar),
            ("compute.tensor_clock_mhz", compute.tensor_clock_mhz, clock, "MHz", &similar),
            ("compute.l2_mib", compute.l2_mib, L2_MIB, "MiB", KNOWN),
            ("board.pcie_gen", board.pcie_gen.map(f64::from), [1.0, 9.0], "", KNOWN),
            ("board.pcie_lanes", board.pcie_lanes.map(f64::from), [1.0, 32.0], "lanes", KNOWN),
            ("board.nvlink_gb_s", board.nvlink_gb_s, [0.0, 20_000.0], "GB/s", KNOWN),
            ("board.tdp_w", board.tdp_w, TDP_W, "W", KNOWN),
        ] {
            if let Some(figure) = figure {
                self.check(key, figure, range, unit, origin);
            }
        }
        self.reached();
    }

    fn reached(&mut self) {
        let peaks = &self.profile.peaks;
        for (key, peak) in [
            ("peaks.fp32.reached", &peaks.fp32),
            ("peaks.tf32.reached", &peaks.tf32),
            ("peaks.bf16.reached", &peaks.bf16),
            ("peaks.fp16.reached", &peaks.fp16),
        ] {
            if let Some(Peak { reached: Some(fraction), .. }) = peak {
                self.check(key, *fraction, [0.05, 1.5], "", "fractions of peaks in published tests, with a margin");
            }
        }
    }
}
