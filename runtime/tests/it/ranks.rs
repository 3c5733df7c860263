//! Sessions of several ranks on the CPU, against one process that trains on all of it.

use std::collections::HashMap;

use burn::data::dataset::InMemDataset;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, SgdConfig};
use burn::tensor::{Device, Tensor};
use gpu_tuned::train::TrainerError;
use gpu_tuned::{Options, Session, Tuned, gpu_tuned};
use networks::{Rows, furthest, values};

use crate::launched::launched;

const SEED: u64 = 42;
/// Not so many that every step is whole: 43 are five of 8 and one of 3.
const SAMPLES: usize = 43;
const EPOCHS: usize = 4;

config! { Alone, mlp(widths = [3, 1]), global_batch = 8, target = "generic" }

config! { Together, mlp(widths = [3, 1]), global_batch = 8, world_size = 2, target = "generic" }

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

fn session<C: Tuned>(config: C, as_rank: &dyn Fn(Options) -> Options) -> Session<C> {
    as_rank(Options::default().cpu()).start(config).expect("it fits")
}

fn alone<C: Tuned>(config: C) -> Session<C> {
    session(config, &|options| options)
}

/// The loop of one process and of many: parameters, and the samples of each step.
fn train<C: Tuned>(session: &Session<C>) -> (Vec<f32>, Vec<usize>) {
    let mut trainer = session.trainer(model(&session.device()), SgdConfig::new().init()).expect("a trainer");
    let loader = session.loader(dataset(), Rows::default()).shuffle(SEED);
    let step = |batch: Result<_, _>| trainer.step(0.2, batch.expect("a batch"), loss).expect("a step").samples;
    let samples = (0..EPOCHS).flat_map(|_| loader.iter()).map(step).collect();
    (values(trainer.model()), samples)
}

