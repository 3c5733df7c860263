//! GPUs that CUDA lists, with NVML's figures.

use gpu_tuned_core::device::{CudaDevice, GpuIdentity, GpuReading};

use super::{CudaEnvironment, VisibleGpus, hidden};
use crate::cuda::{self, CudaError};

impl CudaEnvironment {
    /// Replaces predicted GPUs by those that CUDA lists, in CUDA's order, and adds the ones that CUDA lacks to the
    /// missing ones. `read` are all GPUs of NVML.
    pub fn confirm(
        &self,
        mut predicted: VisibleGpus,
        read: &[GpuReading],
        devices: Result<Vec<CudaDevice>, CudaError>,
    ) -> VisibleGpus {
        let devices = match devices {
            Err(error @ (CudaError::Call { .. } | CudaError::Silent)) => {
                predicted.notes.push(error.to_string());
                return predicted;
            }
            Err(CudaError::NoLibrary) => None,
            Ok(devices) => Some(devices),
        };
        let shown = in_cuda_order(read, devices.as_deref().unwrap_or_default());
        if shown.is_empty() && !predicted.gpus.is_empty() {
            let reason = match &self.visible_devices {
                _ if devices.is_none() => {
                    "its library (libcuda) is not on this machine; a container needs `compute` in \
                                           NVIDIA_DRIVER_CAPABILITIES"
                        .to_owned()
                }
                Some(visible) => format!("{} is `{visible}`", Self::VISIBLE_DEVICES),
                None => "does a container or a scheduler hide them?".to_owned(),
            };
            predicted.missing.push(hidden(read, &reason));
        }
        predicted.replaced_by(shown)
    }
}

impl VisibleGpus {
    /// Replaces the predicted GPUs by those that CUDA shows.
    ///
    /// If CUDA shows more GPUs than predicted, the prediction's reasons are dropped: NVML was absent or did not list all.
    fn replaced_by(self, shown: Vec<GpuReading>) -> Self {
        let expected = self.gpus.len() + self.missing_count;
        let missing_count = expected.saturating_sub(shown.len());
        let mut missing = self.missing;
        if shown.len() > self.gpus.len() {
            missing.clear();
            if missing_count > 0 {
                missing
                    .push(format!("CUDA shows {} of the {expected} GPUs that this process should have", shown.len()));
            }
        } else if !shown.is_empty() {
            missing.extend(not_shown(&self.gpus, &shown));
        }
        Self { gpus: shown, missing, missing_count, notes: self.notes }
    }
}

/// Reports predicted GPUs that CUDA does not show, if it shows fewer.
fn not_shown(predicted: &[GpuReading], shown: &[GpuReading]) -> Vec<String> {
    let is_shown =
        |gpu: &&GpuReading| shown.iter().any(|shown| (&shown.uuid, shown.pci_address) == (&gpu.uuid, gpu.pci_address));
    let lacking = predicted.len().saturating_sub(shown.len());
    let missing = predicted.iter().filter(|gpu| !is_shown(gpu)).take(lacking);
    let name = |gpu: &GpuReading| gpu.name.clone().unwrap_or_else(|| "without a name".to_owned());
    missing.map(|gpu| format!("GPU {}: CUDA does not show it ({})", gpu.index, name(gpu))).collect()
}

/// Keeps the GPUs that CUDA lists, in CUDA's order, and adds GPUs that only CUDA lists (Jetson, WSL2).
fn in_cuda_order(read: &[GpuReading], devices: &[CudaDevice]) -> Vec<GpuReading> {
    let is_alone = read.len() == 1;
    let is_of = |device: &CudaDevice, reading: &&GpuReading| {
        let found = GpuIdentity::from(*reading).find(is_alone, devices);
        matches!(found[..], [only] if only.index == device.index)
    };
    let reading_of = |device: &CudaDevice| {
        let mut found = read.iter().filter(|reading| is_of(device, reading));
        // MIG slices with the UUIDs of older drivers may all match one CUDA device.
        let mut reading = found.next().filter(|_| found.next().is_none()).cloned().unwrap_or_else(|| {
            let mut unread = GpuReading::default();
            unread.index = u32::try_from(device.index).unwrap_or(u32::MAX);
            unread
        });
        cuda::complete(&mut reading, device);
        reading
    };
    devices.iter().map(reading_of).collect()
}
