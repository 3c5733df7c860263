//! One plan for several GPUs at once.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::plan::{Plan, PlanError};
use gpu_tuned_core::profile::{Profile, ProfileTable};
use gpu_tuned_core::workload::{Mlp, Transformer, Workload};
use gpu_tuned_core::{Bytes, Goal, Pins, Precision, PrecisionPolicy, plan};
use gpu_tuned_project::compile::{CompileError, Compiled, compile};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::resolved::{Resolved, Selected};
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::strategies::workloads::{goals, workloads};

/// The table of a build that selects all of these.
fn selecting(profiles: Vec<Profile>) -> Resolved {
    let ids = profiles.iter().map(|profile| profile.id.clone()).collect();
    Resolved::new(Selected::Targets(ids), Vec::new(), &ConfigFile::default(), &ProfileTable::from_iter(profiles))
}

/// The goal with the micro-batch, precision and checkpointing of a plan.
fn fixed(goal: &Goal, plan: &Plan) -> Goal {
    let mut pins = Pins::default();
    pins.precision = Some(plan.settings.precision);
    pins.batch_size = Some(plan.settings.batch_size);
    pins.gradient_checkpointing = Some(plan.settings.gradient_checkpointing);
    Goal { pins, ..goal.clone() }
}

fn shipped(ids: &[&str]) -> Vec<Profile> {
    ids.iter().map(|id| ProfileTable::builtin_profile(id).expect("a shipped profile")).collect()
}

#[test]
fn what_each_gpu_holds_alone_is_planned_for_both() {
    let workload = Transformer { dropout: false, ..Transformer::new(24, 1216, 32_000, 512) }.workload();
    let goal = Goal { global_batch: Some(64), ..Goal::default() };
    let compiled = |ids: &[&str]| {
        compile(&selecting(shipped(ids)), &workload, &goal).unwrap_or_else(|error| panic!("{ids:?}: {error}"))
    };
    assert_eq!(compiled(&["h200"]).plan.settings.batch_size, 32);
    let alone = compiled(&["t4"]).plan;
    let both = compiled(&["h200", "t4"]);
    assert_eq!((both.target.as_str(), both.misfits.as_slice()), ("h200 + t4", &[][..]));
    assert_eq!((both.plan.device.as_str(), both.plan.settings.batch_size), ("h200 + t4", 1), "{}", both.plan);
    assert_eq!((both.plan.memory.total(), both.plan.memory.available), (alone.memory.total(), alone.memory.available));
    // A T4 has no TF32, whatever the other one has.
    assert!(!both.plan.settings.allow_tf32, "{}", both.plan);
}

/// A small transformer of which these MiB were measured on each of the GPUs, by micro-batch.
fn measured(all: &[(&str, &[(u64, u64)])]) -> Workload {
    let on = all.iter().map(|(id, points)| {
        let facts = DeviceFacts::nominal(&shipped(&[id])[0]);
        let point = |&(batch, mib): &(u64, u64)| {
            (batch, MeasuredBatch { reserved_bytes: Some(Bytes::from_mib(mib)), ..MeasuredBatch::default() })
        };
        let batch = points.iter().map(point).collect();
        let mode = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch };
        let on = MeasuredOn {
            mode: BTreeMap::from([(Mode::new(Precision::F32, false), mode)]),
            ..facts.measured_on("0.22.1")
        };
        ((*id).to_owned(), on)
    });
    let on = on.collect();
    Transformer::new(2, 64, 512, 32).workload().with_measured(Measured { on, ..Measured::default() })
}

#[test]
fn what_was_measured_of_one_gpu_is_not_taken_for_the_other() {
    let goal = Goal { global_batch: Some(512), ..Goal::default() };
    let profiles = shipped(&["rtx3090", "rtx4090"]);
    let (light, heavy) = ([(8, 2_000), (256, 7_000)], [(8, 4_000), (256, 60_000)]);
    for points in [[&light, &heavy], [&heavy, &light]] {
        let workload = measured(&[("rtx3090", points[0]), ("rtx4090", points[1])]);
        let Compiled { plan: planned, misfits, .. } = compile(&selecting(profiles.clone()), &workload, &goal).unwrap();
        assert!(misfits.is_empty());
        for profile in &profiles {
            let member = plan(&DeviceFacts::nominal(profile), &workload, &fixed(&goal, &planned));
            assert!(member.is_ok(), "{planned} in {}: {member:?}", profile.id);
        }
    }
}

#[test]
fn where_no_plan_is_for_all_the_gpu_with_the_least_memory_is_left_out() {
    let goal = Goal { global_batch: Some(8), ..Goal::default() };
    // A step fits the one at once, if nothing is added for unknown memory, and the other one sample at a time.
    let workload = measured(&[("t4", &[(8, 12_500)]), ("rtx4090", &[(1, 16_000), (8, 40_000)])]);
    let compiled = compile(&selecting(shipped(&["rtx4090", "t4"])), &workload, &goal).unwrap();
    assert_eq!((compiled.target.as_str(), compiled.plan.settings.batch_size), ("rtx4090", 1), "{}", compiled.plan);
    let [misfit] = &compiled.misfits[..] else { panic!("{:?}", compiled.misfits) };
    assert_eq!((misfit.device.as_str(), misfit.memory.batch), ("t4", 1), "{misfit}");
}

