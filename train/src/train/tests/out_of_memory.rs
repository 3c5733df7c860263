//! Steps in which memory runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use burn::tensor::Tensor;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use gpu_tuned_core::workload::Mlp;
use gpu_tuned_core::{Bytes, Goal};

use super::{Batch, Network, OUT_OF_MEMORY, Starved, batch, device, furthest, parameters, sgd, trained, trainer};
use crate::micro_batch::MicroBatch;
use crate::out_of_memory::{Moment, OutOfMemory};
use crate::train::rescue::Replanning;
use crate::train::stepper::Stepper;
use crate::train::{StepError, Trainer};

#[test]
fn memory_that_runs_out_in_a_small_batch_is_no_reason_to_try_it_again_as_it_is() {
    let mut trainer = trainer(64).grow_after(1000);
    let tried = AtomicUsize::new(0);
    let step = trainer.step(0.1, batch(8, 0), |model, micro| {
        tried.fetch_add(1, Ordering::Relaxed);
        assert!(micro.len() <= 4, "{OUT_OF_MEMORY}");
        model.loss(micro)
    });
    let step = step.unwrap();
    let rescues: Vec<_> = step.rescues.iter().map(|rescue| (rescue.from, rescue.to)).collect();
    // Three times in the step, and four times to check the gradients of halves.
    assert_eq!((rescues, tried.into_inner(), trainer.micro_batch()), (vec![(8, 4)], 3 + 4, 4));
}

/// A loss that has no memory the first so many times it is called.
fn failing(times: usize) -> impl Fn(&Network, Batch) -> Tensor<1> + Sync {
    let left = AtomicUsize::new(times);
    move |model, batch| {
        let loss = model.loss(batch);
        let is_left = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        assert!(!is_left, "{OUT_OF_MEMORY}");
        loss
    }
}

#[test]
fn memory_that_runs_out_changes_nothing_but_the_size_of_micro_batches() {
    let (mut undisturbed, mut disturbed) = (trainer(128), trainer(128));
    trained(&mut undisturbed, 3);
    trained(&mut disturbed, 2);
    let step = disturbed.step(0.1, batch(512, 2), failing(2)).unwrap();
    let sizes: Vec<_> = step.rescues.iter().map(|rescue| (rescue.moment, rescue.from, rescue.to)).collect();
    assert_eq!(sizes, [(Moment::Forward, 128, 64), (Moment::Forward, 64, 32)]);
    assert_eq!((step.samples, step.micro_batches, step.micro_batch), (512, 16, 32));
    let apart = furthest(&parameters(disturbed.model()), &parameters(undisturbed.model()));
    assert!(apart < 1e-5, "{apart}");
}

#[test]
fn running_statistics_know_nothing_of_steps_that_failed() {
    let new = |micro_batch| Trainer::new(Network::new(&device(), true), sgd(), device(), micro_batch);
    // Statistics are those of micro-batches: it has to be cut into the same ones in the end.
    let (mut undisturbed, mut disturbed) = (new(32), new(64));
    disturbed.step(0.1, batch(64, 0), failing(1)).unwrap();
    undisturbed.step(0.1, batch(64, 0), Network::loss).unwrap();
    assert_eq!(parameters(&disturbed.model().valid()), parameters(&undisturbed.model().valid()));
}

#[test]
fn larger_micro_batches_come_back() {
    let mut trainer = trainer(128).grow_after(3);
    trainer.step(0.1, batch(512, 0), failing(1)).unwrap();
    let sizes: Vec<_> = trained(&mut trainer, 8).into_iter().map(|step| step.micro_batch).collect();
    assert_eq!((sizes[0], sizes[7]), (64, 128));
}

/// Planner for a GPU with so many MiB left.
fn left(mib: u64) -> Replanning {
    Replanning {
        facts: DeviceFacts::nominal(ProfileTable::builtin().get(ProfileId::GENERIC).unwrap()),
        workload: Mlp { widths: vec![12, 16, 5] }.workload(),
        goal: Goal { global_batch: Some(8), ..Goal::default() },
        memory: Arc::new(move || Some(Bytes::from_mib(mib))),
    }
}

