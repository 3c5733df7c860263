use std::path::Path;

use burn::optim::AdamWConfig;
use burn::store::ModuleRecord;

use super::{HashSet, OptimizerFileError, Reader, file_of_rank, id_of, ranks_of, read};
use crate::micro_batch::MicroBatch;
use crate::train::ranks::threads::{TestRank, run_all};
use crate::train::tests::{Network, Weights, batch, furthest, parameters};
use burn::module::Module;

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
        let sharded = is_sharded.then(|| rank.sharded());
        let rank = sharded.as_ref().unwrap_or(rank);
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

#[test]
fn state_of_any_number_of_ranks_is_resumed_by_any_number() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), 1, false, false);
    let expected = &train(folder.path(), 1, false, true)[0].0;
    for (then, was_sharded) in [(1, false), (2, false), (2, true), (3, true)] {
        let folder = tempfile::tempdir().unwrap();
        train(folder.path(), then, was_sharded, false);
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
        let trainer = rank.sharded().trainer(model, optimizer)?;
        Ok(trainer.optimizer().to_record().len() / 2)
    });
    assert_eq!(states.iter().sum::<usize>(), 4);
}

#[test]
fn checkpoints_that_are_not_whole_or_of_another_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), 2, true, false);
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
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), 1, false, false);
    let path = folder.path().join("optimizer.bpk");
    let open = || vec![Reader::from_file_exact(&path).unwrap()];
    let kept: HashSet<u64> = open()[0].scalars().keys().filter_map(|name| id_of(name)).collect();
    assert!(read(open(), &kept).is_ok());
    let opened = open();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(512).unwrap();
    assert!(read(opened, &kept).is_err());
}
