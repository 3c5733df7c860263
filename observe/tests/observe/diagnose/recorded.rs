//! A made-up recording of a healthy run, to be changed.

use gpu_tuned_core::{Precision, Provenance, Settings};
use gpu_tuned_observe::recording::{
    Expected, Gpu, GpuProcess, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, VERSION,
};

pub(super) const GIB: u64 = 1 << 30;

/// 200 steps of 100 ms on an H200: 5 ms launching, 95 ms on the device, in two micro-batches of 64.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub start: Start,
    pub run: Run,
    pub steps: Vec<StepRecord>,
    /// Samples before the run began.
    pub before: Vec<GpuSample>,
    pub gpu: Vec<GpuSample>,
    pub host: Vec<HostSample>,
}

impl Made {
    pub(super) fn healthy() -> Self {
        let times = || (1..=40).map(|number| f64::from(number) * 0.5);
        Self {
            start: start(),
            run: run(),
            steps: (1..=200).map(step).collect(),
            before: Vec::new(),
            gpu: times().map(gpu).collect(),
            host: times().map(host).collect(),
        }
    }

    pub(super) fn each_step(mut self, change: impl Fn(&mut StepRecord)) -> Self {
        self.steps.iter_mut().for_each(change);
        self.timed()
    }

    pub(super) fn each_sample(mut self, change: impl Fn(&mut GpuSample)) -> Self {
        self.gpu.iter_mut().for_each(change);
        self
    }

    pub(super) fn each_process(mut self, change: impl Fn(&mut ProcessSample)) -> Self {
        self.host.iter_mut().filter_map(|sample| sample.process.as_mut()).for_each(change);
        self
    }

    pub(super) fn started(mut self, change: impl FnOnce(&mut Run)) -> Self {
        change(&mut self.run);
        self
    }

    pub(super) fn with_settings(self, change: impl FnOnce(&mut Settings)) -> Self {
        self.started(|run| change(run.settings.as_mut().unwrap()))
    }

    /// The run of a program that records nothing.
    pub(super) fn without_steps(mut self) -> Self {
        self.steps.clear();
        self
    }

    /// Moves the ends of the steps and the samples to fit the steps' lengths.
    fn timed(mut self) -> Self {
        let mut at = 0.0;
        for step in &mut self.steps {
            at += step.seconds;
            step.at = at;
        }
        let samples = self.gpu.len() as f64;
        for (number, (gpu, host)) in self.gpu.iter_mut().zip(&mut self.host).enumerate() {
            gpu.at = at * (number + 1) as f64 / samples;
            host.at = gpu.at;
        }
        self
    }

    pub(super) fn records(self) -> Vec<Record> {
        let mut records = vec![Record::Start(self.start)];
        records.extend(self.before.into_iter().map(Record::Gpu));
        records.extend((!self.steps.is_empty()).then(|| Record::Run(Box::new(self.run))));
        records.extend(self.steps.into_iter().map(|step| Record::Step(Box::new(step))));
        records.extend(self.gpu.into_iter().map(Record::Gpu));
        records.extend(self.host.into_iter().map(Record::Host));
        records
    }
}

fn step(number: u64) -> StepRecord {
    let mut step = StepRecord::new(number as f64 * 0.1, number);
    (step.seconds, step.samples, step.micro_batches, step.micro_batch) = (0.1, 128, 2, 64);
    (step.waited_s, step.queued, step.upload_s, step.outside_s) = (Some(0.0), Some(2), Some(0.0), Some(0.0));
    (step.loss_s, step.loss_cpu_s, step.backward_s, step.update_s) =
        (Some(0.002), Some(0.002), Some(0.002), Some(0.001));
    step.drain_s = Some(0.095);
    (step.in_use_bytes, step.reserved_bytes) = (Some(2 * GIB), Some(20 * GIB));
    step
}

fn gpu(at: f64) -> GpuSample {
    let mut gpu = GpuSample::new(at, 0);
    (gpu.utilisation_percent, gpu.sm_activity_percent, gpu.tensor_activity_percent) =
        (Some(96.0), Some(80.0), Some(30.0));
    gpu.memory_used_bytes = Some(21 * GIB);
    (gpu.power_mw, gpu.power_limit_mw) = (Some(500_000), Some(700_000));
    (gpu.sm_clock_mhz, gpu.temperature_c) = (Some(1900), Some(60));
    (gpu.pcie_generation, gpu.pcie_lanes, gpu.pcie_to_gpu_bytes_per_s) = (Some(5), Some(16), Some(1_000_000_000));
    let mut own = GpuProcess::new(7);
    own.memory_bytes = Some(20 * GIB + GIB / 2);
    gpu.processes = Some(vec![own]);
    gpu
}

fn host(at: f64) -> HostSample {
    let mut host = HostSample::new(at);
    host.memory_used_bytes = Some(40 * GIB);
    let mut process = ProcessSample::new(7);
    (process.cpu_percent, process.memory_bytes) = (Some(220.0), Some(4 * GIB));
    process.busiest_thread_percent = Some(40.0);
    host.process = Some(process);
    host
}

fn start() -> Start {
    let mut gpu = Gpu::new(0);
    (gpu.name, gpu.uuid) = (Some("NVIDIA H200".to_owned()), Some("GPU-1".to_owned()));
    (gpu.memory_total_bytes, gpu.default_power_limit_mw) = (Some(140 * GIB), Some(700_000));
    (gpu.max_sm_clock_mhz, gpu.max_pcie_generation, gpu.max_pcie_lanes) = (Some(1980), Some(5), Some(16));
    let mut start = Start::default();
    (start.version, start.cores, start.memory_bytes, start.gpus) = (VERSION, 16, 512 * GIB, vec![gpu]);
    start
}

fn run() -> Run {
    let mut run = Run::new(0.0, 7);
    run.workload = "lm".to_owned();
    run.target = Some("h200".to_owned());
    (run.device.name, run.device.is_gpu, run.device.profile) =
        ("NVIDIA H200".to_owned(), true, Some("h200".to_owned()));
    run.device.gpu_uuids = vec!["GPU-1".to_owned()];
    (run.device.has_bf16, run.device.has_tf32) = (true, true);
    run.settings = Some(Settings {
        batch_size: 64,
        gradient_accumulation: 2,
        precision: Precision::MixedBf16,
        allow_tf32: true,
        prefetch_depth: 2,
        num_workers: 4,
        eval_batch_size: 64,
        ..Settings::DEFAULT
    });
    run.global_batch = Some(128);
    (run.memory_budget_bytes, run.memory_planned_bytes) = (Some(120 * GIB), Some(19 * GIB));
    for (batch, samples_per_s, gib) in [(4, 400.0, 2), (16, 900.0, 6), (64, 1280.0, 20), (128, 1300.0, 38)] {
        run.expected.push(expected(batch, samples_per_s, gib));
    }
    run
}

pub(super) fn expected(batch: u64, samples_per_s: f64, gib: u64) -> Expected {
    let mut point = Expected::default();
    (point.batch, point.samples_per_s, point.memory_bytes) = (batch, samples_per_s, gib * GIB);
    (point.fits, point.provenance) = (gib <= 120, Some(Provenance::Measured));
    point
}
