//! Epochs that ranks read.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};

use super::threads::{TestRank, run, run_all};
use crate::load::PrefetchLoader;

struct Numbers;

impl Batcher<f32, Tensor<1>> for Numbers {
    fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
        Tensor::from_floats(&items[..], device)
    }
}

fn loader(rank: &TestRank, items: usize) -> PrefetchLoader<f32, Tensor<1>> {
    rank.recipe().loader(InMemDataset::new(vec![0.5; items]), Numbers)
}

/// Loader of a rank.
type Read = fn(&TestRank) -> PrefetchLoader<f32, Tensor<1>>;

/// Texts of two ranks at their first step of an epoch; and true if their digests are equal.
fn inputs(read: Read) -> (bool, Vec<String>) {
    let all = run_all(2, 4, move |rank| {
        let loader = read(rank);
        let mut batches = loader.iter();
        batches.next().expect("a batch")?;
        Ok((rank.rank().inputs.digest(), rank.rank().inputs.describe()))
    });
    let is_equal = all[0].0 == all[1].0;
    assert_eq!(is_equal, all[0].1 == all[1].1);
    (is_equal, all.into_iter().map(|(_, text)| text).collect())
}

/// The loader after as many epochs as the number of the rank.
fn later(rank: &TestRank, loader: PrefetchLoader<f32, Tensor<1>>) -> PrefetchLoader<f32, Tensor<1>> {
    (0..rank.index()).for_each(|_| drop(loader.iter()));
    loader
}

#[test]
fn other_lengths_seeds_and_epochs_have_another_digest() {
    // Equal digests, and the text of the second rank.
    let cases: [(Read, bool, &str); 6] = [
        (|rank| loader(rank, 20).shuffle(7), true, "20 items in steps of 8, epoch 1 with seed 7"),
        (|rank| loader(rank, 20 + rank.index()), false, "21 items in steps of 8"),
        (
            |rank| loader(rank, 20).shuffle(7 + rank.index() as u64),
            false,
            "20 items in steps of 8, epoch 1 with seed 8",
        ),
        (|rank| later(rank, loader(rank, 20).shuffle(7)), false, "20 items in steps of 8, epoch 2 with seed 7"),
        // An epoch without order has no number.
        (|rank| later(rank, loader(rank, 20)), true, "20 items in steps of 8"),
        // A loader that the first rank looked at only.
        (
            |rank| {
                if rank.index() == 0 {
                    drop(loader(rank, 3).iter().next());
                }
                loader(rank, 20)
            },
            true,
            "20 items in steps of 8",
        ),
    ];
    for (read, is_equal, text) in cases {
        let (found, texts) = inputs(read);
        assert_eq!((found, texts[1].as_str()), (is_equal, text));
    }
}

#[test]
fn other_loaders_of_one_rank_count_while_they_are_read() {
    let all = run_all(2, 4, |rank| {
        let (labelled, unlabelled) = (loader(rank, 20), loader(rank, 30));
        let _both = (labelled.iter(), (rank.index() == 0).then(|| unlabelled.iter()));
        Ok(rank.rank().inputs.describe())
    });
    assert_eq!(all, ["20 items in steps of 8; 30 items in steps of 8", "20 items in steps of 8"]);
}

#[test]
fn ranks_that_read_other_data_end_in_the_first_step() {
    let all = run(&[4, 4], 4, |rank| {
        let device = rank.device().clone();
        let mut trainer = rank.trainer(LinearConfig::new(1, 1).init(&device), SgdConfig::new().init())?;
        for batch in loader(rank, 20 + rank.index()).iter() {
            let loss = |model: &Linear, numbers: Tensor<1>| model.forward(numbers.unsqueeze_dim::<2>(1)).mean();
            trainer.step(0.1, batch?, loss)?;
        }
        Ok(())
    });
    for outcome in all {
        let error = outcome.expect_err("they read other data").to_string();
        assert!(error.contains("training data of rank 1 differs from rank 0's"), "{error}");
    }
}
