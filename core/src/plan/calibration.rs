//! Calibration constants: factors that were measured rather than derived.
//!
//! All come from Burn 0.22.1 with CubeCL 0.11.3. "H200" is one NVIDIA H200; its raw data are in `tests/hardware/results`.
//! The constants predict speeds and bound memory. Figures that use them are labelled `derived`.

use super::time::{SpeedError, Speeds};
use crate::device::{DeviceFacts, DeviceKind, Rates};
use crate::measured::Mode;
use crate::workload::{Family, Workload};
use crate::{Bytes, Kernels, Precision};

/// The H200 that was measured: speeds of other GPUs are relative to it. Source: its profile.
pub(super) const REFERENCE: Speeds = Speeds {
    rates: Rates { fp32: Some(51.59), tf32: Some(388.3395), fp16: Some(761.838), bf16: Some(791.52) },
    fp32_tflops: Some(67.0),
    bandwidth_gb_s: Some(4800.0),
};

/// Width of products at which the ratio of two GPUs' speeds follows as much from their rates of products as from their
/// bandwidths. Source: least squares over published training speeds, the workloads for fitting in `docs/transfer.md`.
pub const BALANCED_WIDTH: f64 = 640.0;

/// Factor by which a ratio of two GPUs' speeds may be off: the 90th percentile on the workloads that were not fitted.
/// Source: `docs/transfer.md`.
pub const TRANSFER_ERROR: f64 = 1.62;

/// Factor by which a predicted speed may be off, by the kind of the error: the largest error of the models that were not fitted. There
/// are too few for a percentile: a further model lies within the largest error of eight others eight times in nine. Source:
/// `lab/pages/data/measured`, shown in `docs/absolute.md`.
pub const SPEED_ERRORS: [(SpeedError, f64); 3] =
    [(SpeedError::Absolute, 1.68), (SpeedError::LaunchBound, 5.03), (SpeedError::BetweenGpus, TRANSFER_ERROR)];

/// Share of the predicted time of micro-batches that launches take in a launch-bound step. Source: steps of `digits` and `char_lm` in
/// `docs/absolute.md`. Their launches took over four times as long as predicted, so that a predicted third is most of a step.
pub(super) const LAUNCH_BOUND: f64 = 1.0 / 3.0;

/// Factor by which a speed may be off when figures of the GPU are estimates. Source: shipped profiles without their rates, in
/// `core/src/plan/tests/planner/estimates.rs`.
pub const ESTIMATE_ERROR: f64 = 2.0;

/// Speed of a device without any figures, relative to the H200. Source: an assumption.
const UNKNOWN_SPEED: f64 = 0.004;

/// Constants that differ between kinds of network.
pub(super) struct Calibration {
    /// Bytes that a GPU's memory pools reserve for each byte in use that lives for one step. Ratio.
    gpu_reserve: f64,
    /// Bytes that loaded kernels take for each multiprocessor: code, and the stacks of all threads that could run at once.
    pub kernels_per_sm: Bytes,
    /// Width of the products of a model without known shapes.
    width: f64,
    /// True if 16 bits were measured to be faster.
    gains_in_half: bool,
    /// True if the library's products were measured to be faster.
    gains_with_library: bool,
    /// Fraction of one core's f32 peak of 96 GFLOP/s that training reaches.
    cpu_efficiency: f64,
}

const TRANSFORMER: Calibration = Calibration {
    // Source: H200, transformer of 27 M parameters, batches 8 to 256: 1.25 to 1.36.
    gpu_reserve: 1.4,
    // Source: H200, transformer: under 30 MiB on 132 multiprocessors.
    kernels_per_sm: Bytes(256 << 10),
    // That of a feed-forward layer from 512 to 2,048.
    width: 410.0,
    // Source: H200: bf16 parameters 1.39 at 64 samples, and 1.23 at 32 in another program, where mixed precision had 1.09
    // (bf16) and 1.22 (fp16).
    gains_in_half: true,
    gains_with_library: true,
    // Source: char-lm in release on one core: 15 GFLOP/s.
    cpu_efficiency: 0.16,
};

