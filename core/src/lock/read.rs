//! The text of a lock, read.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;

use toml::Table;
use toml::de::DeTable;

use super::facts::{Facts, Reader, whole};
use super::{Lock, LockedWorkload, described};
use crate::Bytes;
use crate::config;
use crate::conflict;
use crate::measured::{Measured, MeasuredMode, MeasuredOn, Mode, Point};
use crate::source::{FileError, Source};

const COUNTS: RangeInclusive<u64> = 0..=Measured::LARGEST;
const FORMATS: RangeInclusive<u64> = 1..=Lock::FORMAT as u64;
const BATCHES: RangeInclusive<u64> = 1..=1 << 30;

/// What is said last of a file that cannot be used.
const REMEDY: &str = "mend that, put back the file that was committed, or delete it and run `cargo gpu-tuned measure`";

/// What is said of a file in which both sides of a merge are.
const REMEDY_OF_MERGE: &str = "keep either side whole (`git checkout --ours` or `--theirs` and the file), or delete the file; \
                               then run `cargo gpu-tuned measure`";

/// What the file says, and the whole of it, with what this release does not know.
pub(super) fn file(source: Source<'_>) -> Result<(Lock, Table), Vec<FileError>> {
    if let Some(mistake) = conflict::marker(source, REMEDY_OF_MERGE).or_else(|| newer(source)) {
        return Err(vec![mistake]);
    }
    document(source).map_err(|mut mistakes| {
        if let Some(last) = mistakes.last_mut() {
            last.message = format!("{}; {REMEDY}", last.message);
        }
        mistakes
    })
}

/// What else is in another layout means nothing here.
fn newer(source: Source<'_>) -> Option<FileError> {
    let root = DeTable::parse(source.text).ok()?;
    let value = root.get_ref().get("format")?;
    let format = whole(value.get_ref()).filter(|format| *format > u64::from(Lock::FORMAT))?;
    let message = format!(
        "format {format} is of a newer release of gpu-tuned, this one reads format {}: update gpu-tuned and its command \
         line",
        Lock::FORMAT
    );
    Some(source.error(&value.span(), message))
}

/// The same as [`file`] of a text in this layout, without a word on what to do about mistakes.
pub(super) fn document(source: Source<'_>) -> Result<(Lock, Table), Vec<FileError>> {
    let syntax = |error| vec![source.toml_error(&error)];
    let document = DeTable::parse(source.text).map_err(syntax).and_then(|root| {
        let lock = lock(root, source)?;
        Ok((lock, source.text.parse().map_err(syntax)?))
    });
    // A figure of a file that was cut short within it would be another figure.
    let end = source.text.len();
    let is_whole = source.text.is_empty() || source.text.ends_with('\n');
    let cut = (!is_whole).then(|| source.error(&(end..end), "the file ends within a line: it was cut short"));
    match document {
        Ok(document) if is_whole => Ok(document),
        outcome => Err(outcome.err().into_iter().flatten().chain(cut).collect()),
    }
}

fn lock<'i>(root: config::Table<'i>, source: Source<'i>) -> Result<Lock, Vec<FileError>> {
    let reader = Reader::new(source);
    let mut facts = Facts::root(root, &reader);
    if facts.is_missing("format") {
        let message =
            format!("`format = {}` is missing: the file was cut short, or is no {}", Lock::FORMAT, Lock::NAME);
        reader.mistake(&(0..0), message);
    }
    facts.count("format", &FORMATS);
    let workload =
        facts.tables("workload").into_iter().filter_map(|(name, facts)| Some((name, workload(facts)?))).collect();
    let mistakes = reader.into_mistakes();
    if mistakes.is_empty() { Ok(Lock { workload }) } else { Err(mistakes) }
}

