//! Burn's own loop is given whole optimizer steps, or says that it is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::data::dataloader::{DataLoader, DataLoaderBuilder, DataLoaderIterator, Progress};
use burn::data::dataset::{DatasetError, InMemDataset};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};
use burn::train::{Learner, SupervisedTraining};
use gpu_tuned::{Options, Session, Tuned};
use networks::{Regression, Rows};

// Optimizer steps of 32 samples.
config! { Stated, mlp(widths = [1, 1]), global_batch = 32, target = "generic" }

// Steps of as many samples as the build says, or as these make together.
config! {
    Free { #[tuned] batch_size: usize, #[tuned] gradient_accumulation: usize },
    mlp(widths = [1, 1]), target = "generic"
}

fn stated() -> Session<Stated> {
    Options::default().cpu().start(Stated { batch_size: 8 }).expect("it fits")
}

fn free() -> Session<Free> {
    Options::default().cpu().start(Free { batch_size: 8, gradient_accumulation: 4 }).expect("it fits")
}

/// Batches of so many samples.
#[derive(Clone)]
struct Sizes(&'static [usize]);

struct OfSizes(&'static [usize], usize);

impl Iterator for OfSizes {
    type Item = Result<Tensor<2>, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let samples = self.0.get(self.1)?;
        self.1 += 1;
        Some(Ok(Tensor::ones([*samples, 1], &Device::flex())))
    }
}

impl DataLoaderIterator<Tensor<2>> for OfSizes {
    fn progress(&self) -> Progress {
        Progress::new(self.0[..self.1].iter().sum(), self.0.iter().sum(), None)
    }
}

impl DataLoader<Tensor<2>> for Sizes {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<Tensor<2>> + 'a> {
        Box::new(OfSizes(self.0, 0))
    }

    fn num_items(&self) -> usize {
        self.0.iter().sum()
    }

    fn to_device(&self, _: &Device) -> Arc<dyn DataLoader<Tensor<2>>> {
        Arc::new(self.clone())
    }

    fn slice(&self, _: usize, _: usize) -> Arc<dyn DataLoader<Tensor<2>>> {
        unreachable!("one device")
    }
}

/// Trains for two epochs, and returns the samples that were learned from, and the error.
fn trained<C: Tuned>(session: &Session<C>, train: Arc<dyn DataLoader<Tensor<2>>>) -> (usize, Option<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    // Validation takes batches of any size.
    let training = SupervisedTraining::new(folder.path(), train, Arc::new(Sizes(&[3, 3, 3])))
        .with_application_logger(None)
        .with_training_strategy(session.strategy().expect("one rank"))
        .num_epochs(2);
    let model = Regression::new(&[1, 1], &session.device());
    let seen = Arc::clone(&model.seen);
    let error = training.launch(Learner::new(model, SgdConfig::new().init(), 1e-3)).error;
    (seen.load(Ordering::Relaxed), error.map(|error| error.to_string()))
}

#[test]
fn batches_that_are_no_whole_steps_end_training_before_one_is_taken() {
    for sizes in [&[8, 8, 8, 8, 8][..], &[8, 2], &[16, 16, 3], &[64, 16], &[48], &[31, 1]] {
        let (seen, error) = trained(&stated(), Arc::new(Sizes(sizes)));
        assert_eq!(seen, 0, "{sizes:?}");
        let error = error.unwrap_or_else(|| panic!("{sizes:?} are steps of 32"));
        let reported = [
            format!("a batch of the training loader has {} samples, and an optimizer step has 32", sizes[0]),
            "`.batch_size(session.schedule().samples_per_rank() as usize)`".to_owned(),
            "`global_batch = batch_size` in `#[gpu_tuned(…)]`".to_owned(),
        ];
        assert!(reported.iter().all(|reported| error.contains(reported)), "{error}");
    }
}

#[test]
fn one_batch_of_an_epoch_may_be_smaller_and_come_early() {
    for sizes in [&[32, 32, 16][..], &[16, 32, 32], &[32, 32], &[20], &[8], &[32, 16, 16]] {
        let (seen, error) = trained(&stated(), Arc::new(Sizes(sizes)));
        assert_eq!((seen, error), (2 * sizes.iter().sum::<usize>(), None), "{sizes:?}");
    }
}

#[test]
fn loaders_of_burns_and_of_the_session_give_whole_steps() {
    let session = stated();
    let numbers = || InMemDataset::new(vec![[1.0]; 80]);
    for workers in [0, 1, 2, 3, 7] {
        let step = session.schedule().samples_per_rank() as usize;
        let loader =
            |samples| DataLoaderBuilder::new(Rows::default()).batch_size(samples).num_workers(workers).build(numbers());
        for _ in 0..5 {
            assert_eq!(trained(&session, loader(step)), (160, None), "{workers} workers");
        }
        let (seen, error) = trained(&session, loader(8));
        assert!(seen == 0 && error.is_some_and(|error| error.contains("has 8 samples")), "{workers} workers");
    }
    assert_eq!(trained(&session, session.loader(numbers(), Rows::default()).build()), (160, None));
}

#[test]
fn a_program_that_states_no_global_batch_is_refused_micro_batches_alone() {
    assert_eq!(free().schedule().samples_per_rank(), 32);
    for sizes in [&[8, 8, 8, 8][..], &[8, 3]] {
        let (seen, error) = trained(&free(), Arc::new(Sizes(sizes)));
        assert!(seen == 0 && error.is_some_and(|error| error.contains("has 8 samples")), "{sizes:?}");
    }
    for sizes in [&[10, 10, 10][..], &[64, 64], &[32, 32, 8], &[8, 32]] {
        let (seen, error) = trained(&free(), Arc::new(Sizes(sizes)));
        assert_eq!((seen, error), (2 * sizes.iter().sum::<usize>(), None), "{sizes:?}");
    }
}

#[test]
fn a_run_that_goes_on_takes_the_steps_that_it_began_with() {
    let folder = tempfile::tempdir().expect("a folder");
    free().save(folder.path()).expect("it is saved");
    let session = Options::default().cpu().resume(folder.path()).start(Free::default()).expect("it goes on");
    let (seen, error) = trained(&session, Arc::new(Sizes(&[8, 8, 8])));
    assert!(seen == 0 && error.is_some_and(|error| error.contains("an optimizer step has 32")));
    assert_eq!(trained(&session, Arc::new(Sizes(&[32, 32, 8]))), (144, None));
}

#[test]
fn batches_that_are_fixed_for_one_start_cut_steps_that_stay() {
    let step = Options::default().cpu().start(Free::default()).expect("it fits").schedule().samples_per_rank();
    let set = "batch_size=2".parse().expect("a setting");
    let session = Options::default().cpu().set(set).start(Free::default()).expect("it fits");
    assert_eq!((session.schedule().micro_batch, session.schedule().samples_per_rank()), (2, step));
    let (seen, error) = trained(&session, Arc::new(Sizes(&[2, 2, 2])));
    assert!(seen == 0 && error.is_some_and(|error| error.contains(&format!("an optimizer step has {step}"))));
}
