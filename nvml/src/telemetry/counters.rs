//! The GPU's performance counters (GPM), available on Hopper and later GPUs.

use std::sync::Arc;

use gpu_tuned_core::telemetry::GpuSample;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::{Device, Nvml};

use crate::Trouble;
use crate::error::optional;
use crate::raw::KeptSample;

/// The counters read, in the order of the destructuring below.
const METRICS: [GpmMetricId; 6] = [
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
];

/// Counters of one GPU or slice, with the previous sample.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Whether the GPU has counters; `None` before the first query.
    supported: Option<bool>,
    measures_link: bool,
    last: Option<KeptSample>,
}

impl Counters {
    /// Returns true if the counters measured the traffic of the PCIe link.
    pub(super) const fn measures_link(&self) -> bool {
        self.measures_link
    }

    /// Drops the previous sample, because the GPU was lost or replaced.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Reads the counters since the previous sample; the first sample gives no figures.
    pub(super) fn read(
        &mut self,
        nvml: &Arc<Nvml>,
        device: &Device<'_>,
        instance: Option<u32>,
        to: &mut GpuSample,
    ) -> Result<(), Trouble> {
        if self.supported.is_none() {
            self.supported = Some(optional(device.gpm_support())?.unwrap_or(false));
        }
        if self.supported != Some(true) {
            return Ok(());
        }
        let sample = optional(KeptSample::take(nvml, device, instance))?;
        let counted = match (&self.last, &sample) {
            (Some(last), Some(sample)) => optional(last.until(sample, &METRICS))?,
            _ => None,
        };
        self.last = sample;
        if let Some([sm, occupancy, tensor, dram, to_gpu, from_gpu]) = counted.as_deref() {
            to.sm_activity_percent = sm.and_then(percent);
            to.sm_occupancy_percent = occupancy.and_then(percent);
            to.tensor_activity_percent = tensor.and_then(percent);
            to.dram_activity_percent = dram.and_then(percent);
            // The link belongs to the whole GPU.
            if instance.is_none() {
                to.pcie_to_gpu_bytes_per_s = to_gpu.and_then(bytes);
                to.pcie_from_gpu_bytes_per_s = from_gpu.and_then(bytes);
                self.measures_link = to.pcie_to_gpu_bytes_per_s.is_some();
            }
        }
        Ok(())
    }
}

/// Validates a percentage; measurement errors can put it slightly above 100.
fn percent(figure: f64) -> Option<f64> {
    (0.0..=110.0).contains(&figure).then(|| figure.min(100.0))
}

/// Converts MiB/s to bytes/s. No link transfers 1 TiB/s.
fn bytes(mib: f64) -> Option<u64> {
    (0.0..=1024.0 * 1024.0).contains(&mib).then_some((mib * 1024.0 * 1024.0) as u64)
}
