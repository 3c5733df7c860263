//! The list in `CUDA_VISIBLE_DEVICES`.
//!
//! CUDA's rules: entries are indices, or UUIDs shortened to any unique beginning, or UUIDs of MIG slices. The first invalid
//! entry ends the list. A GPU that is named twice empties the list. An index is read as far as it has digits.

use gpu_tuned_core::device::GpuReading;

/// GPUs in CUDA's order, each whole or as its MIG slices.
pub(super) struct Devices<'g>(Vec<&'g [GpuReading]>);

/// End of a list, with the entry that ends it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
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
    pub(super) fn new(devices: Vec<&'g [GpuReading]>) -> Self {
        Self(devices)
    }

    /// Every GPU and every slice.
    pub(super) fn all(&self) -> Vec<&'g GpuReading> {
        self.0.iter().copied().flatten().collect()
    }

    /// GPUs and slices of a list in its order, the reason for its end, and the number of entries that are lost by it. A GPU
    /// with slices stands for its first one.
    pub(super) fn select(&self, list: &str) -> (Vec<&'g GpuReading>, End, usize) {
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