#[test]
fn epochs_of_several_ranks_are_those_of_one() {
    let (expected, _) = train(&alone(Alone { batch_size: 3 }));
    for ranks in [1, 2] {
        let all = launched(ranks, |_, as_rank| train(&session(Alone { batch_size: 2 }, as_rank)));
        for (values, samples) in &all {
            let off = furthest(values, &expected);
            assert!(off < 1e-4, "{values:?} instead of {expected:?}");
            assert_eq!(samples[..6], [8, 8, 8, 8, 8, 3]);
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

#[test]
fn a_session_knows_its_rank() {
    let ranks = launched(2, |_, as_rank| {
        let session = session(Together { batch_size: 4 }, as_rank);
        session.wait_for_ranks().expect("both are there");
        (session.rank(), session.world_size(), session.is_first_rank(), session.part(7))
    });
    assert_eq!(ranks, [(0, 2, true, 0..3), (1, 2, false, 3..7)]);
    let alone = alone(Alone { batch_size: 4 });
    assert_eq!((alone.rank(), alone.world_size(), alone.is_first_rank(), alone.part(7)), (0, 1, true, 0..7));
}

#[test]
fn ranks_with_other_configs_do_not_train_together() {
    let all = launched(2, |rank, as_rank| {
        let options = as_rank(Options::default().cpu());
        let alone = || options.start(Alone { batch_size: 4 }).map(drop);
        if rank == 0 { alone() } else { options.start(Together { batch_size: 4 }).map(drop) }
    });
    for started in all {
        let error = started.expect_err("they differ").to_string();
        assert!(error.contains("Alone") && error.contains("Together"), "{error}");
    }
}

/// Fields of the program beside the tuned one.
#[gpu_tuned(mlp(widths = [3, 1]), global_batch = 8, target = "generic")]
#[derive(Clone)]
struct Program {
    #[tuned]
    batch_size: usize,
    #[tuned(default = 1e-3)]
    learning_rate: f64,
    text: String,
    weights: HashMap<String, f32>,
    #[tuned(per_rank)]
    log: String,
    opaque: Opaque,
}

/// Has no text that ranks could compare.
#[derive(Clone, Default)]
struct Opaque;

/// Errors of two ranks, of which the second changes the config.
fn errors_with(change: impl Fn(&mut Program) + Sync) -> Vec<Option<String>> {
    launched(2, |rank, as_rank| {
        let weights = (0..20).map(|key| (key.to_string(), 0.5)).collect();
        let mut config = Program { weights, ..Program::default() };
        if rank == 1 {
            change(&mut config);
        }
        // A session ends with those of the other ranks, so it ends here.
        as_rank(Options::default().cpu()).start(config).err().map(|error| error.to_string())
    })
}

#[test]
fn fields_that_differ_between_ranks_are_named_on_all() {
    let error = |change: &(dyn Fn(&mut Program) + Sync)| {
        let [first, second] = <[_; 2]>::try_from(errors_with(change)).expect("two");
        assert_eq!(first, second);
        first.expect("they differ")
    };
    let message = error(&|config| config.learning_rate = 1e-4);
    assert!(message.starts_with("`learning_rate` of the config is 0.0001 on rank 1 ("), "{message}");
    let end = "), but 0.001 on rank 0: start all ranks with one value, or mark the field `#[tuned(per_rank)]` if it may differ";
    assert!(message.ends_with(end), "{message}");
    let message = error(&|config| config.text = "other".to_owned());
    assert!(message.starts_with("`text` of the config is \"other\" on rank 1 ("), "{message}");
    let message = error(&|config| *config.weights.get_mut("7").expect("a weight") = 0.25);
    assert!(message.starts_with("`weights` of the config is \"0\": 0.5, \"1\": 0.5"), "{message}");
}

#[test]
fn marked_fields_and_those_without_a_text_may_differ() {
    let errors = errors_with(|config| {
        config.log = "rank1.log".to_owned();
    });
    assert_eq!(errors, [None, None]);
}

#[test]
fn ranks_resume_one_run() {
    let folder = tempfile::tempdir().expect("a folder");
    alone(Alone { batch_size: 4 }).save(folder.path()).expect("it is saved");
    let resumed = |on: fn(usize) -> bool| {
        launched(2, |rank, as_rank| {
            let options = as_rank(Options::default().cpu());
            let options = if on(rank) { options.resume(folder.path()) } else { options };
            options.start(Alone { batch_size: 4 }).map(drop).map_err(|error| error.to_string())
        })
    };
    assert_eq!(resumed(|_| true), [Ok(()), Ok(())]);
    for error in resumed(|rank| rank == 0) {
        let error = error.expect_err("one resumes");
        assert!(
            error.starts_with("saved run of rank 1 on ") && error.contains("is `none`, but `Alone, global batch 8"),
            "{error}"
        );
    }
}

#[gpu_tuned(mlp(widths = [3, 1]), global_batch = 8, shard_optimizer = true, target = "generic")]
#[derive(Clone, Debug)]
struct Sharded {
    #[tuned]
    batch_size: usize,
}

#[test]
fn the_optimizer_of_one_rank_is_no_checkpoint_of_all() {
    let parts = launched(2, |_, as_rank| {
        let session = session(Sharded { batch_size: 4 }, as_rank);
        let mut trainer = session.trainer(model(&session.device()), AdamWConfig::new().init()).expect("a trainer");
        for batch in session.loader(dataset(), Rows::default()).iter() {
            trainer.step(0.2, batch.expect("a batch"), loss).expect("a step");
        }
        // As Burn's users save a checkpoint.
        (trainer.master().clone(), trainer.optimizer().into_bytes().expect("it is saved"))
    });
    for (model, part) in parts {
        let optimizer = AdamWConfig::new().init().from_bytes(part).expect("Burn loads it");
        let error = alone(Alone { batch_size: 4 }).trainer(model, optimizer).map(drop).expect_err("it is a part");
        assert!(matches!(error, TrainerError::PartialState { parameters: 1, all: 2, ranks: 2 }), "{error}");
    }
}