#[test]
fn a_gpu_that_needs_16_bits_is_left_out_beside_one_without_them() {
    let workload = Transformer { dropout: false, ..Transformer::new(6, 512, 8192, 1024) }.workload();
    let mut goal = Goal { global_batch: Some(8), precision: Some(PrecisionPolicy::Auto), ..Goal::default() };
    goal.pins.gradient_checkpointing = Some(false);
    let needed = |precision| {
        let mut pins = goal.pins.clone();
        (pins.batch_size, pins.precision) = (Some(1), Some(precision));
        let facts = DeviceFacts::nominal(&shipped(&["rtx4090"])[0]);
        plan(&facts, &workload, &Goal { pins, ..goal.clone() }).expect("it fits").memory.total().mib()
    };
    let between = f64::midpoint(needed(Precision::F32), needed(Precision::MixedBf16));
    let [mut small, old] = <[Profile; 2]>::try_from(shipped(&["rtx4090", "gtx1080"])).expect("two profiles");
    small.memory.nominal_mib = (between / (1.0 - goal.memory_headroom)) as u64;
    (small.memory.nvml_total_mib, small.memory.cuda_total_mib) = (Vec::new(), Vec::new());
    let alone = compile(&selecting(vec![small.clone()]), &workload, &goal).expect("it fits").plan;
    assert_eq!(alone.settings.precision, Precision::MixedBf16, "{alone}");
    let both = compile(&selecting(vec![small, old]), &workload, &goal).expect("one fits");
    assert_eq!((both.target.as_str(), both.plan.settings.precision), ("gtx1080", Precision::F32), "{}", both.plan);
    let [misfit] = &both.misfits[..] else { panic!("{:?}", both.misfits) };
    assert_eq!(misfit.device, "rtx4090", "{misfit}");
}

/// Shipped profiles of GPUs that Burn can train on.
fn trainable() -> Vec<Profile> {
    let can_train = |profile: &&Profile| profile.compute_capability.refusal().is_none();
    ProfileTable::builtin().iter().filter(can_train).cloned().collect()
}

#[test]
fn a_gpu_that_burn_cannot_train_on_is_left_out_of_several_and_refused_alone() {
    let (workload, goal) = (Mlp { widths: vec![4, 4] }.workload(), Goal { global_batch: Some(64), ..Goal::default() });
    let both = compile(&selecting(shipped(&["k80", "h200"])), &workload, &goal).expect("one can train");
    assert_eq!((both.target.as_str(), both.misfits.len()), ("h200", 0));
    // Too large for a T4: each target has its own reason.
    let large = Transformer::new(48, 8192, 32_000, 512).workload();
    let refused = compile(&selecting(shipped(&["k80", "m60", "t4"])), &large, &goal);
    let Err(CompileError::NothingFits { reasons }) = &refused else { panic!("{refused:?}") };
    let [k80, m60, PlanError::DoesNotFit(_)] = &reasons[..] else { panic!("{reasons:?}") };
    assert!([k80, m60].iter().all(|reason| matches!(reason, PlanError::GpuUnsupported { .. })), "{reasons:?}");
}

/// Profiles that have hardly more memory than one sample takes of it: where the multiprocessors decide.
fn tight(profiles: &[Profile], slack: &[f64], workload: &Workload, goal: &Goal) -> Vec<Profile> {
    let resized = profiles.iter().zip(slack).filter_map(|(profile, slack)| {
        let roomy = Bytes::from_mib(1 << 30);
        let facts = DeviceFacts { memory_total: roomy, memory_available: roomy, ..DeviceFacts::nominal(profile) };
        let mut pins = Pins::default();
        pins.batch_size = Some(1);
        let needed = plan(&facts, workload, &Goal { pins, ..goal.clone() }).ok()?.memory.total();
        let mut profile = profile.clone();
        profile.memory.nominal_mib = (needed.mib() / (1.0 - goal.memory_headroom) * slack) as u64 + 1;
        profile.memory.nvml_total_mib.clear();
        profile.memory.cuda_total_mib.clear();
        let alone = plan(&DeviceFacts::nominal(&profile), workload, goal);
        alone.is_ok().then_some(profile)
    });
    resized.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn gpus_that_hold_a_workload_alone_get_a_plan_that_fits_each(
        profiles in subsequence(trainable(), 2..6),
        slack in prop::collection::vec(prop_oneof![1.0..1.1f64, 1.0..3.0f64], 6),
        workload in workloads(), goal in goals(),
    ) {
        // With `auto` the workload may fit a GPU only in a precision that another one lacks.
        let goal = Goal { precision: goal.precision.filter(|policy| *policy != PrecisionPolicy::Auto), ..goal };
        let profiles = tight(&profiles, &slack, &workload, &goal);
        prop_assume!(!profiles.is_empty());
        let Compiled { plan: planned, misfits, .. } = compile(&selecting(profiles.clone()), &workload, &goal).expect("each fits");
        prop_assert!(misfits.is_empty(), "{} is left out", misfits[0]);
        prop_assert!(planned.memory.fits(), "{}", planned);
        for profile in &profiles {
            let member = plan(&DeviceFacts::nominal(profile), &workload, &fixed(&goal, &planned));
            prop_assert!(member.is_ok(), "{} in {}: {:?}", planned, profile.id, member);
        }
    }
}
