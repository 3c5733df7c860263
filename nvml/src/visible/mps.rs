//! Memory limits of the Multi-Process Service (MPS).

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;

use super::CudaEnvironment;

/// Applies limits such as `0=4G,1=512M`. Returns a sentence for each GPU with a limit, and for each unreadable limit.
pub(super) fn limit(limits: &str, gpus: &mut [GpuReading]) -> Vec<String> {
    let variable = CudaEnvironment::MPS_MEMORY_LIMIT;
    let mut notes = Vec::new();
    for entry in limits.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let Some((position, limit)) = parse(entry) else {
            notes.push(format!("{variable}: `{entry}` is ignored; expected GPU=LIMIT, such as 0=4G"));
            continue;
        };
        let Some(gpu) = gpus.get_mut(position) else { continue };
        // Free memory of a GPU that reports none may be all of it.
        let free = gpu.memory_free.or_else(|| Some(gpu.memory_total? - gpu.memory_reserved.unwrap_or_default()));
        if free.is_none_or(|free| limit < free) {
            gpu.memory_free = Some(limit);
            notes.push(format!("{variable} limits this process to {limit} of GPU {position}"));
        }
    }
    notes
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

    use super::{limit, parse};

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
        let notes = limit("0=22G,1=4G,7=1G,what", &mut gpus);
        assert_eq!(gpus.map(|gpu| gpu.memory_free), [Some(Bytes(20 << 30)), Some(Bytes(4 << 30))]);
        let expected = [
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT limits this process to 4.0 GiB of GPU 1",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: `what` is ignored; expected GPU=LIMIT, such as 0=4G",
        ];
        assert_eq!(notes, expected);
    }
}
