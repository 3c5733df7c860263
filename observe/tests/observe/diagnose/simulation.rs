//! A training loop, event by event: workers with a bounded queue, a host that launches, a device that runs one kernel after
//! the other. It shares no code with the formulas under test.

use std::collections::VecDeque;

use gpu_tuned_core::Provenance;
use gpu_tuned_observe::recording::{Expected, StepRecord};

use super::recorded::GIB;

pub(super) const CORES: u64 = 32;

/// A program on a machine. Times are in seconds.
#[expect(clippy::struct_excessive_bools, reason = "faults of the program")]
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub steps: u64,
    pub global_batch: u64,
    pub micro_batch: u64,
    pub workers: u64,
    pub depth: u64,
    /// Time to prepare a sample, and the part of it that is computing.
    pub sample_s: f64,
    pub computing: f64,
    /// Variation of batches: 0.3 is from 0.7 to 1.3 times as long.
    pub jitter: f64,
    /// Interval of slow batches, and their additional time.
    pub hiccup: Option<(u64, f64)>,
    /// Kernels of the forward and of the backward pass of a micro-batch, and of the update.
    pub kernels: [u64; 3],
    /// Time to launch a kernel.
    pub launch_s: f64,
    /// Time of a kernel: a minimum, and a part for each sample.
    pub kernel_s: f64,
    pub kernel_s_per_sample: f64,
    /// Kernels of the forward pass after which the host waits for the device.
    pub reads_after: Vec<u64>,
    /// The thread works while it waits.
    pub spins: bool,
    /// Time between steps, in the program's own loop.
    pub outside_s: f64,
    /// Clock of the device over its highest.
    pub clock: f64,
    /// A third of the forward pass is computed again in the backward pass.
    pub checkpointing: bool,
    /// Bytes that each step keeps.
    pub leak: u64,
    /// Bytes of another process.
    pub ballast: u64,
    /// Time to upload a batch in the training thread, where the loader did not.
    pub upload_s: f64,
    /// The loader records the time of its workers.
    pub records_workers: bool,
    /// A monitor samples the GPU and the host.
    pub is_monitored: bool,
    pub memory: u64,
}

impl Default for Loop {
    /// A healthy program: the device is busy most of the time.
    fn default() -> Self {
        Self {
            steps: 80,
            global_batch: 256,
            micro_batch: 64,
            workers: 4,
            depth: 2,
            sample_s: 0.5e-3,
            computing: 1.0,
            jitter: 0.1,
            hiccup: None,
            kernels: [60, 120, 40],
            launch_s: 10e-6,
            kernel_s: 15e-6,
            kernel_s_per_sample: 1e-6,
            reads_after: Vec::new(),
            spins: false,
            outside_s: 0.2e-3,
            clock: 1.0,
            checkpointing: false,
            leak: 0,
            ballast: 0,
            upload_s: 0.0,
            records_workers: true,
            is_monitored: true,
            memory: 80 * GIB,
        }
    }
}

/// The device: the end of its queue, and the spans in which it worked.
#[derive(Default)]
struct Queue {
    free_at: f64,
    worked: Vec<(f64, f64)>,
}

impl Queue {
    fn launch(&mut self, at: f64, takes: f64) {
        let begins = self.free_at.max(at);
        self.free_at = begins + takes;
        match self.worked.last_mut() {
            Some(last) if begins - last.1 < 1e-12 => last.1 = self.free_at,
            _ => self.worked.push((begins, self.free_at)),
        }
    }
}

/// Spans in which the device worked, and the time of all workers.
pub(super) type Worked = (Vec<(f64, f64)>, f64);

/// The loader: batches in order, a bounded number of them ready or in progress.
struct Loader {
    workers: Vec<f64>,
    ready: VecDeque<f64>,
    most: usize,
    made: u64,
    busy: f64,
}

impl Loop {
    /// Time to prepare batch `number`.
    fn preparing(&self, number: u64) -> f64 {
        let phase = (number as f64 * 12.9898).sin() * 43_758.545;
        let longer = self.hiccup.filter(|(every, _)| number.is_multiple_of(*every)).map_or(0.0, |(_, seconds)| seconds);
        longer + self.sample_s * self.global_batch as f64 * (1.0 + self.jitter * (2.0 * (phase - phase.floor()) - 1.0))
    }

    fn loader(&self) -> Loader {
        let most = (self.workers + self.depth) as usize;
        let workers = vec![0.0; self.workers as usize];
        let mut loader = Loader { workers, ready: VecDeque::new(), most, made: 0, busy: 0.0 };
        if self.workers > 0 {
            self.claim(&mut loader, 0.0);
        }
        loader
    }

    /// Lets workers claim batches from `now` on, as many as there is room for.
    fn claim(&self, loader: &mut Loader, now: f64) {
        while loader.ready.len() < loader.most {
            let worker = loader.workers.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
            let takes = self.preparing(loader.made);
            *worker = worker.max(now) + takes;
            loader.busy += takes;
            // Batches come in order: a batch that is done early waits for those before it.
            let done = loader.ready.back().map_or(*worker, |last| worker.max(*last));
            loader.ready.push_back(done);
            loader.made += 1;
        }
    }

    /// Memory of a micro-batch: a constant and a part for each sample.
    pub(super) fn reserved(batch: u64) -> u64 {
        2 * GIB + batch * (GIB / 16)
    }

    /// Memory budget of the run.
    pub(super) fn budget(&self) -> u64 {
        ((self.memory - self.ballast) as f64 * 0.9) as u64
    }