fn workload(mut facts: Facts<'_, '_>) -> Option<LockedWorkload> {
    facts.needs(&["parameters", "shape"]);
    let described = described::workload(&mut facts);
    let goal = described::goal(&mut facts);
    let (parameters, shape) = (facts.count("parameters", &COUNTS), facts.text("shape"));
    let host_ms_per_sample = milliseconds(&mut facts, "host_ms_per_sample");
    let devices = facts.tables("on");
    let on = devices.into_iter().filter_map(|(name, facts)| Some((name, device(facts)?))).collect();
    let measured = Measured { parameters: parameters?, shape: shape?, host_ms_per_sample, on };
    Some(LockedWorkload { described, goal, measured })
}

fn device(mut facts: Facts<'_, '_>) -> Option<MeasuredOn> {
    facts.needs(&["burn", "device", "kind", "memory_bytes", "sm_count"]);
    let (device, kind) = (facts.text("device"), facts.choice("kind", "gpu, cpu"));
    let memory = bytes(&mut facts, "memory_bytes");
    let sm_count = facts.count("sm_count", &(0..=65_536));
    let (driver, burn, cubecl) = (facts.text("driver"), facts.text("burn"), facts.text("cubecl"));
    let (context_bytes, kernels_bytes) = (bytes(&mut facts, "context_bytes"), bytes(&mut facts, "kernels_bytes"));
    // What is no mode here may be one of a newer release.
    let modes = facts.tables("mode").into_iter().filter_map(|(name, facts)| Some((name.parse::<Mode>().ok()?, facts)));
    let mode = modes.filter_map(|(name, facts)| Some((name, self::mode(facts)?))).collect();
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

fn mode(mut facts: Facts<'_, '_>) -> Option<MeasuredMode> {
    facts.needs(&["batch", "way"]);
    let way = facts.choice("way", "executed, dry-run, replayed");
    let residual = facts.number("residual", &(0.0..=1.0), "a share from 0 to 1");
    let time_residual = facts.number("time_residual", &(0.0..=1.0), "a share from 0 to 1");
    let mut batch = BTreeMap::new();
    let mut places = Vec::new();
    let points = facts.tables("batch");
    for (name, facts) in points {
        places.push(facts.place.clone());
        match name.parse().ok().filter(|size: &u64| BATCHES.contains(size) && size.to_string() == name) {
            Some(size) => drop(batch.insert(size, point(facts, size))),
            None => facts.reader.mistake(&facts.place, format!("{}: expected samples, from 1 to 2^30", facts.path)),
        }
    }
    places.sort_by_key(|place| place.start);
    if let Some(place) = places.get(Measured::MOST_POINTS) {
        let message = format!("{}: {} batches, expected at most {}", facts.path, places.len(), Measured::MOST_POINTS);
        facts.reader.mistake(place, message);
    }
    if places.is_empty() {
        facts.reader.mistake(&facts.place, format!("{} needs a batch", facts.path));
    }
    Some(MeasuredMode { way: way?, residual, time_residual, batch })
}

fn point(mut facts: Facts<'_, '_>, batch: u64) -> Point {
    Point {
        reserved_bytes: bytes(&mut facts, "reserved_bytes"),
        reserved_bytes_per_sample: bytes(&mut facts, "reserved_bytes_per_sample"),
        reserved_from: facts.count("reserved_from", &(1..=batch)),
        residual: facts.number("residual", &(0.0..=1.0), "a share from 0 to 1"),
        reserved_accumulating_bytes: bytes(&mut facts, "reserved_accumulating_bytes"),
        in_use_bytes: bytes(&mut facts, "in_use_bytes"),
        micro_step_ms: milliseconds(&mut facts, "micro_step_ms"),
        optimizer_ms: milliseconds(&mut facts, "optimizer_ms"),
        spread: facts.number("spread", &(0.0..=100.0), "a share from 0 to 100"),
    }
}

fn bytes(facts: &mut Facts<'_, '_>, key: &str) -> Option<Bytes> {
    facts.count(key, &COUNTS).map(Bytes)
}

fn milliseconds(facts: &mut Facts<'_, '_>, key: &str) -> Option<f64> {
    facts.number(key, &(f64::MIN_POSITIVE..=1e9), "milliseconds, more than 0 and at most 1e9")
}
