//! Keys of the lock: for each, its name, the values that are accepted, and the field of the type. One list serves reading
//! and writing.

use core::ops::{Range, RangeInclusive};
use std::cell::RefCell;
use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::dims::{self, Dim, DimValues, PRODUCT_KEYS, Schema, format_count};
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{ModelKind, Training, WorkloadSpec};
use gpu_tuned_core::{Bytes, Goal, Precision};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::{Lock, LockedWorkload};
use crate::config;
use crate::file::MOST_MISTAKES;

/// Key of the bytes that steps with accumulated gradients reserve.
pub(super) const ACCUMULATING: &str = "reserved_accumulating_bytes";

/// The same in `bf16_params`. Earlier releases summed these gradients in bf16, and wrote [`ACCUMULATING`].
pub(super) const F32_SUMS: &str = "reserved_f32_sums_bytes";

fn workload(workload: &mut LockedWorkload, table: &mut impl Direction) {
    table.needs(&["parameters", "shape"]);
    table.description(&mut workload.described);
    table.goal(&mut workload.goal);
    let Measured { parameters, shape, host_ms_per_sample, on } = &mut workload.measured;
    table.value("parameters", parameters, &COUNT);
    table.value("shape", shape, &Limits::Text);
    table.optional("host_ms_per_sample", host_ms_per_sample, &Limits::Milliseconds);
    table.tables("on", on, |_, on, table| device(*parameters, on, table));
}

fn device(parameters: u64, device: &mut MeasuredOn, table: &mut impl Direction) {
    table.needs(&["burn", "device", "kind", "memory_bytes", "sm_count"]);
    table.value("device", &mut device.device, &Limits::Text);
    table.value("kind", &mut device.kind, &Limits::Name("gpu, cpu"));
    table.value("memory_bytes", &mut device.memory_bytes, &COUNT);
    table.value("sm_count", &mut device.sm_count, &Limits::Count(0..=65_536));
    table.optional("fp32_tflops", &mut device.fp32_tflops, &Limits::Rate("10^12 operations a second"));
    table.optional("bandwidth_gb_s", &mut device.bandwidth_gb_s, &Limits::Rate("10^9 bytes a second"));
    table.optional("driver", &mut device.driver, &Limits::Text);
    table.value("burn", &mut device.burn, &Limits::Text);
    table.optional("cubecl", &mut device.cubecl, &Limits::Text);
    table.optional("context_bytes", &mut device.context_bytes, &COUNT);
    table.optional("kernels_bytes", &mut device.kernels_bytes, &COUNT);
    let kind = device.kind;
    table.tables("mode", &mut device.mode, |name, measured, table| mode(*name, kind, parameters, measured, table));
}

fn mode(name: Mode, kind: DeviceKind, parameters: u64, mode: &mut MeasuredMode, table: &mut impl Direction) {
    table.needs(&["batch", "method"]);
    table.value("method", &mut mode.method, &Limits::Name("executed, dry-run, simulated"));
    let mut partial = mode.is_partial.then_some(true);
    table.optional("partial", &mut partial, &Limits::Flag);
    mode.is_partial = partial.unwrap_or_default();
    // Only steps that ran on a CPU may have been run where nothing counted their memory.
    let may_be_uncounted = mode.method == MeasurementMethod::Executed && kind != DeviceKind::Gpu;
    table.tables("batch", &mut mode.batch, |_, measured, table| {
        table.needs(if may_be_uncounted { &[] } else { &["reserved_bytes"] });
        batch(name, parameters, measured, table);
    });
}

