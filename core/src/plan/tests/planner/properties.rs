//! Properties of every plan.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::dims::{Dim, DimValues, Schema as _};
use gpu_tuned_core::plan::{Plan, PlanError, Remedy};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{ModelSpec, Training, Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Pins, Precision, Setting, plan};
use proptest::prelude::*;

use super::supported;
use super::workloads::{goals, workloads};

fn devices() -> impl Strategy<Value = DeviceFacts> {
    let all: Vec<_> = supported().collect();
    (prop::sample::select(all), 0.05..1.0f64).prop_map(|(facts, free)| {
        let memory_available = facts.memory_total.scaled(free);
        DeviceFacts { memory_available, ..facts }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_plan_fits_and_its_micro_batches_add_up(device in devices(), workload in workloads(), goal in goals()) {
        if let Ok(plan) = plan(&device, &workload, &goal) {
            prop_assert!(plan.memory.total() + plan.memory.headroom <= device.memory_available);
            let sizes: Vec<u64> = plan.schedule.micro_batches().collect();
            prop_assert_eq!(Some(sizes.iter().sum::<u64>() * goal.world_size), goal.global_batch);
            prop_assert_eq!(sizes.len() as u64, plan.settings.gradient_accumulation);
            prop_assert!(sizes.iter().all(|size| (1..=plan.settings.batch_size).contains(size)));
            let reasons: Vec<_> = plan.reasons.iter().map(|reason| reason.setting).collect();
            prop_assert_eq!(reasons, Setting::ALL);
        }
    }

    #[test]
    fn the_plan_for_a_meet_fits_every_member(
        members in prop::collection::vec(devices(), 2..5), workload in workloads(), goal in goals(),
    ) {
        let meet = DeviceFacts::common(&members).expect("there are members");
        if let Ok(planned) = plan(&meet, &workload, &goal) {
            for member in &members {
                let mut pins = Pins::default();
                pins.batch_size = Some(planned.settings.batch_size);
                pins.gradient_checkpointing = Some(planned.settings.gradient_checkpointing);
                let fixed = Goal { pins, ..goal.clone() };
                prop_assert!(plan(member, &workload, &fixed).is_ok(), "{} in {}", planned, member.name);
            }
        }
    }

    /// With a precision of its choice the planner gives up 5% more for f32, once more memory holds it. For batch statistics it
    /// gives up any speed for 16 samples.
    #[test]
    fn more_memory_never_costs_more_than_the_tolerance(
        device in devices(), workload in workloads(), goal in goals(), more in 1.0..4.0f64,
    ) {
        let goal = Goal { target_utilization: None, ..goal };
        let larger = DeviceFacts {
            memory_available: device.memory_available.scaled(more),
            memory_total: device.memory_total.scaled(more),
            ..device.clone()
        };
        if let Ok(before) = plan(&device, &workload, &goal) {
            let least = |plan: &Plan| plan.schedule.micro_batches().min().expect("a step has samples").min(16);
            let after = plan(&larger, &workload, &goal).expect("it fitted into less");
            let is_now_f32 = after.settings.precision == Precision::F32 && after.settings.precision != before.settings.precision;
            let lowest = (1.0 - goal.throughput_tolerance - 1e-9) / if is_now_f32 { 1.05 } else { 1.0 };
            let has_more = workload.batch_statistics && least(&after) > least(&before);
            prop_assert!(!workload.batch_statistics || least(&after) >= least(&before), "{}\n{}", before, after);
            prop_assert!(has_more || after.samples_per_s >= before.samples_per_s * lowest, "{}\n{}", before, after);
        }
    }

    #[test]
    fn what_is_refused_fits_neither_one_sample_at_a_time_nor_all_at_once(
        device in devices(), workload in workloads(), goal in goals(),
    ) {
        let Err(PlanError::DoesNotFit(misfit)) = plan(&device, &workload, &goal) else { return Ok(()) };
        prop_assert!(!misfit.memory.fits() || misfit.too_large.is_some());
        let samples = goal.global_batch.expect("these goals have one") / goal.world_size;
        let smallest = Some(1).filter(|_| workload.least_micro_batch() == 1);
        for batch in smallest.into_iter().chain([samples]) {
            let mut pins = Pins::default();
            pins.batch_size = Some(batch);
            let fixed = plan(&device, &workload, &Goal { pins, ..goal.clone() });
            let Err(PlanError::DoesNotFit(fixed)) = fixed else { return Err(TestCaseError::fail("it fits")) };
            prop_assert!(fixed.too_large.is_some() || misfit.memory.total() <= fixed.memory.total(), "{fixed}\n{misfit}");
        }
    }

    #[test]
    fn every_remedy_works_and_needs_the_reported_memory(
        device in devices(), workload in workloads(), goal in goals(), whole: bool,
    ) {
        let goal = Goal { whole_batch_loss: whole && goal.world_size == 1, ..goal };
        // A tenth of the memory, so that much is refused.
        let device = DeviceFacts { memory_available: device.memory_available.scaled(0.1), ..device };
        let Err(PlanError::DoesNotFit(misfit)) = plan(&device, &workload, &goal) else { return Ok(()) };
        for remedy in &misfit.remedies {
            let (remedied, needed) = match remedy {
                Remedy::Keys { keys, needed, .. } => {
                    let (workload, goal) = with_keys(keys, &workload, &goal);
                    (plan(&device, &workload, &goal), needed)
                }
                Remedy::LargerGpu { profile: Some(id), needed, .. } => {
                    let named = DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("a shipped profile"));
                    prop_assert!(named.memory_available >= *needed, "{}", misfit);
                    prop_assert!(plan(&named, &workload, &goal).is_ok(), "{}\n{}", misfit, remedy);
                    continue;
                }
                Remedy::LargerGpu { profile: None, .. } | Remedy::CacheEmbeddings => continue,
                other => return Err(TestCaseError::fail(format!("nothing was fixed, but {other}"))),
            };
            prop_assert!(remedied.as_ref().is_ok_and(|plan| plan.memory.total() == *needed), "{}\n{}: {:?}", misfit, remedy, remedied);
        }
    }
}

/// Sets keys as a user does, in the text of a file.
fn with_keys(keys: &str, workload: &Workload, goal: &Goal) -> (Workload, Goal) {
    let given: toml::Table = keys.replace(", ", "\n").parse().expect("keys as in a file");
    let values = |dims: &'static [Dim], old: DimValues| {
        let new = dims.iter().filter_map(|dim| Some((dim.name, dim.kind.read(given.get(dim.name)?)?)));
        old.into_iter().chain(new).collect::<DimValues>()
    };
    let WorkloadSpec { model, training } = &workload.spec;
    let kind = model.kind();
    let new = WorkloadSpec {
        model: ModelSpec::from_values(kind, &values(kind.dims, model.values())),
        training: Training::from_values(&values(Training::DIMS, training.values())),
    };
    let goal = Goal::from_values(&values(Goal::DIMS, goal.values()));
    (new.workload(), goal)
}
