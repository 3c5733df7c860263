//! Locks as tables, their figures rounded to what was measured.

use std::collections::BTreeMap;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::dims::{DimValue, DimValues, Schema};
use gpu_tuned_core::measured::{Between, Measured, MeasuredMode, MeasuredOn, Need, Pages, Point};
use gpu_tuned_core::workload::WorkloadSpec;
use serde::Serialize;
use toml::{Table, Value};

use super::{Lock, LockedWorkload};

pub(super) fn document(lock: &Lock) -> Table {
    let workloads: Table = lock.workload.iter().map(|(name, entry)| (name.clone(), workload(entry).into())).collect();
    let mut root = empty();
    root.insert("workload".to_owned(), workloads.into());
    root
}

/// A file without any workload.
pub(super) fn empty() -> Table {
    table([("format", Some(Value::Integer(Lock::FORMAT.into())))])
}

pub(super) fn workload(entry: &LockedWorkload) -> Table {
    let Measured { parameters, shape, host_ms_per_sample, on } = &entry.measured;
    table([
        ("parameters", Some(count(*parameters))),
        ("shape", Some(shape.as_str().into())),
        ("host_ms_per_sample", host_ms_per_sample.map(milliseconds)),
        ("described", entry.described.as_ref().map(|spec| described(spec).into())),
        ("goal", entry.goal.as_ref().map(|goal| values(&goal.values()).into())),
        ("on", tables(on.iter().map(|(name, on)| (name.clone(), device(on))))),
    ])
}

fn described(spec: &WorkloadSpec) -> Table {
    let mut table = values(&spec.training.values());
    table.insert(spec.model.kind().name.to_owned(), values(&spec.model.values()).into());
    table
}

fn values(values: &DimValues) -> Table {
    values.iter().map(|(name, value)| ((*name).to_owned(), value.to_toml())).collect()
}

fn device(on: &MeasuredOn) -> Table {
    table([
        ("device", Some(on.device.as_str().into())),
        ("kind", Some(name(&on.kind))),
        ("memory_bytes", Some(bytes(on.memory_bytes))),
        ("sm_count", Some(count(on.sm_count.into()))),
        ("fp32_tflops", on.fp32_tflops.map(Value::Float)),
        ("bandwidth_gb_s", on.bandwidth_gb_s.map(Value::Float)),
        ("driver", on.driver.as_deref().map(Value::from)),
        ("burn", Some(on.burn.as_str().into())),
        ("cubecl", on.cubecl.as_deref().map(Value::from)),
        ("context_bytes", on.context_bytes.map(bytes)),
        ("kernels_bytes", on.kernels_bytes.map(bytes)),
        ("mode", tables(on.mode.iter().map(|(name, measured)| (name.to_string(), mode(measured))))),
    ])
}

fn mode(mode: &MeasuredMode) -> Table {
    table([
        ("way", Some(name(&mode.way))),
        ("residual", mode.residual.map(share)),
        ("time_residual", mode.time_residual.map(share)),
        ("pages", tables(mode.pages.iter().map(|(from, told)| (from.to_string(), pages(told))))),
        ("batch", tables(mode.batch.iter().map(|(size, measured)| (size.to_string(), point(measured))))),
    ])
}

fn point(point: &Point) -> Table {
    table([
        ("reserved_bytes", point.reserved_bytes.map(bytes)),
        ("reserved_bytes_per_sample", point.reserved_bytes_per_sample.map(bytes)),
        ("reserved_from", point.reserved_from.map(count)),
        ("residual", point.residual.map(share)),
        ("reserved_accumulating_bytes", point.reserved_accumulating_bytes.map(bytes)),
        ("in_use_bytes", point.in_use_bytes.map(bytes)),
        ("micro_step_ms", point.micro_step_ms.map(milliseconds)),
        ("optimizer_ms", point.optimizer_ms.map(milliseconds)),
        ("spread", point.spread.map(share)),
    ])
}

/// Without what is not needed, and does not grow.
fn pages(pages: &Pages) -> Table {
    table([
        ("largest_bytes", Some(bytes(pages.largest_bytes))),
        ("largest_bytes_per_sample", some(pages.largest_bytes_per_sample)),
        ("residual", Some(share(pages.residual))),
        ("unfilled_pages", (pages.unfilled_pages > 0).then(|| count(pages.unfilled_pages))),
        ("needed_bytes", need(&pages.needed)),
        ("small_bytes", need(&pages.small)),
        ("other_bytes", others(&pages.other_bytes)),
    ])
}

/// The least and the most by the micro-batch; nothing where nothing is needed.
fn need(Need { few, best, many }: &Need) -> Option<Value> {
    let known = [few, best, many].into_iter().filter(|_| many.most > Bytes::ZERO || few.most > Bytes::ZERO);
    let ends = |known: &Between| (known.batch.to_string(), vec![bytes(known.least), bytes(known.most)].into());
    let ends: Table = known.map(ends).collect();
    (!ends.is_empty()).then(|| ends.into())
}

/// What is in no pages that are counted, by the micro-batch; nothing where it is nothing.
fn others(known: &BTreeMap<u64, Bytes>) -> Option<Value> {
    let is_some = known.values().any(|figure| *figure > Bytes::ZERO);
    is_some.then(|| known.iter().map(|(batch, figure)| (batch.to_string(), bytes(*figure))).collect::<Table>().into())
}

/// Nothing where it is nothing.
fn some(figure: Bytes) -> Option<Value> {
    (figure > Bytes::ZERO).then(|| bytes(figure))
}

fn table<const N: usize>(facts: [(&str, Option<Value>); N]) -> Table {
    facts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Nothing where there are none.
fn tables(tables: impl Iterator<Item = (String, Table)>) -> Option<Value> {
    let tables: Table = tables.map(|(name, table)| (name, table.into())).collect();
    (!tables.is_empty()).then(|| tables.into())
}

fn name(choice: &impl Serialize) -> Value {
    Value::try_from(choice).expect("BUG: a choice is written as its name")
}

fn count(count: u64) -> Value {
    DimValue::Count(count).to_toml()
}

fn bytes(bytes: Bytes) -> Value {
    count(bytes.0)
}

/// Four digits: the fifth is noise.
fn milliseconds(time: f64) -> Value {
    Value::Float(format!("{time:.3e}").parse().unwrap_or(time))
}

/// Four decimals, rounded up: a bound stays one.
fn share(share: f64) -> Value {
    let steps = (share * 1e4).round();
    let up = if steps / 1e4 < share { steps + 1.0 } else { steps };
    Value::Float(up / 1e4)
}
