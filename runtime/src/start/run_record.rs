//! The record of a session's start.

use std::process;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::plan::curve;
use gpu_tuned_observe::recording::{Device, Run, now};

use crate::decide::Decision;
use crate::tuned::Tuned;

/// Builds the record that a session writes when it starts.
pub(super) fn run_record<C: Tuned>(decision: &Decision) -> Run {
    let Decision { selection, plan, workload, inputs } = decision;
    let memory = &plan.memory;
    let mut goal = inputs.goal.clone();
    goal.precision = Some(plan.settings.precision.into());
    // Headroom that the plan leaves, for a nominal or a probed device.
    goal.memory_headroom = memory.headroom_share();
    let reason = |reason: &gpu_tuned_core::plan::Reason| {
        let value = plan.settings.get(reason.setting);
        format!("{} = {value}: {} ({})", reason.setting, reason.why, reason.provenance)
    };
    let mut run = Run::new(now(), process::id());
    C::BUILT.config.clone_into(&mut run.workload);
    run.target = Some(C::BUILT.target.to_owned());
    run.device = device(decision);
    run.fallbacks = selection.fallbacks.iter().map(ToString::to_string).collect();
    run.settings = Some(plan.settings);
    run.global_batch = Some(plan.schedule.global_batch);
    run.world_size = plan.schedule.world_size;
    run.batch_statistics = workload.batch_statistics;
    run.partly_frozen = workload.is_partly_frozen();
    run.memory_budget_bytes = Some(memory.budget().0);
    run.memory_planned_bytes = Some(memory.total().0);
    run.expected = curve(&inputs.facts, workload, &goal).unwrap_or_default();
    run.reasons = plan.reasons.iter().map(reason).collect();
    run
}

fn device(decision: &Decision) -> Device {
    let facts = &decision.inputs.facts;
    let mut device = Device::default();
    device.name.clone_from(&decision.plan.device);
    device.is_gpu = facts.kind == DeviceKind::Gpu;
    device.profile.clone_from(&facts.profile);
    device.gpu_uuids = decision.selection.gpu.iter().filter_map(|gpu| gpu.reading.uuid.clone()).collect();
    device.has_bf16 = facts.has_bf16;
    device.has_tf32 = facts.has_tf32;
    device
}
