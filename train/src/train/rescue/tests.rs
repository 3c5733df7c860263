//! Optimizers that have no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, TensorReadError};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::plan;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal};
use proptest::prelude::*;

use super::{AdaptiveSize, with_free_micro_batch};
use crate::mixed::{Half, Master};
use crate::out_of_memory::{Moment, OutOfMemory};
use crate::shape::visit_floats;
use crate::train::accumulation::MicroBatchGradients;
use crate::train::graph::SharedGraphs;
use crate::train::outcome::StepFailure;
use crate::train::ranks::GradientSums;
use crate::train::stepper::Stepper;
use crate::train::tests::{Batch, Network, OUT_OF_MEMORY, batch, parameters, sgd};
use crate::train::trainer::{ModelAndOptimizer, ModelWeights};
use crate::train::update::{Sizes, Weights, update_in_groups};
use crate::train::{Step, StepError};

/// Values of the network's parameters: of all, and of the largest.
const ALL: usize = 12 * 16 + 16 + 16 * 5 + 5;
const LARGEST: usize = 12 * 16;
/// Bytes allocated twice for a value.
const HELD_BYTES: u64 = 16;

/// Weights of which only so many values can be changed at a time.
#[derive(Clone)]
struct Hungry {
    inner: ModelAndOptimizer<Network>,
    most: Arc<AtomicUsize>,
    /// Values that a recording takes up.
    recorded: Arc<AtomicUsize>,
    /// Updates that were tried.
    tried: Arc<AtomicUsize>,
}

impl Hungry {
    fn new(half: Option<Half>, most: usize) -> Self {
        let model = Network::new(&Device::flex().autodiff(), false);
        let weights = match half {
            Some(half) => ModelWeights::mixed(Master::new(model, half).unwrap()),
            None => ModelWeights::Plain(model),
        };
        let graphs = SharedGraphs::new(&Device::flex().autodiff());
        let inner = ModelAndOptimizer { weights, optimizer: sgd(), learning_rate: 0.1, graphs };
        Self { inner, most: Arc::new(AtomicUsize::new(most)), recorded: Arc::default(), tried: Arc::default() }
    }

    fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }
}

impl Weights for Hungry {
    type Model = Network;

    fn model(&self) -> Network {
        self.inner.model()
    }

    fn master(&self) -> Network {
        self.inner.master()
    }

    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let state = (&gradients, self.recorded.load(Ordering::Relaxed));
        let (_, taken) =
            visit_floats!(self.master(), (gradients, taken) = state, (&'v GradientsParams, usize), |param| {
                *taken += gradients.get::<D>(param.id).map_or(0, |gradient| gradient.shape().num_elements());
            });
        assert!(taken <= self.most.load(Ordering::Relaxed), "{OUT_OF_MEMORY}");
        Self { inner: self.inner.updated(gradients, group), ..self.clone() }
    }

    fn replaced(&self, values: GradientsParams) -> Self {
        Self { inner: self.inner.replaced(values), ..self.clone() }
    }

    fn learning_rate(&self) -> f64 {
        self.inner.learning_rate()
    }

    fn is_mixed(&self) -> bool {
        self.inner.is_mixed()
    }

    fn release(&self) -> bool {
        self.recorded.swap(0, Ordering::Relaxed) > 0
    }
}

fn stepper(micro_batch: usize) -> Stepper {
    Stepper::new(Device::flex().autodiff(), micro_batch)
}

fn step(stepper: &mut Stepper, weights: &mut Hungry, batch: &Batch) -> Result<Step, StepError> {
    let is_mixed = weights.inner.weights.is_mixed();
    let part = |model: &Network, micro: Batch, share: f64, _: Option<&GradientSums>| {
        let micro = if is_mixed { (micro.0.cast(Half::Bf16.float()), micro.1) } else { micro };
        let loss = crate::mixed::in_f32(model.loss(micro)).mul_scalar(share);
        let value = loss.clone().without_autodiff();
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        Ok((MicroBatchGradients { gradients, loss: Some(value), weight: None, output: () }, 1.0))
    };
    stepper.step(weights, true, batch, part).map(|(step, _)| step)
}

