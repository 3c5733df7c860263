//! A training loop, event by event: workers with a bounded queue, a host that launches, a device that works its launches
//! off one after the other. It knows nothing of the formulas that are held against it.

use std::collections::VecDeque;

use crate::recording::{Expected, Gpu, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, Throttle};
use gpu_tuned_core::{Provenance, Settings};

/// Looks at the GPU and the host in the time of a run.
const LOOKS: u64 = 40;
const GIB: u64 = 1 << 30;
pub(super) const CORES: u64 = 32;

/// A program on a machine. Times are in seconds.
#[expect(clippy::struct_excessive_bools, reason = "what may be wrong with it")]
#[derive(Clone, Debug)]
pub(super) struct Loop {
    pub steps: u64,
    pub global_batch: u64,
    pub micro_batch: u64,
    pub workers: u64,
    pub depth: u64,
    /// To prepare a sample, and the part of it that is computing.
    pub sample_s: f64,
    pub computing: f64,
    /// How much batches differ: 0.3 is from 0.7 to 1.3 times as long.
    pub jitter: f64,
    /// Every so manieth batch takes so much longer.
    pub hiccup: Option<(u64, f64)>,
    /// Kernels of the forward and of the backward pass of a micro-batch, and of the update.
    pub kernels: [u64; 3],
    /// To launch a kernel.
    pub launch_s: f64,
    /// A kernel takes so long at least, and so much for each sample.
    pub kernel_s: f64,
    pub kernel_s_per_sample: f64,
    /// Kernels of the forward pass after which the host waits for the device.
    pub reads_after: Vec<u64>,
    /// Whether its thread works while it waits.
    pub spins: bool,
    /// Between steps, in the program's own loop.
    pub outside_s: f64,
    /// Of the device, where 1 is the highest.
    pub clock: f64,
    /// Whether a third of the forward pass is computed again in the backward pass.
    pub checkpointing: bool,
    /// Kept by each step.
    pub leak: u64,
    /// Held by somebody else.
    pub ballast: u64,
    /// To copy a batch in the thread that trains, where the loader did not bring it.
    pub upload_s: f64,
    /// Whether the loader says what its workers do.
    pub told: bool,
    /// Whether somebody looks at the GPU and the host.
    pub watched: bool,
    pub memory: u64,
}

impl Default for Loop {
    /// A program that nothing is wrong with: the device is busy most of the time.
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
            told: true,
            watched: true,
            memory: 80 * GIB,
        }
    }
}

/// The device: when it is done with what it was given, and when it worked.
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

/// When the device worked, and how long workers did, all of them together.
type Worked = (Vec<(f64, f64)>, f64);

/// The loader: batches in order, a bounded number of them ready or in the making.
struct Loader {
    workers: Vec<f64>,
    ready: VecDeque<f64>,
    most: usize,
    made: u64,
    busy: f64,
}

impl Loop {
    /// To prepare batch `number`.
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

    /// Has workers claim batches from `now` on, as many as there is room for.
    fn claim(&self, loader: &mut Loader, now: f64) {
        while loader.ready.len() < loader.most {
            let worker = loader.workers.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
            let takes = self.preparing(loader.made);
            *worker = worker.max(now) + takes;
            loader.busy += takes;
            // In order: one that is done before an earlier one waits for it.
            let done = loader.ready.back().map_or(*worker, |last| worker.max(*last));
            loader.ready.push_back(done);
            loader.made += 1;
        }
    }

    /// The memory of a micro-batch: what grows with it, and what does not.
    pub(super) fn reserved(batch: u64) -> u64 {
        2 * GIB + batch * (GIB / 16)
    }

    /// What the run may take.
    pub(super) fn budget(&self) -> u64 {
        ((self.memory - self.ballast) as f64 * 0.9) as u64
    }

    /// Samples per second of micro-batches that nothing holds up, as measuring finds them.
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

