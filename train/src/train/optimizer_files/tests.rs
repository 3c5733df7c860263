use std::path::Path;

use burn::module::Module;
use burn::optim::{AdamWConfig, ModuleOptimizer};
use burn::store::ModuleRecord;
use burn::tensor::Device;
use tempfile::TempDir;

use super::{HashSet, OptimizerFileError, Reader, file_of_rank, id_of, ranks_of, read};
use crate::micro_batch::MicroBatch;
use crate::train::Trainer;
use crate::train::ranks::sharding::ranks_of_shard;
use crate::train::ranks::tests::threads::{TestRank, run, run_all};
use crate::train::recipe::Recipe;
use crate::train::tests::{Network, Weights, batch, furthest, parameters};

const RATE: f64 = 0.01;
const SAMPLES: usize = 30;

fn model(rank: &TestRank) -> Network {
    Network::new(rank.device(), false).map(&mut Weights(7))
}

/// Takes steps, after the checkpoint in `folder` if `resumes`, and saves one at the end. Returns the parameters and the
/// number of parameters with optimizer state.
fn train(folder: &Path, ranks: usize, is_sharded: bool, resumes: bool) -> Vec<(Vec<f32>, usize)> {
    let folder = folder.to_owned();
    run_all(ranks, 8, move |rank| {
        let rank = &rank.sharded(is_sharded);
        let mut model = model(rank);
        if resumes {
            model = model.try_load_record(ModuleRecord::load(folder.join("model.bpk"))?)?;
        }
        let mut trainer = rank.trainer(model, AdamWConfig::new().init())?;
        if resumes {
            trainer.load_optimizer(&folder)?;
        }
        let first = if resumes { 4 } else { 0 };
        for seed in first..first + 4 {
            let own = batch(SAMPLES, seed).narrow(rank.part(SAMPLES));
            trainer.step(RATE, own, Network::loss)?;
        }
        if !resumes {
            if rank.index() == 0 {
                trainer.master().clone().into_record().save(folder.join("model.bpk"))?;
            }
            trainer.save_optimizer(&folder)?;
        }
        // Two moments for each parameter.
        Ok((parameters(trainer.model()), trainer.optimizer().to_record().len() / 2))
    })
}

/// Folder with the checkpoint of such ranks.
fn saved(ranks: usize, is_sharded: bool) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), ranks, is_sharded, false);
    folder
}

#[test]
fn state_of_any_number_of_ranks_is_resumed_by_any_number() {
    let folder = saved(1, false);
    let expected = &train(folder.path(), 1, false, true)[0].0;
    for (then, was_sharded) in [(1, false), (2, false), (2, true), (3, true)] {
        let folder = saved(then, was_sharded);
        for (now, is_sharded) in [(1, false), (2, false), (2, true), (5, true)] {
            let all = train(folder.path(), now, is_sharded, true);
            let off = furthest(&all[0].0, expected);
            assert!(off < 1e-6, "{off}, saved by {then} ranks, resumed by {now}");
            let states: usize = all.iter().map(|(_, states)| states).sum();
            assert_eq!(states, if is_sharded { 4 } else { 4 * now }, "saved by {then} ranks, resumed by {now}");
        }
    }
}

#[test]
fn a_whole_state_that_burn_loads_is_split_among_ranks() {
    let states = run_all(3, 8, |rank| {
        let mut trainer = rank.trainer(model(rank), AdamWConfig::new().init())?;
        trainer.step(RATE, batch(SAMPLES, 0).narrow(rank.part(SAMPLES)), Network::loss)?;
        let (model, optimizer) = trainer.into_parts();
        let trainer = rank.sharded(true).trainer(model, optimizer)?;
        Ok(trainer.optimizer().to_record().len() / 2)
    });
    assert_eq!(states.iter().sum::<usize>(), 4);
}

/// Optimizers after a step, as the ranks return them.
fn optimizers_after_a_step(ranks: usize, is_sharded: bool) -> Vec<(Network, ModuleOptimizer)> {
    run_all(ranks, 8, move |rank| {
        let rank = &rank.sharded(is_sharded);
        let mut trainer = rank.trainer(model(rank), AdamWConfig::new().init())?;
        trainer.step(RATE, batch(SAMPLES, 0).narrow(rank.part(SAMPLES)), Network::loss)?;
        Ok(trainer.into_parts())
    })
}

