//! Memory on GPUs that are not there, from what steps allocate on the CPU.
//!
//! Three optimizer steps run on the CPU at two micro-batches, and every allocation is recorded. The size of each
//! allocation is linear in the micro-batch, which predicts the allocations of any micro-batch. Differences of CUDA are
//! rewritten: fused optimizers, convolutions, padded rows. A model of `CubeCL`'s pools then allocates them.

mod lowering;
mod pools;
mod program;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::{
    MOST_MICRO_BATCHES, Measured, MeasuredMode, MeasuredOn, MeasurementMethod, Mode, micro_batches,
};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_project::resolved::Resolved;
use gpu_tuned_train::device::catching;

use super::bench::{ACCUMULATING, Bench, Tried};
use super::target::BuiltFor;
use super::{MeasureError, Memory, Step, Subject, isolated, report};
use crate::versions;
use lowering::{lower_convolutions, lower_updates};
use pools::Pools;
use program::{Op, Phase, Program, phases};
use trace::{aligned, parameter_size, record, shapes};

/// Even, so that a sample more changes nothing but sizes, and more than one: a micro-batch of one is computed otherwise. The
/// first two neighbours that take the same steps do: small products are worked out otherwise than large ones.
const BATCHES: [u64; 4] = [2, 4, 8, 16];

/// Allocations and frees of optimizer steps, at any micro-batch.
///
/// ```no_run
/// # use burn::nn::{Linear, LinearConfig};
/// # use burn::optim::AdamWConfig;
/// # use burn::tensor::{Device, Tensor};
/// # extern crate gpu_tuned_measure as gpu_tuned;
/// # use gpu_tuned_core::Bytes;
/// # use gpu_tuned::measure::{Subject, Trace};
/// # let subject = Subject::new(
/// #     |device| LinearConfig::new(8, 1).init(device),
/// #     || AdamWConfig::new().init(),
/// #     |samples, device| Tensor::<2>::zeros([samples, 8], device),
/// #     |model: &Linear, batch| model.forward(batch).mean(),
/// # );
/// let trace = Trace::record(&Device::flex(), &subject, 1, false)?;
/// if let Some(memory) = trace.replayed(64, 4, Bytes::from_mib(24 << 10)) {
///     println!("{} MiB on a GPU with 24 GiB", memory.reserved_bytes.mib());
/// }
/// # Ok::<(), gpu_tuned::measure::MeasureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    program: Program,
    /// Shapes of the parameters.
    shapes: Vec<Vec<u64>>,
}

impl Trace {
    /// Runs steps of so many micro-batches on the CPU, at two small sizes of them, and records them.
    ///
    /// The device is the CPU without autodiff, with 32-bit numbers by default.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Step`] when the model panics, when more is allocated than can be recorded, or when no two sizes of up
    /// to 16 samples take the same steps.
    pub fn record<M: Module, B: Clone>(
        device: &Device,
        subject: &Subject<'_, M, B>,
        micro_batches: usize,
        checkpointing: bool,
    ) -> Result<Self, MeasureError> {
        let step = |batch| Step { batch: batch as usize, micro_batches, checkpointing, cuda_graphs: false };
        let recorded = |batch| {
            let recorded = isolated(step(batch), || record(device, subject, step(batch)))?;
            recorded.ok_or_else(|| step(batch).failed(&"it allocates too often to be recorded"))
        };
        let shapes = isolated(step(1), || shapes(&subject.model(&step(1).device(device))))?;
        let mut small = recorded(BATCHES[0])?;
        for (from, to) in BATCHES.into_iter().zip(BATCHES.into_iter().skip(1)) {
            let large = recorded(to)?;
            if let Some(mut program) = aligned(&small, &large, [from, to]) {
                lay_out_parameters(&mut program, &shapes);
                return Ok(Self { program, shapes });
            }
            small = large;
        }
        Err(step(BATCHES[3]).failed(&"it allocates otherwise than smaller micro-batches"))
    }

