//! New measurements among those that are on record.

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Training, WorkloadSpec};
use toml::{Table, Value};

use super::{Lock, LockedWorkload, read, render, write};

/// The outcome of [`merged`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The file's new text.
    pub text: String,
    /// Tables that are gone because they no longer hold, each with the reason.
    pub dropped: Vec<String>,
}

/// The text of the file `text` with the new measurements `entry` of the workload `name`.
///
/// Values of the workload as a whole are replaced, and so are the device's modes that `entry` has, with all their
/// micro-batches. Figures that `entry` leaves open (host time, context, kernels) stay, and so do kernels that take more than those of
/// `entry`, where other modes of the device stay. So does everything else in the file: other modes, devices and workloads,
/// and what a newer release wrote. But where the model, or how it is trained, is no longer the same, the workload's old
/// measurements go; where a device is another one under the same name or was measured with other releases of Burn or
/// `CubeCL`, its other modes go.
///
/// Times are rounded to four digits, fractions to four decimals. A file of an older format is replaced.
///
/// # Errors
///
/// The mistakes in the file, as [`Lock::parse`] finds them; nothing is to be written then. Or figures of `entry` that no
/// lock may hold, with places in a text called `what was measured`.
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
        forget(known, &path, devices.as_ref(), &mut dropped);
    }
    for key in ["described", "goal"] {
        known.remove(key);
    }
    known.extend(new);
    if let Some(Value::Table(devices)) = devices {
        let on = below(known, "on");
        for (name, new) in devices {
            if let Value::Table(new) = new {
                measured_anew(below(on, &name), new, &format!("{path}.on.{name}"), &mut dropped);
            }
        }
    }
    let text = render::text(&root);
    // The file was right: what is wrong now is what was measured.
    read::document(Source { file: "what was measured", text: &text })?;
    Ok(Merged { text, dropped })
}

/// The table of this name, made where it is missing.
fn below<'t>(table: &'t mut Table, name: &str) -> &'t mut Table {
    let value = table.entry(name).or_insert_with(|| Table::new().into());
    value.as_table_mut().expect("BUG: it was read as a table")
}

/// Whether old measurements are of another model, or of one that was trained in another way.
fn is_other_model(old: &LockedWorkload, known: &Table, new: &LockedWorkload) -> bool {
    // What a host takes for a sample is nothing that a device's figures depend on.
    let same = |old: &WorkloadSpec, new: &WorkloadSpec| {
        let training = Training { host_ms_per_sample: new.training.host_ms_per_sample, ..old.training.clone() };
        old.model == new.model && training == new.training
    };
    let described = match (&old.described, &new.described) {
        (Some(old), Some(new)) => same(old, new),
        // A description that is there and was not read has more to say than this release knows.
        (None, Some(_)) => !known.contains_key("described"),
        (_, None) => true,
    };
    !described || old.measured.shape != new.measured.shape || old.measured.parameters != new.measured.parameters
}

const OF_AN_OLD_MODEL: &str = "measured of the model before it changed";

/// Drops all devices, and says which of them are not measured anew.
fn forget(known: &mut Table, path: &str, anew: Option<&Value>, dropped: &mut Vec<String>) {
    known.remove("host_ms_per_sample");
    let Some(Value::Table(on)) = known.remove("on") else { return };
    for (name, old) in on.iter().filter_map(|(name, old)| Some((name, old.as_table()?))) {
        let path = format!("{path}.on.{name}");
        match anew.and_then(|devices| devices.get(name)) {
            None => dropped.push(format!("{path}: {OF_AN_OLD_MODEL}")),
            Some(new) => {
                let gone = modes(old, new.get("mode"));
                dropped.extend(gone.map(|mode| format!("{path}.mode.{mode}: {OF_AN_OLD_MODEL}")));
            }
        }
    }
}

/// What decides whether modes that were measured at different times belong together.
const OF_THE_DEVICE: [&str; 5] = ["burn", "cubecl", "device", "kind", "sm_count"];

/// What is one figure for all modes of a device, and larger in some of them.
const KERNELS: &str = "kernels_bytes";

fn measured_anew(known: &mut Table, mut new: Table, path: &str, dropped: &mut Vec<String>) {
    let anew = new.remove("mode");
    if OF_THE_DEVICE.iter().any(|key| known.get(*key) != new.get(*key)) {
        dropped.extend(modes(known, anew.as_ref()).map(|mode| {
            format!("{path}.mode.{mode}: measured on another device, or with other releases of Burn or CubeCL")
        }));
        for key in ["bandwidth_gb_s", "context_bytes", "cubecl", "fp32_tflops", KERNELS, "mode"] {
            known.remove(key);
        }
    }
    if new.contains_key(KERNELS) && modes(known, anew.as_ref()).next().is_none() {
        known.remove(KERNELS);
    }
    let kernels = [&*known, &new].map(|device| device.get(KERNELS).and_then(Value::as_integer));
    if let Some(most) = kernels.into_iter().flatten().max() {
        new.insert(KERNELS.to_owned(), most.into());
    }
    known.remove("driver");
    known.extend(new);
    if let Some(Value::Table(anew)) = anew {
        below(known, "mode").extend(anew);
    }
}

/// The modes of a device that are not measured anew.
fn modes<'t>(device: &'t Table, anew: Option<&'t Value>) -> impl Iterator<Item = &'t String> {
    let all = device.get("mode").and_then(Value::as_table).into_iter().flat_map(Table::keys);
    all.filter(move |mode| anew.and_then(|anew| anew.get(mode.as_str())).is_none())
}
