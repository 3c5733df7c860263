//! The text of a lock, read.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::{Between, Measured, MeasuredMode, MeasuredOn, Mode, Need, Pages, Point, Way};
use gpu_tuned_core::source::{FileError, Source};
use toml::Table;
use toml::de::DeTable;

use super::facts::{Facts, Reader, whole};
use super::{Lock, LockedWorkload, described};
use crate::config;
use crate::conflict;

const COUNTS: RangeInclusive<u64> = 0..=Measured::LARGEST;
const FORMATS: RangeInclusive<u64> = 1..=Lock::FORMAT as u64;
const SHARES: RangeInclusive<f64> = 0.0..=1.0;
const BATCHES: RangeInclusive<u64> = 1..=1 << 30;
const PAGES: RangeInclusive<u64> = 0..=1 << 30;

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
            last.message = format!("{}; mend that, {}", last.message, Lock::REMEDY);
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
    match (document, end(source)) {
        (Ok(document), None) => Ok(document),
        (outcome, end) => Err(outcome.err().into_iter().flatten().chain(end).collect()),
    }
}

/// What is wrong with the end of the file: without what was cut off it would say something else.
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
    let mode = modes.filter_map(|(name, facts)| Some((name, self::mode(facts, kind)?))).collect();
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

fn mode(mut facts: Facts<'_, '_>, kind: Option<DeviceKind>) -> Option<MeasuredMode> {
    facts.needs(&["batch", "way"]);
    let way = facts.choice("way", "executed, dry-run, replayed");
    let residual = facts.number("residual", &SHARES, "a share from 0 to 1");
    let time_residual = facts.number("time_residual", &SHARES, "a share from 0 to 1");
    let points = facts.tables("batch");
    let mut places: Vec<_> = points.iter().map(|(_, point)| point.place.clone()).collect();
    places.sort_by_key(|place| place.start);
    if let Some(place) = places.get(Measured::MOST_POINTS) {
        let message = format!("{}: {} batches, expected at most {}", facts.path, places.len(), Measured::MOST_POINTS);
        facts.reader.mistake(place, message);
    }
    if places.is_empty() {
        facts.reader.mistake(&facts.place, format!("{} needs a batch", facts.path));
    }
    // Only steps that ran on a CPU may have been run where nothing counted their memory.
    let is_counted = way.is_some_and(|way| way != Way::Executed) || way.is_some() && kind == Some(DeviceKind::Gpu);
    let needed: &[&str] = if is_counted { &["reserved_bytes"] } else { &[] };
    let mut batch = BTreeMap::new();
    let mut before = 0;
    for (size, facts) in sizes(points) {
        facts.needs(needed);
        batch.insert(size, point(facts, before + 1..=size));
        before = size;
    }
    let pages = sizes(facts.tables("pages")).into_iter().map(|(from, facts)| (from, pages(facts))).collect();
    Some(MeasuredMode { way: way?, residual, time_residual, pages, batch })
}

/// The points by their micro-batches, in ascending order.
fn sizes<'r, 'i>(points: Vec<(String, Facts<'r, 'i>)>) -> BTreeMap<u64, Facts<'r, 'i>> {
    let size = |(name, facts): (String, Facts<'r, 'i>)| {
        let size = name.parse().ok().filter(|size: &u64| BATCHES.contains(size) && size.to_string() == name);
        if size.is_none() {
            facts.reader.mistake(&facts.place, format!("{}: expected samples, from 1 to 2^30", facts.path));
        }
        Some((size?, facts))
    };
    points.into_iter().filter_map(size).collect()
}

/// What steps hold in pages, from a micro-batch on.
fn pages(mut facts: Facts<'_, '_>) -> Pages {
    facts.needs(&["largest_bytes", "needed_bytes"]);
    let (needed, small) = (need(&mut facts, "needed_bytes"), need(&mut facts, "small_bytes"));
    let others = facts.counts("other_bytes", &BATCHES, &COUNTS);
    let unfilled_pages = facts.count("unfilled_pages", &PAGES).unwrap_or_default();
    let mut figure = |key| bytes(&mut facts, key).unwrap_or_default();
    Pages {
        unfilled_pages,
        needed,
        small,
        largest_bytes: figure("largest_bytes"),
        largest_bytes_per_sample: figure("largest_bytes_per_sample"),
        other_bytes: others.into_iter().map(|(batch, figure)| (batch, Bytes(figure))).collect(),
        residual: facts.number("residual", &SHARES, "a share from 0 to 1").unwrap_or_default(),
    }
}

/// What is needed of pages of one kind, by one to three micro-batches.
fn need(facts: &mut Facts<'_, '_>, key: &str) -> Need {
    let between = |(batch, [least, most]): (u64, [u64; 2])| Between { batch, least: Bytes(least), most: Bytes(most) };
    let known: Vec<_> = facts.spans(key, &BATCHES, &COUNTS).into_iter().map(between).collect();
    let [few, .., many] = known.as_slice() else {
        let only = known.first().copied().unwrap_or_default();
        return Need { few: only, best: only, many: only };
    };
    Need { few: *few, best: known[known.len() / 2], many: *many }
}

/// A point whose line may begin at one of the micro-batches `own`.
fn point(mut facts: Facts<'_, '_>, own: RangeInclusive<u64>) -> Point {
    let in_use_bytes = bytes(&mut facts, "in_use_bytes");
    // What is in use after a forward pass is in pages that were reserved.
    let mut holding = |key: &str| match in_use_bytes {
        Some(least) => facts.count_from(key, (least.0, "the in_use_bytes"), Measured::LARGEST).map(Bytes),
        None => bytes(&mut facts, key),
    };
    let (reserved_bytes, reserved_accumulating_bytes) =
        (holding("reserved_bytes"), holding("reserved_accumulating_bytes"));
    Point {
        reserved_bytes,
        reserved_bytes_per_sample: bytes(&mut facts, "reserved_bytes_per_sample"),
        reserved_from: facts.count("reserved_from", &own),
        residual: facts.number("residual", &SHARES, "a share from 0 to 1"),
        reserved_accumulating_bytes,
        in_use_bytes,
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