    /// Simulates steps with a micro-batch on a CUDA GPU with so much memory, for values of so many bytes. Returns the most
    /// bytes reserved after a step, and the bytes in use after the last forward pass, with the loss alive. `None` if one
    /// tensor exceeds the GPU's largest allocation.
    ///
    /// More than the GPU's memory is an answer, too.
    pub fn replayed(&self, batch: u64, value_bytes: u64, gpu: Bytes) -> Option<Memory> {
        self.lowered(value_bytes).replayed(batch, gpu)
    }

    /// The steps as CUDA takes them, when values take so many bytes.
    fn lowered(&self, value_bytes: u64) -> Lowered {
        let program = lower_convolutions(self.program.clone(), &self.shapes, value_bytes);
        Lowered { program: lower_updates(program, value_bytes), value_bytes }
    }
}

/// Steps as CUDA takes them.
struct Lowered {
    program: Program,
    value_bytes: u64,
}

impl Lowered {
    /// See [`Trace::replayed`].
    fn replayed(&self, batch: u64, gpu: Bytes) -> Option<Memory> {
        let Self { program, value_bytes } = self;
        // CubeCL takes at most a quarter of the memory at once.
        let mut pools = Pools::new(gpu.0 / 4);
        let (mut reserved_bytes, mut in_use_bytes) = (Bytes::ZERO, Bytes::ZERO);
        for op in &program.ops {
            match *op {
                Op::Allocate(id) => {
                    let bytes = program.bytes(id, batch, *value_bytes);
                    if program.persistent.contains(&id) {
                        pools.allocate_persistent(id, bytes);
                    } else if bytes > 0 {
                        pools.allocate(id, bytes).ok()?;
                    }
                }
                Op::Free(id) => pools.free(id),
                Op::Enter(Phase::Backward) => in_use_bytes = Bytes(pools.in_use),
                Op::Enter(Phase::End) => reserved_bytes = reserved_bytes.max(Bytes(pools.reserved())),
                Op::Enter(_) => {}
            }
        }
        Some(Memory { reserved_bytes, in_use_bytes: Some(in_use_bytes) })
    }
}

/// Marks the allocations of parameters; on CUDA they are outside the pools, with padded rows.
fn lay_out_parameters(program: &mut Program, shapes: &[Vec<u64>]) {
    let mut by_bytes: HashMap<u64, Vec<&Vec<u64>>> = HashMap::new();
    for shape in shapes {
        by_bytes.entry(shape.iter().product::<u64>() * 4).or_default().push(shape);
    }
    let made = phases(&program.ops).next().unwrap_or_default();
    let freed: HashSet<_> = made.iter().filter_map(Op::freed).collect();
    for id in made.iter().filter_map(Op::allocated).filter(|id| !freed.contains(id)) {
        if let Some(shape) = by_bytes.get_mut(&program.sizes[id].bytes[0]).and_then(Vec::pop) {
            program.sizes[id] = parameter_size(shape);
            program.persistent.insert(id);
        }
    }
}

/// Recorded steps of one micro-batch and of two that accumulate gradients, both without or both with checkpointing.
#[derive(Clone, Debug)]
pub struct Traces {
    /// Trace of one micro-batch.
    pub single: Trace,
    /// Of two.
    pub accumulating: Trace,
}

impl Traces {
    /// Records both on the CPU: see [`Trace::record`].
    ///
    /// # Errors
    ///
    /// See [`Trace::record`].
    pub fn record<M: Module, B: Clone>(
        device: &Device,
        subject: &Subject<'_, M, B>,
        checkpointing: bool,
    ) -> Result<Self, MeasureError> {
        let record = |micro_batches| Trace::record(device, subject, micro_batches, checkpointing);
        Ok(Self { single: record(1)?, accumulating: record(ACCUMULATING)? })
    }

