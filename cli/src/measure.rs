//! `cargo gpu-tuned measure`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gpu_tuned_core::grouped;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, Mode};
use gpu_tuned_project::lock::Lock;
use serde::Serialize;

use crate::args::{Common, GpuNames, ProgramArgs, parse_time};
use crate::error::Error;
use crate::output::{Answer, BAD, Code, FAINT, GOOD, MARKED, PLAIN, Table, styled};
use crate::program;
use crate::project::Project;

/// Run the program so that it measures its workloads, and keep the results in gpu-tuned.lock
///
/// The program is built in release mode and run with `GPU_TUNED_MEASURE` set. Where it makes the session's trainer or calls
/// `session.measure_if_asked`, it measures itself and exits. On a GPU, that takes about two minutes for each precision and
/// kind of kernels, after the build. Without a GPU, memory is counted on the CPU. The program runs again for each other
/// precision and kernels that the planner compares: `precision = "auto"` compares two precisions, and on a GPU modules of
/// `gpu_tuned::nn` are compared with Burn's kernels and with the library's, unless the goal asks for `kernels`. A named GPU is a
/// feature to build with, as in `-F h200`; training on it needs `cuda`.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("measure/help.txt"))]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    targets: GpuNames,
    #[command(flatten)]
    program: ProgramArgs,
    /// Time to measure one precision with one kind of kernels, with compilation and autotune on a GPU, such as `120` (seconds)
    /// or `2m`; by default 120s on a GPU, and 25s on a CPU, for each precision with or without checkpointing
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
    let changed = changes_between(&project.lock, &after);
    let seconds = begin.elapsed().as_secs_f64();
    if measured.is_empty() && changed.is_empty() {
        return Err(Error::NothingMeasured { package: project.name().to_owned() });
    }
    let report = Report { measured: &measured, changed: &changed, seconds };
    let text = || {
        let took = styled(FAINT, format!("in {seconds:.0} s, building included"));
        match changed.as_slice() {
            [] => format!("{} is unchanged: measured the same values {took}\n", Lock::NAME),
            changed => format!("{} changed {took}\n{}", Lock::NAME, changes_table(changed)),
        }
    };
    Ok(Answer::new(("measure", common.json), &report, text, Vec::new(), Code::Ok))
}

#[derive(Debug, PartialEq, Serialize)]
struct Changed {
    pub workload: String,
    pub device: String,
    pub mode: Mode,
    pub batches: Vec<u64>,
    pub change: Change,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    /// The mode was not measured before.
    New,
    /// The mode is no longer on record.
    Gone,
    /// Figures differ; largest relative changes at batches measured both times.
    Other {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[serde(rename = "memory_share")]
        memory: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[serde(rename = "time_share")]
        time: Option<f64>,
    },
}

type Key<'a> = (&'a str, &'a str, Mode);
type Modes<'a> = BTreeMap<Key<'a>, &'a MeasuredMode>;

fn changes_between(before: &Lock, after: &Lock) -> Vec<Changed> {
    let (old, new) = (modes(before), modes(after));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter_map(|key| changed(*key, old.get(key).copied(), new.get(key).copied())).collect()
}

fn modes(lock: &Lock) -> Modes<'_> {
    let devices = lock.workload.iter().flat_map(|(name, locked)| {
        locked.measured.on.iter().map(move |(device, on)| (name.as_str(), device.as_str(), on))
    });
    devices
        .flat_map(|(name, device, on)| on.mode.iter().map(move |(mode, found)| ((name, device, *mode), found)))
        .collect()
}

fn changed(
    (workload, device, mode): Key<'_>,
    old: Option<&MeasuredMode>,
    new: Option<&MeasuredMode>,
) -> Option<Changed> {
    let change = match (old, new) {
        (None, _) => Change::New,
        (_, None) => Change::Gone,
        (Some(old), Some(new)) if old == new => return None,
        (Some(old), Some(new)) => Change::Other {
            memory: largest(old, new, |point| Some(point.reserved_bytes?.0 as f64)),
            time: largest(old, new, |point| point.micro_step_ms),
        },
    };
    let batches = new.map_or_else(Vec::new, |found| found.batch.keys().copied().collect());
    Some(Changed { workload: workload.to_owned(), device: device.to_owned(), mode, batches, change })
}

fn largest(old: &MeasuredMode, new: &MeasuredMode, figure: impl Fn(&MeasuredBatch) -> Option<f64>) -> Option<f64> {
    let both = old.batch.iter().filter_map(|(batch, old)| Some((figure(old)?, figure(new.batch.get(batch)?)?)));
    let shares = both.filter(|(old, _)| *old > 0.0).map(|(old, new)| new / old - 1.0);
    shares.max_by(|a, b| a.abs().total_cmp(&b.abs()))
}

fn changes_table(changed: &[Changed]) -> String {
    let columns = ["workload", "device", "mode", "batches"];
    let mut table = Table::new(2, columns);
    for one in changed {
        let batches: Vec<_> = one.batches.iter().map(|batch| grouped(*batch)).collect();
        let cells = [one.workload.clone(), one.device.clone(), one.mode.to_string(), batches.join(" ")];
        let change = match &one.change {
            Change::New => styled(GOOD, "new"),
            Change::Gone => styled(BAD, "gone"),
            Change::Other { memory, time } => styled(MARKED, differences(*memory, *time)),
        };
        table.row(PLAIN, cells, change);
    }
    table.print()
}

fn differences(memory: Option<f64>, time: Option<f64>) -> String {
    let share = |name: &str, share: Option<f64>| share.map(|share| format!("{name} {:+.1}%", share * 100.0));
    let all: Vec<_> = [share("memory", memory), share("time", time)].into_iter().flatten().collect();
    if all.is_empty() { "other batches".to_owned() } else { all.join(", ") }
}
