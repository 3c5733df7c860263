//! Questions that a recording leaves open, and ways to record the answers.

use super::Unjudged;
use super::run_stats::{Doubt, MIN_SAMPLES, MIN_STEPS, RunStats};

pub(super) fn unjudged(stats: &RunStats<'_>) -> Vec<Unjudged> {
    let missing = |what: String, how: &str| Unjudged { what, how: how.to_owned() };
    let mut unjudged = Vec::new();
    unjudged.extend(stats.doubt.map(doubted));
    match (&stats.steps, stats.run) {
        (Ok(_), Some(_)) => {}
        (Err(_), Some(_)) if matches!(stats.doubt, Some(Doubt::NoOwnSteps { .. })) => {}
        (Ok(_), None) => unjudged.push(missing(
            "settings, the planner's curve and the target: the program's start is not in the recording".to_owned(),
            "start the program with GPU_TUNED_RECORD set, and give the whole file",
        )),
        (Err(0), None) => unjudged.push(missing(
            "the loader, synchronization, the batch and all settings: the recording has no steps of the program".to_owned(),
            "train with a session of gpu-tuned, for at least one step, and start the program with \
             GPU_TUNED_RECORD=run.jsonl, as `cargo gpu-tuned diagnose` does",
        )),
        (Err(count), _) => unjudged.push(missing(
            format!(
                "steps: the recording is too short, with {count} after those that compile and autotune; {MIN_STEPS} are needed"
            ),
            "let it run for longer",
        )),
    }
    let on_gpu = stats.run.is_none_or(|run| run.device.is_gpu);
    if on_gpu && stats.gpus.is_empty() {
        unjudged.push(unwatched(stats));
    }
    if stats.run.is_some_and(|run| run.expected.is_empty()) {
        unjudged.push(missing(
            "the batch: there are no predictions for other batches".to_owned(),
            "measure the workload: `cargo gpu-tuned measure`",
        ));
    }
    unjudged
}

/// Explains why the owner of the steps is uncertain.
fn doubted(doubt: Doubt) -> Unjudged {
    let (what, how) = match doubt {
        Doubt::NoOwnSteps { before: 0, others } => (
            format!("steps: there are none of the last run, and {others} of other processes"),
            "let it run for longer, and give all files that it recorded",
        ),
        Doubt::NoOwnSteps { before, others } => (
            match others {
                0 => format!("steps: there are none of the last run: {before} ended before it began"),
                _ => format!(
                    "steps: there are none of the last run: {others} are of other processes, {before} ended before it began"
                ),
            },
            "let it run for longer; if it did, the clock was set back after its start: record it again",
        ),
        Doubt::Repeated { from } => (
            format!("the owner of the steps: their numbers repeat, from {from} on, and all are judged as one run"),
            "record each program in a file of its own, and give each file once",
        ),
    };
    Unjudged { what, how: how.to_owned() }
}

/// Explains why there are no samples of the GPU.
fn unwatched(stats: &RunStats<'_>) -> Unjudged {
    let what = "power, temperature, the PCIe link, other processes and the GPU's utilization";
    let of_monitor = stats.start.filter(|start| start.gpus.is_empty() && !start.trouble.is_empty());
    let (why, how) = match of_monitor {
        Some(start) => {
            (format!("there was no GPU to sample: {}", start.trouble.join("; ")), "if there is a GPU, fix that first")
        }
        None => (
            format!("there are fewer than {MIN_SAMPLES} samples during these steps"),
            "run the program under `cargo gpu-tuned diagnose -- COMMAND`, or use `cargo gpu-tuned monitor --record`",
        ),
    };
    Unjudged { what: format!("{what}: {why}"), how: how.to_owned() }
}
