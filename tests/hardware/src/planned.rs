//! Plans for measured models.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gpu_tuned::{DeviceFacts, Goal, Settings, lock::LockFile, workload::Workload};
use gpu_tuned_core::{Bytes, plan, profile::ProfileTable};

use crate::{described::GLOBAL_BATCH, device::Choice, mode::Precision, network::Model};

/// A model that was measured.
#[derive(Args)]
pub(crate) struct Locked {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// The model
    #[arg(long)]
    pub(crate) model: Model,
    /// Lock with measurements of the model
    #[arg(long)]
    lock: PathBuf,
}

impl Locked {
    /// The model as the lock has it.
    pub(crate) fn workload(&self) -> anyhow::Result<Workload> {
        workload(&self.lock, self.model)
    }
}

/// The model as `lock` has it.
pub(crate) fn workload(lock: &Path, model: Model) -> anyhow::Result<Workload> {
    let read = LockFile::new(lock).read()?.with_context(|| format!("there is no {}", lock.display()))?;
    let name = model.name();
    let locked = read.workload.get(name).with_context(|| format!("{name} was not measured"))?;
    let described = locked.described.as_ref().with_context(|| format!("{name} is not described"))?;
    Ok(described.workload().with_measured(locked.measured.clone()))
}

/// Steps of the global batch in a precision.
pub(crate) fn goal(precision: Precision) -> Goal {
    let precision = gpu_tuned::Precision::from(precision);
    Goal { global_batch: Some(GLOBAL_BATCH as u64), precision: Some(precision.into()), ..Goal::default() }
}

/// An H200 with `memory`, or with all of its own.
pub fn h200(memory: Option<Bytes>) -> anyhow::Result<DeviceFacts> {
    let profile = ProfileTable::builtin_profile("h200").context("BUG: the profile is shipped")?;
    let whole = DeviceFacts::nominal(&profile);
    let memory = memory.unwrap_or(whole.memory_total);
    Ok(DeviceFacts { memory_total: memory, memory_available: memory, ..whole })
}

/// The planned settings; `None` if nothing fits.
pub(crate) fn settings(facts: &DeviceFacts, workload: &Workload, goal: &Goal) -> Option<Settings> {
    plan(facts, workload, goal).ok().map(|plan| plan.settings)
}