#[test]
fn what_never_fits_is_an_itemised_error_and_the_model_is_as_it_was() {
    for (mib, text) in [(100, "does not fit"), (8000, "the plan predicts that they fit")] {
        let mut stepper = Stepper::new(device(), 4);
        stepper.planner = Some(left(mib));
        let mut trainer = Trainer::with_stepper(Network::new(&device(), false), sgd(), stepper);
        let before = parameters(trainer.model());
        let error = trainer.step(0.1, batch(8, 0), failing(usize::MAX)).unwrap_err();
        let StepError::DoesNotFit { moment: Moment::Forward, micro_batch: 1, memory: Some(memory), .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*memory, Bytes::from_mib(mib));
        for part in [OUT_OF_MEMORY, text, "device context", "= needed", "available"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        assert_eq!(parameters(trainer.model()), before);
        trainer.step(0.1, batch(8, 0), Network::loss).unwrap();
    }
}

#[test]
fn that_statistics_are_those_of_fewer_samples_is_told_once() {
    let mut stepper = Stepper::new(device(), 64);
    stepper.warns_of_statistics = true;
    let failure = || OutOfMemory { moment: Moment::Forward, message: OUT_OF_MEMORY.to_owned() };
    stepper.rescue(failure(), 64, false).unwrap();
    assert!(!stepper.warns_of_statistics);
}

fn starved(fails: std::ops::Range<usize>) -> Trainer<Network> {
    Trainer::new(Network::new(&device(), false), Starved::new(fails).into(), device(), 64)
}

#[test]
fn a_step_that_fails_in_the_optimizer_does_not_happen_in_part() {
    let mut undisturbed = starved(0..0);
    // The third of four parameters of the second step.
    let mut disturbed = starved(6..7);
    for trainer in [&mut undisturbed, &mut disturbed] {
        trained(trainer, 1);
    }
    undisturbed.step(0.1, batch(64, 9), Network::loss).unwrap();
    let step = disturbed.step(0.1, batch(64, 9), Network::loss).unwrap();
    assert_eq!(step.rescues[0].moment, Moment::Optimizer);
    let apart = furthest(&parameters(disturbed.model()), &parameters(undisturbed.model()));
    assert!(apart < 1e-6, "{apart}");
}

#[test]
fn groups_of_parameters_are_changed_to_the_same_and_tried_again_each() {
    let mut whole = starved(0..0);
    let mut grouped = starved(2..4).hold_twice(Bytes(64));
    for seed in 0..3 {
        whole.step(0.1, batch(64, seed), Network::loss).unwrap();
        let step = grouped.step(0.1, batch(64, seed), Network::loss).unwrap();
        assert!(step.applied && step.rescues.is_empty());
    }
    assert_eq!(parameters(grouped.model()), parameters(whole.model()));
    let error = starved(1..usize::MAX).hold_twice(Bytes(64)).step(0.1, batch(8, 0), Network::loss).unwrap_err();
    assert!(matches!(error, StepError::Torn { done: 1, all: 4, .. }), "{error}");
}

#[test]
fn a_step_whose_loss_is_over_the_whole_batch_is_not_cut() {
    let mut trainer = trainer(8);
    trainer.stepper.whole_batch = true;
    let before = parameters(trainer.model());
    let error = trainer.step(0.1, batch(9, 0), Network::loss).unwrap_err();
    assert!(matches!(error, StepError::WholeBatch { samples: 9, micro_batch: 8 }), "{error}");
    let error = trainer.step(0.1, batch(8, 0), failing(1)).unwrap_err();
    assert!(matches!(error, StepError::DoesNotFit { moment: Moment::Forward, micro_batch: 8, .. }), "{error}");
    assert_eq!(parameters(trainer.model()), before);
    assert!(trainer.step(0.1, batch(8, 0), Network::loss).unwrap().applied);
}
