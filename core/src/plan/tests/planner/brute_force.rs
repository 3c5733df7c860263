//! The planner against a search over every micro-batch, by the planner's own costs.

use std::cell::RefCell;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Plan, PlanError};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Pins, Precision, plan};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};

use super::costs::{Costs, costs};
use super::workloads::{LARGEST_SHARE, goals, goals_of, workloads};
use super::{free_memory, profiles, runner};

/// Number of comparisons, and the distances of plans from the best.
#[derive(Debug)]
struct Tally {
    pairs: u64,
    planned: u64,
    refused: u64,
    without_bf16: u64,
    with_checkpointing: u64,
    ragged: u64,
    ways: u64,
    /// The lowest throughput of a plan, over the highest that fits less the tolerance.
    worst_of_tolerated: f64,
    /// The lowest throughput of a plan over the highest that fits, under the default tolerance.
    worst_by_default: f64,
}

impl Tally {
    const EMPTY: Self = Self {
        pairs: 0,
        planned: 0,
        refused: 0,
        without_bf16: 0,
        with_checkpointing: 0,
        ragged: 0,
        ways: 0,
        worst_of_tolerated: f64::INFINITY,
        worst_by_default: f64::INFINITY,
    };

    fn add(&mut self, plan: &Plan, goal: &Goal, ratio: f64) {
        self.planned += 1;
        self.with_checkpointing += u64::from(plan.settings.gradient_checkpointing);
        self.ragged += u64::from(!plan.schedule.samples_per_rank().is_multiple_of(plan.settings.batch_size));
        if goal.target_utilization.is_none() {
            self.worst_of_tolerated = self.worst_of_tolerated.min(ratio / (1.0 - goal.throughput_tolerance));
            if goal.throughput_tolerance.to_bits() == Goal::default().throughput_tolerance.to_bits() {
                self.worst_by_default = self.worst_by_default.min(ratio);
            }
        }
    }
}

fn fastest(fitting: &[Costs]) -> Option<f64> {
    fitting.iter().map(|way| way.samples_per_s).max_by(f64::total_cmp)
}

/// True if the micro-batches of a step have one size; without a global batch, if that is a power of two.
fn is_even(way: &Costs, goal: &Goal) -> bool {
    if goal.global_batch.is_some() { way.samples.is_multiple_of(way.batch) } else { way.batch.is_power_of_two() }
}

/// Relative difference of speeds that are equal but for rounding, as those of 8 x 69 and 7 x 70 + 62 samples that launches
/// bound.
const ROUNDING: f64 = 1e-14;

/// Samples of the smallest micro-batch.
fn least(way: &Costs) -> u64 {
    if way.samples.is_multiple_of(way.batch) { way.batch } else { way.samples % way.batch }
}

/// The ways that count: for batch statistics those with 16 samples in each micro-batch, or with as many as fit.
fn counted(workload: &Workload, mut fitting: Vec<Costs>) -> Vec<Costs> {
    if workload.batch_statistics {
        let most = fitting.iter().map(least).max().unwrap_or(0).min(16);
        fitting.retain(|way| least(way) >= most);
    }
    fitting
}

/// The rule of `plan`, applied to everything that fits and counts: `(checkpointing, micro-batch)`.
fn best(fitting: &[Costs], workload: &Workload, goal: &Goal) -> Option<(bool, u64)> {
    let fastest = fastest(fitting)?;
    // Statistics over more samples are nearer to those of the step, up to 32.
    let prefers_large = workload.batch_statistics && goal.global_batch.is_some();
    let enough = |way: &Costs| match goal.target_utilization {
        Some(target) => way.utilization >= target,
        None => way.samples_per_s >= fastest * (1.0 - goal.throughput_tolerance),
    };
    let size = |way: &Costs| (if prefers_large { 32_u64.saturating_sub(least(way)) } else { 0 }, way.batch);
    let key = |way: &Costs| ((way.checkpointing, !is_even(way, goal), size(way)), way.batch);
    // The whole step at once is better than a part of it that takes more of both.
    let wholes: Vec<_> = fitting.iter().filter(|way| way.batch == way.samples && enough(way)).collect();
    let is_outdone = |way: &Costs| {
        way.batch < way.samples
            && wholes.iter().any(|whole| {
                let takes_less = whole.memory < way.memory && whole.samples_per_s >= way.samples_per_s;
                takes_less && (way.checkpointing || !whole.checkpointing)
            })
    };
    let smallest =
        |is: &dyn Fn(&Costs) -> bool| fitting.iter().filter(|way| is(way) && !is_outdone(way)).map(key).min();
    let ((checkpointing, ..), batch) =
        smallest(&enough).or_else(|| smallest(&|way| way.samples_per_s >= fastest * (1.0 - ROUNDING)))?;
    Some((checkpointing, batch))
}

