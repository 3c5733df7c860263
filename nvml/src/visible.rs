//! GPUs that a process can use in CUDA, predicted from the driver's reading and the process's environment.

use std::cmp::Reverse;
use std::env;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{CudaDevice, GpuIdentity, GpuReading};
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;

use crate::DriverReading;
use crate::cuda::{self, CudaError};

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
        let devices = Devices::new(in_cuda_order(&reading.gpus, self.device_order.as_deref()));
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
        let memory = self.mps_memory_limit.as_deref().map(|limits| limit_memory(limits, gpus));
        let compute = self.mps_thread_percentage.as_deref().and_then(|percentage| limit_compute(percentage, gpus));
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

/// GPUs in CUDA's order, each whole or as its MIG slices.
struct Devices<'g>(Vec<&'g [GpuReading]>);

/// End of a list, with the entry that ends it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// All entries are valid, or a negative or empty entry ends the list.
    Complete,
    /// The entry names no GPU.
    Entry(String),
    /// The entry is the beginning of several UUIDs.
    Ambiguous(String),
    /// The entry names a GPU for the second time.
    Repeated(String),
}

/// Kind of all entries of a list: that of the first one.
#[derive(Clone, Copy)]
enum Kind {
    Index,
    Gpu,
    Slice,
}

impl Kind {
    const GPU_PREFIX: &'static str = "GPU-";
    const SLICE_PREFIX: &'static str = "MIG-";

    fn of_list(list: &str) -> Self {
        match list.trim_start() {
            list if list.starts_with(Self::GPU_PREFIX) => Self::Gpu,
            list if list.starts_with(Self::SLICE_PREFIX) => Self::Slice,
            _ => Self::Index,
        }
    }
}

impl<'g> Devices<'g> {
    fn new(devices: Vec<&'g [GpuReading]>) -> Self {
        Self(devices)
    }

    /// Every GPU and every slice.
    fn all(&self) -> Vec<&'g GpuReading> {
        self.0.iter().copied().flatten().collect()
    }

    /// GPUs and slices of a list in its order, the reason for its end, and the number of entries that are lost by it. A GPU
    /// with slices stands for its first one.
    fn select(&self, list: &str) -> (Vec<&'g GpuReading>, End, usize) {
        let kind = Kind::of_list(list);
        let is_entry = |entry: &&str| !entry.is_empty() && !entry.starts_with('-');
        let entries: Vec<_> = list.split(',').map(str::trim).take_while(is_entry).collect();
        let mut selected: Vec<&GpuReading> = Vec::new();
        for (position, &entry) in entries.iter().enumerate() {
            // A process can use one slice only.
            let rest = if matches!(kind, Kind::Slice) { 1 } else { entries.len() - position };
            let mut found = self.find(kind, entry);
            let Some(gpu) = found.next() else { return (selected, End::Entry(entry.to_owned()), rest) };
            if found.next().is_some() {
                return (selected, End::Ambiguous(entry.to_owned()), rest);
            }
            if selected.iter().any(|other| core::ptr::eq(*other, gpu)) {
                return (Vec::new(), End::Repeated(entry.to_owned()), selected.len());
            }
            selected.push(gpu);
        }
        (selected, End::Complete, 0)
    }

    /// GPUs or slices that an entry may name.
    fn find<'a>(&'a self, kind: Kind, entry: &'a str) -> Box<dyn Iterator<Item = &'g GpuReading> + 'a> {
        match kind {
            Kind::Index => Box::new(index(entry).and_then(|index| self.0.get(index)?.first()).into_iter()),
            Kind::Gpu => {
                let firsts = self.0.iter().filter_map(|device| device.first());
                Box::new(firsts.filter(|gpu| {
                    let uuid = if gpu.mig.is_some() { &gpu.gpu_uuid } else { &gpu.uuid };
                    entry.starts_with(Kind::GPU_PREFIX) && uuid.as_deref().is_some_and(|uuid| begins(uuid, entry))
                }))
            }
            Kind::Slice => {
                let slices = self.0.iter().copied().flatten().filter(|gpu| gpu.mig.is_some());
                Box::new(slices.filter(|slice| {
                    let is_new = slice.uuid.as_deref().is_some_and(|uuid| begins(uuid, entry));
                    is_new || old_name(slice).is_some_and(|name| name.eq_ignore_ascii_case(entry))
                }))
            }
        }
    }
}

