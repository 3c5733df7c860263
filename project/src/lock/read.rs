//! Reading a lock's text.

use core::ops::{Range, RangeInclusive};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::source::{FileError, Source};
use toml::Table;
use toml::de::DeTable;

use super::table_reader::{Reader, TableReader, whole};
use super::{ACCUMULATING, F32_SUMS, Lock, LockedWorkload, accumulating_key, described, write};
use crate::config;
use crate::conflict;

const COUNTS: RangeInclusive<u64> = 0..=Measured::LARGEST;
const FORMATS: RangeInclusive<u64> = Lock::FORMAT as u64..=Lock::FORMAT as u64;
const BATCHES: RangeInclusive<u64> = 1..=1 << 30;
/// Micro-batches of a mode, at most: measurements take a few dozen, and plans compare all.
const MOST_BATCHES: usize = 1_000;

/// Remedy for a file with both sides of a merge.
const REMEDY_OF_MERGE: &str = "keep either side whole (`git checkout --ours` or `--theirs` and the file), or delete the file; \
                               then run `cargo gpu-tuned measure`";

/// Reads a file: the lock, and the whole table with keys that only a newer release reads.
pub(super) fn file(source: Source<'_>) -> Result<(Lock, Table), Vec<FileError>> {
    if let Some(mistake) = conflict::marker(source, REMEDY_OF_MERGE) {
        return Err(vec![mistake]);
    }
    match format(source) {
        Some((_, format)) if format < u64::from(Lock::FORMAT) => {
            return Ok((Lock { older_format: Some(format), ..Lock::default() }, write::empty()));
        }
        Some((place, format)) if format > u64::from(Lock::FORMAT) => {
            let message = format!(
                "format {format} was written by a newer release of gpu-tuned, this one reads format {}: update gpu-tuned and \
                 its command line",
                Lock::FORMAT
            );
            return Err(vec![source.error(&place, message)]);
        }
        _ => {}
    }
    document(source).map_err(|mut mistakes| {
        if let Some(last) = mistakes.last_mut() {
            last.message = format!("{}; mend that, {}", last.message, Lock::REMEDY);
        }
        mistakes
    })
}

/// Number of the file's format with its place, if it is one from 1 on.
fn format(source: Source<'_>) -> Option<(Range<usize>, u64)> {
    let root = DeTable::parse(source.text).ok()?;
    let value = root.get_ref().get("format")?;
    let format = whole(value.get_ref()).filter(|format| *format > 0)?;
    Some((value.span(), format))
}

/// As [`file`] for a text in this format, without a remedy in the mistakes.
pub(super) fn document(source: Source<'_>) -> Result<(Lock, Table), Vec<FileError>> {
    let syntax = |error| vec![source.toml_error(&error)];
    let document = DeTable::parse(source.text).map_err(syntax).and_then(|root| {
        let lock = lock(root, source)?;
        Ok((lock, source.text.parse().map_err(syntax)?))
    });
    match (document, end(source)) {
        (Ok(document), None) => Ok(document),
        (outcome, end) => Err(outcome.err().into_iter().flatten().chain(end).collect()),
    }
}

/// Mistake at the end of the file: a part may have been cut off.
fn end(source: Source<'_>) -> Option<FileError> {
    let text = source.text.trim_end();
    let mut lines = text.lines().rev();
    if text.is_empty() || lines.next() == Some(Lock::END) {
        return None;
    }
    let message = if lines.any(|line| line == Lock::END) {
        format!("this stands behind `{}`, the last line", Lock::END)
    } else {
        format!("`{}` is missing, the last line: the file was cut short", Lock::END)
    };
    Some(source.error(&(text.len()..text.len()), message))
}

fn lock<'i>(root: config::Table<'i>, source: Source<'i>) -> Result<Lock, Vec<FileError>> {
    let reader = Reader::new(source);
    let mut facts = TableReader::root(root, &reader);
    if facts.is_missing("format") {
        let message =
            format!("`format = {}` is missing: the file was cut short, or is no {}", Lock::FORMAT, Lock::NAME);
        reader.mistake(&(0..0), message);
    }
    facts.count("format", &FORMATS);
    let workload =
        facts.tables("workload").into_iter().filter_map(|(name, facts)| Some((name, workload(facts)?))).collect();
    let mistakes = reader.into_mistakes();
    if mistakes.is_empty() { Ok(Lock { workload, older_format: None }) } else { Err(mistakes) }
}

fn workload(mut facts: TableReader<'_, '_>) -> Option<LockedWorkload> {
    facts.needs(&["parameters", "shape"]);
    let described = described::workload(&mut facts);
    let goal = described::goal(&mut facts);
    let (parameters, shape) = (facts.count("parameters", &COUNTS), facts.text("shape"));
    let host_ms_per_sample = milliseconds(&mut facts, "host_ms_per_sample");
    let devices = facts.tables("on");
    let on =
        devices.into_iter().filter_map(|(name, facts)| Some((name, device(facts, parameters.unwrap_or(0))?))).collect();
    let measured = Measured { parameters: parameters?, shape: shape?, host_ms_per_sample, on };
    Some(LockedWorkload { described, goal, measured })
}

