//! Steps of Burn's loop in fp32: their gradients, and losses that are errors.

use std::sync::{Arc, Mutex};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::optim::SgdConfig;
use burn::tensor::{Device, FloatDType, Int, Tensor};
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, LearnerModel, LearningResult, SupervisedTraining, TrainOutput,
    TrainStep, TrainingStrategy,
};
use gpu_tuned_core::{Precision, Provenance};
use networks::steps::{MICRO_BATCHES, MeanLoss, RATE, SAMPLES, Sequences, StepLoss, Tagger, limit};
use networks::{relative_l2, values};

use super::{PlannedSteps, device};
use crate::loss::Weight;
use crate::mixed::Half;
use crate::train::Weighted;
use crate::train::metrics::StepHistory;
use crate::train::recipe::Recipe;
use crate::train::strategy::BatchCheck;

/// Batches of the step's samples, from their numbers.
struct Samples(StepLoss);

impl Batcher<usize, Sequences> for Samples {
    fn batch(&self, samples: Vec<usize>, device: &Device) -> Sequences {
        let (inputs, classes) = self.0.batch();
        let numbers: Vec<_> = samples.into_iter().map(|sample| i64::from(sample as u32)).collect();
        let numbers = Tensor::<1, Int>::from_data(numbers.as_slice(), &inputs.device());
        (inputs.select(0, numbers.clone()).to_device(device), classes.select(0, numbers).to_device(device))
    }
}

/// Output of a training step without logits.
fn output(mean: Tensor<1>) -> ClassificationOutput {
    let device = mean.device();
    ClassificationOutput::new(mean, Tensor::zeros([1, 1], &device), Tensor::zeros([1], &device))
}

/// Implements the steps of a model in Burn's loop.
macro_rules! in_burns_loop {
    ($model:ident, $output:ty, |$own:ident, $batch:ident| $step:expr) => {
        impl TrainStep for $model {
            type Input = Sequences;
            type Output = $output;

            fn step(&self, $batch: Sequences) -> TrainOutput<$output> {
                let $own = self;
                let (mean, output) = $step;
                TrainOutput::new(self, mean.backward(), output)
            }
        }

        impl InferenceStep for $model {
            type Input = Sequences;
            type Output = ClassificationOutput;

            fn step(&self, (input, _): Sequences) -> ClassificationOutput {
                output(Tensor::zeros([1], &input.device()))
            }
        }
    };
}

/// Network with a mean over samples.
#[derive(Module, Debug)]
struct Mean {
    tagger: Tagger,
    #[module(skip)]
    kind: StepLoss,
}

in_burns_loop!(Mean, ClassificationOutput, |own, batch| match own.kind.mean(&own.tagger, batch) {
    MeanLoss::Samples(mean) => (mean.clone(), output(mean)),
    other => panic!("{other:?} has a weight"),
});

/// Network with a mean and its weight.
#[derive(Module, Debug)]
struct WithWeight {
    tagger: Tagger,
    #[module(skip)]
    kind: StepLoss,
}

in_burns_loop!(WithWeight, Weighted<ClassificationOutput>, |own, batch| {
    let (mean, weight) = match own.kind.mean(&own.tagger, batch) {
        MeanLoss::Targets(mean, number) => (mean, Weight::from(number)),
        MeanLoss::Classes(mean, weight) => (mean, weight.into()),
        MeanLoss::Number(mean, number) => (mean, number.into()),
        other => panic!("{other:?} has no weight here"),
    };
    (mean.clone(), Weighted::new(output(mean), weight))
});

/// Network whose loss is in bf16, or has as many values as samples.
#[derive(Module, Debug)]
struct Refused {
    tagger: Tagger,
    #[module(skip)]
    is_half: bool,
}

in_burns_loop!(Refused, ClassificationOutput, |own, batch| {
    let samples = batch.0.dims()[0];
    let MeanLoss::Samples(mean) = StepLoss::Regression.mean(&own.tagger, batch) else { panic!("a mean over samples") };
    let shown = mean.clone();
    (mean, output(if own.is_half { shown.cast(FloatDType::BF16) } else { shown.repeat_dim(0, samples) }))
});