/// Reads a number as C's `strtoul` does: `1gpu` is 1.
fn index(entry: &str) -> Option<usize> {
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Compares the beginning of a UUID; hexadecimal digits in either case.
fn begins(uuid: &str, entry: &str) -> bool {
    uuid.get(..entry.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(entry))
}

/// Name of a slice for drivers before release 470: GPU, GPU instance and compute instance.
fn old_name(slice: &GpuReading) -> Option<String> {
    let instance = slice.mig?;
    Some(format!("MIG-{}/{}/{}", slice.gpu_uuid.as_deref()?, instance.gpu_instance, instance.compute_instance))
}

/// Value of `CUDA_DEVICE_ORDER` for the order of PCI addresses.
const BY_ADDRESS: &str = "PCI_BUS_ID";

/// GPUs in CUDA's order, each whole or as its MIG slices.
///
/// CUDA documents its default as a heuristic, from fastest to slowest. The prediction uses the fp32 rate. Equal GPUs stay
/// in the driver's order, which is that of PCI addresses.
fn in_cuda_order<'g>(gpus: &'g [GpuReading], order: Option<&str>) -> Vec<&'g [GpuReading]> {
    let mut devices: Vec<_> = gpus.chunk_by(|one, next| one.mig.is_some() && one.index == next.index).collect();
    if devices.len() < 2 {
        return devices;
    }
    if order.is_some_and(|order| order.trim() == BY_ADDRESS) {
        devices.sort_by_key(|device| device[0].pci_address);
    } else {
        devices.sort_by_cached_key(|device| Reverse(fp32_gflops(&device[0]) as u64));
    }
    devices
}

/// fp32 rate in 10^9 operations per second; 0 if unknown.
fn fp32_gflops(gpu: &GpuReading) -> f64 {
    let lanes = || Some(f64::from(gpu.sm_count?) * f64::from(gpu.compute_capability?.cores_per_sm()?));
    let from_units = || Some(lanes()? * 2.0 * f64::from(gpu.max_sm_clock_mhz?) / 1000.0);
    let from_profile = || {
        let found = identify(gpu, &ProfileTable::default());
        found.profile()?.peaks.fp32.as_ref().map(|peak| peak.tflops * 1000.0)
    };
    from_units().or_else(from_profile).unwrap_or_default()
}

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
        let shown = listed_by_cuda(read, devices.as_deref().unwrap_or_default());
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
fn listed_by_cuda(read: &[GpuReading], devices: &[CudaDevice]) -> Vec<GpuReading> {
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

/// Applies limits such as `0=4G,1=512M`. Returns a sentence for each GPU with a limit, and for each unreadable limit.
fn limit_memory(limits: &str, gpus: &mut [GpuReading]) -> Vec<String> {
    let variable = CudaEnvironment::MPS_MEMORY_LIMIT;
    let mut notes = Vec::new();
    for entry in limits.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((position, limit)) = parse_limit(entry) else {
            notes.push(format!("{variable}: `{entry}` is ignored; expected GPU=LIMIT, such as 0=4G"));
            continue;
        };
        let Some(gpu) = gpus.get_mut(position) else { continue };
        gpu.memory_limit = Some(limit);
        // Free memory of a GPU that reports none may be all of it.
        let free = gpu.memory_free.or_else(|| Some(gpu.memory_total? - gpu.memory_reserved.unwrap_or_default()));
        if free.is_none_or(|free| limit < free) {
            gpu.memory_free = Some(limit);
            notes.push(format!("{variable} limits this process to {limit} of GPU {position}"));
        }
    }
    notes
}

/// Applies a share of the multiprocessors in percent. Returns a sentence, unless there is no limit.
fn limit_compute(percentage: &str, gpus: &mut [GpuReading]) -> Option<String> {
    let variable = CudaEnvironment::MPS_THREAD_PERCENTAGE;
    let percentage = percentage.trim();
    let Some(percent) = percentage.parse().ok().filter(|percent: &f64| *percent > 0.0 && percent.is_finite()) else {
        return Some(format!("{variable}: `{percentage}` is ignored; expected a percentage, such as 50"));
    };
    let percent = percent.ceil() as u32;
    if percent >= 100 || gpus.is_empty() {
        return None;
    }
    for gpu in gpus {
        gpu.compute_percent = Some(percent);
    }
    Some(format!("{variable} limits this process to {percentage}% of the multiprocessors"))
}

/// Position of the GPU in CUDA's order, and its limit.
fn parse_limit(entry: &str) -> Option<(usize, Bytes)> {
    let (position, amount) = entry.split_once('=')?;
    let amount = amount.trim().to_ascii_uppercase();
    let digits = amount.find(|character: char| !character.is_ascii_digit()).unwrap_or(amount.len());
    let (number, unit) = amount.split_at(digits);
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    Some((position.trim().parse().ok()?, Bytes(bytes)))
}

#[cfg(test)]
mod tests;