fn batch(mode: Mode, parameters: u64, batch: &mut MeasuredBatch, table: &mut impl Direction) {
    table.optional("in_use_bytes", &mut batch.in_use_bytes, &COUNT);
    // Bytes in use after a forward pass are in pages that were reserved.
    let reserved = batch.in_use_bytes.map_or(COUNT, |least| Limits::Reserved { in_use: least.0 });
    table.optional("reserved_bytes", &mut batch.reserved_bytes, &reserved);
    let accumulating = &mut batch.reserved_accumulating_bytes;
    if mode.precision == Precision::Bf16Params {
        table.optional(F32_SUMS, accumulating, &reserved);
        if accumulating.is_none() {
            table.optional(ACCUMULATING, accumulating, &reserved);
            // Sums in bf16 take 2 bytes a parameter less than those in fp32.
            let in_f32 = |earlier: Bytes| (earlier + Bytes(parameters).times(2)).min(Bytes(Measured::LARGEST));
            *accumulating = accumulating.map(in_f32);
        }
    } else {
        table.optional(ACCUMULATING, accumulating, &reserved);
    }
    table.optional("micro_step_ms", &mut batch.micro_step_ms, &Limits::Milliseconds);
    table.optional("optimizer_ms", &mut batch.optimizer_ms, &Limits::Milliseconds);
    table.optional("spread", &mut batch.spread, &Limits::Spread);
}

/// Reads the tables below `workload`. Skips keys of newer releases.
///
/// # Errors
///
/// Values that are missing, of the wrong type or out of range.
pub(super) fn read<'i>(
    root: DeTable<'i>,
    source: Source<'i>,
    is_file: bool,
) -> Result<BTreeMap<String, LockedWorkload>, Vec<FileError>> {
    let mistakes = Mistakes { source, found: RefCell::default() };
    let mut reader = Reader { mistakes: &mistakes, path: String::new(), place: 0..0, table: root };
    if is_file && reader.is_missing("format") {
        let message =
            format!("`format = {}` is missing: the file was cut short, or is no {}", Lock::FORMAT, Lock::NAME);
        mistakes.add(&(0..0), message);
    }
    let format = u64::from(Lock::FORMAT);
    reader.optional("format", &mut None::<u64>, &Limits::Count(format..=format));
    let mut workloads = BTreeMap::new();
    reader.tables("workload", &mut workloads, |_, entry, table| workload(entry, table));
    let mut mistakes = mistakes.found.into_inner();
    mistakes.sort_by_key(|mistake| (mistake.place.line, mistake.place.column));
    if mistakes.is_empty() { Ok(workloads) } else { Err(mistakes) }
}

/// Returns the table of a workload. Figures are rounded to what was measured, or exact.
pub(super) fn write(entry: &LockedWorkload, is_rounded: bool) -> Table {
    let mut writer = Writer { table: Table::new(), is_rounded };
    workload(&mut entry.clone(), &mut writer);
    writer.table
}

