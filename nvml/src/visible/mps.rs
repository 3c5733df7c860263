//! Limits of the Multi-Process Service (MPS).

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;

use super::CudaEnvironment;

/// Applies limits such as `0=4G,1=512M`. Returns a sentence for each GPU with a limit, and for each unreadable limit.
pub(super) fn limit_memory(limits: &str, gpus: &mut [GpuReading]) -> Vec<String> {
    let variable = CudaEnvironment::MPS_MEMORY_LIMIT;
    let mut notes = Vec::new();
    for entry in limits.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((position, limit)) = parse(entry) else {
            notes.push(format!("{variable}: `{entry}` is ignored; expected GPU=LIMIT, such as 0=4G"));
            continue;
        };
        let Some(gpu) = gpus.get_mut(position) else { continue };
        gpu.memory_limit = Some(limit);
        // Free memory of a GPU that reports none may be all of it.
        let free = gpu.memory_free.or_else(|| Some(gpu.memory_total? - gpu.memory_reserved.unwrap_or_default()));
        if free.is_none_or(|free| limit < free) {
            gpu.memory_free = Some(limit);
            notes.push(format!("{variable} limits this process to {limit} of GPU {position}"));
        }
    }
    notes
}

/// Applies a share of the multiprocessors in percent. Returns a sentence, unless there is no limit.
pub(super) fn limit_compute(percentage: &str, gpus: &mut [GpuReading]) -> Option<String> {
    let variable = CudaEnvironment::MPS_THREAD_PERCENTAGE;
    let percentage = percentage.trim();
    let Some(percent) = percentage.parse().ok().filter(|percent: &f64| *percent > 0.0 && percent.is_finite()) else {
        return Some(format!("{variable}: `{percentage}` is ignored; expected a percentage, such as 50"));
    };
    let percent = percent.ceil() as u32;
    if percent >= 100 || gpus.is_empty() {
        return None;
    }
    for gpu in gpus {
        gpu.compute_percent = Some(percent);
    }
    Some(format!("{variable} limits this process to {percentage}% of the multiprocessors"))
}

/// Position of the GPU in CUDA's order, and its limit.
fn parse(entry: &str) -> Option<(usize, Bytes)> {
    let (position, amount) = entry.split_once('=')?;
    let amount = amount.trim().to_ascii_uppercase();
    let digits = amount.find(|character: char| !character.is_ascii_digit()).unwrap_or(amount.len());
    let (number, unit) = amount.split_at(digits);
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    Some((position.trim().parse().ok()?, Bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::GpuReading;

    use super::{limit_compute, limit_memory, parse};

    const MIB: u64 = 1 << 20;

    #[test]
    fn units_are_binary_and_their_case_does_not_matter() {
        for (entry, bytes) in [
            ("0=4G", 4096 * MIB),
            ("0=512MB", 512 * MIB),
            (" 0 = 512MiB ", 512 * MIB),
            ("0=1048576K", 1024 * MIB),
            ("0=1t", MIB * MIB),
            ("0=1000", 1000),
        ] {
            assert_eq!(parse(entry), Some((0, Bytes(bytes))), "{entry}");
        }
        for entry in ["4G", "0=", "0=G", "0=4X", "x=4G", "-1=4G", "0=99999999999999999999", "0=99999999999999T"] {
            assert_eq!(parse(entry), None, "{entry}");
        }
    }

    #[test]
    fn limits_only_lower_what_is_free() {
        let mut gpu = GpuReading::default();
        (gpu.memory_total, gpu.memory_free) = (Some(Bytes(24 << 30)), Some(Bytes(20 << 30)));
        let mut silent = GpuReading::default();
        silent.memory_total = Some(Bytes(24 << 30));
        let mut gpus = [gpu, silent];
        let notes = limit_memory("0=22G,1=4G,7=1G,what", &mut gpus);
        assert_eq!(gpus.each_ref().map(|gpu| gpu.memory_free), [Some(Bytes(20 << 30)), Some(Bytes(4 << 30))]);
        assert_eq!(gpus.map(|gpu| gpu.memory_limit), [Some(Bytes(22 << 30)), Some(Bytes(4 << 30))]);
        let expected = [
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT limits this process to 4.0 GiB of GPU 1",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: `what` is ignored; expected GPU=LIMIT, such as 0=4G",
        ];
        assert_eq!(notes, expected);
    }

    #[test]
    fn a_share_of_the_multiprocessors_is_rounded_up() {
        for (percentage, share, has_note) in [
            ("50", Some(50), true),
            (" 12.5 ", Some(13), true),
            ("0.5", Some(1), true),
            ("100", None, false),
            ("250", None, false),
            ("0", None, true),
            ("-5", None, true),
            ("half", None, true),
            ("inf", None, true),
        ] {
            let mut gpus = [GpuReading::default()];
            let note = limit_compute(percentage, &mut gpus);
            assert_eq!((gpus[0].compute_percent, note.is_some()), (share, has_note), "{percentage}: {note:?}");
            let text = note.filter(|_| share.is_some()).unwrap_or_default();
            assert!(share.is_none() || text.contains(&format!(" {}% of", percentage.trim())), "{text}");
        }
    }
}