/// Moment, sizes of micro-batches, and bytes allocated twice.
fn reported(step: &Step) -> Vec<(Moment, usize, usize, Option<u64>)> {
    let reported = |rescue: &crate::train::Rescue| {
        (rescue.moment, rescue.from, rescue.to, rescue.held_twice.map(|Bytes(bytes)| bytes))
    };
    step.rescues.iter().map(reported).collect()
}

#[test]
fn where_not_all_parameters_can_be_changed_at_once_they_are_in_groups_and_to_the_same() {
    for half in [None, Some(Half::Bf16)] {
        let (mut free, mut hungry) = (Hungry::new(half, ALL), Hungry::new(half, LARGEST));
        let (mut undisturbed, mut disturbed) = (stepper(64), stepper(64));
        let least = LARGEST as u64 * HELD_BYTES;
        for seed in 0..4 {
            let batch = batch(64, seed);
            let expected = step(&mut undisturbed, &mut free, &batch).unwrap();
            let found = step(&mut disturbed, &mut hungry, &batch).unwrap();
            let rescues = if seed == 0 { vec![(Moment::Optimizer, 64, 64, Some(least))] } else { vec![] };
            assert_eq!(reported(&found), rescues, "of step {seed}");
            assert_eq!((found.loss, found.gradient_norm), (expected.loss, expected.gradient_norm));
        }
        assert_eq!(parameters(&hungry.master()), parameters(&free.master()));
        assert_eq!(parameters(&hungry.model()), parameters(&free.model()));
        // Once at once, once in two groups each step.
        assert_eq!((free.tried.load(Ordering::Relaxed), hungry.tried.load(Ordering::Relaxed)), (4, 1 + 4 * 2));
    }
}

#[test]
fn a_micro_batch_of_one_sample_is_no_obstacle_and_smaller_ones_are_not_needed() {
    let (mut free, mut hungry) = (Hungry::new(None, ALL), Hungry::new(None, LARGEST));
    let found = step(&mut stepper(1), &mut hungry, &batch(5, 0)).unwrap();
    step(&mut stepper(1), &mut free, &batch(5, 0)).unwrap();
    assert_eq!(reported(&found), [(Moment::Optimizer, 1, 1, Some(LARGEST as u64 * HELD_BYTES))]);
    assert_eq!((found.micro_batch, found.micro_batches, found.samples), (1, 5, 5));
    assert_eq!(parameters(&hungry.master()), parameters(&free.master()));
}

#[test]
fn a_recording_is_dropped_before_anything_shrinks() {
    let (mut free, mut hungry) = (Hungry::new(None, ALL), Hungry::new(None, ALL));
    hungry.recorded.store(1, Ordering::Relaxed);
    let (mut undisturbed, mut disturbed) = (stepper(64), stepper(64));
    let expected = step(&mut undisturbed, &mut free, &batch(128, 0)).unwrap();
    let found = step(&mut disturbed, &mut hungry, &batch(128, 0)).unwrap();
    assert_eq!(reported(&found), [(Moment::Optimizer, 64, 64, None)]);
    assert_eq!((found.loss.to_bits(), found.micro_batches), (expected.loss.to_bits(), 2));
    assert_eq!(parameters(&hungry.master()), parameters(&free.master()));
    assert!(step(&mut disturbed, &mut hungry, &batch(128, 1)).unwrap().rescues.is_empty());
}

#[test]
fn all_parameters_are_changed_at_once_again_after_a_quiet_interval() {
    let mut hungry = Hungry::new(None, LARGEST);
    let mut stepper = stepper(8);
    stepper.group_bytes = stepper.group_bytes.with_patience(2);
    let groups = |hungry: &mut Hungry, stepper: &mut Stepper| {
        let before = hungry.tried.load(Ordering::Relaxed);
        let rescues = step(stepper, hungry, &batch(8, 0)).unwrap().rescues.len();
        (hungry.tried.load(Ordering::Relaxed) - before, rescues)
    };
    assert_eq!(groups(&mut hungry, &mut stepper), (3, 1));
    // It is tried and fails, and is waited for twice as long each time.
    let tried: Vec<_> = (0..12).map(|_| groups(&mut hungry, &mut stepper)).collect();
    let failed: Vec<_> = tried.iter().enumerate().filter(|(_, (_, rescues))| *rescues > 0).map(|(at, _)| at).collect();
    assert!(failed == [3, 11] && tried.iter().all(|groups| matches!(groups, (2, 0) | (3, 1))), "{tried:?}");
    hungry.set_most(ALL);
    let tried: Vec<_> = (0..20).map(|_| groups(&mut hungry, &mut stepper)).collect();
    assert_eq!((tried[0], tried[19]), ((2, 0), (1, 0)), "{tried:?}");
}