/// Values that a key accepts.
enum Limits {
    /// A whole number.
    Count(RangeInclusive<u64>),
    /// Reserved bytes: at least those in use.
    Reserved {
        in_use: u64,
    },
    Milliseconds,
    /// A rate in this unit.
    Rate(&'static str),
    /// A fraction.
    Spread,
    Text,
    Flag,
    /// One of these names.
    Name(&'static str),
}

const COUNT: Limits = Limits::Count(0..=Measured::LARGEST);

impl Limits {
    /// Returns a value within the limits.
    fn read<V: DeserializeOwned>(&self, value: &DeValue<'_>) -> Option<V> {
        let count = |range: &RangeInclusive<u64>| {
            let count = whole(value).filter(|count| range.contains(count))?;
            i64::try_from(count).ok().map(Value::Integer)
        };
        let number =
            |range: RangeInclusive<f64>| number(value).filter(|number| range.contains(number)).map(Value::Float);
        let plain = match self {
            Self::Count(range) => count(range),
            Self::Reserved { in_use } => count(&(*in_use..=Measured::LARGEST)),
            Self::Milliseconds => number(1e-6..=1e9),
            Self::Rate(_) => number(f64::MIN_POSITIVE..=1e9),
            Self::Spread => number(0.0..=100.0),
            Self::Text | Self::Name(_) => value.as_str().map(Value::from),
            Self::Flag => value.as_bool().map(Value::from),
        };
        plain?.try_into().ok()
    }

    /// Describes the values, for messages.
    fn expected(&self) -> String {
        match self {
            Self::Count(range) if range.start() == range.end() => range.start().to_string(),
            Self::Count(range) => {
                format!("a whole number from {} to {}", range.start(), format_count(*range.end()))
            }
            Self::Reserved { in_use } => {
                format!("a whole number from {in_use}, the in_use_bytes, to {}", format_count(Measured::LARGEST))
            }
            Self::Milliseconds => "milliseconds from 1e-6 to 1e9".to_owned(),
            Self::Rate(unit) => (*unit).to_owned(),
            Self::Spread => "a fraction from 0 to 100".to_owned(),
            Self::Text => "a text in quotes".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Name(names) => format!("one of {names}"),
        }
    }

    /// Rounds a time to four digits, and a fraction to four decimals: the fifth is noise.
    fn rounded(&self, value: Value) -> Value {
        match (self, value) {
            (Self::Milliseconds, Value::Float(time)) => Value::Float(format!("{time:.3e}").parse().unwrap_or(time)),
            (Self::Spread, Value::Float(fraction)) => Value::Float((fraction * 1e4).round() / 1e4),
            (_, other) => other,
        }
    }
}

pub(super) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let whole = value.as_integer()?;
    u64::from_str_radix(whole.as_str(), whole.radix()).ok()
}

/// Number with or without a fraction. A number beyond the range of `f64` is infinite.
fn number(value: &DeValue<'_>) -> Option<f64> {
    match value.as_float() {
        Some(float) => float.as_str().parse().ok(),
        None => whole(value).map(|whole| whole as f64),
    }
}

/// Name of a table.
trait Name: Ord + ToString + Sized {
    /// Tables of such names, at least and at most, and their name for messages.
    const BOUNDS: Option<(RangeInclusive<usize>, &'static str)> = None;

    /// Parses the name; `None` for one that a newer release may have. The error describes the expected names.
    fn parse(text: &str) -> Result<Option<Self>, &'static str>;
}

impl Name for String {
    fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        Ok(Some(text.to_owned()))
    }
}

impl Name for Mode {
    fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        Ok(text.parse().ok())
    }
}

/// Samples of a micro-batch.
impl Name for u64 {
    /// Measurements take a few dozen, and plans compare all.
    const BOUNDS: Option<(RangeInclusive<usize>, &'static str)> = Some((1..=1_000, "micro-batches"));

    fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        let size = text.parse().ok().filter(|size: &Self| (1..=1 << 30).contains(size) && size.to_string() == text);
        size.map(Some).ok_or("samples, from 1 to 2^30")
    }
}

/// A table that is read into a type, or written from it.
trait Direction: Sized {
    /// Refuses a table without these keys.
    fn needs(&mut self, keys: &[&str]);

    /// A value that every such table has.
    fn value<V: Serialize + DeserializeOwned>(&mut self, key: &str, value: &mut V, limits: &Limits);

    /// A value that may be absent.
    fn optional<V: Serialize + DeserializeOwned>(&mut self, key: &str, value: &mut Option<V>, limits: &Limits);

    /// The tables below the one of this name.
    fn tables<N: Name, T: Default>(
        &mut self,
        key: &str,
        tables: &mut BTreeMap<N, T>,
        each: impl Fn(&N, &mut T, &mut Self),
    );

    /// `[workload.NAME.described]`
    fn description(&mut self, described: &mut Option<WorkloadSpec>);

    /// `[workload.NAME.goal]`
    fn goal(&mut self, goal: &mut Option<Goal>);
}

/// The mistakes of a file so far.
struct Mistakes<'i> {
    source: Source<'i>,
    found: RefCell<Vec<FileError>>,
}

impl Mistakes<'_> {
    fn add(&self, place: &Range<usize>, message: String) {
        self.extend([self.source.error(place, message)]);
    }

    fn extend(&self, more: impl IntoIterator<Item = FileError>) {
        let mut found = self.found.borrow_mut();
        let room = MOST_MISTAKES.saturating_sub(found.len());
        found.extend(more.into_iter().take(room));
    }
}

