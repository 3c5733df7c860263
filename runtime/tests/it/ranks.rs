//! A session's ranks on the CPU, against one rank that trains on all of it.

use burn::data::dataset::InMemDataset;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::train::TrainerError;
use gpu_tuned::{Options, Session, Tuned, gpu_tuned};
use networks::{Rows, furthest, values};

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

fn dataset() -> InMemDataset<[f32; 4]> {
    let value = |index: usize| ((index * 37) % 19) as f32 / 19.0 - 0.5;
    InMemDataset::new((0..SAMPLES).map(|row| std::array::from_fn(|column| value(row * 4 + column))).collect())
}

fn model(device: &Device) -> Linear {
    LinearConfig::new(3, 1).with_initializer(burn::nn::Initializer::Constant { value: 0.3 }).init(device)
}

/// Predicts the last column from the others.
fn loss(model: &Linear, rows: Tensor<2>) -> Tensor<1> {
    let (input, target) = (rows.clone().narrow(1, 0, 3), rows.narrow(1, 3, 1));
    MseLoss::new().forward(model.forward(input), target, Reduction::Mean)
}

fn session<C: Tuned>(config: C) -> Session<C> {
    Options::default().cpu().start(config).expect("it fits")
}

#[test]
fn epochs_of_two_ranks_are_those_of_one() {
    let alone = session(Alone { batch_size: 3 });
    let mut trainer = alone.trainer(model(&alone.device()), SgdConfig::new().init()).expect("one rank");
    let loader = alone.loader(dataset(), Rows::default()).shuffle(SEED);
    for batch in (0..EPOCHS).flat_map(|_| loader.iter()) {
        trainer.step(0.2, batch.expect("a batch"), loss).expect("a step");
    }
    let expected = values(trainer.model());

    let together = session(Together { batch_size: 2 });
    let both = together.ranks().expect("two ranks").run(|rank| {
        let mut trainer = rank.trainer(model(rank.device()), SgdConfig::new().init())?;
        let loader = rank.loader(dataset(), Rows::default()).shuffle(SEED);
        let mut samples = Vec::new();
        for batch in (0..EPOCHS).flat_map(|_| loader.iter()) {
            samples.push(trainer.step(0.2, batch?, loss)?.samples);
        }
        Ok((values(trainer.model()), samples))
    });
    let both = both.expect("no rank fails");
    for (values, samples) in &both {
        let off = furthest(values, &expected);
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
