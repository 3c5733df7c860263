//! Merging new measurements into a lock, and its layout.

use core::fmt::Write;

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Training, WorkloadSpec};
use toml::de::DeTable;
use toml::{Table, Value};

use super::codec::{self, ACCUMULATING, F32_SUMS};
use super::{Lock, LockedWorkload};

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
    let lock = text.map_or_else(|| Ok(Lock::default()), Lock::parse)?;
    let known = text.filter(|_| lock.older_format.is_none());
    let mut root: Table =
        known.map_or_else(super::empty, |known| known.text.parse().expect("BUG: it was read as TOML"));
    let mut dropped = Vec::new();
    let path = format!("workload.{name}");
    let known = below(below(&mut root, "workload"), name);
    let mut new = codec::write(entry, true);
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
    let text = format(&root);
    // The file had no mistakes, so any mistake is in the measurements.
    Lock::read(DeTable::parse(&text), Source { file: "what was measured", text: &text })?;
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

const HEADER: &str = "\
# Measurements of this package's workloads, written by `cargo gpu-tuned measure`. Commit this file.
# After a conflicting merge keep either side, or delete the file, and measure again.
";

/// Formats the file: sorted, one value or measured micro-batch a line, so that diffs are short.
pub(super) fn format(root: &Table) -> String {
    let mut out = HEADER.to_owned();
    // First, because the format determines how to read the rest.
    if let Some(format) = root.get("format") {
        fact("format", format, &mut out);
    }
    let rest: Table = root.iter().filter(|(key, _)| *key != "format").map(|(k, v)| (k.clone(), v.clone())).collect();
    contents("", 0, &rest, &mut out);
    push(&mut out, format_args!("\n{}\n", Lock::END));
    out
}

/// Names from the root to a table of measured micro-batches: `workload.NAME.on.DEVICE.mode.MODE.batch`.
const BATCH_DEPTH: usize = 7;

/// Writes the values of a table, then the tables below it. `depth` counts the names of its path.
fn contents(path: &str, depth: usize, table: &Table, out: &mut String) {
    // A measured micro-batch is one line.
    let is_line = |value: &Value| !value.is_table() || depth == BATCH_DEPTH;
    let (lines, tables): (Vec<_>, Vec<_>) = sorted(table).into_iter().partition(|(_, value)| is_line(value));
    for (key, value) in lines {
        fact(key, value, out);
    }
    for (name, below) in tables.into_iter().filter_map(|(key, value)| Some((key, value.as_table()?))) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{}", self::key(name));
        let has_lines = below.values().any(|value| !value.is_table()) || depth + 1 == BATCH_DEPTH;
        if below.is_empty() || has_lines {
            push(out, format_args!("\n[{path}]\n"));
        }
        contents(&path, depth + 1, below, out);
    }
}

/// Names that are numbers first and as numbers: batch 64 before batch 128.
fn sorted(table: &Table) -> Vec<(&str, &Value)> {
    let mut all: Vec<_> = table.iter().map(|(key, value)| (key.as_str(), value)).collect();
    all.sort_by_key(|(key, _)| (key.parse().unwrap_or(u64::MAX), *key));
    all
}

fn fact(name: &str, value: &Value, out: &mut String) {
    push(out, format_args!("{} = {}\n", key(name), inline(value)));
}

fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_bare) { name.to_owned() } else { quoted(name) }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(whole) => grouped(*whole),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) if table.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let facts = sorted(table).into_iter().map(|(name, value)| format!("{} = {}", key(name), inline(value)));
            format!("{{ {} }}", facts.collect::<Vec<_>>().join(", "))
        }
        Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => value.to_string(),
    }
}

/// Quotes a text, always on one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            char if char.is_control() => push(&mut out, format_args!("\\U{:08X}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// `1_548_747_520`; up to four digits as they are.
fn grouped(whole: i64) -> String {
    let digits = whole.unsigned_abs().to_string();
    let sign = if whole < 0 { "-" } else { "" };
    if digits.len() < 5 {
        return format!("{sign}{digits}");
    }
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{sign}{}", groups.join("_"))
}

fn push(out: &mut String, text: core::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("BUG: a text takes any text");
}
