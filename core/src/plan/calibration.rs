//! The factors that were measured rather than derived. All are from Burn 0.22.1 with CubeCL 0.11.3 on one H200; they
//! rank choices and bound memory, and carry the label `derived` wherever they are used.

use crate::device::{DeviceFacts, DeviceKind};
use crate::workload::{Family, Workload};
use crate::{Bytes, Precision};

/// What differs between kinds of network.
pub(super) struct Calibration {
    /// Bytes that a GPU's memory pools reserve for each byte in use that lives for one step (activations, gradients).
    ///
    /// Transformer of 27 M parameters, batches 8 to 256: 1.25 to 1.36. Convnet of 8 blocks: 1.75. The rest takes the
    /// larger one.
    gpu_reserve: f64,
    /// Bytes that loaded kernels take for each multiprocessor: code, and the stacks of all threads that could run at once.
    ///
    /// Transformer: under 30 MiB on the 132 multiprocessors of an H200. Convnet: 424 MiB there, once autotuning had picked
    /// convolution kernels that spill registers.
    pub kernels_per_sm: Bytes,
    /// Share of the f32 peak that f32 training reached: 859 samples/s x 38 GFLOP, and 807 samples/s x 14 GFLOP, of 67
    /// TFLOP/s; the latter of convolutions with [`CHANNELS`].
    gpu_efficiency: f64,
    /// The same on one core, of a peak of 96 GFLOP/s: char-lm reached 15 GFLOP/s in release, digits 8.
    cpu_efficiency: f64,
}

/// Bytes that a CPU's allocator holds for each byte in use; not measured.
const CPU_RESERVE: f64 = 1.2;

pub(super) const fn of(family: Family) -> Calibration {
    match family {
        Family::Transformer => Calibration {
            gpu_reserve: 1.4,
            kernels_per_sm: Bytes(256 << 10),
            gpu_efficiency: MATRIX_PRODUCTS,
            cpu_efficiency: 0.16,
        },
        Family::Convnet | Family::Recurrent | Family::Other => Calibration {
            gpu_reserve: 1.8,
            kernels_per_sm: Bytes(3584 << 10),
            gpu_efficiency: 0.17,
            cpu_efficiency: 0.085,
        },
    }
}

impl Calibration {
    /// Bytes held for each byte in use that lives for one step.
    pub(super) const fn reserve(&self, kind: DeviceKind) -> f64 {
        match kind {
            DeviceKind::Gpu => self.gpu_reserve,
            DeviceKind::Cpu => CPU_RESERVE,
        }
    }

    /// Of convolutions with so many channels, where that is known.
    fn efficiency(&self, kind: DeviceKind, channels: Option<f64>) -> f64 {
        match (kind, channels) {
            (DeviceKind::Gpu, Some(channels)) => (self.gpu_efficiency * channels / CHANNELS).min(MATRIX_PRODUCTS),
            (DeviceKind::Gpu, None) => self.gpu_efficiency,
            (DeviceKind::Cpu, _) => self.cpu_efficiency,
        }
    }
}

/// Output channels of the convolutions whose efficiency was measured. With others it is in proportion: 0.07 of the f32 peak
/// were measured with 32, and 0.24 in a ResNet-18, which has 64 to 512.
const CHANNELS: f64 = 96.0;

/// The share of the f32 peak that large matrix products reach: convolutions are no faster.
const MATRIX_PRODUCTS: f64 = 0.49;

/// What a GPU's memory pools hold beyond that, however little is in use: char-lm held 15.7 MiB at batch 1, where 10.8 are
/// accounted for, and 75.0 with checkpointing at batch 32, where it is 60.1.
const POOLS: Bytes = Bytes::from_mib(20);

/// The pools of small tensors may hold some pages of 8 MiB more between two points than at either: on an H200 up to 20 MiB
/// more than lines said, at 84 batches of four models that no lock had.
pub(super) const SMALL_PAGES: Bytes = Bytes::from_mib(24);

/// Bytes reserved for each byte that lives as long as the run (weights, optimizer state).
pub(super) const PERSISTENT_RESERVE: f64 = 1.05;

/// Seconds that a kernel costs whatever the batch: a step of about 600 kernels took 6 ms longer than its samples explain.
pub(super) const KERNEL_S: f64 = 10e-6;

/// Seconds that an operation costs on the CPU whatever the batch; not measured.
const CPU_OPERATION_S: f64 = 5e-6;

/// Share of the bandwidth's peak that training reaches; not measured.
const BANDWIDTH_EFFICIENCY: f64 = 0.6;