#[test]
fn the_part_of_one_rank_is_refused_whoever_loads_it() {
    for (model, part) in optimizers_after_a_step(2, true) {
        let known = part.to_record().len() / 2;
        assert!((1..4).contains(&known));
        let expected = format!(
            "the loaded optimizer has the state of {known} of 4 trained parameters, the part of one of 2 ranks with a sharded \
             optimizer, and the rest is lost: save with `Trainer::save_optimizer` on every rank, and load with \
             `Trainer::load_optimizer`"
        );
        for (ranks, is_sharded) in [(1, false), (2, false), (3, true)] {
            let (model, part) = (model.clone(), part.clone());
            let all = run(&vec![8; ranks], 8, move |rank| {
                let trainer = rank.sharded(is_sharded).trainer(model.clone(), part.clone());
                Ok(trainer.map(drop).map_err(|error| error.to_string())?)
            });
            for result in all {
                let error = result.expect_err("it is a part").to_string();
                assert!(error.ends_with(&expected), "{ranks} {is_sharded}: {error}");
            }
        }
        let recipe = Recipe::new(Device::flex(), 8);
        let alone = Trainer::from_recipe(model, part, &recipe).map(drop).map_err(|error| error.to_string());
        assert_eq!(alone, Err(expected));
    }
}

#[test]
fn only_a_part_is_warned_of() {
    for (ranks, is_sharded, expected) in [(1, true, None), (2, false, None), (2, true, Some("one of 2 parts"))] {
        let warnings = run_all(ranks, 8, move |rank| {
            let rank = &rank.sharded(is_sharded);
            Ok(rank.trainer(model(rank), AdamWConfig::new().init())?.part_warning())
        });
        for warning in warnings {
            assert_eq!(warning.is_some(), expected.is_some());
            assert!(warning.is_none_or(|warning| warning.contains(expected.unwrap_or_default())));
        }
    }
}

#[test]
fn the_parts_of_all_ranks_go_on_with_as_many() {
    let parts = optimizers_after_a_step(2, true);
    let states = run_all(2, 8, move |rank| {
        let (model, part) = parts[rank.index()].clone();
        let trainer = rank.sharded(true).trainer(model, part)?;
        Ok(trainer.optimizer().to_record().len() / 2)
    });
    assert_eq!(states.iter().sum::<usize>(), 4);
}

#[test]
fn ranks_with_different_states_do_not_train_together() {
    let [(model, whole), _] = <[_; 2]>::try_from(optimizers_after_a_step(2, false)).ok().expect("two");
    for is_sharded in [false, true] {
        let (model, whole) = (model.clone(), whole.clone());
        let all = run(&[8, 8], 8, move |rank| {
            let rank = &rank.sharded(is_sharded);
            let fresh = AdamWConfig::new().init();
            let optimizer = if rank.index() == 0 { whole.clone() } else { fresh };
            Ok(rank.trainer(model.clone(), optimizer).map(drop)?)
        });
        for result in all {
            let error = result.expect_err("one begins anew").to_string();
            assert_eq!(error, "the optimizer state of rank 1 differs from rank 0's");
        }
    }
}

#[test]
fn loaded_files_are_inputs_that_ranks_compare() {
    let folder = saved(2, true);
    let folder = folder.path().to_owned();
    let inputs = |loads: fn(usize) -> bool| {
        let folder = folder.clone();
        run_all(2, 8, move |rank| {
            let model = model(rank).try_load_record(ModuleRecord::load(folder.join("model.bpk"))?)?;
            let mut trainer = rank.trainer(model, AdamWConfig::new().init())?;
            if loads(rank.index()) {
                trainer.load_optimizer(&folder)?;
            }
            Ok((rank.rank().inputs.digest(), rank.rank().inputs.describe()))
        })
    };
    let both = inputs(|_| true);
    assert_eq!(both[0], both[1]);
    assert!(both[0].1.starts_with("optimizer state of 4 parameters (hash "), "{}", both[0].1);
    let first = inputs(|rank| rank == 0);
    assert_ne!(first[0].0, first[1].0);
    assert_eq!((&first[0].1, first[1].1.as_str()), (&both[0].1, "nothing"));
}

