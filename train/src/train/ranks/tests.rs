//! Ranks on the CPU: what their steps add up to, and how they end.

mod early;
mod failures;
mod inputs;
pub(in crate::train) mod threads;
mod weights;

use std::thread;

use burn::module::{Module, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Int, Tensor};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, prop_assert, proptest};

use self::threads::{Failure, TestRank, run, run_all};
use super::Inputs;
use crate::micro_batch::MicroBatch;
use crate::train::Step;
use crate::train::tests::{Batch, Network, Weights, batch, furthest, parameters, sgd};

const RATE: f64 = 0.05;

/// Its own weights, which those of the first rank replace.
fn model(rank: &TestRank) -> Network {
    Network::new(rank.device(), false).map(&mut Weights(7 + 100 * rank.index() as u64))
}

/// The optimizer step over all samples at once, as Burn takes it.
fn at_once(model: Network, optimizer: &mut ModuleOptimizer, batch: Batch) -> Network {
    let batch = batch.on_device(&Device::flex().autodiff());
    let gradients = GradientsParams::from_grads(model.loss(batch).backward(), &model);
    optimizer.step(RATE, model, gradients)
}

/// The parameters after steps over batches of so many samples.
fn all_at_once(sizes: &[usize], mut optimizer: ModuleOptimizer) -> Vec<f32> {
    let mut model = Network::new(&Device::flex().autodiff(), false).map(&mut Weights(7));
    for (seed, samples) in sizes.iter().enumerate() {
        model = at_once(model, &mut optimizer, batch(*samples, seed as u64));
    }
    parameters(&model)
}

/// Steps over the ranks' parts of batches of so many samples.
fn steps(
    rank: &TestRank,
    optimizer: ModuleOptimizer,
    sizes: &[usize],
    loss: impl Fn(usize, &Network, Batch) -> Tensor<1> + Sync,
) -> Result<(Vec<f32>, Vec<Step>), Failure> {
    let mut trainer = rank.trainer(model(rank), optimizer)?;
    let mut taken = Vec::new();
    for (seed, samples) in sizes.iter().enumerate() {
        let own = batch(*samples, seed as u64).narrow(rank.part(*samples));
        taken.push(trainer.step(RATE, own, |model, micro| loss(seed, model, micro))?);
    }
    Ok((parameters(trainer.model()), taken))
}

/// Twenty batches; the ranks' parts of them are uneven, and some have none.
const SIZES: [usize; 20] = [24, 24, 23, 7, 24, 1, 24, 24, 2, 24, 5, 24, 24, 19, 24, 3, 24, 24, 24, 11];