    /// Predictions from measurements of micro-batches without faults.
    pub(super) fn curve(&self) -> Vec<Expected> {
        let of = |(batch, checkpointing): (u64, bool)| {
            let micro_batch = batch.min(self.global_batch.max(batch));
            let global_batch = self.global_batch.max(batch);
            let healthy = Self { micro_batch, global_batch, steps: 3, checkpointing, ..self.without_faults() };
            let (steps, _) = healthy.run();
            let last = &steps[1..];
            let seconds: f64 = last.iter().map(|step| step.seconds).sum();
            let mut point = Expected::default();
            (point.batch, point.checkpointing) = (batch, checkpointing);
            point.memory_bytes = Self::reserved(batch) * if checkpointing { 3 } else { 4 } / 4;
            (point.fits, point.provenance) = (point.memory_bytes <= self.budget(), Some(Provenance::Measured));
            point.prefetch_depth = Some(self.depth);
            point.samples_per_s = (global_batch * last.len() as u64) as f64 / seconds;
            point
        };
        (1..=10).flat_map(|power| [(1 << power, false), (1 << power, true)]).map(of).collect()
    }

    fn without_faults(&self) -> Self {
        Self {
            sample_s: 0.0,
            jitter: 0.0,
            hiccup: None,
            workers: 1,
            reads_after: Vec::new(),
            outside_s: 0.0,
            upload_s: 0.0,
            clock: 1.0,
            ..self.clone()
        }
    }

    pub(super) fn run(&self) -> (Vec<StepRecord>, Worked) {
        let (mut now, mut device, mut loader) = (0.0_f64, Queue::default(), self.loader());
        let mut steps = Vec::new();
        for number in 1..=self.steps {
            let began = now;
            let mut step = StepRecord::new(0.0, number);
            now += self.outside_s;
            step.outside_s = Some(self.outside_s);
            now = self.take_batch(&mut loader, now, number, &mut step);
            let upload_s = if self.is_uploaded() { 0.0 } else { self.upload_s };
            now += upload_s;
            step.upload_s = Some(upload_s);
            now = self.train(&mut device, now, &mut step);
            (step.at, step.seconds, step.samples) = (now, now - began, self.global_batch);
            let held = Self::reserved(self.micro_batch) + self.leak * number;
            (step.in_use_bytes, step.reserved_bytes) = (Some(GIB + self.leak * number), Some(held));
            steps.push(step);
        }
        (steps, (device.worked, loader.busy))
    }

    /// Returns whether the batch of a step is on the device when it is taken: the session's loader uploads as many
    /// micro-batches as it prefetches.
    fn is_uploaded(&self) -> bool {
        self.records_workers && self.depth * self.micro_batch >= self.global_batch
    }

    fn take_batch(&self, loader: &mut Loader, now: f64, number: u64, step: &mut StepRecord) -> f64 {
        // In the long run, workers prepare as many batches as are taken.
        if self.records_workers {
            let prepared = self.preparing(number);
            (step.prepared, step.prepared_s, step.prepared_cpu_s) =
                (Some(1), Some(prepared), Some(prepared * self.computing));
        }
        if self.workers == 0 {
            let takes = self.preparing(number);
            loader.busy += takes;
            (step.waited_s, step.queued) = (Some(takes), Some(0));
            return now + takes;
        }
        step.queued = Some(loader.ready.iter().filter(|done| **done <= now).count() as u64);
        let done = loader.ready.pop_front().unwrap().max(now);
        self.claim(loader, done);
        step.waited_s = Some(done - now);
        done
    }

    /// Launches a step and waits for it.
    fn train(&self, device: &mut Queue, mut now: f64, step: &mut StepRecord) -> f64 {
        let mut parts = [0.0; 4];
        let mut computing = 0.0;
        let (mut left, mut micro_batches) = (self.global_batch, 0);
        while left > 0 {
            let batch = left.min(self.micro_batch);
            let takes = (self.kernel_s + self.kernel_s_per_sample * batch as f64) / self.clock;
            let recomputed = if self.checkpointing { self.kernels[0] / 3 } else { 0 };
            for (pass, kernels) in [self.kernels[0], self.kernels[1] + recomputed].iter().enumerate() {
                let began = now;
                for kernel in 1..=*kernels {
                    now += self.launch_s;
                    device.launch(now, takes);
                    if pass == 0 && self.reads_after.contains(&kernel) {
                        now = now.max(device.free_at);
                    }
                }
                parts[pass] += now - began;
                computing += if pass == 0 { self.launch_s * *kernels as f64 } else { 0.0 };
            }
            (left, micro_batches) = (left - batch, micro_batches + 1);
        }
        for _ in 0..self.kernels[2] {
            now += self.launch_s;
            parts[2] += self.launch_s;
            device.launch(now, self.kernel_s / self.clock);
        }
        parts[3] = (device.free_at - now).max(0.0);
        (step.loss_s, step.loss_cpu_s) = (Some(parts[0]), Some(if self.spins { parts[0] } else { computing }));
        (step.backward_s, step.update_s, step.drain_s) = (Some(parts[1]), Some(parts[2]), Some(parts[3]));
        (step.micro_batches, step.micro_batch) = (micro_batches, self.micro_batch.min(self.global_batch));
        now + parts[3]
    }

    /// Samples per second over the later half.
    pub(super) fn samples_per_s(&self) -> f64 {
        let (steps, _) = self.run();
        let late = &steps[steps.len() / 2..];
        self.global_batch as f64 * late.len() as f64 / late.iter().map(|step| step.seconds).sum::<f64>()
    }

    /// Returns the step that runs out of memory, if there is one.
    pub(super) fn fails_at(&self) -> Option<u64> {
        let context = GIB / 2;
        let needs = |step: &u64| Self::reserved(self.micro_batch) + self.leak * step + context + self.ballast;
        (1..10_000_000).find(|step| needs(step) > self.memory)
    }
}