#[test]
fn parameters_are_tried_again_long_before_micro_batches() {
    let (mut hungry, mut stepper) = (Hungry::new(None, LARGEST), stepper(8));
    assert_eq!(step(&mut stepper, &mut hungry, &batch(8, 0)).unwrap().rescues.len(), 1);
    hungry.set_most(ALL);
    let later: Vec<_> = (0..50).map(|seed| step(&mut stepper, &mut hungry, &batch(8, seed)).unwrap()).collect();
    assert!(later.iter().all(|step| step.rescues.is_empty()));
    let before = hungry.tried.load(Ordering::Relaxed);
    step(&mut stepper, &mut hungry, &batch(8, 0)).unwrap();
    assert_eq!(hungry.tried.load(Ordering::Relaxed) - before, 1, "in one group");
}

#[test]
fn groups_are_halved_where_they_are_too_large_still() {
    let mut hungry = Hungry::new(None, LARGEST);
    let mut stepper = stepper(8);
    // As much as all but the last of them.
    stepper.group_bytes = stepper.group_bytes.with_planned((ALL as u64 - 1) * HELD_BYTES);
    let found = step(&mut stepper, &mut hungry, &batch(8, 0)).unwrap();
    assert_eq!(reported(&found), [(Moment::Optimizer, 8, 8, Some(LARGEST as u64 * HELD_BYTES))]);
    let mut free = Hungry::new(None, ALL);
    step(&mut self::stepper(8), &mut free, &batch(8, 0)).unwrap();
    assert_eq!(parameters(&hungry.master()), parameters(&free.master()));
    // The next step starts with the smaller size.
    assert_eq!(reported(&step(&mut stepper, &mut hungry, &batch(8, 1)).unwrap()), []);
}

#[test]
fn where_not_even_one_parameter_can_be_changed_it_ends_and_nothing_was_changed() {
    let mut hungry = Hungry::new(None, 4);
    let before = parameters(&hungry.master());
    let mut stepper = stepper(8);
    let error = step(&mut stepper, &mut hungry, &batch(8, 0)).unwrap_err();
    assert!(matches!(error, StepError::DoesNotFit { moment: Moment::Optimizer, micro_batch: 8, .. }), "{error}");
    assert_eq!(parameters(&hungry.master()), before);
    hungry.set_most(ALL);
    assert!(step(&mut stepper, &mut hungry, &batch(8, 0)).unwrap().applied);
}

#[test]
fn whatever_ends_it_once_a_group_was_changed_leaves_the_model_torn() {
    for changed_before in [0, 1] {
        let mut hungry = Hungry::new(None, ALL);
        let all = [hungry.master().first.weight.id, hungry.master().last.weight.id];
        let done = AtomicUsize::new(0);
        let changed = |weights: &Hungry, _: &[ParamId]| {
            if done.fetch_add(1, Ordering::Relaxed) < changed_before {
                return Ok(weights.clone());
            }
            Err(StepError::Device(TensorReadError::InvalidShape { expected: 1, actual: 0 }).into())
        };
        let error = update_in_groups(&mut hungry, all.map(|id| vec![id]).to_vec(), changed, || ()).unwrap_err();
        let StepFailure::Error(error) = error else { panic!("memory did not run out") };
        match changed_before {
            0 => assert!(matches!(error, StepError::Device(_)), "{error}"),
            _ => assert!(matches!(error, StepError::Torn { done: 1, all: 2, .. }), "{error}"),
        }
    }
}

#[test]
fn rescues_come_to_an_end_whatever_runs_out_of_memory() {
    for (moment, from, trials) in [(Moment::Forward, 8, 3), (Moment::Optimizer, 8, 5), (Moment::Step, 8, 3 + 5)] {
        let mut stepper = stepper(from);
        stepper.sizes = Some(Sizes { all: 1000, largest: 40 });
        let failure = || OutOfMemory { moment, message: OUT_OF_MEMORY.to_owned() };
        let rescues: Vec<_> = std::iter::from_fn(|| stepper.rescue(failure(), 100, false).ok()).take(100).collect();
        assert_eq!(rescues.len(), trials, "{rescues:?}");
        let held: Vec<_> = rescues.iter().filter_map(|rescue| rescue.held_twice).collect();
        let expected = if moment == Moment::Forward { vec![] } else { [2000, 1000, 500, 250, 160].map(Bytes).to_vec() };
        assert_eq!(held, expected);
        let of_micro_batches = rescues.iter().filter(|rescue| rescue.to < rescue.from).count();
        assert_eq!(of_micro_batches, trials - held.len());
    }
}

