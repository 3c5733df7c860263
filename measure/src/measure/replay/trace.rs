//! Recordings of what optimizer steps allocate on the CPU.
//!
//! Two recordings of the same steps are aligned: each allocation's size is a line over the micro-batch.

use std::collections::{HashMap, HashSet};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Bool, Device, Int, Tensor};
use gpu_tuned_train::allocation::log::{self, Event};
use gpu_tuned_train::train::{accumulate, in_parameter_types};

use super::program::{Allocation, Op, Phase, Program, Recorded, Size, deaths, phases};
use crate::measure::subject::Pass;
use crate::measure::{Step, Subject};

const LEARNING_RATE: f64 = 1e-6;
/// The first step makes the optimizer's state, the third is as all that follow.
const STEPS: usize = 3;
/// Alignment of the packed operands of a matrix product. Tensors have a smaller one.
const SCRATCH_ALIGN: u64 = 128;

/// Takes three optimizer steps and records them; `None` when more happened than is kept.
pub(super) fn record<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Option<Recorded> {
    if matches!(subject.pass(), Pass::Loss(_)) {
        return log::watched(|| run(device, subject, step)).map(|events| Recorded::from_events(&events));
    }
    let tensors = forward(device, subject, step)?;
    let events = log::watched(|| run(device, subject, step))?;
    Some(Recorded::from_events(&with_ends(&events, tensors)))
}

/// Number of tensors of a forward pass, for steps that do not report its end; `None` if the log overflowed.
fn forward<M: Module, B: Clone>(device: &Device, subject: &Subject<'_, M, B>, step: Step) -> Option<usize> {
    let events = log::watched(|| {
        let device = step.device(device);
        let model = subject.model(&device);
        values(&model);
        let batch = subject.batch(step.batch, &device);
        enter(Phase::Forward);
        let seen = subject.pass().after_forward(&model, batch, || enter(Phase::Backward));
        assert!(seen.is_some(), "its training and its validation step take different batches");
    })?;
    let is_at = |phase: Phase| move |event: &Event| *event == Event::Marked(phase as u64);
    let from = events.iter().position(is_at(Phase::Forward))?;
    let to = events.iter().position(is_at(Phase::Backward))?;
    Some(events[from..to].iter().filter(|event| is_tensor(event)).count())
}

/// The end of a forward pass behind so many tensors from its beginning on.
fn with_ends(events: &[Event], tensors: usize) -> Vec<Event> {
    let [begin, end] = [Phase::Forward, Phase::Backward].map(|phase| Event::Marked(phase as u64));
    let mut all = Vec::with_capacity(events.len() + STEPS * 4);
    let mut left = None;
    for event in events {
        // What is freed at the end of the pass belongs to it.
        if left == Some(0) && !matches!(event, Event::Freed { .. }) {
            all.push(end);
            left = None;
        }
        all.push(*event);
        left = match left {
            _ if *event == begin => Some(tensors),
            Some(left) if is_tensor(event) => Some(left - 1),
            left => left,
        };
    }
    all
}

fn is_tensor(event: &Event) -> bool {
    matches!(event, Event::Allocated { align, .. } if *align < SCRATCH_ALIGN)
}

fn run<M: Module, B: Clone>(device: &Device, subject: &Subject<'_, M, B>, step: Step) {
    let device = step.device(device);
    enter(Phase::Parameters);
    let (mut model, mut optimizer) = subject.begin(&device);
    // Parameters get their values when they are first asked for.
    values(&model);
    enter(Phase::Batch);
    let batch = subject.batch(step.batch, &device);
    for _ in 0..STEPS {
        let mut sum = GradientsParams::new();
        for _ in 0..step.micro_batches {
            // Ends in the phase in which gradients are added up or applied.
            enter(Phase::Forward);
            let between = || enter(Phase::Backward);
            let (gradients, factor) =
                subject.pass().gradients(&model, batch.clone(), step.micro_batches, None, between);
            enter(Phase::Update);
            let added = accumulate(&model, std::mem::take(&mut sum), gradients, &factor, step.micro_batches > 1);
            sum = added.unwrap_or_else(|error| subject.fail_not_ready(&error));
        }
        let gradients = in_parameter_types(sum, &model);
        model = optimizer.step(LEARNING_RATE, model, gradients);
        enter(Phase::End);
    }
}

