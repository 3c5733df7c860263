//! The trace of a recording.

use std::collections::BTreeMap;

use super::{Steps, Trace};
use crate::metrics::{Figure, GPU_FIGURES, HOST_FIGURES};
use crate::recording::{GpuSample, HostSample, Record, StepRecord};

/// Process of the machine's counters: a number that no program has.
const MACHINE: u32 = 1 << 23;
/// Process of a program without a recorded ID.
const PROGRAM: u32 = 1;

/// Builds the trace of a recording: the requested steps, with the figures of their time.
pub fn from_records(records: &[Record], steps: Steps) -> Trace {
    let mut trace = Trace::default();
    let Some((begin, end)) = span(records, steps) else { return trace };
    let mut drawing = Drawing { trace: &mut trace, begin, program: PROGRAM, ended: BTreeMap::new() };
    drawing.trace.name_process(MACHINE, "machine");
    let has_run = records.iter().any(|record| matches!(record, Record::Run(_)));
    if !has_run {
        drawing.trace.name_process(PROGRAM, "training program");
    }
    let is_within = |at: f64| (begin..=end).contains(&at);
    for record in records {
        match record {
            Record::Run(run) => {
                drawing.program = run.pid;
                drawing.trace.name_process(run.pid, &run.workload);
            }
            Record::Step(step) if steps.has(step.step) => drawing.step(step),
            Record::Gpu(sample) if is_within(sample.at) => drawing.gpu(sample),
            Record::Host(sample) if is_within(sample.at) => drawing.host(sample),
            Record::Value(value) if is_within(value.at) => {
                let micros = drawing.micros(value.at);
                drawing.trace.counter(drawing.program, &value.name, micros, &[("value", value.value)]);
            }
            _ => {}
        }
    }
    trace
}

/// Returns begin and end of the shown time; `None` if there is nothing to show.
fn span(records: &[Record], steps: Steps) -> Option<(f64, f64)> {
    let of_steps = records.iter().filter_map(|record| match record {
        Record::Step(step) if steps.has(step.step) => Some((step.at - step.seconds, step.at)),
        _ => None,
    });
    let widest = |all: (f64, f64), one: (f64, f64)| (all.0.min(one.0), all.1.max(one.1));
    let all_times = || records.iter().filter_map(Record::at).map(|at| (at, at)).reduce(widest);
    match (of_steps.reduce(widest), steps == Steps::ALL) {
        // All records, also those before the first step and after the last.
        (Some(found), true) => all_times().map(|all| widest(found, all)),
        (Some(found), false) => Some(found),
        (None, true) => all_times(),
        (None, false) => None,
    }
}

struct Drawing<'t> {
    trace: &'t mut Trace,
    /// Time of the trace's zero.
    begin: f64,
    program: u32,
    /// End of the last step of each rank, in microseconds.
    ended: BTreeMap<(u32, u64), f64>,
}

impl Drawing<'_> {
    fn micros(&self, at: f64) -> f64 {
        (at - self.begin) * 1e6
    }

    /// Adds a step, and below it its phases, one after the other.
    fn step(&mut self, step: &StepRecord) {
        let rank = if step.rank == 0 { String::new() } else { format!(" of rank {}", step.rank) };
        let end = self.micros(step.at);
        // The lengths of steps and the times of their ends come from different clocks.
        let ended = self.ended.insert((self.program, step.rank), end).unwrap_or(f64::MIN);
        let begin = (end - step.seconds * 1e6).max(ended).min(end);
        let track = self.trace.track(self.program, &format!("steps{rank}"));
        let mut figures = vec![("samples", step.samples as f64), ("micro_batches", step.micro_batches as f64)];
        figures.extend(step.loss.map(|loss| ("loss", loss)));
        figures.extend(step.gradient_norm.map(|norm| ("gradient_norm", norm)));
        figures.extend(step.queued.map(|queued| ("queued", queued as f64)));
        self.trace.complete(track, &format!("step {}", step.step), begin, end - begin, &figures);
        let parts = [
            ("loader", "wait for loader", step.waited_s),
            ("program", "outside", step.outside_s),
            ("upload", "upload", step.upload_s),
            ("forward", if step.backward_s.is_some() { "forward" } else { "forward and backward" }, step.loss_s),
            ("backward", "backward", step.backward_s),
            ("exchange", "exchange", step.exchange_s),
            ("optimizer", "optimizer", step.update_s),
            ("drain", "drain", step.drain_s),
        ];
        let mut at = begin;
        for (track, name, seconds) in parts {
            let length = seconds.map(|seconds| (seconds * 1e6).min(end - at)).filter(|length| *length > 0.0);
            let Some(length) = length else { continue };
            let track = self.trace.track(self.program, &format!("{track}{rank}"));
            self.trace.complete(track, name, at, length, &[]);
            at += length;
        }
        let pools = [("in_use", step.in_use_bytes), ("reserved", step.reserved_bytes)];
        let pools: Vec<_> = pools.into_iter().filter_map(|(name, bytes)| Some((name, bytes? as f64))).collect();
        let at = end;
        self.trace.counter(self.program, &format!("memory pools{rank} (bytes)"), at, &pools);
        if let Some(loss) = step.loss {
            self.trace.counter(self.program, "loss", at, &[("loss", loss)]);
        }
    }

    fn gpu(&mut self, sample: &GpuSample) {
        let slot = sample.mig_slot.map(|slot| format!(" slice {slot}")).unwrap_or_default();
        let gpu = format!("GPU {}{slot}", sample.gpu);
        self.figures(&GPU_FIGURES, &gpu, sample.at, sample);
    }

    fn host(&mut self, sample: &HostSample) {
        self.figures(&HOST_FIGURES, "host", sample.at, sample);
    }

    /// Adds a counter for each figure of a sample.
    fn figures<S>(&mut self, figures: &[Figure<S>], device: &str, at: f64, sample: &S) {
        for figure in figures {
            if let Some(value) = (figure.of)(sample) {
                let at = self.micros(at);
                self.trace.counter(MACHINE, &format!("{device} {}", figure.key), at, &[("value", value)]);
            }
        }
    }
}
