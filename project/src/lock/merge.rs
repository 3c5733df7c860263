//! Merging new measurements into a lock.

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Training, WorkloadSpec};
use toml::{Table, Value};

use super::{ACCUMULATING, F32_SUMS, Lock, LockedWorkload, read, render, write};

/// The outcome of [`merged`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The file's new text.
    pub text: String,
    /// Tables that were removed because they no longer apply, each with the reason.
    pub dropped: Vec<String>,
}

/// Merges the new measurements `entry` of the workload `name` into the text of a lock.
///
/// - Replaced: the values of the workload, and the device's modes in `entry` with all their micro-batches.
/// - Added: the micro-batches of a partial mode, until all sizes were tried.
/// - Kept: values that `entry` lacks (host time, context, kernels); other modes, devices and workloads; keys of newer
///   releases. The larger `kernels_bytes` is kept if other modes of the device are.
/// - Removed: all old measurements of the workload if the model or its training changed. The device's other modes if the
///   name now belongs to another device, or if the releases of Burn or `CubeCL` changed. A mode that has no micro-batches
///   in `entry`, because it could not be measured.
///
/// Times are rounded to four digits, fractions to four decimals. A file of an older format is replaced.
///
/// # Errors
///
/// Mistakes in the file, as [`Lock::parse`] reports them; then write nothing. Or values of `entry` that are out of range,
/// with places in a text called `what was measured`.
pub fn merged(text: Option<Source<'_>>, name: &str, entry: &LockedWorkload) -> Result<Merged, Vec<FileError>> {
    let (lock, mut root) = match text {
        Some(source) => read::file(source)?,
        None => (Lock::default(), write::empty()),
    };
    let mut dropped = Vec::new();
    let path = format!("workload.{name}");
    let known = below(below(&mut root, "workload"), name);
    let mut new = write::workload(entry);
    let devices = new.remove("on");
    if lock.workload.get(name).is_some_and(|old| is_other_model(old, known, entry)) {
        remove_devices(known, &path, devices.as_ref(), &mut dropped);
    }
    for key in ["described", "goal"] {
        known.remove(key);
    }
    known.extend(new);
    if let Some(Value::Table(devices)) = devices {
        let on = below(known, "on");
        for (name, new) in devices {
            if let Value::Table(new) = new {
                replace_device(below(on, &name), new, &format!("{path}.on.{name}"), &mut dropped);
            }
        }
    }
    let text = render::text(&root);
    // The file had no mistakes, so any mistake is in the measurements.
    read::document(Source { file: "what was measured", text: &text })?;
    Ok(Merged { text, dropped })
}

/// Returns the table of this name, and creates a missing one.
fn below<'t>(table: &'t mut Table, name: &str) -> &'t mut Table {
    let value = table.entry(name).or_insert_with(|| Table::new().into());
    value.as_table_mut().expect("BUG: it was read as a table")
}

/// Returns true if the model or its training changed.
fn is_other_model(old: &LockedWorkload, known: &Table, new: &LockedWorkload) -> bool {
    // The device's measurements do not depend on the host time of a sample.
    let same = |old: &WorkloadSpec, new: &WorkloadSpec| {
        let training = Training { host_ms_per_sample: new.training.host_ms_per_sample, ..old.training.clone() };
        old.model == new.model && training == new.training
    };
    let described = match (&old.described, &new.described) {
        (Some(old), Some(new)) => same(old, new),
        // A description that was not parsed has keys of a newer release.
        (None, Some(_)) => !known.contains_key("described"),
        (_, None) => true,
    };
    !described || old.measured.shape != new.measured.shape || old.measured.parameters != new.measured.parameters
}

const MODEL_CHANGED: &str = "measured of the model before it changed";

