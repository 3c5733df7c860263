//! The costs of one way to run a step, once more: in floating point, from the workload and the device alone.

use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::workload::{Family, Workload};
use gpu_tuned_core::{Goal, Precision};

/// Memory and time of every micro-batch, with or without checkpointing.
pub(crate) struct Costs {
    checkpointing: bool,
    /// Bytes whatever the micro-batch.
    fixed: f64,
    /// Bytes that a second set of gradients takes.
    accumulated: f64,
    /// Bytes of each sample, its input aside.
    sample: f64,
    /// Bytes of each sample's input for each batch that is held, and how many bytes may be prepared ahead.
    input: f64,
    prefetch: f64,
    /// Bytes that training may take.
    budget: f64,
    /// The largest micro-batch that can be allocated.
    in_one_piece: f64,
    launch_s: f64,
    sample_s: f64,
    optimizer_s: f64,
    world_size: f64,
}

/// One way to run the step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) checkpointing: bool,
    pub(crate) batch: u64,
    /// Samples of the step.
    pub(crate) samples: u64,
    pub(crate) bytes: f64,
    budget: f64,
    pub(crate) fits: bool,
    pub(crate) samples_per_s: f64,
    pub(crate) utilization: f64,
}

impl Way {
    /// Whether it depends on the rounding of bytes whether it fits.
    pub(crate) fn rounding_decides(&self) -> bool {
        (self.bytes / self.budget - 1.0).abs() < 1e-7
    }
}

impl Costs {
    pub(crate) fn of(device: &DeviceFacts, workload: &Workload, goal: &Goal, checkpointing: bool) -> Self {
        let bf16 = goal.precision == Some(Precision::Bf16Params);
        let (each, scale) = if bf16 { (2.0, 0.5) } else { (4.0, 1.0) };
        let is_gpu = device.kind == DeviceKind::Gpu;
        let parameters = &workload.parameters;
        let trained = parameters.trained() as f64;
        let values = parameters.state(workload.optimizer) as f64;
        let weights = trained * each;
        let copies = if checkpointing { parameters.copies_checkpointed } else { parameters.copies } as f64 * each;
        let state_each = if workload.optimizer.keeps_f32() { 4.0 } else { each };
        let ranks = if goal.shard_optimizer { goal.world_size as f64 } else { 1.0 };
        let frozen = parameters.frozen as f64 * each + parameters.packed.0 as f64;
        // Bytes held for each byte in use: what lives for a step, and what lives as long as the run.
        let transformer = workload.family == Family::Transformer;
        let reserve = match (is_gpu, transformer) {
            (true, true) => 1.4,
            (true, false) => 1.8,
            (false, _) => 1.2,
        };
        let persistent = 1.05;
        let pools = if is_gpu { f64::from(20 << 20) } else { 0.0 };
        let kernels_kib = if transformer { 256.0 } else { 3584.0 } * f64::from(device.sm_count);
        let held = weights + frozen + copies + values * state_each / ranks;
        let sample = &workload.sample;
        let kept = sample.checkpointed_activations.filter(|_| checkpointing).unwrap_or(sample.activations).0 as f64;
        let input = sample.input.unwrap_or_default().0 as f64;

        let piece = (device.memory_total.0 / 4) as f64;
        let tensor = sample.largest_tensor.unwrap_or_default().0 as f64 * scale;
        let parameter_fits = parameters.largest as f64 * each <= piece;
        let in_one_piece = match (is_gpu, parameter_fits) {
            (false, _) => f64::INFINITY,
            (true, false) => 0.0,
            (true, true) => piece / tensor,
        };

        // Convolutions with other than 96 channels are faster or slower in proportion, up to what matrix products reach.
        let convolutions = workload.channels.map_or(0.17, |channels| (0.17 * channels / 96.0).min(0.49));
        let efficiency = if transformer { [0.49, 0.16] } else { [convolutions, 0.085] }[usize::from(!is_gpu)];
        // A CPU's cores help each other little.
        let at_work = device.host_cores.filter(|_| !is_gpu).map_or(1.0, |cores| (cores as f64).powf(-0.9));
        let speedup = if bf16 && device.has_bf16 { 1.4 } else { 1.0 };
        let flops_per_s = device.fp32_tflops.unwrap_or(0.1) * 1e12 * at_work * efficiency * speedup;
        let bytes_per_s = device.bandwidth_gb_s.unwrap_or(20.0) * 0.6e9;
        let slowdown = if checkpointing { 1.04 } else { 1.0 };
        let moved = sample.activations.0 as f64 * scale * 4.0;
        Self {
            checkpointing,
            fixed: held * persistent + weights * reserve + kernels_kib * 1024.0 + pools + device.context.0 as f64,
            accumulated: weights * reserve,
            sample: kept * scale * reserve + sample.scratch.0 as f64 * scale,
            input: input * reserve,
            prefetch: goal.prefetch_mib as f64 * f64::from(1 << 20) * reserve,
            budget: device.memory_available.0 as f64 * (1.0 - goal.memory_headroom),
            in_one_piece,
            launch_s: workload.kernels as f64 * if is_gpu { 10e-6 } else { 5e-6 } * slowdown,
            sample_s: (sample.flops / flops_per_s).max(moved / bytes_per_s) * slowdown,
            optimizer_s: (3.0 * trained + 2.0 * values) * each / bytes_per_s,
            world_size: goal.world_size as f64,
        }
    }

    /// What it costs to cut `samples` into micro-batches of `batch`.
    pub(crate) fn at(&self, batch: u64, samples: u64) -> Way {
        let micro_steps = samples.div_ceil(batch);
        let (size, steps, all) = (batch as f64, micro_steps as f64, samples as f64);
        // One in use and two ahead, or one where two would take more than they may.
        let queued = if 2.0 * size * self.input <= self.prefetch { 3.0 } else { 2.0 };
        let accumulated = if micro_steps > 1 { self.accumulated } else { 0.0 };
        let bytes = self.fixed + accumulated + size * (self.sample + self.input * queued);
        let (launches, computing) = (steps * self.launch_s, all * self.sample_s);
        Way {
            checkpointing: self.checkpointing,
            batch,
            samples,
            bytes,
            budget: self.budget,
            fits: bytes <= self.budget && size <= self.in_one_piece,
            samples_per_s: all / (launches + computing + self.optimizer_s) * self.world_size,
            utilization: computing / (computing + launches),
        }
    }
}
