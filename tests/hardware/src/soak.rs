//! A long run: memory and open files over time.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use burn::tensor::Device;
use clap::Args;
use gpu_tuned::{Kernels, Precision, Session, Tuned, optim::AdamWConfig, train::GraphStatus};
use gpu_tuned_nvml::Gauge;
use serde::Serialize;

use crate::{
    described::WithConfig,
    device::{Choice, kernels},
    lesson::Lesson,
    line::say,
    memory::Usage,
    network::{Batch, Model, Network},
};

const LEARNING_RATE: f64 = 1e-4;
/// Batches in host memory that steps take in turns.
const BATCHES: u64 = 4;
/// Largest growth of the GPU's and of the process's memory in the second half of a run. A step may lose less than a kilobyte in
/// 20,000 steps.
const MOST_BYTES: i64 = 16 << 20;
/// Largest growth of the pools: their pages are the same in each step.
const MOST_RESERVED_BYTES: i64 = 0;
const MOST_FILES: i64 = 0;

/// Options of `soak`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// The model
    #[arg(long)]
    model: Model,
    /// A small network of that kind
    #[arg(long)]
    small: bool,
    /// The precision
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Samples of an optimizer step
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Samples of a micro-batch
    #[arg(long, default_value_t = 16)]
    micro_batch: usize,
    /// Replay micro-steps as CUDA graphs
    #[arg(long)]
    cuda_graphs: bool,
    /// Seconds of the run after its first step, which compiles kernels
    #[arg(long, default_value_t = 1200.0)]
    seconds: f64,
    /// Seconds between two lines
    #[arg(long, default_value_t = 30.0)]
    every: f64,
}

/// State of the process after some steps; `None` where the system has no such figure.
#[derive(Clone, Copy, Debug, Serialize)]
struct Reading {
    seconds: f64,
    steps: u64,
    /// Memory of the GPU that all processes use.
    device_bytes: Option<u64>,
    /// Memory of the process on the host.
    resident_bytes: Option<u64>,
    /// Memory that the pools took from the device.
    reserved_bytes: u64,
    open_files: Option<u64>,
}

/// Changes since the first reading of the second half.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Growth {
    since_seconds: f64,
    device_bytes: Option<i64>,
    resident_bytes: Option<i64>,
    reserved_bytes: i64,
    open_files: Option<i64>,
    /// True if no figure grew beyond its bound.
    flat: bool,
}

#[derive(Serialize)]
struct Line {
    model: Model,
    precision: Precision,
    kernels: Kernels,
    graphs: GraphStatus,
    micro_batches: usize,
    loss: f32,
    #[serde(flatten)]
    reading: Reading,
    /// `None` in the first line.
    growth: Option<Growth>,
}

/// Prints a line at every interval. The last line has the result, even if the process is ended before its time.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.model.with_config(arguments.precision, arguments)
}

impl WithConfig for &Arguments {
    type Output = anyhow::Result<()>;

    fn run<C: Tuned>(self, config: C) -> Self::Output {
        let mut pins = self.choice.pins();
        pins.batch_size = Some(self.micro_batch as u64);
        pins.gradient_checkpointing = Some(false);
        pins.cuda_graphs = Some(self.cuda_graphs);
        let session = self.choice.options().set(pins).start(config)?;
        self.choice.check_kernels()?;
        let mut gauge = gauge(&session)?;
        let device = session.inner_device();
        let dimensions = if self.small { self.model.small() } else { self.model.dimensions() };
        let mut trainer = session.trainer(dimensions.network(&session.device()), AdamWConfig::new().init())?;
        let lesson = Lesson::new(&dimensions, 0);
        let batches: Vec<Batch> = (0..BATCHES).map(|index| lesson.batch(index, self.batch)).collect();

        let every = Duration::try_from_secs_f64(self.every).context("the interval is no time")?;
        let mut readings = Vec::new();
        let (mut begin, mut last, mut steps) = (Instant::now(), Instant::now(), 0);
        let growth = loop {
            let batch = batches[steps as usize % batches.len()].clone();
            let step = trainer.step(LEARNING_RATE, batch, |network: &Network, batch| network.loss_in_f32(batch))?;
            ensure!(step.rescues.is_empty(), "memory ran out in step {steps}");
            steps += 1;
            if steps == 1 {
                (begin, last) = (Instant::now(), Instant::now());
            }
            let is_over = begin.elapsed().as_secs_f64() >= self.seconds;
            if last.elapsed() < every && !is_over {
                continue;
            }
            last = Instant::now();
            readings.push(Reading::take(begin.elapsed().as_secs_f64(), steps, gauge.as_mut(), &device)?);
            let (growth, reading) = (Growth::of(&readings), readings[readings.len() - 1]);
            let line = Line {
                model: self.model,
                precision: self.precision,
                kernels: kernels(),
                graphs: trainer.graph_status(),
                micro_batches: step.micro_batches,
                loss: step.loss,
                reading,
                growth,
            };
            say("soak", &line)?;
            if is_over {
                break growth.context("the run is too short for two readings")?;
            }
        };
        ensure!(growth.flat, "memory or open files grew in the second half: {growth:?}");
        let is_replayed = matches!(trainer.graph_status(), GraphStatus::Replaying);
        ensure!(!self.cuda_graphs || is_replayed || !cfg!(feature = "cuda"), "micro-steps were not replayed");
        Ok(())
    }
}

