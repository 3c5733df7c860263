//! Programs that measure themselves.

use gpu_tuned::detect;
use gpu_tuned_project::lock::Lock;
use serde::Deserialize;

use super::{Program, Run};
use crate::args::{Common, ProgramArgs};
use crate::error::Error;
use crate::project::Project;

/// Feature of the runtime that counts memory on the CPU.
const COUNTING: &str = "counting-allocator";
/// Variable that makes a program measure itself.
const MEASURE: (&str, &str) = ("GPU_TUNED_MEASURE", "1");
/// Variable that makes it print a line of JSON for each workload.
const MEASURE_JSON: (&str, &str) = ("GPU_TUNED_MEASURE_JSON", "1");
/// Variable with the path of the lock.
const LOCK_VARIABLE: &str = "GPU_TUNED_LOCK";

/// Line that a program prints for a measured workload.
#[derive(Deserialize)]
struct Line {
    workload: String,
    #[serde(rename = "lock")]
    _lock: String,
    #[serde(rename = "measured")]
    _measured: serde::de::IgnoredAny,
}

/// Runs the program so that it measures itself, and returns the workloads that it measured.
pub(crate) fn measure(project: &Project, common: &Common, args: &ProgramArgs) -> Result<Vec<String>, Error> {
    let program = Program::new(project, common.color, Run { args, feature: counting_feature(project)? })?;
    let lock = (LOCK_VARIABLE, project.root.join(Lock::NAME));
    let lines = program.with(MEASURE).with(MEASURE_JSON).with(lock).run::<Line>();
    let lines = lines.map_err(|error| error.leaving("; gpu-tuned.lock is complete up to the last measured batch"))?;
    Ok(lines.into_iter().map(|line| line.workload).collect())
}

/// The feature that counts memory, where there is no GPU and the package can enable it.
pub(crate) fn counting_feature(project: &Project) -> Result<Option<String>, Error> {
    if !detect().gpus.is_empty() {
        return Ok(None);
    }
    Ok(project.runtime_with_feature(COUNTING)?.map(|name| format!("{name}/{COUNTING}")))
}