/// Removes all devices, and records those that are not measured again.
fn remove_devices(known: &mut Table, path: &str, anew: Option<&Value>, dropped: &mut Vec<String>) {
    known.remove("host_ms_per_sample");
    let Some(Value::Table(on)) = known.remove("on") else { return };
    for (name, old) in on.iter().filter_map(|(name, old)| Some((name, old.as_table()?))) {
        let path = format!("{path}.on.{name}");
        match anew.and_then(|devices| devices.get(name)) {
            None => dropped.push(format!("{path}: {MODEL_CHANGED}")),
            Some(new) => {
                let gone = other_modes(old, new.get("mode"));
                dropped.extend(gone.map(|mode| format!("{path}.mode.{mode}: {MODEL_CHANGED}")));
            }
        }
    }
}

/// Keys that are equal for all modes of a device, however old.
const DEVICE_KEYS: [&str; 5] = ["burn", "cubecl", "device", "kind", "sm_count"];

/// Key with one value for all modes of a device: the largest of them.
const KERNELS: &str = "kernels_bytes";

/// Keys of the memory of a micro-batch, which are replaced together.
const MEMORY: [&str; 4] = ["in_use_bytes", "reserved_bytes", ACCUMULATING, F32_SUMS];

/// Replaces the measurements of a device.
fn replace_device(known: &mut Table, mut new: Table, path: &str, dropped: &mut Vec<String>) {
    let anew = new.remove("mode");
    if DEVICE_KEYS.iter().any(|key| known.get(*key) != new.get(*key)) {
        dropped.extend(other_modes(known, anew.as_ref()).map(|mode| {
            format!("{path}.mode.{mode}: measured on another device, or with other releases of Burn or CubeCL")
        }));
        for key in ["bandwidth_gb_s", "context_bytes", "cubecl", "fp32_tflops", KERNELS, "mode"] {
            known.remove(key);
        }
    }
    if new.contains_key(KERNELS) && other_modes(known, anew.as_ref()).next().is_none() {
        known.remove(KERNELS);
    }
    let kernels = [&*known, &new].map(|device| device.get(KERNELS).and_then(Value::as_integer));
    if let Some(most) = kernels.into_iter().flatten().max() {
        new.insert(KERNELS.to_owned(), most.into());
    }
    known.remove("driver");
    known.extend(new);
    if let Some(Value::Table(anew)) = anew {
        let modes = below(known, "mode");
        for (name, mode) in anew {
            if mode.get("batch").and_then(Value::as_table).is_none_or(Table::is_empty) {
                let gone = modes.remove(&name).map(|_| format!("{path}.mode.{name}: it could not be measured again"));
                dropped.extend(gone);
            } else if !add_partial(modes.get_mut(&name), &mode) {
                modes.insert(name, mode);
            }
        }
    }
}

/// Adds the micro-batches of a partial mode to those of an earlier measurement by the same method. Returns false if there
/// is none.
fn add_partial(known: Option<&mut Value>, new: &Value) -> bool {
    let is_partial = new.get("partial").is_some();
    let known = known.filter(|known| is_partial && known.get("method") == new.get("method"));
    let known = known.and_then(|known| known.get_mut("batch")?.as_table_mut());
    let (Some(known), Some(Value::Table(new))) = (known, new.get("batch")) else { return false };
    for (size, batch) in new {
        match (known.get_mut(size), batch) {
            (Some(Value::Table(known)), Value::Table(batch)) => {
                // Figures of two measurements can contradict each other.
                if MEMORY.iter().any(|key| batch.contains_key(*key)) {
                    known.retain(|key, _| !MEMORY.contains(&key));
                }
                known.extend(batch.clone());
            }
            _ => drop(known.insert(size.clone(), batch.clone())),
        }
    }
    true
}

/// Modes of a device that are not measured again.
fn other_modes<'t>(device: &'t Table, anew: Option<&'t Value>) -> impl Iterator<Item = &'t String> {
    let all = device.get("mode").and_then(Value::as_table).into_iter().flat_map(Table::keys);
    all.filter(move |mode| anew.and_then(|anew| anew.get(mode.as_str())).is_none())
}