/// The GPU's gauge; `None` on a CPU.
fn gauge<C>(session: &Session<C>) -> anyhow::Result<Option<Gauge>> {
    let Some(gpu) = &session.selection().gpu else { return Ok(None) };
    Ok(Some(Gauge::open(None, &gpu.reading)?))
}

impl Reading {
    fn take(seconds: f64, steps: u64, gauge: Option<&mut Gauge>, device: &Device) -> anyhow::Result<Self> {
        device.sync()?;
        let load = gauge.map(Gauge::read).transpose()?;
        Ok(Self {
            seconds,
            steps,
            device_bytes: load.and_then(|load| load.memory_used).map(|bytes| bytes.0),
            resident_bytes: resident_bytes(),
            reserved_bytes: Usage::read(device).reserved_bytes,
            open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
        })
    }
}

/// Resident set of the process, from Linux.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

impl Growth {
    /// From the first reading of the second half to the last one; `None` for a single reading.
    fn of(readings: &[Reading]) -> Option<Self> {
        let (last, earlier) = readings.split_last().filter(|(_, earlier)| !earlier.is_empty())?;
        let first = &earlier[readings.len() / 2 - usize::from(readings.len().is_multiple_of(2))];
        let grown = |of: fn(&Reading) -> Option<u64>| Some(of(last)?.cast_signed() - of(first)?.cast_signed());
        let device_bytes = grown(|reading| reading.device_bytes);
        let resident_bytes = grown(|reading| reading.resident_bytes);
        let reserved_bytes = last.reserved_bytes.cast_signed() - first.reserved_bytes.cast_signed();
        let open_files = grown(|reading| reading.open_files);
        let flat = device_bytes.is_none_or(|bytes| bytes <= MOST_BYTES)
            && resident_bytes.is_none_or(|bytes| bytes <= MOST_BYTES)
            && reserved_bytes <= MOST_RESERVED_BYTES
            && open_files.is_none_or(|files| files <= MOST_FILES);
        Some(Self { since_seconds: first.seconds, device_bytes, resident_bytes, reserved_bytes, open_files, flat })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Growth, MOST_BYTES, Reading, resident_bytes};

    fn reading(seconds: f64, resident_bytes: i64, reserved_bytes: u64) -> Reading {
        let resident_bytes = Some(resident_bytes.cast_unsigned());
        Reading { seconds, steps: 0, device_bytes: None, resident_bytes, reserved_bytes, open_files: Some(9) }
    }

    #[test]
    fn growth_counts_in_the_second_half_only() {
        let all = [0, 100 << 20, 200 << 20, 200 << 20, 200 << 20].map(|bytes| reading(bytes as f64, bytes, 7));
        assert_eq!(Growth::of(&all[..1]), None);
        let growth = Growth::of(&all[..2]).expect("two readings");
        assert_eq!((growth.since_seconds, growth.resident_bytes, growth.flat), (0.0, Some(100 << 20), false));
        let growth = Growth::of(&all).expect("readings");
        assert_eq!((growth.resident_bytes, growth.open_files, growth.flat), (Some(0), Some(0), true));
    }

    #[test]
    fn each_bound_is_the_largest_growth() {
        let flat =
            |bytes, reserved| Growth::of(&[reading(0.0, 0, 7), reading(1.0, bytes, reserved)]).expect("two").flat;
        assert!(flat(MOST_BYTES, 7) && !flat(MOST_BYTES + 1, 7) && !flat(0, 8) && flat(0, 6));
    }

    #[test]
    fn linux_has_the_resident_memory_of_the_process() {
        // The tests beside this one take and return memory meanwhile, so only bounds that hold for any of it are compared.
        let held = vec![1_u8; 64 << 20];
        let resident = resident_bytes().expect("Linux");
        let held_bytes = held.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        let status = fs::read_to_string("/proc/self/status").expect("Linux");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).expect("a peak").trim();
        let peak_kib: u64 = peak.trim_end_matches(" kB").parse().expect("KiB");
        assert!((held_bytes..=peak_kib << 10).contains(&resident), "{resident}");
    }
}