/// Constants of convnets, and of kinds of network without their own.
const CONVNET: Calibration = Calibration {
    // Source: H200, convnet of 8 blocks: 1.75. Other kinds of network get this larger one.
    gpu_reserve: 1.8,
    // Source: H200, convnet: 424 MiB on 132 multiprocessors, with kernels that spill registers.
    kernels_per_sm: Bytes(3584 << 10),
    width: 96.0,
    // Source: H200, convnet of 8 convolutions of 96 channels: 1.45 to 1.56 with bf16 parameters, 1.49 in bf16 mixed precision.
    // A residual CNN had 1.01, an LSTM 0.96 to 1.02 and a ResNet-18 on images of 32 pixels 0.58 on an H100. With the library,
    // the convnet had 1.26, the ResNet-18 0.96 and a U-Net 1.30: no gain is promised.
    gains_in_half: false,
    gains_with_library: true,
    // Source: digits in release on one core: 8 GFLOP/s.
    cpu_efficiency: 0.085,
};

/// Returns the constants of a kind of network.
pub(super) const fn for_family(family: Family) -> Calibration {
    match family {
        Family::Transformer => TRANSFORMER,
        Family::Convnet => CONVNET,
        // The library launches fewer kernels of recurrent layers, see [`kernels`].
        Family::Recurrent | Family::Other => Calibration { gains_with_library: false, ..CONVNET },
    }
}

/// Kernels that a micro-batch launches. The library computes all steps of a recurrent layer at once, with as many kernels as
/// Burn one step. Source: H200, `side-by-side.jsonl`: LSTM of three layers, 4,360 samples/s, and 8,959 with CUDA graphs.
pub(super) fn kernels(workload: &Workload, mode: Mode) -> u64 {
    match (workload.family, mode.kernels, workload.sample.tokens) {
        (Family::Recurrent, Kernels::Library, Some(steps)) => workload.kernels / steps.max(1),
        _ => workload.kernels,
    }
}

/// Rate of matrix products on the H200 by their width: half of the peak at the half width.
struct Products {
    peak: f64,
    half_width: f64,
}

/// Products of Burn's kernels in f32 with TF32, and in 16 bits, in training. Source: H200, products of feed-forward layers by
/// width (`lab/experiments/results/h200/library.jsonl`) and the models that name `BURN` in `docs/absolute.md`. Products of
/// widths from 2,048 on shared the GPU with tests, which made that of 512 take 1.4 to 1.6 times as long.
const BURN: [Products; 2] =
    [Products { peak: 73e12, half_width: 420.0 }, Products { peak: 220e12, half_width: 1650.0 }];

/// Products of the library's kernels; these models name `LIBRARY`.
const LIBRARY: [Products; 2] =
    [Products { peak: 295e12, half_width: 320.0 }, Products { peak: 740e12, half_width: 600.0 }];

impl Products {
    /// The products of a mode, as far as their gain was measured for this kind of network.
    fn for_mode(device: &DeviceFacts, workload: &Workload, mode: Mode) -> &'static Self {
        // Without tensor cores the library's gain was not measured.
        let has_tensor_cores = has_half(device, mode.precision) || device.has_tf32 && !mode.full_f32;
        let gains = has_tensor_cores && for_family(workload.family).gains_with_library;
        let [in_f32, in_half] = if mode.kernels.is_library() && gains { &LIBRARY } else { &BURN };
        if rated_precision(device, workload, mode.precision) == Precision::F32 { in_f32 } else { in_half }
    }

    /// Operations per second at a width.
    fn flops_per_s(&self, width: f64) -> f64 {
        self.peak * width / (width + self.half_width)
    }
}

