//! Gradients of a step in every kind of loss, size of micro-batches, precision and way, against those of the whole batch in f64.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::optim::SgdConfig;
use burn::tensor::{Device, FloatDType};
use gpu_tuned_core::Precision;
use networks::steps::{Head, MICRO_BATCHES, MeanLoss, RATE, SAMPLES, Sequences, StepLoss, Tagger, Whole, limit};

use super::{OUT_OF_MEMORY, device, parameters};
use crate::loss::{ChunkedCrossEntropy, Loss};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Half, LossScale};
use crate::train::ranks::tests::threads::{Failure, run};
use crate::train::{Step, Trainer};

/// First loss scale in f16. The default one overflows in the gradients of a mean over one target.
const LOSS_SCALE: f64 = 4096.0;
/// Samples of two ranks.
const SHARES: [usize; 2] = [3, 5];

/// Way to take a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    OneTrainer,
    /// Memory runs out once within the step, which begins with micro-batches of two samples at least.
    AfterRecovery,
    TwoRanks,
}

impl Way {
    const ALL: [Self; 3] = [Self::OneTrainer, Self::AfterRecovery, Self::TwoRanks];
}

/// Gradients of a step, as the parameters of plain descent show them, and its loss.
struct Taken {
    gradients: Vec<f64>,
    step: Step,
}

impl Taken {
    /// Larger difference of gradients and loss from those of the whole batch; infinite for a step that was not applied.
    fn difference(&self, whole: &Whole) -> f64 {
        if !self.step.applied {
            return f64::INFINITY;
        }
        whole.difference(&self.gradients, self.step.loss.into())
    }
}

/// The mean with its weight.
fn weighted(mean: MeanLoss) -> Loss {
    match mean {
        MeanLoss::Samples(mean) => mean.into(),
        MeanLoss::Targets(mean, number) => (mean, number).into(),
        MeanLoss::Classes(mean, weight) => (mean, weight).into(),
        MeanLoss::Number(mean, number) => (mean, number).into(),
        MeanLoss::Head(head) => {
            let Head { chunk, padding, hidden, weight, bias, targets } = *head;
            ChunkedCrossEntropy::new(chunk).with_pad_tokens(vec![padding]).forward(hidden, weight, bias, targets)
        }
    }
}

/// The mean alone: the mistake that the limits must detect.
fn unweighted(mean: MeanLoss) -> Loss {
    weighted(mean).into_parts().0.into()
}

fn network(precision: Precision, device: &Device) -> Tagger {
    Tagger::new(if precision == Precision::Bf16Params { FloatDType::BF16 } else { FloatDType::F32 }, device)
}

/// Takes the step with a new trainer.
fn taken(
    trainer: Trainer<Tagger>,
    precision: Precision,
    batch: Sequences,
    loss: impl Fn(&Tagger, Sequences) -> Loss + Sync,
) -> Result<Taken, Failure> {
    let trainer = match Half::of(precision) {
        Some(half) => trainer.mixed(half)?,
        None => trainer,
    };
    let mut trainer = match precision {
        Precision::MixedF16 => trainer.with_loss_scale(LossScale::for_half(Half::F16).with_init_scale(LOSS_SCALE)),
        _ => trainer,
    };
    let before = parameters(trainer.master());
    let step = trainer.step(RATE, batch, loss)?;
    let moved = |(before, after): (&f32, &f32)| f64::from(before - after) / RATE;
    Ok(Taken { gradients: before.iter().zip(&parameters(trainer.master())).map(moved).collect(), step })
}

/// Takes the step of a loss in a precision and way.
fn step(
    kind: StepLoss,
    precision: Precision,
    micro_batch: usize,
    way: Way,
    loss: fn(MeanLoss) -> Loss,
) -> Result<Taken, Failure> {
    let new = |micro_batch| Trainer::new(network(precision, &device()), SgdConfig::new().init(), device(), micro_batch);
    let mean = move |network: &Tagger, micro| loss(kind.mean(network, micro));
    match way {
        Way::OneTrainer => {
            let taken = taken(new(micro_batch), precision, kind.batch(), mean)?;
            assert_eq!(taken.step.micro_batches, SAMPLES.div_ceil(micro_batch));
            Ok(taken)
        }
        Way::AfterRecovery => {
            let first = micro_batch.max(2);
            // The last micro-batch: the sum over those before it is lost.
            let left = AtomicUsize::new(SAMPLES.div_ceil(first));
            let taken = taken(new(first), precision, kind.batch(), |network, micro| {
                let is_last = left.fetch_sub(1, Ordering::Relaxed) == 1;
                assert!(!is_last, "{OUT_OF_MEMORY}");
                mean(network, micro)
            })?;
            assert!(taken.step.rescues.len() == 1 && taken.step.micro_batch < first, "{:?}", taken.step);
            Ok(taken)
        }
        Way::TwoRanks => {
            let ranks = run(&SHARES, micro_batch, move |rank| {
                let trainer = rank.trainer(network(precision, rank.device()), SgdConfig::new().init())?;
                taken(trainer, precision, kind.batch().narrow(rank.part(SAMPLES)), mean)
            });
            let mut ranks = ranks.into_iter().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(ranks[0].gradients, ranks[1].gradients);
            assert_eq!(ranks[0].step.loss.to_bits(), ranks[1].step.loss.to_bits());
            Ok(ranks.swap_remove(1))
        }
    }
}

#[test]
fn a_step_has_the_gradients_of_the_whole_batch_in_any_way() {
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for kind in StepLoss::ALL {
        let whole = kind.whole();
        for precision in Precision::ALL {
            let of_way = Way::ALL.map(|way| {
                let differences = MICRO_BATCHES.map(|micro_batch| {
                    let taken = step(kind, precision, micro_batch, way, weighted).unwrap();
                    taken.difference(&whole)
                });
                differences.into_iter().fold(0.0, f64::max)
            });
            let limit = limit(precision);
            let of_ways = of_way.map(|difference| format!("{difference:.1e}")).join(" ");
            rows.push(format!("{:14} {precision:11} {of_ways} limit {limit:.0e}", kind.name()));
            if of_way.iter().any(|difference| *difference > limit) {
                wrong.push(rows.last().cloned());
            }
        }
    }
    println!("largest relative difference, by {:?}\n{}", Way::ALL, rows.join("\n"));
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn without_their_weights_the_gradients_are_ten_times_beyond_the_limit() {
    for kind in StepLoss::ALL.into_iter().filter(|kind| kind.has_weight()) {
        let whole = kind.whole();
        for precision in Precision::ALL {
            for micro_batch in MICRO_BATCHES {
                for way in Way::ALL {
                    let is_whole = way == Way::OneTrainer && micro_batch == SAMPLES;
                    let found = step(kind, precision, micro_batch, way, unweighted).unwrap().difference(&whole);
                    let limit = limit(precision);
                    let is_as_expected = if is_whole { found <= limit } else { found > 10.0 * limit };
                    assert!(is_as_expected, "{kind:?} {precision} {micro_batch} {way:?}: {found}");
                }
            }
        }
    }
}
