use std::collections::{HashMap, HashSet};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;

use super::affine::aligned;
use super::parameters::{self, shapes};
use super::pools::{Pools, TooLarge};
use super::program::{Op, Phase, Program, phases};
use super::trace::record;
use super::{convolution, update};
use crate::measure::{MeasureError, Memory, Step, Subject, isolated};

/// As many as dry runs take at most.
const STEPS: usize = 12;
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
/// if let Some(replayed) = trace.replayed(64, 4, Bytes::from_mib(24 << 10)) {
///     println!("{} MiB on a GPU with 24 GiB", replayed.memory().reserved_bytes.mib());
/// }
/// # Ok::<(), gpu_tuned::measure::MeasureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    program: Program,
    /// Shapes of the parameters.
    shapes: Vec<Vec<u64>>,
}

/// Simulated memory of steps on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Bytes reserved by the memory pools after each step.
    pub reserved_bytes: Vec<Bytes>,
    /// In use after the last forward pass, with the loss alive.
    pub in_use_bytes: Bytes,
}

impl Replayed {
    /// Most bytes reserved after a step, and bytes in use after a forward pass.
    pub fn memory(&self) -> Memory {
        let reserved_bytes = self.reserved_bytes.iter().copied().max().unwrap_or_default();
        Memory { reserved_bytes, in_use_bytes: Some(self.in_use_bytes) }
    }
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
            let program = aligned(&small, &large, [from, to]).and_then(|mut program| {
                lay_out_parameters(&mut program, &shapes);
                program.repeated(STEPS)
            });
            if let Some(program) = program {
                return Ok(Self { program, shapes });
            }
            small = large;
        }
        Err(step(BATCHES[3]).failed(&"it allocates otherwise than smaller micro-batches"))
    }

    /// Simulates a dozen steps with a micro-batch on a CUDA GPU with so much memory, for values of so many bytes.
    /// `None` if one tensor exceeds the GPU's largest allocation.
    ///
    /// More than the GPU's memory is an answer, too.
    pub fn replayed(&self, batch: u64, value_bytes: u64, gpu: Bytes) -> Option<Replayed> {
        self.lowered(value_bytes).replayed(batch, gpu)
    }

    /// The steps as CUDA takes them, when values take so many bytes.
    pub(super) fn lowered(&self, value_bytes: u64) -> Lowered {
        let program = convolution::lower(self.program.clone(), &self.shapes, value_bytes);
        Lowered { program: update::lower(program, value_bytes), value_bytes }
    }
}

/// Steps as CUDA takes them.
pub(super) struct Lowered {
    program: Program,
    value_bytes: u64,
}

impl Lowered {
    /// See [`Trace::replayed`].
    pub(super) fn replayed(&self, batch: u64, gpu: Bytes) -> Option<Replayed> {
        // CubeCL takes at most a quarter of the memory at once.
        deal(&self.program, Pools::new(gpu.0 / 4), batch, self.value_bytes).ok()
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
        if let Some(shape) = by_bytes.get_mut(&program.sizes[id].bytes()[0]).and_then(Vec::pop) {
            program.sizes[id] = parameters::size(shape);
            program.persistent.insert(id);
        }
    }
}

fn deal(program: &Program, mut pools: Pools, batch: u64, value_bytes: u64) -> Result<Replayed, TooLarge> {
    let (mut reserved_bytes, mut in_use_bytes) = (Vec::new(), Bytes::ZERO);
    for op in &program.ops {
        match *op {
            Op::Allocate(id) => {
                let bytes = program.bytes(id, batch, value_bytes);
                if program.persistent.contains(&id) {
                    pools.allocate_persistent(id, bytes);
                } else if bytes > 0 {
                    pools.allocate(id, bytes)?;
                }
            }
            Op::Free(id) => pools.free(id),
            Op::Enter(Phase::Backward) => in_use_bytes = Bytes(pools.in_use()),
            Op::Enter(Phase::End) => reserved_bytes.push(Bytes(pools.reserved())),
            Op::Enter(_) => {}
        }
    }
    Ok(Replayed { reserved_bytes, in_use_bytes })
}