/// A table that is being read. Values that are not read may belong to a newer release.
struct Reader<'r, 'i> {
    mistakes: &'r Mistakes<'i>,
    /// Path of the table, such as `workload.char-lm`.
    path: String,
    /// Place of its first header.
    place: Range<usize>,
    table: DeTable<'i>,
}

impl<'i> Reader<'_, 'i> {
    fn is_missing(&self, key: &str) -> bool {
        !self.table.contains_key(key)
    }

    /// Path of a key in this table.
    fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Takes the table of this name.
    fn take(&mut self, key: &str) -> Option<config::Table<'i>> {
        let value = self.table.remove(key)?;
        self.as_table(value, &self.path(key))
    }

    fn as_table(&self, value: Spanned<DeValue<'i>>, path: &str) -> Option<config::Table<'i>> {
        config::as_table(value).map_err(|place| self.mistakes.add(&place, format!("{path}: expected a table"))).ok()
    }

    fn accept<T>(&self, outcome: Result<T, Vec<FileError>>) -> Option<T> {
        outcome.map_err(|found| self.mistakes.extend(found)).ok()
    }
}

impl Direction for Reader<'_, '_> {
    fn needs(&mut self, keys: &[&str]) {
        let missing: Vec<_> = keys.iter().copied().filter(|key| self.is_missing(key)).collect();
        if !missing.is_empty() {
            self.mistakes.add(&self.place, format!("{} needs {}", self.path, missing.join(", ")));
        }
    }

    fn value<V: Serialize + DeserializeOwned>(&mut self, key: &str, value: &mut V, limits: &Limits) {
        let mut found = None;
        self.optional(key, &mut found, limits);
        if let Some(found) = found {
            *value = found;
        }
    }

    fn optional<V: Serialize + DeserializeOwned>(&mut self, key: &str, value: &mut Option<V>, limits: &Limits) {
        let Some(given) = self.table.remove(key) else { return };
        *value = limits.read(given.get_ref());
        if value.is_none() {
            self.mistakes.add(&given.span(), format!("{}: expected {}", self.path(key), limits.expected()));
        }
    }

    fn tables<N: Name, T: Default>(
        &mut self,
        key: &str,
        tables: &mut BTreeMap<N, T>,
        each: impl Fn(&N, &mut T, &mut Self),
    ) {
        let children = self.take(key).map(Spanned::into_inner).unwrap_or_default();
        let parent = self.path(key);
        let mut read = 0;
        for (name, value) in children {
            let (place, text) = (name.span(), name.get_ref());
            let path = format!("{parent}.{text}");
            let Some(table) = self.as_table(value, &path) else { continue };
            read += 1;
            match N::parse(text) {
                Err(expected) => self.mistakes.add(&place, format!("{path}: expected {expected}")),
                Ok(None) => {}
                Ok(Some(name)) => {
                    let mut child = Reader { mistakes: self.mistakes, path, place, table: table.into_inner() };
                    let mut value = T::default();
                    each(&name, &mut value, &mut child);
                    tables.insert(name, value);
                }
            }
        }
        let Some((bounds, names)) = N::BOUNDS.filter(|(bounds, _)| !bounds.contains(&read)) else { return };
        let most = bounds.end();
        self.mistakes.add(
            &self.place,
            if read < *bounds.start() {
                format!("{} needs a {key}", self.path)
            } else {
                format!("{} has more than {most} {names}, the most that is read", self.path)
            },
        );
    }

    /// Reads a description; `None` if a key is unknown: this release then cannot describe the model.
    fn description(&mut self, described: &mut Option<WorkloadSpec>) {
        let Some(mut table) = self.take("described") else { return };
        let (owner, place) = (self.path("described"), table.span());
        let Some(is_whole) = retain_known(table.get_mut()) else { return };
        let spec = self.accept(config::parse_workload(&owner, place, table, self.mistakes.source));
        *described = spec.filter(|_| is_whole);
    }

    fn goal(&mut self, goal: &mut Option<Goal>) {
        let Some(mut table) = self.take("goal") else { return };
        retain(table.get_mut(), |key, _| is_in(Goal::DIMS, key));
        *goal = self.accept(config::parse_goal(table, self.mistakes.source));
    }
}

