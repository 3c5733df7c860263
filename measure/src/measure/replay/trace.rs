//! Recording what optimizer steps allocate on the CPU.

use std::collections::{HashMap, HashSet};

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use gpu_tuned_train::allocation::log::{self, Event};
use gpu_tuned_train::train::{accumulate, in_parameter_types};

use super::parameters::values;
use super::program::{Allocation, Op, Phase, Recorded, deaths};
use crate::measure::pass::Pass;
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
        recorded.drop_tiles();
        recorded
    }

    /// End of a convolution that begins with three zeroed vectors at a place: copies of weight and input, freed one
    /// right after the other, and the output.
    pub(super) fn end_of_convolution(
        ops: &[Op],
        place: usize,
        is_zeros: impl Fn(usize) -> bool,
        deaths: &HashMap<usize, usize>,
    ) -> Option<(usize, [usize; 3])> {
        let [Op::Allocate(weight), Op::Allocate(input), Op::Allocate(output), ..] = ops[place..] else { return None };
        let end = *deaths.get(&weight)?;
        let is_convolution =
            [weight, input, output].into_iter().all(is_zeros) && deaths.get(&input).is_some_and(|died| died + 1 == end);
        is_convolution.then_some((end, [weight, input, output]))
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

    // Threads share the work of a convolution in tiles, and chance has it how many fall to this one.
    fn drop_tiles(&mut self) {
        let deaths = deaths(&self.ops);
        let is_zeros = |id: usize| self.allocations[id].is_zeros();
        let mut tiles = HashSet::new();
        for place in 0..self.ops.len() {
            if let Some((end, _)) = Self::end_of_convolution(&self.ops, place, is_zeros, &deaths) {
                let made = self.ops[place + 3..end].iter().filter_map(Op::allocated);
                tiles.extend(made.filter(|id| deaths.get(id).is_some_and(|death| *death < end)));
            }
        }
        self.ops.retain(|op| !op.is_of(&tiles));
    }
}
