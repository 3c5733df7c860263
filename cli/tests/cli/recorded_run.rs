//! Recordings of a run that is simulated.

use std::path::PathBuf;

use gpu_tuned_core::Settings;
use gpu_tuned_observe::recording::{
    Expected, Gpu, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, VERSION, Writer,
};

use crate::project::Project;

const GIB: u64 = 1 << 30;

/// A run of 100 steps on an H200, in which the device works for 95 of 100 ms.
pub(crate) struct Recorded {
    pub run: Run,
    pub step: StepRecord,
    pub gpu: GpuSample,
}

impl Recorded {
    pub(crate) fn healthy() -> Self {
        let mut run = Run::new(1000.0, 7);
        (run.device.name, run.device.profile) = ("NVIDIA H200".to_owned(), Some("h200".to_owned()));
        (run.device.is_gpu, run.device.has_bf16, run.device.has_tf32) = (true, true, true);
        run.target = Some("h200".to_owned());
        (run.global_batch, run.memory_budget_bytes) = (Some(128), Some(120 * GIB));
        run.settings = Some(settings());
        for (batch, samples_per_s, gib) in [(4, 400.0, 2), (16, 900.0, 6), (64, 1280.0, 20), (128, 1300.0, 38)] {
            let mut point = Expected::default();
            (point.batch, point.samples_per_s, point.memory_bytes, point.fits) =
                (batch, samples_per_s, gib * GIB, true);
            run.expected.push(point);
        }
        let mut step = StepRecord::new(0.0, 0);
        (step.seconds, step.samples, step.micro_batches, step.micro_batch) = (0.1, 128, 2, 64);
        (step.waited_s, step.loss_s, step.loss_cpu_s) = (Some(0.0), Some(0.002), Some(0.002));
        (step.backward_s, step.update_s, step.drain_s) = (Some(0.002), Some(0.001), Some(0.095));
        (step.in_use_bytes, step.reserved_bytes) = (Some(2 * GIB), Some(20 * GIB));
        let mut gpu = GpuSample::new(0.0, 0);
        (gpu.utilisation_percent, gpu.sm_clock_mhz, gpu.memory_used_bytes) = (Some(96.0), Some(1900), Some(21 * GIB));
        Self { run, step, gpu }
    }

    /// Waits so many seconds for the loader, which has one worker.
    pub(crate) fn waiting(seconds: f64) -> Self {
        let mut waiting = Self::healthy();
        waiting.run.settings.as_mut().expect("settings").num_workers = 1;
        (waiting.step.seconds, waiting.step.waited_s) = (0.1 + seconds, Some(seconds));
        waiting.gpu.utilisation_percent = Some(96.0 * 0.1 / (0.1 + seconds));
        waiting
    }

    /// Keeps so many bytes in each step.
    pub(crate) fn write_leaking(&self, file: &str, project: &Project, bytes: u64) -> PathBuf {
        let path = project.path(file);
        let mut writer = Writer::append(&path).expect("a recording");
        let mut write = |record: Record| writer.write(&record).expect("it can be written");
        write(Record::Start(start()));
        write(Record::Run(Box::new(self.run.clone())));
        for number in 1..=100 {
            let mut step = self.step.clone();
            (step.step, step.at) = (number, self.run.at + number as f64 * step.seconds);
            step.in_use_bytes = step.in_use_bytes.map(|used| used + number * bytes);
            step.reserved_bytes = step.reserved_bytes.map(|held| held + number * bytes);
            let at = step.at;
            write(Record::Step(Box::new(step)));
            if number % 4 == 0 {
                let (mut gpu, mut host) = (self.gpu.clone(), HostSample::new(at));
                (gpu.at, gpu.memory_used_bytes) = (at, gpu.memory_used_bytes.map(|used| used + number * bytes));
                let mut process = ProcessSample::new(7);
                process.cpu_percent = Some(220.0);
                host.process = Some(process);
                write(Record::Gpu(gpu));
                write(Record::Host(host));
            }
        }
        drop(writer);
        path
    }

    pub(crate) fn write(&self, file: &str, project: &Project) -> PathBuf {
        self.write_leaking(file, project, 0)
    }
}

fn settings() -> Settings {
    Settings {
        batch_size: 64,
        gradient_accumulation: 2,
        allow_tf32: true,
        prefetch_depth: 2,
        num_workers: 4,
        eval_batch_size: 64,
        ..Settings::DEFAULT
    }
}

fn start() -> Start {
    let mut gpu = Gpu::new(0);
    (gpu.name, gpu.memory_total_bytes) = (Some("NVIDIA H200".to_owned()), Some(140 * GIB));
    gpu.max_sm_clock_mhz = Some(1980);
    let mut start = Start::default();
    (start.at, start.version, start.cores, start.memory_bytes) = (1000.0, VERSION, 16, 512 * GIB);
    start.gpus = vec![gpu];
    start
}
