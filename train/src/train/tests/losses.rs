//! Losses of a step: weights, errors before any update, and steps from which nothing is learned.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use networks::steps::{MeanLoss, Sequences, StepLoss, Tagger};

use super::{Batch, Network, OUT_OF_MEMORY, batch, device, furthest, parameters, sgd, trainer, values};
use crate::loss::{Loss, Weight, WeightFault};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Half, LossScale, MixedError};
use crate::train::{Step, StepError, Trainer};

/// Loss and number of targets.
fn counted(network: &Tagger, batch: Sequences) -> Loss {
    match StepLoss::Padding.mean(network, batch) {
        MeanLoss::Targets(mean, number) => (mean, number).into(),
        other => panic!("{other:?}"),
    }
}

/// Four sequences of six positions with so many targets.
fn sequences(targets: [usize; 4]) -> Sequences {
    let (inputs, _) = StepLoss::Padding.batch();
    let class = |sample: usize, at: usize| {
        if at < targets[sample] { 1 + i64::from((3 * sample + 2 * at) as u32 % 7) } else { 0 }
    };
    let classes: Vec<_> = (0..4).flat_map(|sample| (0..6).map(move |at| class(sample, at))).collect();
    (inputs.slice_dim(0, 0..4), Tensor::from_data(TensorData::new(classes, [4, 6]), &device()))
}

fn tagger() -> Tagger {
    Tagger::new(FloatDType::F32, &device())
}

fn new_trainer(micro_batch: usize) -> Trainer<Tagger> {
    Trainer::new(tagger(), sgd(), device(), micro_batch)
}

fn is_equal(step: &Step, (norm, loss): (f32, f32)) -> bool {
    step.applied && (step.gradient_norm / norm - 1.0).abs() < 1e-5 && (step.loss / loss - 1.0).abs() < 1e-5
}

#[test]
fn smaller_micro_batches_after_a_recovery_leave_later_steps_as_they_are() {
    let batches = || [[6, 1, 3, 1], [1, 1, 6, 0], [2, 5, 0, 6]].map(sequences);
    let (mut undisturbed, mut disturbed) = (new_trainer(4), new_trainer(4).grow_after(1000));
    let weights = [11.0, 8.0, 13.0];
    for (number, batch) in batches().into_iter().enumerate() {
        let right = undisturbed.step(0.1, batch.clone(), counted).unwrap();
        let step = disturbed.step(0.1, batch, |model, micro: Sequences| {
            assert!(number == 0 || micro.len() == 1, "{OUT_OF_MEMORY}");
            counted(model, micro)
        });
        let step = step.unwrap();
        assert_eq!((step.micro_batches, step.rescues.len()), if number == 1 { (4, 2) } else { ([1, 0, 4][number], 0) });
        assert!(is_equal(&step, (right.gradient_norm, right.loss)), "{step:?}, not {right:?}");
        assert!((step.weight - weights[number]).abs() < f64::EPSILON, "{step:?}");
    }
    assert!(furthest(&parameters(disturbed.model()), &parameters(undisturbed.model())) < 1e-6);
}

/// Checks that a step with this loss is an error, changes nothing, and is not counted.
fn refused_step<L: Into<Loss>>(
    micro_batch: usize,
    samples: usize,
    loss: impl Fn(&Network, Batch) -> L + Sync,
) -> StepError {
    let (mut undisturbed, mut disturbed) = (trainer(micro_batch), trainer(micro_batch));
    undisturbed.step(0.1, batch(8, 0), Network::loss).unwrap();
    disturbed.step(0.1, batch(8, 0), Network::loss).unwrap();
    let error = disturbed.step(0.1, batch(samples, 1), loss).unwrap_err();
    assert_eq!(parameters(disturbed.model()), parameters(undisturbed.model()));
    // The momentum is that of before, too.
    let steps =
        [&mut undisturbed, &mut disturbed].map(|trainer| trainer.step(0.1, batch(8, 2), Network::loss).unwrap());
    assert_eq!(steps[0], steps[1]);
    assert_eq!(parameters(disturbed.model()), parameters(undisturbed.model()));
    error
}

/// Loss of each sample, of shape `[samples]`.
fn per_sample(model: &Network, batch: Batch) -> Tensor<1> {
    let samples = batch.0.dims()[0];
    model.loss(batch).repeat_dim(0, samples)
}

#[test]
fn one_loss_a_sample_is_an_error_with_the_number_of_values() {
    for (micro_batch, samples, values) in [(8, 8, 8), (4, 8, 4), (4, 7, 4), (2, 7, 2)] {
        let error = refused_step(micro_batch, samples, per_sample);
        assert!(matches!(error, StepError::LossShape { values: found } if found == values), "{error}");
        assert!(error.to_string().contains(&format!("{values} values")) && error.to_string().contains("`.mean()`"));
    }
    let error = refused_step(4, 7, |model, micro| (per_sample(model, micro), 1.0));
    assert!(matches!(error, StepError::LossShape { values: 4 }), "{error}");
}