/// Removes keys of newer releases from a description. Returns true if there were none, and `None` if the kind of model is
/// unknown.
fn retain_known(table: &mut DeTable<'_>) -> Option<bool> {
    let model = |key: &str, value: &Spanned<DeValue<'_>>| ModelKind::named(key).filter(|_| value.get_ref().is_table());
    let has_model = table.iter().any(|(key, value)| model(key.get_ref(), value).is_some());
    let costs = if has_model { &[] } else { ModelKind::ALL[0].dims };
    if !has_model && table.iter().any(|(key, value)| value.get_ref().is_table() && !is_in(costs, key.get_ref())) {
        return None;
    }
    let mut is_whole =
        retain(table, |key, value| model(key, value).is_some() || is_in(Training::DIMS, key) || is_in(costs, key));
    for (key, value) in table.iter_mut() {
        let DeValue::Table(below) = value.get_mut() else { continue };
        is_whole &= match ModelKind::named(key.get_ref()) {
            Some(kind) => retain(below, |key, _| is_in(kind.dims, key)),
            None => retain(below, |key, _| PRODUCT_KEYS.contains(&key)),
        };
        // Only a product is a table in the table of a model.
        for (_, value) in below.iter_mut() {
            if let DeValue::Table(product) = value.get_mut() {
                is_whole &= retain(product, |key, _| PRODUCT_KEYS.contains(&key));
            }
        }
    }
    Some(is_whole)
}

/// Retains some entries of a table, and returns true if those are all entries.
fn retain<'i>(table: &mut DeTable<'i>, keep: impl Fn(&str, &Spanned<DeValue<'i>>) -> bool) -> bool {
    let all = core::mem::take(table);
    let count = all.len();
    table.extend(all.into_iter().filter(|(key, value)| keep(key.get_ref(), value)));
    table.len() == count
}

fn is_in(dims: &[Dim], key: &str) -> bool {
    dims::named(dims, key).is_some()
}

fn to_toml(values: &DimValues) -> Table {
    values.iter().map(|(name, value)| ((*name).to_owned(), value.to_toml())).collect()
}

/// A table that is being written.
struct Writer {
    table: Table,
    is_rounded: bool,
}

impl Direction for Writer {
    fn needs(&mut self, _: &[&str]) {}

    fn value<V: Serialize + DeserializeOwned>(&mut self, key: &str, value: &mut V, limits: &Limits) {
        // TOML has no larger integers, and the limits are below.
        let value = Value::try_from(&*value).unwrap_or(Value::Integer(i64::MAX));
        self.table.insert(key.to_owned(), if self.is_rounded { limits.rounded(value) } else { value });
    }

    fn optional<V: Serialize + DeserializeOwned>(&mut self, key: &str, value: &mut Option<V>, limits: &Limits) {
        if let Some(value) = value {
            self.value(key, value, limits);
        }
    }

    fn tables<N: Name, T: Default>(
        &mut self,
        key: &str,
        tables: &mut BTreeMap<N, T>,
        each: impl Fn(&N, &mut T, &mut Self),
    ) {
        let written = tables.iter_mut().map(|(name, value)| {
            let mut child = Self { table: Table::new(), is_rounded: self.is_rounded };
            each(name, value, &mut child);
            (name.to_string(), child.table.into())
        });
        let written: Table = written.collect();
        if !written.is_empty() {
            self.table.insert(key.to_owned(), written.into());
        }
    }

    fn description(&mut self, described: &mut Option<WorkloadSpec>) {
        let Some(spec) = described else { return };
        let mut table = to_toml(&spec.training.values());
        table.insert(spec.model.kind().name.to_owned(), to_toml(&spec.model.values()).into());
        self.table.insert("described".to_owned(), table.into());
    }

    fn goal(&mut self, goal: &mut Option<Goal>) {
        if let Some(goal) = goal {
            self.table.insert("goal".to_owned(), to_toml(&goal.values()).into());
        }
    }
}