/// Takes the step of a loss in Burn's loop, by plain descent.
fn trained<M>(rate: f64, model: M, kind: StepLoss, recipe: Recipe) -> LearningResult<M>
where
    M: LearnerModel + TrainStep<Input = Sequences> + InferenceStep<Input = Sequences>,
{
    let folder = tempfile::tempdir().unwrap();
    let loader = |device: Device| -> Arc<dyn DataLoader<Sequences>> {
        let all = InMemDataset::new((0..SAMPLES).collect());
        DataLoaderBuilder::new(Samples(kind)).batch_size(SAMPLES).set_device(device).build(all)
    };
    let strategy = TrainingStrategy::Custom(Arc::new(PlannedSteps {
        batch_check: BatchCheck { step: SAMPLES, micro_batch: SAMPLES, is_specified: true },
        recipe,
        eval_batch: SAMPLES as u64,
        parameters: (model.num_params() as u64, Provenance::Derived),
        history: StepHistory::default(),
        first_step: Mutex::new(None),
    }));
    let training = SupervisedTraining::new(folder.path(), loader(device()), loader(Device::flex()))
        .with_application_logger(None)
        .with_training_strategy(strategy)
        .num_epochs(1);
    training.launch(Learner::new(model, SgdConfig::new().init(), rate))
}

#[test]
fn steps_of_burns_loop_have_the_gradients_of_the_whole_batch() {
    let new = || Tagger::new(FloatDType::F32, &device());
    let before = values(&new());
    for kind in StepLoss::ALL.into_iter().filter(|kind| *kind != StepLoss::Chunked) {
        let whole = kind.whole();
        let differences = MICRO_BATCHES.map(|micro_batch| {
            let recipe = Recipe::new(device(), micro_batch);
            let after = if kind.has_weight() {
                let result = trained(RATE, WithWeight { tagger: new(), kind }, kind, recipe);
                assert!(result.error.is_none(), "{:?}", result.error);
                values(&result.model)
            } else {
                let result = trained(RATE, Mean { tagger: new(), kind }, kind, recipe);
                assert!(result.error.is_none(), "{:?}", result.error);
                values(&result.model)
            };
            let moved = before.iter().zip(&after).map(|(before, after)| f64::from(before - after) / RATE);
            relative_l2(&moved.collect::<Vec<_>>(), &whole.gradients)
        });
        let largest = differences.into_iter().fold(0.0, f64::max);
        println!("{:14} f32 in Burn's loop {largest:.1e}", kind.name());
        assert!(differences.iter().all(|difference| *difference <= limit(Precision::F32)), "{kind:?}: {differences:?}");
    }
}

/// Checks that Burn's loop ends with an error that contains these parts, and changes nothing.
fn ends<M>(rate: f64, model: M, recipe: Recipe, parts: [&str; 2])
where
    M: LearnerModel + TrainStep<Input = Sequences> + InferenceStep<Input = Sequences>,
{
    let before = values(&model);
    let result = trained(rate, model, StepLoss::Regression, recipe);
    let error = format!("{:?}", result.error.unwrap());
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(values(&result.model), before);
}

#[test]
fn steps_that_cannot_be_taken_end_burns_loop() {
    let tagger = || Tagger::new(FloatDType::F32, &device());
    let (plain, mut mixed) = (|| Recipe::new(device(), 4), Recipe::new(device(), 4));
    mixed.half = Some(Half::Bf16);
    ends(RATE, Refused { tagger: tagger(), is_half: false }, plain(), ["the loss has 4 values", ".mean()"]);
    ends(RATE, Refused { tagger: tagger(), is_half: true }, mixed, ["BF16", "in_f32"]);
    let model = Mean { tagger: tagger(), kind: StepLoss::Regression };
    ends(f64::NAN, model, plain(), ["the learning rate of step 1", "is NaN"]);
}