#[test]
fn a_loss_of_one_sample_a_micro_batch_is_a_mean() {
    let [mut plain, mut each] = [trainer(8), trainer(1)];
    let right = plain.step(0.1, batch(8, 0), Network::loss).unwrap();
    let step = each.step(0.1, batch(8, 0), per_sample).unwrap();
    assert!(is_equal(&step, (right.gradient_norm, right.loss)), "{step:?}, not {right:?}");
}

#[test]
fn a_16_bit_loss_is_an_error_in_mixed_precision_unless_it_is_accepted() {
    let half_loss = |model: &Tagger, batch: Sequences| match StepLoss::Regression.mean(model, batch) {
        MeanLoss::Samples(mean) => mean.cast(FloatDType::BF16),
        other => panic!("{other:?}"),
    };
    let mut mixed = new_trainer(4).mixed(Half::Bf16).unwrap();
    let before = parameters(mixed.master());
    let error = mixed.step(0.1, StepLoss::Regression.batch(), half_loss).unwrap_err();
    assert!(matches!(&error, StepError::Mixed(MixedError::HalfLoss { loss: DType::BF16 })), "{error}");
    assert_eq!(parameters(mixed.master()), before);
    let mut accepting = new_trainer(4).mixed(Half::Bf16).unwrap().accept_half_loss();
    assert!(accepting.step(0.1, StepLoss::Regression.batch(), half_loss).unwrap().applied);
    // Parameters in 16 bits have losses in 16 bits.
    let model = Tagger::new(FloatDType::BF16, &device());
    let mut plain = Trainer::new(model, SgdConfig::new().init(), device(), 4);
    assert!(plain.step(0.1, StepLoss::Regression.batch(), half_loss).unwrap().applied);
}

#[test]
fn weights_that_cannot_be_used_are_errors() {
    let floats = |values: &'static [f32]| -> Weigh {
        Box::new(move |batch| Tensor::<1>::from_floats(values, &batch.0.device()).into())
    };
    let cases: [(usize, Weigh, &str); 9] = [
        (4, floats(&[-1.0]), "a weight of the loss is -1:"),
        (4, floats(&[f32::NAN]), "a weight of the loss is NaN:"),
        (4, floats(&[f32::INFINITY]), "a weight of the loss is inf:"),
        (4, floats(&[1.0, 2.0]), "the weight of the loss has 2 values"),
        (
            4,
            Box::new(|batch| Tensor::<1>::ones([1], &batch.0.device()).cast(FloatDType::BF16).into()),
            "the weight of the loss is in BF16",
        ),
        (4, Box::new(|batch| Tensor::<1, Int>::full([1], -3, &batch.0.device()).into()), "a weight of the loss is -3:"),
        (4, Box::new(|_| (-2.0).into()), "a weight of the loss is -2:"),
        (4, Box::new(|_| f64::NAN.into()), "a weight of the loss is NaN:"),
        // One negative weight that a larger one makes up for in the sum.
        (
            2,
            Box::new(|batch| (batch.0.clone().slice([0..1, 0..1]).reshape([1]).sign() * 2.0 + 1.0).into()),
            "a weight of the loss is -1:",
        ),
    ];
    assert!(values(1, 96).chunks(24).any(|micro| micro[0] < 0.0), "a micro-batch has a negative weight");
    for (micro_batch, weight, text) in cases {
        let error = refused_step(micro_batch, 8, |model, batch| {
            let weight = weight(&batch);
            Loss::new(model.loss(batch), weight)
        });
        assert!(matches!(error, StepError::Weight(_)) && error.to_string().contains(text), "{error}, without {text}");
    }
}

/// Weight of a micro-batch.
type Weigh = Box<dyn Fn(&Batch) -> Weight + Sync>;

#[test]
fn losses_with_and_without_weights_in_one_step_are_an_error() {
    for weighted_at in [8, 6] {
        let error = refused_step(5, 8, |model, batch: Batch| {
            let has_weight = (batch.len() == 5) == (weighted_at == 8);
            let mean = model.loss(batch);
            if has_weight { Loss::new(mean, 5.0) } else { mean.into() }
        });
        assert!(matches!(error, StepError::Weight(WeightFault::Missing)), "{error}");
    }
}