fn has_half(device: &DeviceFacts, precision: Precision) -> bool {
    match precision {
        Precision::F32 => false,
        Precision::MixedF16 => device.has_f16,
        Precision::MixedBf16 | Precision::Bf16Params => device.has_bf16,
    }
}

/// Precision that decides the predicted speed: f32 where no gain of 16 bits was measured, or none is possible.
pub(super) fn rated_precision(device: &DeviceFacts, workload: &Workload, precision: Precision) -> Precision {
    let gains = has_half(device, precision) && for_family(workload.family).gains_in_half;
    if gains { precision } else { Precision::F32 }
}

/// Width of a workload's products, or that of its kind.
pub(super) fn width(workload: &Workload) -> f64 {
    workload.width().unwrap_or(for_family(workload.family).width)
}

/// Bytes that a CPU's allocator reserves for each byte in use. Ratio. Source: an assumption, not measured.
const CPU_RESERVE: f64 = 1.2;

/// Bytes that a GPU's memory pools reserve at least. Source: H200, char-lm: 15.7 MiB at batch 1, of which 10.8 are accounted
/// for, and with checkpointing 75.0 MiB at batch 32, of which 60.1 are.
const POOLS: Bytes = Bytes::from_mib(20);

/// Bytes that pools of small tensors may reserve more between two measured micro-batches than at either: pages of 8 MiB.
/// Source: H200, 84 held-out batches of four models: up to 20 MiB.
pub(super) const SMALL_PAGES: Bytes = Bytes::from_mib(24);

/// Largest excess of steps that accumulate gradients over single steps and a set of gradients. Fraction. Source: 16 modes of
/// four models on an H200 and an H100: up to 19.9%.
pub(super) const ACCUMULATION_EXCESS: f64 = 0.2;

/// Bytes reserved for each byte that lives as long as the run, such as weights. Ratio. Source: H200, transformer.
pub(super) const PERSISTENT_RESERVE: f64 = 1.05;

/// Tensors of the logits' size that a loss over a vocabulary and its gradient reserve, in f32 and in 16 bits, beside those that
/// the forward pass keeps. Source: H200, transformer with 8,192 words, batches 128 and 256: 2.9 and 3.0 in f32, 3.1 and 3.6
/// in 16 bits.
const LOSS_TENSORS: [f64; 2] = [3.1, 3.7];

/// The same where rows of logits are padded: reshapes copy them. Source: dry runs of a GPT with 50,257 words, batches 32 to 256:
/// 4.9 to 6.1 in f32; 9.2 to 9.5 in 16 bits, with one that the forward pass keeps beyond those that are counted.
const PADDED_LOSS_TENSORS: [f64; 2] = [6.2, 9.6];

/// Bytes that rows of tensors are padded to a multiple of, if they are longer. Source: CubeCL 0.11.3.
const PITCH: u64 = 512;

/// Seconds of each kernel, whatever the batch. Source: H200: a step of about 600 kernels took 6 ms more than its samples.
pub(super) const KERNEL_S: f64 = 10e-6;

/// Seconds of each operation on a CPU, whatever the batch. Source: an assumption, not measured.
const CPU_OPERATION_S: f64 = 5e-6;

/// Fraction of the peak bandwidth that training reaches. Source: an assumption, not measured.
const BANDWIDTH_EFFICIENCY: f64 = 0.6;

/// Bytes per second of a device with unknown bandwidth, before [`BANDWIDTH_EFFICIENCY`]. Source: an assumption.
const UNKNOWN_BANDWIDTH: f64 = 20e9;

/// Operations per second of a CPU with unknown peak. Source: an assumption.
const UNKNOWN_FLOPS: f64 = 0.1e12;

/// Times that a kept activation crosses the memory bus: written and read forward, read and its gradient written backward.
/// Source: the order of these accesses.
pub(super) const ACTIVATION_TRIPS: f64 = 4.0;

/// Step time with checkpointing over without. Ratio. Source: H200, transformer at batch 64: 832 against 800 samples/s.
pub(super) const CHECKPOINTING_SLOWDOWN: f64 = 1.04;

