use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading};

use super::{in_cuda_order, limit_compute, limit_memory, parse_limit};

fn gpu(index: u32, bus: &str, sm_count: Option<u32>) -> GpuReading {
    let mut gpu = GpuReading::default();
    gpu.index = index;
    gpu.pci_address = format!("{bus}:00.0").parse().ok();
    gpu.sm_count = sm_count;
    (gpu.compute_capability, gpu.max_sm_clock_mhz) = (Some(ComputeCapability::new(8, 6)), Some(2000));
    gpu
}

fn indices(gpus: &[GpuReading], order: Option<&str>) -> Vec<u32> {
    in_cuda_order(gpus, order).into_iter().map(|device| device[0].index).collect()
}

#[test]
fn the_fastest_is_first_unless_addresses_are_asked_for() {
    let gpus = [gpu(0, "41", Some(30)), gpu(1, "01", Some(80)), gpu(2, "c1", Some(80)), gpu(3, "21", None)];
    for default in [None, Some("FASTEST_FIRST"), Some(""), Some("anything")] {
        assert_eq!(indices(&gpus, default), [1, 2, 0, 3], "{default:?}");
    }
    assert_eq!(indices(&gpus, Some("PCI_BUS_ID")), [1, 3, 0, 2]);
}

#[test]
fn a_gpu_without_clocks_is_ranked_by_its_profile() {
    let mut named = gpu(1, "21", None);
    named.name = Some("NVIDIA GeForce RTX 4090".to_owned());
    named.compute_capability = Some(ComputeCapability::new(8, 9));
    assert_eq!(indices(&[gpu(0, "01", Some(30)), named], None), [1, 0]);
}

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
        assert_eq!(parse_limit(entry), Some((0, Bytes(bytes))), "{entry}");
    }
    for entry in ["4G", "0=", "0=G", "0=4X", "x=4G", "-1=4G", "0=99999999999999999999", "0=99999999999999T"] {
        assert_eq!(parse_limit(entry), None, "{entry}");
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