/// Fitting candidates among these splits, and the plan to compare. `None` without any.
fn planned(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    splits: &[(u64, u64)],
    tally: &mut Tally,
) -> Result<Option<(Plan, Vec<Costs>)>, TestCaseError> {
    let planned = plan(device, workload, goal);
    tally.pairs += 1;
    if goal.precision == Some(Precision::Bf16Params.into()) && !device.has_bf16 {
        tally.without_bf16 += 1;
        prop_assert!(matches!(planned, Err(PlanError::PrecisionUnsupported { .. })), "{:?}", planned);
        return Ok(None);
    }
    let mut ways = costs(device, workload, goal, splits).expect("the goal and its precision can be had");
    tally.ways += ways.len() as u64;
    ways.retain(|way| least(way) >= workload.least_micro_batch());
    if ways.is_empty() {
        prop_assert!(matches!(planned, Err(PlanError::Goal { .. })), "{:?}", planned);
        return Ok(None);
    }
    let fitting = counted(workload, ways.into_iter().filter(|way| way.fits).collect());
    if fitting.is_empty() {
        tally.refused += 1;
        prop_assert!(matches!(planned, Err(PlanError::DoesNotFit(_))), "nothing fits, but {:?}", planned);
        return Ok(None);
    }
    match planned {
        Ok(plan) => Ok(Some((plan, fitting))),
        Err(error) => Err(TestCaseError::fail(format!("{:?} fits, but {error}", fitting[0]))),
    }
}