/// Device memory over the largest single allocation that CubeCL accepts. Ratio. Source: CubeCL 0.11.3.
pub(super) const LARGEST_ALLOCATION: u64 = 4;

/// Exponent by which a CPU's speed grows with its cores. Source: char-lm: 1.07 times as fast on two threads, 1.3 on sixteen.
const CPU_SCALING: f64 = 0.1;

impl Calibration {
    /// Bytes reserved for each byte in use that lives for one step.
    pub(super) const fn reserve(&self, kind: DeviceKind) -> f64 {
        match kind {
            DeviceKind::Gpu => self.gpu_reserve,
            DeviceKind::Cpu => CPU_RESERVE,
        }
    }
}

/// Bytes per second that the samples of training are predicted to move: on the H200 for a GPU, on the device for a CPU.
pub(super) fn sample_bandwidth(device: &DeviceFacts) -> f64 {
    match device.kind {
        DeviceKind::Gpu => bytes_per_s(REFERENCE.bandwidth_gb_s),
        DeviceKind::Cpu => bytes_per_s(device.bandwidth_gb_s),
    }
}

/// Bytes per second that training is predicted to move at a peak bandwidth.
pub(super) fn bytes_per_s(bandwidth_gb_s: Option<f64>) -> f64 {
    bandwidth_gb_s.map_or(UNKNOWN_BANDWIDTH, |peak| peak * 1e9) * BANDWIDTH_EFFICIENCY
}

/// Operations per second that products in training are predicted to reach: on the H200 for a GPU, on the device for a CPU.
pub(super) fn flops_per_s(device: &DeviceFacts, workload: &Workload, mode: Mode) -> f64 {
    if device.kind == DeviceKind::Gpu {
        return Products::for_mode(device, workload, mode).flops_per_s(width(workload));
    }
    // A CPU's threads use a fraction of the peak of all cores at a time.
    let used = device.host_cores.map_or(1.0, |cores| (cores.max(1) as f64).powf(CPU_SCALING - 1.0));
    let peak = device.fp32_tflops.map_or(UNKNOWN_FLOPS, |peak| peak * 1e12);
    peak * used * for_family(workload.family).cpu_efficiency
}

/// Seconds of a sample on the device over those on the H200; 1 for a CPU, which has its own rates.
pub(super) fn slowdown(device: &DeviceFacts, workload: &Workload, mode: Mode) -> f64 {
    let ratio = || Speeds::from(device).relative_to(&REFERENCE, mode, width(workload)).unwrap_or(UNKNOWN_SPEED);
    match device.kind {
        DeviceKind::Gpu => 1.0 / ratio(),
        DeviceKind::Cpu => 1.0,
    }
}

/// Bytes that memory pools reserve at least.
pub(super) const fn pools(kind: DeviceKind) -> Bytes {
    match kind {
        DeviceKind::Gpu => POOLS,
        DeviceKind::Cpu => Bytes::ZERO,
    }
}

/// Tensors of the logits' size, in the format of activations, that a loss over so many words and its gradient reserve.
pub(super) fn loss_tensors(kind: DeviceKind, precision: Precision, words: u64) -> f64 {
    let is_padded = !words.saturating_mul(precision.compute_bytes()).is_multiple_of(PITCH);
    let [in_f32, in_half] = if is_padded { PADDED_LOSS_TENSORS } else { LOSS_TENSORS };
    match (kind, precision) {
        (DeviceKind::Cpu, _) => 0.0,
        (DeviceKind::Gpu, Precision::F32) => in_f32,
        (DeviceKind::Gpu, _) => in_half,
    }
}

/// Seconds of each kernel or operation, whatever the batch.
pub(super) const fn launch_s(kind: DeviceKind) -> f64 {
    match kind {
        DeviceKind::Gpu => KERNEL_S,
        DeviceKind::Cpu => CPU_OPERATION_S,
    }
}
