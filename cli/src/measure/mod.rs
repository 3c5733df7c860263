//! `cargo gpu-tuned measure`.

mod changes;

use std::time::Instant;

use gpu_tuned::detect;
use gpu_tuned_project::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::args::{Common, MeasureArgs, ProgramArgs};
use crate::error::Error;
use crate::program::{Program, Run};
use crate::project::{Project, RUNTIME};
use crate::table::{FAINT, styled};
use crate::{Answer, Code};
use changes::Changed;

/// The runtime's feature that counts memory on the CPU.
const COUNTING: &str = "counting-allocator";

/// Asks a program to measure itself.
const ASK: (&str, &str) = ("GPU_TUNED_MEASURE", "1");
/// Asks it for a line of JSON on standard output when it has.
const ASK_JSON: (&str, &str) = ("GPU_TUNED_MEASURE_JSON", "1");
/// Says where its lock is.
const LOCK_VARIABLE: &str = "GPU_TUNED_LOCK";

/// The line that a program prints when it has measured a workload.
#[derive(Deserialize)]
struct Line {
    workload: String,
    #[serde(rename = "lock")]
    _lock: String,
    #[serde(rename = "measured")]
    _measured: serde::de::IgnoredAny,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    /// The workloads that the program measured.
    measured: &'a [String],
    changed: &'a [Changed],
    seconds: f64,
}

/// Runs the program so that it measures itself, and says what changed in the lock.
///
/// Only the program writes, and it replaces the file whole, after each mode: an interruption, here or there, leaves what was
/// measured by then.
pub(crate) fn run(common: &Common, args: &MeasureArgs) -> Result<Answer, Error> {
    // A file with mistakes stops it here, before anything is built.
    let project = Project::read(common)?;
    let begin = Instant::now();
    let measured = measured(&project, common, &args.program)?;
    let after = project.read_lock()?;
    let changed = changes::between(project.lock(), &after);
    let seconds = begin.elapsed().as_secs_f64();
    if measured.is_empty() && changed.is_empty() {
        return Err(Error::NothingMeasured { package: project.name().to_owned() });
    }
    let text = if common.json {
        let report = Report { measured: &measured, changed: &changed, seconds };
        format!("{}\n", serde_json::to_string_pretty(&report).expect("BUG: a report is always JSON"))
    } else {
        let took = styled(FAINT, format!("in {seconds:.0} s, building included"));
        match changed.as_slice() {
            [] => format!("{} is as it was: measured the same again {took}\n", Lock::NAME),
            changed => format!("{} changed {took}\n{}", Lock::NAME, changes::table(changed)),
        }
    };
    Ok(Answer { text, notes: Vec::new(), code: Code::Fine })
}

/// Runs the program so that it measures itself, and returns the workloads that it measured.
pub(crate) fn measured(project: &Project, common: &Common, args: &ProgramArgs) -> Result<Vec<String>, Error> {
    let program = Program::new(project, common.color, Run { args, feature: counting(project)? })?;
    let lines = program.with(ASK).with(ASK_JSON).with((LOCK_VARIABLE, project.root().join(Lock::NAME))).run::<Line>();
    let lines = lines.map_err(|error| error.leaving("; gpu-tuned.lock is whole, with the modes that were measured"))?;
    Ok(lines.into_iter().map(|line| line.workload).collect())
}

/// The feature that counts memory, where there is no GPU to measure it on and the package can have it.
pub(crate) fn counting(project: &Project) -> Result<Option<String>, Error> {
    if !detect().gpus.is_empty() {
        return Ok(None);
    }
    Ok(project.runtime_with_feature(COUNTING)?.map(|name| format!("{name}/{COUNTING}")))
}

/// What programs do to be measured.
pub(crate) fn how_to() -> String {
    format!("train with `session.trainer(model, optimizer)?` of `{RUNTIME}`, or {}", how_to_describe())
}

/// What programs say where a trainer's first step is not enough.
pub(crate) fn how_to_describe() -> String {
    format!("in `main`, before the model is made, call `session.measure_if_asked(\"NAME\", &subject)?` of `{RUNTIME}`")
}
