//! A session's ranks on the CPU, against one rank that trains on all of it.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::train::TrainerError;
use gpu_tuned::{Options, Session, Tuned, gpu_tuned};

const SEED: u64 = 42;
/// Not so many that every step is whole: 43 are five of 8 and one of 3.
const SAMPLES: usize = 43;
const EPOCHS: usize = 4;

#[gpu_tuned(mlp(widths = [3, 1]), global_batch = 8, target = "generic")]
#[derive(Clone, Debug)]
struct Alone {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [3, 1]), global_batch = 8, world_size = 2, target = "generic")]
#[derive(Clone, Debug)]
struct Together {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [3, 1]), global_batch = 8, world_size = 2, shard_optimizer = true, target = "generic")]
#[derive(Clone, Debug)]
struct Sharded {
    #[tuned]
    batch_size: usize,
}

#[derive(Clone)]
struct Rows;

impl Batcher<[f32; 4], (Tensor<2>, Tensor<2>)> for Rows {
    fn batch(&self, items: Vec<[f32; 4]>, device: &Device) -> (Tensor<2>, Tensor<2>) {
        let rows = Tensor::<1>::from_floats(items.as_flattened(), device).reshape([items.len(), 4]);
        (rows.clone().slice([0..items.len(), 0..3]), rows.slice([0..items.len(), 3..4]))
    }
}

fn dataset() -> InMemDataset<[f32; 4]> {
    let value = |index: usize| ((index * 37) % 19) as f32 / 19.0 - 0.5;
    InMemDataset::new((0..SAMPLES).map(|row| std::array::from_fn(|column| value(row * 4 + column))).collect())
}

fn model(device: &Device) -> Linear {
    LinearConfig::new(3, 1).with_initializer(burn::nn::Initializer::Constant { value: 0.3 }).init(device)
}

fn loss(model: &Linear, (input, target): (Tensor<2>, Tensor<2>)) -> Tensor<1> {
    MseLoss::new().forward(model.forward(input), target, Reduction::Mean)
}

fn session<C: Tuned>(config: C) -> Session<C> {
    Options::default().cpu().start(config).expect("it fits")
}

fn values(model: &Linear) -> Vec<f32> {
    struct Values(Vec<f32>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

#[test]
fn epochs_of_two_ranks_are_those_of_one() {
    let alone = session(Alone { batch_size: 3 });
    let mut trainer = alone.trainer(model(&alone.device()), SgdConfig::new().init()).expect("one rank");
    let loader = alone.loader(dataset(), Rows).shuffle(SEED);
    for batch in (0..EPOCHS).flat_map(|_| loader.iter()) {
        trainer.step(0.2, batch.expect("a batch"), loss).expect("a step");
    }
    let expected = values(trainer.model());

    let together = session(Together { batch_size: 2 });
    let both = together.ranks().expect("two ranks").run(|rank| {
        let mut trainer = rank.trainer(model(rank.device()), SgdConfig::new().init())?;
        let loader = rank.loader(dataset(), Rows).shuffle(SEED);
        let mut samples = Vec::new();
        for batch in (0..EPOCHS).flat_map(|_| loader.iter()) {
            samples.push(trainer.step(0.2, batch?, loss)?.samples);
        }
        Ok((values(trainer.model()), samples))
    });
    let both = both.expect("no rank fails");
    for (values, samples) in &both {
        let off = values.iter().zip(&expected).map(|(value, expected)| (value - expected).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "{values:?} instead of {expected:?}");
        assert_eq!(samples[..6], [8, 8, 8, 8, 8, 3]);
    }
    assert_eq!(both[0], both[1]);
}

#[test]
fn a_sharded_optimizer_is_refused_rather_than_held_whole() {
    let refused = session(Sharded { batch_size: 4 }).ranks().err();
    assert!(matches!(refused, Some(TrainerError::Sharded)), "{refused:?}");
}