/// Compares each of so many workloads on every profile.
fn on_every_profile(
    few: u32,
    goals: impl Strategy<Value = Goal>,
    compare: impl Fn(&DeviceFacts, &Workload, &Goal, &mut Tally) -> TestCaseResult,
) {
    let tally = RefCell::new(Tally::EMPTY);
    let outcome = runner(few).run(&(workloads(), goals, free_memory()), |(workload, goal, free)| {
        profiles(free).iter().try_for_each(|device| {
            compare(device, &workload, &goal, &mut tally.borrow_mut())
                .map_err(|error| TestCaseError::fail(format!("{}: {error}", device.name)))
        })
    });
    println!("{:#?}", tally.borrow());
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_planned_micro_batch_is_the_best_of_all() {
    on_every_profile(100, goals(), |device, workload, goal, tally| {
        let samples = goal.global_batch.expect("these goals have one") / goal.world_size;
        let every: Vec<_> = (1..=samples).map(|batch| (batch, samples)).collect();
        let Some((plan, fitting)) = planned(device, workload, goal, &every, tally)? else { return Ok(()) };
        let found = (plan.settings.gradient_checkpointing, plan.settings.batch_size);
        prop_assert_eq!(Some(found), best(&fitting, workload, goal), "{} samples: {}", samples, plan);
        tally.add(&plan, goal, plan.samples_per_s / fastest(&fitting).expect("something fits"));
        Ok(())
    });
}

#[test]
fn a_large_step_has_nearly_the_best_throughput() {
    on_every_profile(4, goals_of(10 * LARGEST_SHARE), |device, workload, goal, tally| {
        let goal = Goal { target_utilization: None, ..goal.clone() };
        let samples = goal.global_batch.expect("these goals have one") / goal.world_size;
        let every: Vec<_> = (1..=samples).map(|batch| (batch, samples)).collect();
        let Some((plan, fitting)) = planned(device, workload, &goal, &every, tally)? else { return Ok(()) };
        let ratio = plan.samples_per_s / fastest(&fitting).expect("something fits");
        prop_assert!(ratio >= 1.0 - goal.throughput_tolerance - 1e-9, "{} of the best: {}", ratio, plan);
        // Beyond 64 micro-batches of more than 64 samples it considers doublings.
        let (checkpointing, smallest) = best(&fitting, workload, &goal).expect("something fits");
        prop_assert_eq!(plan.settings.gradient_checkpointing, checkpointing);
        let ragged = !samples.is_multiple_of(plan.settings.batch_size);
        prop_assert!(!ragged || plan.settings.batch_size <= 2 * smallest, "{} would do: {}", smallest, plan);
        tally.add(&plan, &goal, ratio);
        Ok(())
    });
}

#[test]
fn without_a_global_batch_it_is_a_power_of_two_or_one_of_seven_steps_between() {
    let steps = |exponent: u32| (8..16).map(move |eighths| (1_u64 << exponent) * eighths / 8);
    let considered: Vec<_> = (0..=16).flat_map(steps).filter(|batch| *batch <= 1 << 16).collect();
    let considered: Vec<_> = considered.into_iter().map(|batch| (batch, batch)).collect();
    on_every_profile(25, goals(), |device, workload, goal, tally| {
        let goal = Goal { global_batch: None, ..goal.clone() };
        let Some((plan, fitting)) = planned(device, workload, &goal, &considered, tally)? else { return Ok(()) };
        let found = (plan.settings.gradient_checkpointing, plan.settings.batch_size);
        prop_assert_eq!(Some(found), best(&fitting, workload, &goal), "{}", plan);
        // An eighth more does not fit; of a batch for which fewer are prepared ahead, nearly three times as much may.
        let up_to = plan.settings.batch_size * 4;
        let near: Vec<_> = (1..=up_to.min(4096)).map(|batch| (batch, batch)).collect();
        let others = costs(device, workload, &goal, &near).expect("it was planned").into_iter().filter(|way| way.fits);
        let ratio = plan.samples_per_s / fastest(&others.collect::<Vec<_>>()).unwrap_or(plan.samples_per_s);
        let least = (1.0 - goal.throughput_tolerance) * 8.0 / 9.0;
        prop_assert!(goal.target_utilization.is_some() || ratio >= least, "{} of the best: {}", ratio, plan);
        tally.add(&plan, &goal, ratio);
        Ok(())
    });
}

#[test]
fn costs_are_those_of_plans_with_fixed_micro_batches() {
    let devices = profiles(1.0);
    let cases = (workloads(), goals(), 0.0..1.0f64, prop::sample::select(devices));
    let fixed = runner(1_000).run(&cases, |(workload, goal, share, device)| {
        let samples = goal.global_batch.expect("these goals have one") / goal.world_size;
        let batch = ((samples as f64 * share) as u64).max(1);
        let mut ways = costs(&device, &workload, &goal, &[(batch, samples)]).unwrap_or_default();
        ways.retain(|way| least(way) >= workload.least_micro_batch());
        for way in ways {
            let mut pins = Pins::default();
            pins.batch_size = Some(batch);
            pins.gradient_checkpointing = Some(way.checkpointing);
            pins.precision = Some(way.precision);
            let (fits, memory) = match plan(&device, &workload, &Goal { pins, ..goal.clone() }) {
                Ok(plan) => {
                    prop_assert_eq!(plan.samples_per_s.to_bits(), way.samples_per_s.to_bits(), "{}", plan);
                    (true, plan.memory.total())
                }
                Err(PlanError::DoesNotFit(misfit)) => (false, misfit.memory.total()),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            };
            prop_assert_eq!((fits, memory), (way.fits, way.memory), "{:?}", way);
        }
        Ok(())
    });
    fixed.unwrap_or_else(|error| panic!("{error}"));
}