#[test]
fn steps_of_ranks_are_those_of_one_large_batch() {
    let expected = all_at_once(&SIZES, sgd());
    for (count, micro_batch) in [(1, 5), (2, 5), (3, 100)] {
        let all = run_all(count, micro_batch, |rank| steps(rank, sgd(), &SIZES, |_, model, micro| model.loss(micro)));
        let off = furthest(&all[0].0, &expected);
        assert!(off < 1e-4, "{off} with {count} ranks");
        for (rank, (parameters, taken)) in all.iter().enumerate() {
            assert_eq!(parameters, &all[0].0, "rank {rank} of {count} came apart");
            for (step, of_first) in taken.iter().zip(&all[0].1) {
                assert_eq!((step.loss, step.gradient_norm), (of_first.loss, of_first.gradient_norm));
            }
        }
        let samples: Vec<_> = all[0].1.iter().map(|step| step.samples).collect();
        assert_eq!(samples, SIZES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_steps_are_dealt_out_they_are_those_of_one_large_batch(
        sizes in vec(1..60_usize, 1..3),
        shares in vec(1..9_usize, 1..5),
        micro_batch in 1..70_usize,
    ) {
        let expected = all_at_once(&sizes, sgd());
        let own = move |rank: &TestRank| steps(rank, sgd(), &sizes, |_, model, micro| model.loss(micro));
        let all: Vec<_> = run(&shares, micro_batch, own).into_iter().map(Result::unwrap).collect();
        // Rounding: two steps of means of at most 60 terms, of which at most 3e-8 was seen.
        let off = furthest(&all[0].0, &expected);
        prop_assert!(off < 1e-6, "{off}");
        prop_assert!(all.iter().all(|(parameters, _)| *parameters == all[0].0));
    }
}

#[test]
fn clipping_is_by_the_norm_of_all_ranks_together() {
    let clipped = |count: usize| {
        let all = run_all(count, 8, |rank| {
            let mut trainer = rank.trainer(model(rank), AdamWConfig::new().init())?.clip_norm(0.05);
            for seed in 0..5 {
                let own = batch(20, seed).narrow(rank.part(20));
                let step = trainer.step(RATE, own, |model, micro| model.loss(micro).mul_scalar(10))?;
                assert!(step.gradient_norm > 0.05);
            }
            Ok(parameters(trainer.model()))
        });
        all.into_iter().next().unwrap()
    };
    let (alone, together) = (clipped(1), clipped(3));
    assert!(furthest(&alone, &together) < 1e-4, "{}", furthest(&alone, &together));
}

#[test]
fn a_parameter_that_no_rank_used_does_not_decay() {
    let weights = |count: usize| {
        run_all(count, 8, |rank| {
            let optimizer = AdamWConfig::new().with_weight_decay(0.5).init();
            let mut trainer = rank.trainer(model(rank), optimizer)?;
            let before = parameters(trainer.model());
            let own = batch(9, 0).narrow(rank.part(9));
            let used = rank.index() == 0;
            trainer.step(RATE, own, |model, (input, _)| {
                let hidden = model.first.forward(input).mean();
                // Its bias alone, and on one rank only.
                let bias = model.last.bias.as_ref().map(|bias| bias.val().sum()).filter(|_| used);
                bias.into_iter().fold(hidden, |sum, bias| sum + bias)
            })?;
            Ok((before, parameters(trainer.model())))
        })
    };
    for (before, after) in weights(2) {
        let changed: Vec<_> =
            before.iter().zip(&after).map(|(before, after)| before.to_bits() != after.to_bits()).collect();
        let (first, last) = (12 * 16 + 16, 16 * 5);
        assert!(changed[..first].iter().all(|changed| *changed));
        assert!(changed[first..first + last].iter().all(|changed| !changed), "it has no gradient anywhere");
        assert!(changed[first + last..].iter().all(|changed| *changed), "rank 0 has its gradient");
    }
}

#[test]
fn what_is_not_finite_on_one_rank_makes_all_leave_the_step_out() {
    let all = run_all(2, 12, |rank| {
        let bad = rank.index() == 1;
        steps(rank, sgd(), &[24; 6], move |seed, model, micro| {
            let loss = model.loss(micro);
            if bad && seed == 3 { loss.mul_scalar(f32::INFINITY) } else { loss }
        })
    });
    for (_, taken) in &all {
        let applied: Vec<_> = taken.iter().map(|step| step.applied).collect();
        assert_eq!(applied, [true, true, true, false, true, true]);
    }
    assert_eq!(all[0].0, all[1].0);
    assert!(all[0].0.iter().all(|value| value.is_finite()));
}

#[test]
fn ranks_train_replicas_of_one_model() {
    let ended = run(&[8, 8], 8, |rank| {
        let with_norm = rank.index() == 1;
        rank.trainer(Network::new(rank.device(), with_norm), sgd())?;
        Ok(())
    });
    for ended in ended {
        let error = ended.unwrap_err().to_string();
        assert_eq!(error, "the shape of the model of rank 1 differs from rank 0's");
    }
}

#[test]
fn running_statistics_are_each_rank_s_own() {
    let all = run_all(2, 4, |rank| {
        let mut trainer = rank.trainer(Network::new(rank.device(), true), sgd())?;
        for seed in 0..3 {
            trainer.step(RATE, batch(8, seed).narrow(rank.part(8)), Network::loss)?;
        }
        let norm = trainer.into_parts().0.norm.expect("it has one");
        Ok((
            norm.gamma.val().into_data().iter::<f32>().collect::<Vec<_>>(),
            norm.running_mean.value_sync().into_data().iter::<f32>().collect::<Vec<_>>(),
        ))
    });
    assert_eq!(all[0].0, all[1].0);
    assert_ne!(all[0].1, all[1].1);
}

/// Parameters of every rank after steps with `AdamW`, and the number of parameters with optimizer state.
fn with_adamw(count: usize, is_sharded: bool) -> Vec<(Vec<f32>, usize)> {
    run_all(count, 8, move |rank| {
        let rank = &rank.sharded(is_sharded);
        let mut trainer = rank.trainer(model(rank), AdamWConfig::new().init())?.clip_norm(0.5);
        for (seed, samples) in SIZES.iter().enumerate() {
            let own = batch(*samples, seed as u64).narrow(rank.part(*samples));
            trainer.step(RATE, own, Network::loss)?;
        }
        // Two moments for each parameter.
        Ok((parameters(trainer.model()), trainer.optimizer().to_record().len() / 2))
    })
}

#[test]
fn sharded_steps_are_those_of_ranks_with_the_whole_state() {
    for count in [2, 3, 5] {
        let (whole, sharded) = (with_adamw(count, false), with_adamw(count, true));
        assert!(whole.iter().all(|(_, states)| *states == 4));
        for (parameters, _) in &sharded {
            assert_eq!(*parameters, sharded[0].0, "{count} ranks came apart");
            let off = furthest(parameters, &whole[0].0);
            assert!(off < 1e-6, "{off} with {count} ranks");
        }
        // Each of the four parameters has its state on one rank.
        assert_eq!(sharded.iter().map(|(_, states)| states).sum::<usize>(), 4);
        assert!(sharded.iter().all(|(_, states)| *states < 4), "{count}");
    }
}

#[test]
fn all_ranks_have_the_identifiers_of_the_first() {
    let ids = run_all(3, 8, |rank| {
        let own = model(rank);
        let before = own.first.weight.id;
        let trainer = rank.trainer(own, sgd())?;
        Ok((before, trainer.model().first.weight.id, trainer.model().first.weight.is_require_grad()))
    });
    assert!(ids.iter().all(|(_, after, is_trained)| *after == ids[0].0 && *is_trained), "{ids:?}");
    assert_ne!(ids[1].0, ids[0].0);
}

#[test]
fn ranks_with_other_integers_in_their_models_do_not_train_together() {
    #[derive(Module, Debug)]
    struct Permuted {
        layer: Linear,
        order: Param<Tensor<1, Int>>,
    }
    let all = run(&[4, 4], 4, |rank| {
        let device = rank.device();
        let order = Tensor::from_ints([u8::from(rank.index() > 0), 1], device);
        let order = Param::initialized(ParamId::from(1), order);
        let model = Permuted { layer: LinearConfig::new(2, 1).init(device), order };
        rank.trainer(model, sgd()).map(drop).map_err(Into::into)
    });
    for outcome in all {
        let error = outcome.expect_err("they have other integers").to_string();
        assert!(error.contains("shape of the model of rank 1 differs"), "{error}");
    }
}

#[test]
fn epochs_count_in_their_thread_until_they_are_dropped() {
    let inputs = Inputs::default();
    let none = inputs.digest();
    let first = inputs.begin_epoch("first".to_owned());
    let second = thread::scope(|scope| {
        let elsewhere = scope.spawn(|| inputs.begin_epoch("elsewhere".to_owned()));
        elsewhere.join().expect("it returns")
    });
    assert_eq!(inputs.describe(), "first");
    assert_ne!(inputs.digest(), none);
    inputs.record("state", "of step 1".to_owned());
    inputs.record("state", "of step 2".to_owned());
    assert_eq!(inputs.clone().describe(), "first; state of step 2");
    drop((first, second));
    assert_eq!(inputs.describe(), "state of step 2");
    assert_eq!(Inputs::default().digest(), none);
}