    /// Returns the memory that a GPU with `gpu` bytes would reserve, at micro-batches up to the `largest`; `samples` is a
    /// rank's share of the global batch. `None` when not even one sample fits into the largest page.
    pub fn measured(
        &self,
        precision: Precision,
        largest: u64,
        samples: Option<u64>,
        gpu: Bytes,
    ) -> Option<MeasuredMode> {
        let value_bytes = precision.parameter_bytes();
        let [single, accumulating] = [&self.single, &self.accumulating].map(|trace| trace.lowered(value_bytes));
        let simulated = |batch: u64| {
            let tried = Tried {
                batch,
                memory: Some(single.replayed(batch, gpu)?),
                accumulating: accumulating.replayed(batch, gpu),
                ..Tried::default()
            };
            Some((batch, tried.measured()))
        };
        // Sizes up to the first that exceeds the memory, then in the gaps between them.
        let mut batch = BTreeMap::new();
        for size in micro_batches(largest, samples) {
            let Some((size, measured)) = simulated(size) else { break };
            batch.insert(size, measured);
            if measured.reserved_bytes > Some(gpu) {
                break;
            }
        }
        let (&largest, _) = batch.last_key_value()?;
        let missing = micro_batches(largest, samples).into_iter().filter(|size| !batch.contains_key(size));
        let missing: Vec<_> =
            missing.take(MOST_MICRO_BATCHES.saturating_sub(batch.len())).filter_map(simulated).collect();
        batch.extend(missing);
        Some(MeasuredMode { method: MeasurementMethod::Simulated, is_partial: false, batch })
    }
}

/// Release of Burn whose simulated steps were compared with a GPU's.
const BURN: &str = "0.22.";

/// After this nothing more is recorded: steps of a large model take a CPU long.
const PATIENCE: Duration = Duration::from_secs(8);

/// Memory of steps on the GPU that the program was built for, by the name of its lock entry. Prints the reason if it
/// cannot be simulated.
pub(super) fn devices<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    built: BuiltFor,
    package: Option<&Path>,
) -> BTreeMap<String, MeasuredOn> {
    let Some(profile) = profile(built) else { return BTreeMap::new() };
    let (gpu, burn) = (DeviceFacts::nominal(&profile), versions::burn(package));
    report::replaying(profile.id.as_str());
    if !burn.starts_with(BURN) {
        report::not_replayed(&"this release of Burn was never compared with a GPU");
        return BTreeMap::new();
    }
    let mode = modes(bench, &gpu);
    if mode.is_empty() {
        return BTreeMap::new();
    }
    let on = MeasuredOn {
        device: format!("{} (simulated from steps of a CPU)", profile.id),
        // Nothing was timed that could be carried over by them.
        fp32_tflops: None,
        bandwidth_gb_s: None,
        cubecl: Some(versions::cubecl(package)),
        mode,
        ..gpu.measured_on(burn)
    };
    BTreeMap::from([(Measured::simulated_name(profile.id.as_str()), on)])
}

/// The GPU that the program was built for, of several the one with the most memory; else the generic one. What is
/// replayed hardly depends on it: pages are at most a quarter of its memory, and points lie where they matter to it.
fn profile(built: BuiltFor) -> Option<Profile> {
    let table = built.table.and_then(|table| Resolved::embedded(table).ok());
    let named = |id: &str| {
        let own = table.and_then(|table| table.profile.get(id).cloned());
        own.or_else(|| ProfileTable::builtin_profile(id))
    };
    let targets = built.targets.iter().filter_map(|id| named(id));
    targets.max_by_key(|profile| profile.memory.usable()).or_else(|| named(ProfileId::GENERIC))
}

fn modes<M: Module, B: Clone>(bench: &Bench<'_, '_, M, B>, gpu: &DeviceFacts) -> BTreeMap<Mode, MeasuredMode> {
    let begin = Instant::now();
    let mut modes = BTreeMap::new();
    for checkpointing in bench.subject.checkpointing().iter().copied() {
        if begin.elapsed() > PATIENCE {
            report::not_replayed(&"a step with checkpointing: those without took the CPU too long");
            break;
        }
        let traces = match Traces::record(bench.device, bench.subject, checkpointing) {
            Ok(traces) => traces,
            Err(error) => {
                report::not_replayed(&error);
                continue;
            }
        };
        for precision in [Precision::F32, Precision::Bf16Params] {
            let mode = Mode::new(precision, checkpointing);
            let measured = || traces.measured(precision, bench.largest_batch, bench.global, gpu.memory_total);
            match catching(measured) {
                Ok(Some(found)) => {
                    report::replayed(mode, &found);
                    modes.insert(mode, found);
                }
                Ok(None) => report::not_replayed(&"one sample is more than the GPU allocates at once"),
                Err(message) => report::not_replayed(&message),
            }
        }
    }
    modes
}
