//! `cargo gpu-tuned measure`.

mod changes;

use std::time::{Duration, Instant};

use gpu_tuned_project::lock::Lock;
use serde::Serialize;

use crate::args::{Common, GpuNames, ProgramArgs, parse_time};
use crate::error::Error;
use crate::output::{Answer, Code, FAINT, styled};
use crate::program;
use crate::project::Project;
use changes::Changed;

/// Run the program so that it measures its workloads, and keep the results in gpu-tuned.lock
///
/// The program is built in release mode and run with `GPU_TUNED_MEASURE` set. Where it makes the session's trainer or calls
/// `session.measure_if_asked`, it measures itself and exits. On a GPU, that takes two to four minutes after the build. Without
/// a GPU, memory is counted on the CPU. A named GPU is a feature to build with, as in `-F h200`; training on it needs `cuda`.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    targets: GpuNames,
    #[command(flatten)]
    program: ProgramArgs,
    /// Time to measure one precision, with compilation and autotune on a GPU, such as `120` (seconds) or `2m`; by default 120s
    /// on a GPU, and 25s on a CPU, for each precision with or without checkpointing
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    budget: Option<Duration>,
}

#[derive(Serialize)]
struct Report<'a> {
    /// Workloads that the program measured.
    measured: &'a [String],
    changed: &'a [Changed],
    seconds: f64,
}

/// Runs the program so that it measures itself, and reports the changes in the lock.
///
/// Only the program writes the lock, atomically: an interruption keeps the results so far.
pub(crate) fn run(common: &Common, args: &MeasureArgs) -> Result<Answer, Error> {
    // Mistakes in files are found before anything is built.
    let project = Project::read(common)?;
    let begin = Instant::now();
    let mut measured =
        program::measure(&project, common, &args.program, project.features_of(&args.targets)?, args.budget)?;
    let after = project.read_lock()?;
    // A line of the program is no measurement.
    measured.retain(|name| after.workload.contains_key(name));
    let changed = changes::between(&project.lock, &after);
    let seconds = begin.elapsed().as_secs_f64();
    if measured.is_empty() && changed.is_empty() {
        return Err(Error::NothingMeasured { package: project.name().to_owned() });
    }
    let report = Report { measured: &measured, changed: &changed, seconds };
    let text = || {
        let took = styled(FAINT, format!("in {seconds:.0} s, building included"));
        match changed.as_slice() {
            [] => format!("{} is unchanged: measured the same values {took}\n", Lock::NAME),
            changed => format!("{} changed {took}\n{}", Lock::NAME, changes::table(changed)),
        }
    };
    Ok(Answer::new(("measure", common.json), &report, text, Vec::new(), Code::Ok))
}