#[test]
fn a_learning_rate_that_is_not_finite_is_an_error_with_the_step() {
    for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut trainer = trainer(4);
        trainer.step(0.1, batch(8, 0), Network::loss).unwrap();
        let before = parameters(trainer.model());
        let error = trainer.step(rate, batch(8, 1), Network::loss).unwrap_err();
        let StepError::LearningRate { step: 2, rate: found } = error else { panic!("{error}") };
        assert_eq!(found.to_bits(), rate.to_bits());
        assert_eq!(parameters(trainer.model()), before);
    }
}

#[test]
fn a_parameter_of_two_modules_is_an_error_unless_a_copy_is_frozen() {
    #[derive(Module, Debug)]
    struct Pair {
        online: Linear,
        target: Linear,
    }
    let online = LinearConfig::new(4, 1).init(&device());
    let step = |target: Linear| {
        let pair = Pair { online: online.clone(), target };
        let loss = |pair: &Pair, input: Tensor<2>| {
            (pair.online.forward(input.clone()) - pair.target.forward(input)).square().mean()
        };
        Trainer::new(pair, sgd(), device(), 2).step(0.1, Tensor::<2>::ones([4, 4], &device()), loss)
    };
    let error = step(online.clone()).unwrap_err().to_string();
    for part in ["`online.weight` and `target.weight`", "`no_grad()`"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(step(online.clone().no_grad()).unwrap().applied);
}

/// Mean that is NaN with a weight of 0, as a tensor or a number.
fn nothing(is_number: bool) -> impl Fn(&Tagger, Sequences) -> Loss + Sync {
    move |model, batch| {
        let loss = counted(model, batch);
        if is_number { Loss::new(loss.mean().clone(), 0.0) } else { loss }
    }
}

#[test]
fn a_step_without_any_target_changes_nothing() {
    for is_number in [false, true] {
        for (half, micro_batch) in [(None, 4), (None, 2), (Some(Half::F16), 1)] {
            let new = || {
                let trainer = new_trainer(micro_batch).with_loss_scale(LossScale::default().with_init_scale(1024.0));
                match half {
                    Some(half) => trainer.mixed(half).unwrap(),
                    None => trainer,
                }
            };
            let (mut undisturbed, mut disturbed) = (new(), new());
            for trainer in [&mut undisturbed, &mut disturbed] {
                assert!(trainer.step(0.1, sequences([6, 1, 3, 1]), counted).unwrap().applied);
            }
            let step = disturbed.step(0.1, sequences([0; 4]), nothing(is_number)).unwrap();
            assert!(!step.applied && step.weight == 0.0 && step.gradient_norm == 0.0, "{step:?}");
            assert_eq!(parameters(disturbed.master()), parameters(undisturbed.master()));
            assert_eq!(disturbed.loss_scale(), undisturbed.loss_scale());
            // The momentum is that of before, too.
            for trainer in [&mut undisturbed, &mut disturbed] {
                assert!(trainer.step(0.1, sequences([2, 5, 0, 6]), counted).unwrap().applied);
            }
            assert_eq!(parameters(disturbed.master()), parameters(undisturbed.master()));
        }
    }
}

#[test]
#[ignore = "started by another test, which reads its warnings"]
fn skips_every_second_step() {
    let mut trainer = trainer(8);
    for step in 0..400 {
        let factor = if step % 2 == 1 { f32::NAN } else { 1.0 };
        let taken = trainer.step(1e-3, batch(8, step), |model, batch| model.loss(batch).mul_scalar(factor)).unwrap();
        assert_eq!(taken.applied, step % 2 == 0);
    }
}

#[test]
fn skipped_steps_are_reported_once_a_minute_with_the_parameter() {
    let output = own_process::run(&mut own_process::command(skips_every_second_step));
    let text = String::from_utf8_lossy(&output.stderr);
    let reports: Vec<_> = text.lines().filter(|line| line.contains("steps were skipped")).collect();
    assert!(reports.len() == 1 && reports[0].contains("step 6") && reports[0].contains("`first.weight`"), "{text}");
}

/// Sets parameters to zero.
struct Zero;

impl ModuleMapper for Zero {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| old.zeros_like().detach().require_grad())
    }
}

#[test]
#[ignore = "started by another test, which reads its warnings"]
fn trains_without_weights() {
    // All losses are equal in the first step, so their weights make no difference.
    let mut trainer = Trainer::new(tagger().map(&mut Zero), sgd(), device(), 4);
    for _ in 0..10 {
        let mean = |model: &Tagger, batch: Sequences| counted(model, batch).mean().clone();
        trainer.step(1.0, sequences([6, 1, 3, 1]), mean).unwrap();
    }
}

#[test]
fn a_mean_without_its_weight_is_warned_of_once_when_losses_differ() {
    let output = own_process::run(&mut own_process::command(trains_without_weights));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.matches("mean of the losses of their halves").count(), 1, "{text}");
}
