//! The GPU's performance counters (GPM), which Hopper and later GPUs have.

use std::sync::Arc;

use gpu_tuned_core::telemetry::GpuSample;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::{Device, Nvml};

use crate::Trouble;
use crate::answer::known;
use crate::raw::KeptSample;

/// The figures that are asked for, in the order in which they are taken below.
const METRICS: [GpmMetricId; 6] = [
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
];

/// Counters of one GPU or slice, with the sample of the last look.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Whether there are any, once that was asked.
    are_there: Option<bool>,
    tell_of_link: bool,
    last: Option<KeptSample>,
}

impl Counters {
    /// Whether they have told the traffic of the PCIe link.
    pub(super) const fn tell_of_link(&self) -> bool {
        self.tell_of_link
    }

    /// Lets the last sample go: the GPU is another one now, or gone.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What was counted since the last look; nothing at the first one.
    pub(super) fn read(
        &mut self,
        nvml: &Arc<Nvml>,
        device: &Device<'_>,
        instance: Option<u32>,
        to: &mut GpuSample,
    ) -> Result<(), Trouble> {
        if self.are_there.is_none() {
            self.are_there = Some(known(device.gpm_support())?.unwrap_or(false));
        }
        if self.are_there != Some(true) {
            return Ok(());
        }
        let sample = known(KeptSample::take(nvml, device, instance))?;
        let counted = match (&self.last, &sample) {
            (Some(last), Some(sample)) => known(last.until(sample, &METRICS))?,
            _ => None,
        };
        self.last = sample;
        if let Some([sm, occupancy, tensor, dram, to_gpu, from_gpu]) = counted.as_deref() {
            to.sm_activity_percent = sm.and_then(percent);
            to.sm_occupancy_percent = occupancy.and_then(percent);
            to.tensor_activity_percent = tensor.and_then(percent);
            to.dram_activity_percent = dram.and_then(percent);
            // The link is the whole GPU's.
            if instance.is_none() {
                to.pcie_to_gpu_bytes_per_s = to_gpu.and_then(bytes);
                to.pcie_from_gpu_bytes_per_s = from_gpu.and_then(bytes);
                self.tell_of_link = to.pcie_to_gpu_bytes_per_s.is_some();
            }
        }
        Ok(())
    }
}

/// A share; measuring it can come out a little above all of it.
fn percent(figure: f64) -> Option<f64> {
    (0.0..=110.0).contains(&figure).then(|| figure.min(100.0))
}

/// From MiB per second. No link moves a TiB in a second.
fn bytes(mib: f64) -> Option<u64> {
    (0.0..=1024.0 * 1024.0).contains(&mib).then_some((mib * 1024.0 * 1024.0) as u64)
}