const PHASES: [Phase; 6] =
    [Phase::Parameters, Phase::Batch, Phase::Forward, Phase::Backward, Phase::Update, Phase::End];

fn enter(phase: Phase) {
    log::mark(phase as u64);
}

impl Recorded {
    /// Extracts tensors from all allocations, with the times of their frees.
    pub(super) fn from_events(events: &[Event]) -> Self {
        let mut recorded = Self::default();
        let mut live = HashMap::new();
        for event in events {
            match *event {
                Event::Marked(number) => {
                    recorded.ops.extend(PHASES.get(number as usize).copied().map(Op::Enter));
                }
                Event::Freed { address } => recorded.ops.extend(live.remove(&address).map(Op::Free)),
                Event::Allocated { address, bytes, align, zeroed } if align < SCRATCH_ALIGN => {
                    live.insert(address, recorded.allocations.len());
                    recorded.ops.push(Op::Allocate(recorded.allocations.len()));
                    recorded.allocations.push(Allocation { bytes, align, zeroed });
                }
                Event::Allocated { .. } => {}
            }
        }
        recorded.drop_staging();
        recorded
    }

    // Burn makes some tensors in one allocation, copies them into another of a different alignment, and frees the first.
    fn drop_staging(&mut self) {
        let staged = |window: &[Op]| match *window {
            [Op::Allocate(first), Op::Allocate(second), Op::Free(freed)] if first == freed => {
                let [made, copied] = [self.allocations[first], self.allocations[second]];
                (made.bytes == copied.bytes && made.align != copied.align).then_some(freed)
            }
            _ => None,
        };
        let staging = self.ops.windows(3).filter_map(staged).collect();
        self.ops.retain(|op| !op.is_of(&staging));
    }
}

/// Pairs in a row that end a stretch without pairs.
const RESUME: usize = 4;
/// Stretches without pairs are at most so long, in allocations.
const FURTHEST: usize = 200;
/// Largest part of bytes without a pair, in thousandths, apart from those that grow with the micro-batch and scratch. A
/// ResNet, convolutions and an LSTM have less than 1; a small transformer has 40 where its products change with the
/// size.
const MOST_UNPAIRED_PER_MILLE: u64 = 5;
/// Allocations freed within so many ops of their phase are scratch.
const BRIEF: usize = 64;
/// The program of both recordings; `None` if they have different steps.
pub(super) fn aligned(small: &Recorded, large: &Recorded, batches: [u64; 2]) -> Option<Program> {
    let pairs = Pairs { small, large, batches }.all()?;
    let size = |(large, pair): (&Allocation, &Option<usize>)| {
        let smaller = pair.map_or(large.bytes, |id| small.allocations[id].bytes);
        Size::plain([smaller, large.bytes])
    };
    let sizes: Vec<_> = large.allocations.iter().zip(&pairs).map(size).collect();
    let deaths = deaths(&large.ops);
    let mut noise = HashSet::new();
    let [mut bytes, mut unpaired] = [0; 2];
    for (place, op) in large.ops.iter().enumerate() {
        let Op::Allocate(id) = *op else { continue };
        let size = large.allocations[id].bytes;
        // The scratch of a thread that happened to take more of the work; what a backward pass frees of a forward one is none.
        let is_in_phase = |death: usize| !large.ops[place..death].iter().any(|op| matches!(op, Op::Enter(_)));
        let is_brief = |death: &usize| *death < place + BRIEF && is_in_phase(*death);
        if pairs[id].is_none() && deaths.get(&id).is_some_and(is_brief) {
            noise.insert(id);
            continue;
        }
        bytes += size;
        unpaired += if pairs[id].is_none() { size } else { 0 };
    }
    let mut ops = large.ops.clone();
    ops.retain(|op| !op.is_of(&noise));
    let program = Program { ops, sizes, made: large.allocations.clone(), persistent: HashSet::new(), batches };
    (unpaired <= bytes / 1000 * MOST_UNPAIRED_PER_MILLE).then_some(program)
}

