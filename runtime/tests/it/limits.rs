//! Limits of a process and figures of a driver that decide the memory of a plan.

use gpu_tuned::{Bytes, HostMemoryLimit, Machine, Options};

use crate::one_gpu::{ForAnyGpu, ForRtx4090, with_free};
use crate::played::{machine, on};

#[test]
fn memory_that_cannot_be_freed_is_no_remedy() {
    let help = |machine: Machine| {
        let error = Options::default().machine(machine).decide(&ForRtx4090::default()).expect_err("it does not fit");
        error.to_string().split_once("help: ").expect("a remedy").1.to_owned()
    };
    let limited = |free: u64, limit: u64| {
        let mut machine = with_free("rtx4090", &[free]);
        machine.gpus[0].memory_limit = Some(Bytes::from_mib(limit));
        machine
    };
    assert_eq!(
        help(limited(600, 600)),
        "raise the limit CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, which allows this process 600.0 MiB: then it fits"
    );
    let remedy = help(limited(600, 12_288));
    assert!(remedy.contains("600.0 MiB of 12.0 GiB are free: then it fits"), "{remedy}");
    let mut unified = with_free("rtx4090", &[600]);
    unified.gpus[0].unified_memory = true;
    unified.host.memory_limit = None;
    let changes = help(unified.clone());
    assert!(changes.contains("use a GPU with") && !changes.contains("free"), "{changes}");
    unified.host.memory_limit = Some(job_limit(600, 24_000));
    assert_eq!(help(unified), "raise the limit SLURM_MEM_PER_NODE, which allows this process 600.0 MiB: then it fits");
}

fn job_limit(limit_mib: u64, available_mib: u64) -> HostMemoryLimit {
    let [limit, available_without] = [limit_mib, available_mib].map(Bytes::from_mib);
    HostMemoryLimit { name: "SLURM_MEM_PER_NODE", limit, available_without }
}

#[test]
fn the_limit_of_the_job_is_named_where_the_plan_does_not_fit_the_cpu() {
    let help = |scenario: &str, options: fn(Options) -> Options, available| {
        let mut machine = machine(scenario);
        let limit = Bytes::from_mib(600);
        (machine.host.memory_total, machine.host.memory_available) = (limit, limit);
        machine.host.memory_limit = Some(job_limit(600, available));
        let decided = options(Options::default().machine(machine)).decide(&ForAnyGpu::default());
        decided.expect_err("it does not fit").to_string().split_once("help: ").expect("a remedy").1.to_owned()
    };
    let raise = "raise the limit SLURM_MEM_PER_NODE, which allows this process 600.0 MiB: then it fits";
    assert_eq!(help("no-gpu", |options| options, 24_000), raise);
    assert_eq!(help("k80", |options| options, 24_000), raise);
    assert_eq!(help("rtx4090", Options::cpu, 24_000), raise);
    let changes = help("no-gpu", |options| options, 601);
    assert!(changes.contains("use a GPU with") && !changes.contains("raise the limit"), "{changes}");
}

#[test]
fn memory_of_the_profile_is_named_where_the_driver_reports_none() {
    for (scenario, expected) in [
        ("zero-memory", Some("the driver reports no memory; planned with the ")),
        ("rtx3080-name-only", Some("the driver reports no memory; planned with the ")),
        ("rtx4090", None),
        ("gb10", None),
    ] {
        let decision = on(scenario).decide(&ForAnyGpu::default()).expect("it fits");
        let remark = decision.selection.gpu.as_ref().and_then(|gpu| gpu.memory_remark.clone());
        assert_eq!(remark.is_some(), expected.is_some(), "{scenario}: {remark:?}");
        let (remark, expected) = (remark.unwrap_or_default(), expected.unwrap_or_default());
        assert!(remark.contains(expected) && decision.selection.to_string().contains(&remark), "{scenario}: {remark}");
    }
    let mut absurd = machine("rtx4090");
    absurd.gpus[0].memory_total = Some(Bytes::from_mib(1 << 30));
    let decision = Options::default().machine(absurd).decide(&ForAnyGpu::default()).expect("it fits");
    let remark = decision.selection.gpu.as_ref().and_then(|gpu| gpu.memory_remark.as_deref());
    assert!(remark.is_some_and(|remark| remark.contains("an implausible 1048576.0 GiB")), "{remark:?}");
}