fn device(mut facts: TableReader<'_, '_>, parameters: u64) -> Option<MeasuredOn> {
    facts.needs(&["burn", "device", "kind", "memory_bytes", "sm_count"]);
    let (device, kind) = (facts.text("device"), facts.choice("kind", "gpu, cpu"));
    let memory = bytes(&mut facts, "memory_bytes");
    let sm_count = facts.count("sm_count", &(0..=65_536));
    let (driver, burn, cubecl) = (facts.text("driver"), facts.text("burn"), facts.text("cubecl"));
    let (context_bytes, kernels_bytes) = (bytes(&mut facts, "context_bytes"), bytes(&mut facts, "kernels_bytes"));
    // An unknown mode may be one of a newer release.
    let modes = facts.tables("mode").into_iter().filter_map(|(name, facts)| Some((name.parse::<Mode>().ok()?, facts)));
    let mode = modes.filter_map(|(name, facts)| Some((name, self::mode(name, facts, kind, parameters)?))).collect();
    Some(MeasuredOn {
        device: device?,
        kind: kind?,
        memory_bytes: memory?,
        sm_count: sm_count? as u32,
        fp32_tflops: facts.number("fp32_tflops", &(f64::MIN_POSITIVE..=1e9), "10^12 operations a second"),
        bandwidth_gb_s: facts.number("bandwidth_gb_s", &(f64::MIN_POSITIVE..=1e9), "10^9 bytes a second"),
        driver,
        burn: burn?,
        cubecl,
        context_bytes,
        kernels_bytes,
        mode,
    })
}

fn mode(name: Mode, mut facts: TableReader<'_, '_>, kind: Option<DeviceKind>, parameters: u64) -> Option<MeasuredMode> {
    facts.needs(&["batch", "method"]);
    let method = facts.choice("method", "executed, dry-run, simulated");
    let is_partial = facts.flag("partial").unwrap_or_default();
    let sizes = facts.tables("batch");
    if sizes.is_empty() {
        facts.reader.mistake(&facts.place, format!("{} needs a batch", facts.path));
    }
    if sizes.len() > MOST_BATCHES {
        let message = format!("{} has more than {MOST_BATCHES} micro-batches, the most that is read", facts.path);
        facts.reader.mistake(&facts.place, message);
        return None;
    }
    // Only steps that ran on a CPU may have been run where nothing counted their memory.
    let may_be_uncounted = method == Some(MeasurementMethod::Executed) && kind != Some(DeviceKind::Gpu);
    let needed: &[&str] = if method.is_some() && !may_be_uncounted { &["reserved_bytes"] } else { &[] };
    let batch = sizes.into_iter().filter_map(|(samples, facts)| {
        let size = size(&samples, &facts)?;
        facts.needs(needed);
        Some((size, batch(name, facts, parameters)))
    });
    let batch = batch.collect();
    Some(MeasuredMode { method: method?, is_partial, batch })
}

/// Samples of a micro-batch, by the name of its table.
fn size(name: &str, facts: &TableReader<'_, '_>) -> Option<u64> {
    let size = name.parse().ok().filter(|size: &u64| BATCHES.contains(size) && size.to_string() == name);
    if size.is_none() {
        facts.reader.mistake(&facts.place, format!("{}: expected samples, from 1 to 2^30", facts.path));
    }
    size
}

fn batch(mode: Mode, mut facts: TableReader<'_, '_>, parameters: u64) -> MeasuredBatch {
    let in_use_bytes = bytes(&mut facts, "in_use_bytes");
    // Bytes in use after a forward pass are in pages that were reserved.
    let mut reserved = |key: &str| match in_use_bytes {
        Some(least) => facts.count_from(key, (least.0, "the in_use_bytes"), Measured::LARGEST).map(Bytes),
        None => bytes(&mut facts, key),
    };
    let reserved_bytes = reserved("reserved_bytes");
    let key = accumulating_key(mode);
    let reserved_accumulating_bytes = reserved(key).or_else(|| {
        // Sums in bf16 take 2 bytes a parameter less than those in fp32.
        let earlier = reserved(ACCUMULATING).filter(|_| key == F32_SUMS)?;
        Some((earlier + Bytes(parameters).times(2)).min(Bytes(Measured::LARGEST)))
    });
    MeasuredBatch {
        reserved_bytes,
        reserved_accumulating_bytes,
        in_use_bytes,
        micro_step_ms: milliseconds(&mut facts, "micro_step_ms"),
        optimizer_ms: milliseconds(&mut facts, "optimizer_ms"),
        spread: facts.number("spread", &(0.0..=100.0), "a fraction from 0 to 100"),
    }
}

fn bytes(facts: &mut TableReader<'_, '_>, key: &str) -> Option<Bytes> {
    facts.count(key, &COUNTS).map(Bytes)
}

fn milliseconds(facts: &mut TableReader<'_, '_>, key: &str) -> Option<f64> {
    facts.number(key, &(1e-6..=1e9), "milliseconds from 1e-6 to 1e9")
}
