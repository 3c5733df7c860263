//! Plans of all ranks of a run.

use super::*;
use crate::PrecisionPolicy;
use crate::plan::plan_ranks;

fn small() -> Workload {
    Transformer::new(6, 512, 8192, 256).workload()
}

fn goal(unequal: bool, global_batch: u64) -> Goal {
    Goal { unequal, global_batch: Some(global_batch), ..Goal::default() }
}

#[test]
fn equal_shares_have_one_plan_for_all() {
    let devices = [nominal("h100-sxm5-80gb"), nominal("l4")];
    let plans = plan_ranks(&devices, &small(), &goal(false, 512)).expect("it fits");
    assert_eq!(plans[0], plans[1]);
    assert_eq!((plans[0].schedule.samples_per_rank(), plans[0].schedule.share), (256, None));
    assert!(plan_ranks(&devices, &small(), &goal(false, 511)).is_err());
    assert_eq!(plan_ranks(&[], &small(), &goal(true, 512)), Ok(Vec::new()));
}

#[test]
fn unequal_shares_follow_the_predicted_speed_and_end_together() {
    let devices = [nominal("h100-sxm5-80gb"), nominal("l4"), nominal("h100-sxm5-80gb")];
    let plans = plan_ranks(&devices, &small(), &goal(true, 1023)).expect("it fits");
    let shares: Vec<_> = plans.iter().map(|plan| plan.schedule.samples_per_rank()).collect();
    assert_eq!(shares.iter().sum::<u64>(), 1023);
    assert!(shares[0] > 3 * shares[1] && shares[0].abs_diff(shares[2]) <= 1, "{shares:?}");
    let first: Vec<_> = plans.iter().filter_map(|plan| plan.schedule.share).map(|share| share.first).collect();
    assert_eq!(first, [0, shares[0], shares[0] + shares[1]]);
    for plan in &plans {
        assert_eq!(plan.schedule.micro_batches().sum::<u64>(), plan.schedule.samples_per_rank());
        assert_eq!(plan.schedule.micro_steps(), plan.settings.gradient_accumulation);
        assert!(plan.memory.fits());
    }
    // The step is faster than with equal shares.
    let equal = plan_ranks(&devices, &small(), &goal(false, 1023)).expect("it fits");
    assert!(plans[0].samples_per_s > 1.5 * equal[0].samples_per_s);
    assert!(plans.iter().all(|plan| plan.samples_per_s.to_bits() == plans[0].samples_per_s.to_bits()));
}

#[test]
fn a_fast_rank_with_little_memory_accumulates_its_share() {
    let plans =
        plan_ranks(&[with_free("h100-sxm5-80gb", 3000), nominal("l4")], &small(), &goal(true, 512)).expect("it fits");
    assert!(plans[0].schedule.samples_per_rank() > plans[1].schedule.samples_per_rank());
    assert!(plans[0].memory.fits() && plans[0].schedule.micro_steps() > 1, "{}", plans[0]);
}

#[test]
fn all_ranks_compute_in_one_precision() {
    let auto = Goal { precision: Some(PrecisionPolicy::Auto), ..goal(true, 512) };
    let plans = plan_ranks(&[nominal("h100-sxm5-80gb"), nominal("v100-sxm2-16gb")], &small(), &auto).expect("it fits");
    assert_eq!(plans[0].settings.precision, plans[1].settings.precision);
    assert_eq!(plans[0].settings.allow_tf32, plans[1].settings.allow_tf32);
    let alone = planned(&nominal("h100-sxm5-80gb"), &small(), &auto);
    assert_eq!(alone.settings.precision, Precision::MixedBf16);
}

#[test]
fn without_a_global_batch_the_weakest_rank_sets_it() {
    let free = Goal { unequal: true, ..Goal::default() };
    let devices = [nominal("h100-sxm5-80gb"), nominal("l4")];
    let plans = plan_ranks(&devices, &small(), &free).expect("it fits");
    let common = DeviceFacts::common(&devices).expect("two");
    let weakest = planned(&common, &small(), &Goal { world_size: 2, ..Goal::default() });
    assert_eq!(plans[0].schedule.global_batch, weakest.schedule.global_batch);
    assert!(plans[0].schedule.samples_per_rank() > plans[1].schedule.samples_per_rank());
}

#[test]
fn thousands_of_ranks_with_unlike_free_memory_are_planned_by_kind() {
    let part =
        |rank: u64| DeviceFacts { memory_available: Bytes((78 << 30) + (rank << 16)), ..nominal("h100-sxm5-80gb") };
    let devices: Vec<_> = (0..2000).map(part).collect();
    let plans = plan_ranks(&devices, &small(), &goal(true, 1 << 20)).expect("it fits");
    assert_eq!(plans.iter().map(|plan| plan.schedule.samples_per_rank()).sum::<u64>(), 1 << 20);
}