#[test]
fn new_layers_and_parameters_without_gradients_are_no_part() {
    let ids = |count: u64| (0..count).map(|id| (id, 10 + id % 3)).collect::<Vec<_>>();
    let known = |ids: &[u64]| ids.iter().copied().collect::<HashSet<u64>>();
    // All but the last layer, or but one parameter in the middle; and a single one.
    for of in [known(&[0, 1, 2, 3, 4, 5]), known(&[0, 1, 2, 4, 5, 6, 7]), known(&[3]), known(&[])] {
        assert_eq!(ranks_of_shard(&of, &ids(8)), None, "{of:?}");
    }
    // A large embedding is one part, and all the rest the other.
    let sizes = [(0, 1000), (1, 10), (2, 20), (3, 10)];
    assert_eq!(ranks_of_shard(&known(&[0]), &sizes), Some(2));
    assert_eq!(ranks_of_shard(&known(&[1, 2, 3]), &sizes), Some(2));
    for ranks in 2..=64 {
        let trained = ids(200);
        let sizes: Vec<_> = trained.iter().map(|(_, size)| *size).collect();
        let owners = gpu_tuned_core::exchange::owners(&sizes, ranks);
        for rank in 0..ranks {
            let part = trained.iter().zip(&owners).filter(|(_, owner)| **owner == rank).map(|((id, _), _)| *id);
            let part: HashSet<_> = part.collect();
            assert_eq!(ranks_of_shard(&part, &trained), Some(ranks), "{rank}");
        }
    }
}

#[test]
fn checkpoints_that_are_not_whole_or_of_another_model_are_refused() {
    let folder = saved(2, true);
    let (path, other) = (folder.path().to_owned(), tempfile::tempdir().unwrap());
    let empty = other.path().to_owned();
    let messages = run_all(1, 8, move |rank| {
        let mut trainer = rank.trainer(model(rank), AdamWConfig::new().init())?;
        let mut messages = Vec::new();
        let mut failed = |result: Result<(), OptimizerFileError>| {
            let message = result.unwrap_err().to_string();
            let message = message.replace(path.to_str().unwrap(), "FOLDER").replace(empty.to_str().unwrap(), "EMPTY");
            messages.push(message);
        };
        failed(trainer.load_optimizer(&path));
        failed(trainer.save_optimizer(&path));
        std::fs::rename(path.join("optimizer-0-of-2.bpk"), path.join("elsewhere.bpk"))?;
        failed(trainer.load_optimizer(&path));
        failed(trainer.load_optimizer(&empty));
        std::fs::write(empty.join("optimizer.bpk"), [b'x'; 4096])?;
        failed(trainer.load_optimizer(&empty));
        failed(trainer.load_optimizer(empty.join("none")));
        Ok(messages)
    });
    let expected = [
        "the optimizer state in `FOLDER` is of other parameters than the model's: load the record of the model before you \
         create the trainer",
        "`FOLDER/optimizer.bpk` and `FOLDER/optimizer-0-of-2.bpk` are of different numbers of ranks: save each checkpoint to a \
         new folder",
        "`FOLDER/optimizer-0-of-2.bpk` does not exist: a checkpoint needs the optimizer state of all ranks that saved it",
        "`EMPTY/optimizer.bpk` does not exist: a checkpoint needs the optimizer state of all ranks that saved it",
        "`EMPTY/optimizer.bpk`: Invalid magic number",
        "cannot list `EMPTY/none`: No such file or directory (os error 2)",
    ];
    assert_eq!(messages[0], expected);
}

#[test]
fn files_are_known_by_their_names() {
    assert_eq!(ranks_of(Path::new("a/optimizer.bpk")), Some(1));
    assert_eq!(ranks_of(Path::new(&file_of_rank(3, 12))), Some(12));
    for other in ["model.bpk", "optimizer-3.bpk", "optimizer-03-of-4.bpk", "optimizer-a-of-b.bpk", "optimizer"] {
        assert_eq!(ranks_of(Path::new(other)), None, "{other}");
    }
}

#[test]
fn what_a_killed_save_left_is_removed_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["optimizer.bpk.1-0.tmp", "model.bpk.1-0.tmp", "optimizer.bpk.old"] {
        std::fs::write(folder.path().join(name), "half").unwrap();
    }
    train(folder.path(), 1, false, false);
    let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    assert_eq!(names, ["model.bpk", "model.bpk.1-0.tmp", "optimizer.bpk", "optimizer.bpk.old"]);
}

#[test]
fn a_file_that_fails_while_tensors_are_read_is_an_error() {
    let folder = saved(1, false);
    let path = folder.path().join("optimizer.bpk");
    let open = || vec![Reader::from_file_exact(&path).unwrap()];
    let kept: HashSet<u64> = open()[0].scalars().keys().filter_map(|name| id_of(name)).collect();
    assert!(read(open(), &kept).is_ok());
    let opened = open();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(512).unwrap();
    assert!(read(opened, &kept).is_err());
}