    fn run(&self) -> (Vec<StepRecord>, Worked) {
        let (mut now, mut device, mut loader) = (0.0_f64, Queue::default(), self.loader());
        let mut steps = Vec::new();
        for number in 1..=self.steps {
            let began = now;
            let mut step = StepRecord::new(0.0, number);
            now += self.outside_s;
            step.outside_s = Some(self.outside_s);
            now = self.take_batch(&mut loader, now, number, &mut step);
            let upload_s = if self.is_brought() { 0.0 } else { self.upload_s };
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

    /// Whether the batch of a step is on the device when it is taken: a loader that says what it does brings as many
    /// micro-batches as it prepares ahead.
    fn is_brought(&self) -> bool {
        self.told && self.depth * self.micro_batch >= self.global_batch
    }

    fn take_batch(&self, loader: &mut Loader, now: f64, number: u64, step: &mut StepRecord) -> f64 {
        // In the long run workers prepare as many as are taken.
        if self.told {
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
            let again = if self.checkpointing { self.kernels[0] / 3 } else { 0 };
            for (pass, kernels) in [self.kernels[0], self.kernels[1] + again].iter().enumerate() {
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

    /// The step in which the pools no longer find memory, if there is one.
    pub(super) fn fails_at(&self) -> Option<u64> {
        let context = GIB / 2;
        let needs = |step: &u64| Self::reserved(self.micro_batch) + self.leak * step + context + self.ballast;
        (1..10_000_000).find(|step| needs(step) > self.memory)
    }

    /// All that a program and a monitor would have written.
    pub(super) fn recording(&self) -> Vec<Record> {
        let (steps, (worked, preparing)) = self.run();
        let mut records = vec![Record::Run(Box::new(self.start()))];
        if self.watched {
            records.insert(0, Record::Start(self.machine()));
            let seconds = steps.last().map_or(0.0, |step| step.at);
            let launching: f64 = steps.iter().map(launching).sum();
            let cores = (preparing * self.computing + launching) / seconds;
            let every = seconds / LOOKS as f64;
            let taken = |at: f64| steps.partition_point(|step| step.at <= at) as u64;
            let look = |at: f64| self.look((at - every, at), &worked, cores, taken(at));
            records.extend((1..=LOOKS).flat_map(|number| look(number as f64 * every)));
        }
        records.extend(steps.into_iter().map(|step| Record::Step(Box::new(step))));
        records
    }

    fn start(&self) -> Run {
        let mut run = Run::new(0.0, 7);
        run.workload = "simulated".to_owned();
        (run.device.name, run.device.is_gpu) = ("NVIDIA H200".to_owned(), true);
        run.device.profile = Some("h200".to_owned());
        run.target.clone_from(&run.device.profile);
        run.device.gpu_uuids = vec!["GPU-1".to_owned()];
        run.global_batch = Some(self.global_batch);
        run.settings = Some(Settings {
            batch_size: self.micro_batch,
            gradient_accumulation: self.global_batch.div_ceil(self.micro_batch),
            allow_tf32: true,
            gradient_checkpointing: self.checkpointing,
            prefetch_depth: self.depth,
            num_workers: self.workers,
            eval_batch_size: self.micro_batch,
            ..Settings::DEFAULT
        });
        run.memory_budget_bytes = Some(self.budget());
        run.memory_planned_bytes = Some(Self::reserved(self.micro_batch));
        run.expected = self.curve();
        run
    }

    fn machine(&self) -> Start {
        let mut gpu = Gpu::new(0);
        (gpu.name, gpu.uuid) = (Some("NVIDIA H200".to_owned()), Some("GPU-1".to_owned()));
        (gpu.memory_total_bytes, gpu.max_sm_clock_mhz) = (Some(self.memory), Some(2200));
        let mut start = Start::default();
        (start.cores, start.memory_bytes, start.gpus) = (CORES, 512 * GIB, vec![gpu]);
        start.version = crate::recording::VERSION;
        start
    }

    fn look(&self, (from, at): (f64, f64), worked: &[(f64, f64)], cores: f64, taken: u64) -> [Record; 2] {
        let within = |(begins, ends): &(f64, f64)| (ends.min(at) - begins.max(from)).max(0.0);
        let first = worked.partition_point(|(_, ends)| *ends < from);
        let busy: f64 = worked[first..].iter().take_while(|(begins, _)| *begins < at).map(within).sum();
        let mut gpu = GpuSample::new(at, 0);
        gpu.utilisation_percent = Some(100.0 * busy / (at - from));
        gpu.sm_clock_mhz = Some((1980.0 * self.clock) as u32);
        if self.clock < 1.0 {
            gpu.throttle = vec![Throttle::ThermalHardware];
        }
        let own = Self::reserved(self.micro_batch) + self.leak * taken + GIB / 2;
        gpu.memory_used_bytes = Some(own + self.ballast);
        let mut host = HostSample::new(at);
        let mut process = ProcessSample::new(7);
        process.cpu_percent = Some(100.0 * cores.min(CORES as f64));
        host.process = Some(process);
        [Record::Gpu(gpu), Record::Host(host)]
    }
}

fn launching(step: &StepRecord) -> f64 {
    let parts = [step.loss_cpu_s, step.backward_s, step.update_s];
    parts.into_iter().flatten().sum()
}
