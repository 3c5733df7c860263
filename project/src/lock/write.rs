//! Locks as tables, their figures rounded to what was measured.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::dims::{DimValue, DimValues, Schema};
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, Mode};
use gpu_tuned_core::workload::WorkloadSpec;
use serde::Serialize;
use toml::{Table, Value};

use super::{Lock, LockedWorkload, accumulating_key};

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
        ("mode", tables(on.mode.iter().map(|(name, measured)| (name.to_string(), mode(*name, measured))))),
    ])
}

fn mode(name: Mode, mode: &MeasuredMode) -> Table {
    table([
        ("method", Some(self::name(&mode.method))),
        ("partial", mode.is_partial.then_some(Value::Boolean(true))),
        ("batch", tables(mode.batch.iter().map(|(size, measured)| (size.to_string(), batch(name, measured))))),
    ])
}

fn batch(mode: Mode, batch: &MeasuredBatch) -> Table {
    table([
        ("reserved_bytes", batch.reserved_bytes.map(bytes)),
        (accumulating_key(mode), batch.reserved_accumulating_bytes.map(bytes)),
        ("in_use_bytes", batch.in_use_bytes.map(bytes)),
        ("micro_step_ms", batch.micro_step_ms.map(milliseconds)),
        ("optimizer_ms", batch.optimizer_ms.map(milliseconds)),
        ("spread", batch.spread.map(fraction)),
    ])
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

/// Four decimals: the fifth is noise.
fn fraction(fraction: f64) -> Value {
    Value::Float((fraction * 1e4).round() / 1e4)
}
