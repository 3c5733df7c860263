use core::ops::RangeInclusive;

use super::{Peak, Profile};

/// Finds contradictory and impossible figures, which the parser accepts.
///
/// Each message names the key.
pub(super) fn mistakes(profile: &Profile) -> Vec<String> {
    let mut found = Vec::new();
    memory(profile, &mut found);
    compute(profile, &mut found);
    rates(profile, &mut found);
    if profile.names.iter().any(|name| name.trim().is_empty()) {
        found.push("names: a name is empty".to_owned());
    }
    found
}

fn memory(profile: &Profile, found: &mut Vec<String>) {
    let memory = &profile.memory;
    if !(64..=16 * 1024 * 1024).contains(&memory.nominal_mib) {
        found.push(format!("memory.nominal_mib: {} MiB is not the memory of a GPU", memory.nominal_mib));
        return;
    }
    // Drivers keep up to an eighth for themselves (ECC, firmware); nobody reports over 3% more than was sold.
    let plausible = memory.nominal_mib * 7 / 8..=memory.nominal_mib * 103 / 100;
    for (key, totals) in [("nvml_total_mib", &memory.nvml_total_mib), ("cuda_total_mib", &memory.cuda_total_mib)] {
        for total in totals.iter().filter(|total| !plausible.contains(total)) {
            found.push(format!(
                "memory.{key}: {total} MiB does not belong to a GPU sold with {} MiB",
                memory.nominal_mib
            ));
        }
    }
}

fn compute(profile: &Profile, found: &mut Vec<String>) {
    let compute = &profile.compute;
    let lanes = profile.compute_capability.cores_per_sm();
    if let (Some(sms), Some(cores), Some(lanes)) = (compute.sm_count, compute.cuda_cores, lanes)
        && sms.checked_mul(lanes) != Some(cores)
    {
        found.push(format!(
            "compute.cuda_cores: {cores} is not {sms} multiprocessors x {lanes} lanes of compute capability {}",
            profile.compute_capability
        ));
    }
}

fn rates(profile: &Profile, found: &mut Vec<String>) {
    let Profile { memory, compute, peaks, board, .. } = profile;
    let tflops = |peak: &Option<Peak>| peak.as_ref().map(|peak| peak.tflops);
    let figures: [(&str, Option<f64>, RangeInclusive<f64>); 11] = [
        ("memory.bandwidth_gb_s", memory.bandwidth_gb_s, 1.0..=1e5),
        ("compute.boost_mhz", compute.boost_mhz, 100.0..=1e4),
        ("compute.tensor_clock_mhz", compute.tensor_clock_mhz, 100.0..=1e4),
        ("compute.l2_mib", compute.l2_mib, 0.0..=1e4),
        ("peaks.fp32.tflops", tflops(&peaks.fp32), 0.01..=1e5),
        ("peaks.tf32.tflops", tflops(&peaks.tf32), 0.01..=1e5),
        ("peaks.bf16.tflops", tflops(&peaks.bf16), 0.01..=1e5),
        ("peaks.fp16.tflops", tflops(&peaks.fp16), 0.01..=1e5),
        ("peaks.fp8.tflops", tflops(&peaks.fp8), 0.01..=1e5),
        ("board.nvlink_gb_s", board.nvlink_gb_s, 0.0..=1e5),
        ("board.tdp_w", board.tdp_w, 1.0..=1e5),
    ];
    let reached = [("fp32", &peaks.fp32), ("tf32", &peaks.tf32), ("bf16", &peaks.bf16), ("fp16", &peaks.fp16)];
    for (key, peak) in reached {
        let fraction = peak.as_ref().and_then(|peak| peak.reached);
        if let Some(fraction) = fraction.filter(|fraction| !(0.05..=1.5).contains(fraction)) {
            found.push(format!("peaks.{key}.reached: {fraction} is out of range, expected 0.05 to 1.5"));
        }
    }
    for (key, figure, plausible) in figures {
        if let Some(figure) = figure.filter(|figure| !plausible.contains(figure)) {
            found.push(format!(
                "{key}: {figure} is out of range, expected {} to {}",
                plausible.start(),
                plausible.end()
            ));
        }
    }
    let capability = profile.compute_capability;
    if peaks.tf32.is_some() && !capability.has_tf32() {
        found.push(format!("peaks.tf32: compute capability {capability} has no TF32"));
    }
    if peaks.bf16.is_some() && !capability.has_tensor_bf16() {
        found.push(format!("peaks.bf16: compute capability {capability} has no bf16 tensor cores"));
    }
}