/// Bytes per second that training is taken to move; unknown devices count as 20 GB/s.
pub(super) fn bandwidth(device: &DeviceFacts) -> f64 {
    device.bandwidth_gb_s.unwrap_or(20.0) * 1e9 * BANDWIDTH_EFFICIENCY
}

/// How often a kept activation crosses the memory bus: written and read forward, read and its gradient written backward.
pub(super) const ACTIVATION_TRIPS: f64 = 4.0;

/// Step time with checkpointing over without: 832 against about 800 samples/s at batch 64.
pub(super) const CHECKPOINTING_SLOWDOWN: f64 = 1.04;

/// Throughput with bf16 parameters over f32: 1172 against 816 samples/s at batch 32.
const BF16_SPEEDUP: f64 = 1.4;

/// CubeCL refuses a single allocation larger than this share of the device's memory.
pub(super) const LARGEST_ALLOCATION: u64 = 4;

/// Operations per second that training is taken to reach; unknown devices count as a tenth of a TFLOP/s peak.
pub(super) fn flops_per_s(device: &DeviceFacts, workload: &Workload, precision: Precision) -> f64 {
    let peak = device.fp32_tflops.unwrap_or(0.1) * 1e12 * share_at_work(device);
    let speedup = if precision == Precision::F32 || !device.has_bf16 { 1.0 } else { BF16_SPEEDUP };
    peak * of(workload.family).efficiency(device.kind, workload.channels) * speedup
}

/// How little more cores bring on a CPU, as an exponent: char-lm ran 1.07 times as fast on two threads as on one, and 1.3
/// times on sixteen.
const CPU_SCALING: f64 = 0.1;

/// The share of the peak of all cores that a CPU's threads can work on at a time.
fn share_at_work(device: &DeviceFacts) -> f64 {
    match (device.kind, device.host_cores) {
        (DeviceKind::Cpu, Some(cores)) => (cores.max(1) as f64).powf(CPU_SCALING - 1.0),
        _ => 1.0,
    }
}

/// Bytes that memory pools hold beyond that, however little is in use.
pub(super) const fn pools(kind: DeviceKind) -> Bytes {
    match kind {
        DeviceKind::Gpu => POOLS,
        DeviceKind::Cpu => Bytes::ZERO,
    }
}

/// Seconds that each kernel or operation costs whatever the batch.
pub(super) const fn launch_s(kind: DeviceKind) -> f64 {
    match kind {
        DeviceKind::Gpu => KERNEL_S,
        DeviceKind::Cpu => CPU_OPERATION_S,
    }
}

#[cfg(test)]
mod tests {
    use crate::device::DeviceFacts;
    use crate::profile::ProfileTable;
    use crate::workload::{Block, Convnet, Recurrent, Stage, Workload};
    use crate::{Goal, Pins, plan};

    fn convnet(image: u64, block: Block, stages: &[(u64, u64)]) -> Workload {
        let stages = stages.iter().map(|&(channels, blocks)| Stage { channels, blocks }).collect();
        Convnet { image, classes: 10, block, stages, batch_statistics: true, ..Convnet::default() }.workload()
    }

    /// Micro-batches on an H200 with the samples per second of their steps in f32, from the raw data of this repository.
    fn measured() -> [(&'static str, Workload, u64, f64); 6] {
        let lstm = |inputs, hidden, layers, seq| {
            Recurrent { inputs, hidden, layers, seq, outputs: 1, ..Recurrent::default() }.workload()
        };
        let resnet = [(64, 2), (128, 2), (256, 2), (512, 2)];
        [
            ("four convolutions of 32 channels", convnet(128, Block::Plain, &[(32, 4)]), 16, 1561.0),
            ("the same, more samples", convnet(128, Block::Plain, &[(32, 4)]), 512, 1381.0),
            ("eight of 96", convnet(64, Block::Plain, &[(96, 8)]), 64, 844.0),
            ("a ResNet-18", convnet(32, Block::Basic, &resnet), 256, 5118.0),
            ("an LSTM", lstm(8, 64, 2, 30), 128, 1760.0),
            ("a larger one", lstm(64, 256, 3, 60), 512, 1824.0),
        ]
    }

    #[test]
    fn derived_speeds_are_within_a_quarter_of_measured_ones() {
        let h200 = DeviceFacts::nominal(&ProfileTable::builtin_profile("h200").expect("a shipped profile"));
        for (name, workload, batch, samples_per_s) in measured() {
            let pins = Pins { batch_size: Some(batch), gradient_checkpointing: Some(false), ..Pins::default() };
            let plan = plan(&h200, &workload, &Goal { pins, ..Goal::default() }).expect("it fits");
            let off = plan.samples_per_s / samples_per_s;
            assert!((0.75..1.25).contains(&off), "{name}: {off:.2} times what was measured");
        }
    }
}