struct Pairs<'r> {
    small: &'r Recorded,
    large: &'r Recorded,
    batches: [u64; 2],
}

impl Pairs<'_> {
    /// For each allocation of the larger run its partner of the smaller; `None` when they differ in phases.
    fn all(&self) -> Option<Vec<Option<usize>>> {
        let [small, large] = [self.small, self.large].map(|run| phases(&run.ops).collect::<Vec<_>>());
        let is_same = small.iter().map(|ops| ops.first()).eq(large.iter().map(|ops| ops.first()));
        let mut pairs = vec![None; self.large.allocations.len()];
        for (small, large) in small.into_iter().zip(large) {
            let [small, large] = [small, large].map(|ops| ops.iter().filter_map(Op::allocated).collect::<Vec<_>>());
            self.phase(&small, &large, &mut pairs);
        }
        is_same.then_some(pairs)
    }

    fn phase(&self, mut small: &[usize], mut large: &[usize], pairs: &mut [Option<usize>]) {
        while let ([first, small_rest @ ..], [second, large_rest @ ..]) = (small, large) {
            if self.fits(*first, *second) {
                pairs[*second] = Some(*first);
                (small, large) = (small_rest, large_rest);
            } else if let Some((skip, skip_large)) = self.resumption(small, large) {
                (small, large) = (&small[skip..], &large[skip_large..]);
            } else {
                return;
            }
        }
    }

    // The shortest way on: how many to leave out of either.
    fn resumption(&self, small: &[usize], large: &[usize]) -> Option<(usize, usize)> {
        let resumes = |&(skip, skip_large): &(usize, usize)| {
            let (Some(small), Some(large)) = (small.get(skip..), large.get(skip_large..)) else { return false };
            let count = RESUME.min(small.len()).min(large.len());
            count > 0 && small.iter().zip(large).take(count).all(|(small, large)| self.fits(*small, *large))
        };
        let mut ways = (1..FURTHEST).flat_map(|both| (0..=both).map(move |skip| (skip, both - skip)));
        ways.find(resumes)
    }

    // Not smaller at the larger micro-batch, and no more than in proportion larger.
    fn fits(&self, small: usize, large: usize) -> bool {
        let [small, large] = [self.small.allocations[small], self.large.allocations[large]];
        let [from, to] = self.batches;
        small.bytes <= large.bytes && large.bytes <= small.bytes * to / from
    }
}

/// Shapes of all parameters of numbers, in the order in which the model names them.
pub(super) fn shapes<M: Module>(model: &M) -> Vec<Vec<u64>> {
    let mut shapes = Shapes(Vec::new());
    model.visit(&mut shapes);
    shapes.0
}

/// Gives every parameter its first values.
pub(super) fn values<M: Module>(model: &M) {
    model.visit(&mut Values);
}

/// The size on a GPU of a parameter that was just made.
pub(super) fn parameter_size(shape: &[u64]) -> Size {
    let row = shape.last().copied().unwrap_or(1).max(1);
    let rows = shape.iter().product::<u64>() / row;
    Size::rows([rows; 2], row)
}

struct Shapes(Vec<Vec<u64>>);

impl ModuleVisitor for Shapes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.push(param.lazy_shape().iter().map(|size| *size as u64).collect());
    }
}

struct Values;

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        param.val();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        param.val();
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        param.val();
    }
}