/// Sizes to which it shrinks, one after the other.
fn shrunk(size: &mut AdaptiveSize) -> Vec<u64> {
    std::iter::from_fn(|| size.shrink(u64::MAX, None)).collect()
}

#[test]
fn it_shrinks_by_half_or_to_a_plan_and_grows_within_its_limits() {
    assert_eq!(shrunk(&mut AdaptiveSize::new(12)), [6, 3, 1]);
    for (planned_anew, expected) in [(10, 10), (60, 32), (0, 1)] {
        assert_eq!(AdaptiveSize::new(64).shrink(u64::MAX, Some(planned_anew)), Some(expected));
    }
    // Less was used than may be: it is patient once.
    let mut size = AdaptiveSize::new(64).with_patience(3);
    assert_eq!((size.shrink(8, None), size.shrink(1, None)), (Some(4), None));
    let grown: Vec<_> = (0..100).filter_map(|step| Some((step, size.grow()?))).collect();
    assert_eq!(grown, [(5, 8), (11, 16), (17, 32), (23, 64)]);
    // Without a plan: 100 bytes in all, of which 30 cannot be split.
    let mut size = AdaptiveSize::new(u64::MAX).with_patience(1);
    size.limit(30, 100);
    assert_eq!(shrunk(&mut size), [50, 30]);
    assert_eq!((0..2000).filter_map(|_| size.grow()).collect::<Vec<_>>(), [60, 100]);
    // What was planned is less than any part.
    let mut size = AdaptiveSize::new(20);
    size.limit(30, 100);
    assert_eq!((size.now(), size.shrink(u64::MAX, None)), (20, None));
}

#[test]
fn it_grows_back_after_a_quiet_interval_and_waits_longer_when_that_fails() {
    let mut size = AdaptiveSize::new(8).with_patience(3);
    size.shrink(u64::MAX, None);
    let waits = |size: &mut AdaptiveSize| (1..100).find(|_| size.grow().is_some()).unwrap();
    let first = waits(&mut size);
    assert_eq!(size.now(), 8);
    size.shrink(u64::MAX, None);
    let second = waits(&mut size);
    assert!(second > first, "{first}, then {second}");
    let mut replanned = size.with_planned(16);
    replanned.shrink(u64::MAX, None);
    assert!(waits(&mut replanned) >= second);
}

proptest! {
    #[test]
    fn it_is_never_larger_than_planned_nor_empty(planned in 1..5000_u64, fails in prop::collection::vec(any::<bool>(), 0..300)) {
        let mut size = AdaptiveSize::new(planned).with_patience(2);
        for fails in fails {
            let _ = if fails { size.shrink(u64::MAX, None) } else { size.grow() };
            prop_assert!((1..=planned).contains(&size.now()));
        }
    }
}

#[test]
fn the_micro_batch_shrinks_and_the_memory_headroom_stays() {
    let facts = DeviceFacts::nominal(ProfileTable::builtin().get("h200").unwrap());
    let little = DeviceFacts { memory_available: Bytes::from_mib(9000), ..facts.clone() };
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    let sizes = [0.0, 0.1, 0.5].map(|memory_headroom| {
        let mut goal = Goal { global_batch: Some(256), memory_headroom, prefetch_mib: 16, ..Goal::default() };
        goal.pins.batch_size = Some(256);
        let planned = plan(&facts, &workload, &goal).unwrap();
        let smaller = plan(&little, &workload, &with_free_micro_batch(&goal, &planned)).unwrap();
        assert_eq!(smaller.schedule.global_batch, 256);
        assert!(smaller.memory.total() <= Bytes::from_mib(9000).scaled(1.0 - memory_headroom));
        smaller.settings.batch_size
    });
    assert!(sizes[0] > sizes[1] && sizes[1] > sizes[2] && sizes[2] < 256, "{sizes:?}");
}
