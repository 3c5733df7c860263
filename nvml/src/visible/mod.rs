//! GPUs that a process can use in CUDA, predicted from the driver's reading and the process's environment.

mod list;
mod mps;
mod order;
mod shown;

use std::env;

use gpu_tuned_core::device::GpuReading;

use crate::DriverReading;
use list::{Devices, End};

/// Values of the environment variables by which CUDA selects, orders and limits the GPUs of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaEnvironment {
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible_devices: Option<String>,
    /// `CUDA_DEVICE_ORDER`: `FASTEST_FIRST`, which is the default, or `PCI_BUS_ID`.
    pub device_order: Option<String>,
    /// `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`: `0=4G,1=512M`.
    pub mps_memory_limit: Option<String>,
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`: share of the multiprocessors.
    pub mps_thread_percentage: Option<String>,
    /// `NVIDIA_VISIBLE_DEVICES`, for the container runtime.
    pub container_devices: Option<String>,
}

/// GPUs of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VisibleGpus {
    /// GPUs in CUDA's order.
    pub gpus: Vec<GpuReading>,
    /// GPUs that the process should have and does not get: one sentence each.
    pub missing: Vec<String>,
    /// Number of these GPUs. One sentence may be about several.
    pub missing_count: usize,
    /// Other reasons for fewer GPUs than the driver lists: one sentence each.
    pub notes: Vec<String>,
}

impl CudaEnvironment {
    /// The variable with the GPUs of a process.
    pub const VISIBLE_DEVICES: &'static str = "CUDA_VISIBLE_DEVICES";
    /// The variable with the order of the GPUs.
    pub const DEVICE_ORDER: &'static str = "CUDA_DEVICE_ORDER";
    /// The variable with the memory limits of a client of the Multi-Process Service (MPS).
    pub const MPS_MEMORY_LIMIT: &'static str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
    /// The variable with the share of the multiprocessors of a client of MPS.
    pub const MPS_THREAD_PERCENTAGE: &'static str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
    /// The variable with the GPUs of a container.
    pub const CONTAINER_DEVICES: &'static str = "NVIDIA_VISIBLE_DEVICES";

    /// Reads the variables of this process.
    pub fn from_process() -> Self {
        let variable = |name| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            visible_devices: variable(Self::VISIBLE_DEVICES),
            device_order: variable(Self::DEVICE_ORDER),
            mps_memory_limit: variable(Self::MPS_MEMORY_LIMIT),
            mps_thread_percentage: variable(Self::MPS_THREAD_PERCENTAGE),
            container_devices: variable(Self::CONTAINER_DEVICES),
        }
    }

    /// Predicts the GPUs that a process with this environment can use in CUDA. [`limit`](Self::limit) applies its limits.
    ///
    /// Under MIG this is one slice: in CUDA a process can use one MIG slice, and no whole GPU beside a slice.
    pub fn select(&self, reading: &DriverReading) -> VisibleGpus {
        let devices = Devices::new(order::in_cuda_order(&reading.gpus, self.device_order.as_deref()));
        let trouble = reading.trouble.iter().map(|gpu| format!("GPU {}: {}", gpu.index, gpu.what));
        let mut visible = VisibleGpus::default();
        let Some(list) = &self.visible_devices else {
            visible.missing = trouble.collect();
            visible.missing_count = reading.trouble.len();
            visible.take_as_cuda_does(devices.all());
            if reading.gpus.is_empty() && visible.missing.is_empty() {
                visible.notes.extend(self.hidden_by_container());
            }
            return visible;
        };
        // A list may leave unusable GPUs out on purpose.
        visible.notes = trouble.collect();
        let (selected, end, lost) = devices.select(list);
        visible.missing_count = lost;
        match end {
            End::Complete => {}
            End::Entry(entry) => visible.missing.push(format!(
                "{}: no usable GPU is `{entry}`, and CUDA ignores the rest of the list",
                Self::VISIBLE_DEVICES
            )),
            End::Ambiguous(entry) => visible.missing.push(format!(
                "{}: several GPUs are `{entry}`, and CUDA ignores the rest of the list",
                Self::VISIBLE_DEVICES
            )),
            End::Repeated(entry) => visible
                .missing
                .push(format!("{} names a GPU twice (`{entry}`), and CUDA shows no GPU then", Self::VISIBLE_DEVICES)),
        }
        visible.take_as_cuda_does(selected);
        if visible.gpus.is_empty() && visible.missing.is_empty() && !reading.gpus.is_empty() {
            visible.notes.push(hidden(&reading.gpus, &format!("{} is `{list}`", Self::VISIBLE_DEVICES)));
        }
        visible
    }

    /// Applies the limits of the Multi-Process Service (MPS) on memory and multiprocessors to GPUs in CUDA's order.
    /// Returns a sentence for each limit that applies, and for each that cannot be read.
    pub fn limit(&self, gpus: &mut [GpuReading]) -> Vec<String> {
        let memory = self.mps_memory_limit.as_deref().map(|limits| mps::limit_memory(limits, gpus));
        let compute = self.mps_thread_percentage.as_deref().and_then(|percentage| mps::limit_compute(percentage, gpus));
        memory.unwrap_or_default().into_iter().chain(compute).collect()
    }

    /// Explains why a container has no GPU.
    fn hidden_by_container(&self) -> Option<String> {
        let devices = self.container_devices.as_deref()?;
        let hides = matches!(devices.trim(), "" | "none" | "void");
        hides.then(|| format!("{} is `{devices}`: the container gets no GPU", Self::CONTAINER_DEVICES))
    }
}

impl VisibleGpus {
    /// Keeps the first MIG slice alone, if there is one.
    fn take_as_cuda_does(&mut self, selected: Vec<&GpuReading>) {
        let Some(slice) = selected.iter().find(|gpu| gpu.mig.is_some()) else {
            self.gpus = selected.into_iter().cloned().collect();
            return;
        };
        if selected.len() > 1 {
            let name = slice.name.as_deref().unwrap_or("without a name");
            let uuid = slice.uuid.as_deref().unwrap_or("unknown UUID");
            self.notes.push(format!(
                "a process can use one MIG slice and no other GPU: {name} ({uuid}); name another slice in {}",
                CudaEnvironment::VISIBLE_DEVICES
            ));
        }
        self.gpus = vec![(*slice).clone()];
    }
}

/// Reports that CUDA shows none of the driver's GPUs, with the reason.
fn hidden(gpus: &[GpuReading], reason: &str) -> String {
    let names: Vec<_> = gpus.iter().map(|gpu| gpu.name.as_deref().unwrap_or("an unnamed GPU")).collect();
    format!("CUDA shows none of the driver's GPUs ({}): {reason}", names.join(", "))
}
