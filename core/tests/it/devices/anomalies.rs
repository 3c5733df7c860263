//! Names, PCI ids and memory totals that several products share.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::profile::ProfileTable;

use super::{assert_exact, candidates, reading, shipped, variant};

/// A report: name, PCI device, memory total in MiB, and SM count; zeros are unreported.
type Report = (&'static str, u16, u64, u32);

fn read((name, device, mib, sm_count): Report) -> GpuReading {
    let mut reading = reading(name);
    reading.pci_id = (device > 0).then(|| format!("10de:{device:04x}").parse().expect("a PCI id"));
    reading.memory_total = (mib > 0).then(|| Bytes::from_mib(mib));
    reading.sm_count = (sm_count > 0).then_some(sm_count);
    reading
}

#[test]
fn the_total_or_the_pci_id_decides_between_products_of_one_name() {
    for (report, id) in [
        (("NVIDIA GeForce RTX 5060 Ti", 0x2d04, 8151, 0), "rtx5060-ti-8gb"),
        (("NVIDIA GeForce RTX 5060 Ti", 0x2d04, 16311, 0), "rtx5060-ti-16gb"),
        (("NVIDIA GeForce RTX 4060 Ti", 0, 8188, 34), "rtx4060-ti-8gb"),
        (("NVIDIA GeForce RTX 4060 Ti", 0, 16380, 34), "rtx4060-ti-16gb"),
        (("NVIDIA GeForce RTX 3080 Laptop GPU", 0x249c, 8192, 0), "rtx3080-laptop-8gb"),
        (("NVIDIA GeForce RTX 3080 Laptop GPU", 0x24dc, 16384, 0), "rtx3080-laptop-16gb"),
        (("NVIDIA GeForce RTX 2060", 0, 6144, 0), "rtx2060-6gb"),
        (("NVIDIA GeForce RTX 2060", 0x1f03, 0, 0), "rtx2060-12gb"),
        (("NVIDIA GeForce RTX 3050", 0, 6144, 0), "rtx3050-6gb"),
        (("NVIDIA GeForce RTX 3050", 0x2582, 8192, 20), "rtx3050-8gb"),
        (("NVIDIA GeForce RTX 3060", 0, 8192, 0), "rtx3060-8gb"),
        (("NVIDIA GeForce RTX 3060", 0x2504, 12288, 0), "rtx3060-12gb"),
        (("NVIDIA GeForce RTX 3060 Ti", 0x2486, 8192, 0), "rtx3060-ti"),
        (("NVIDIA GeForce RTX 3060 Ti", 0x24c9, 8192, 0), "rtx3060-ti-gddr6x"),
        (("NVIDIA GeForce GTX 1650", 0x2188, 4096, 0), "gtx1650-gddr6"),
        (("NVIDIA GeForce RTX 4090", 0x2684, 49140, 0), "rtx4090-48gb"),
        (("NVIDIA GeForce RTX 4090", 0x2684, 0, 0), "rtx4090"),
        (("NVIDIA GeForce RTX 2070 SUPER", 0x1e84, 8192, 0), "rtx2070-super"),
        (("Quadro RTX 6000", 0x1e30, 24576, 0), "quadro-rtx-6000"),
        (("Quadro RTX 6000", 0x1e30, 23040, 0), "quadro-rtx-6000"),
        (("Quadro RTX 8000", 0x1e30, 46080, 0), "quadro-rtx-8000"),
        (("NVIDIA RTX PRO 5000 Blackwell", 0x2bb3, 48935, 0), "rtx-pro-5000-bw-48gb"),
        (("NVIDIA RTX PRO 5000 72GB Blackwell", 0x2bb3, 73415, 0), "rtx-pro-5000-bw-72gb"),
        (("NVIDIA H100", 0, 65247, 0), "h100-sxm5-64gb"),
        (("NVIDIA H100", 0, 95830, 0), "h100-sxm5-94gb"),
        (("NVIDIA H100", 0x2339, 0, 0), "h100-sxm5-94gb"),
        (("NVIDIA H100 NVL", 0, 95830, 0), "h100-nvl"),
        (("NVIDIA H20", 0, 97871, 0), "h20-96gb"),
        (("NVIDIA GH200 480GB", 0, 97871, 0), "gh200-96gb"),
        (("NVIDIA H20-3e", 0, 143_771, 0), "h20-141gb"),
        (("NVIDIA H200", 0, 143_771, 0), "h200"),
        (("NVIDIA GB300", 0x31c2, 284_208, 0), "gb300"),
        (("Orin (nvgpu)", 0, 62827, 16), "jetson-agx-orin-64gb"),
        (("Orin", 0, 15655, 8), "jetson-orin-nx-16gb"),
        (("NVIDIA GB10", 0x2e12, 0, 0), "gb10"),
        (("NVIDIA GB10", 0x2e12, 122_502, 48), "gb10"),
        (("NVIDIA Thor", 0x2b00, 125_748, 20), "jetson-agx-thor"),
        // On Windows CUDA reports the total of NVML less up to 1 MiB, on Linux some hundred MiB less.
        (("NVIDIA GeForce GTX 1070", 0, 8191, 0), "gtx1070"),
        (("NVIDIA GeForce RTX 3070", 0, 7753, 0), "rtx3070"),
    ] {
        assert_exact(&read(report), id);
    }
}

#[test]
fn a_report_that_fits_several_products_is_ambiguous() {
    for (report, ids) in [
        (("NVIDIA GeForce RTX 5060 Ti", 0x2d04, 0, 0), &["rtx5060-ti-8gb", "rtx5060-ti-16gb"][..]),
        (("NVIDIA GeForce RTX 3060 Ti", 0, 8192, 0), &["rtx3060-ti", "rtx3060-ti-gddr6x"]),
        (("NVIDIA GeForce GTX 1650", 0x1f82, 4096, 14), &["gtx1650", "gtx1650-gddr6"]),
        (("NVIDIA H100", 0, 0, 132), &["h100-sxm5-64gb", "h100-sxm5-94gb"]),
        (("Orin", 0, 7619, 8), &["jetson-orin-nano-8gb", "jetson-orin-nano-super-8gb", "jetson-orin-nx-8gb"]),
    ] {
        assert_eq!(candidates(&shipped(&read(report))), ids, "{report:?}");
        let (_, differences) = variant(&read(report));
        assert!(matches!(differences[..], [Difference::Ambiguous { .. }]), "{differences:?}");
    }
    // NVML reports no memory of a Jetson: every module has this name.
    assert_eq!(candidates(&shipped(&read(("Orin (nvgpu)", 0, 0, 0)))).len(), 7);
}

#[test]
fn a_board_outside_the_table_with_a_name_of_the_table_is_a_variant() {
    let mib = Bytes::from_mib;
    let pci_id = |id: &str| Difference::PciId { found: id.to_owned() };
    for (report, id, difference) in [
        // Laptops of the Turing generation report the names of desktop boards.
        (("NVIDIA GeForce RTX 2060", 0x1f11, 6144, 0), "rtx2060-6gb", pci_id("10de:1f11")),
        (("NVIDIA GeForce GTX 1070", 0x1ba1, 8192, 0), "gtx1070", pci_id("10de:1ba1")),
        // The PCI id is that of an RTX 3080 for laptops; the subsystem makes it an RTX 3060.
        (("NVIDIA GeForce RTX 3060 Laptop GPU", 0x249c, 6144, 30), "rtx3060-laptop", pci_id("10de:249c")),
        (
            ("NVIDIA GeForce RTX 3060 Laptop GPU", 0x2520, 12288, 30),
            "rtx3060-laptop",
            Difference::Memory { expected: mib(6144), found: mib(12288) },
        ),
        (
            ("NVIDIA GB300", 0x31c2, 256_703, 0),
            "gb300",
            Difference::Memory { expected: mib(284_208), found: mib(256_703) },
        ),
        (("NVIDIA A100X-20C", 0, 20480, 0), "a100-sxm4-40gb", Difference::Vgpu),
        (("GRID P40-8Q", 0, 8192, 0), "p40", Difference::Vgpu),
    ] {
        let (profile, differences) = variant(&read(report));
        assert_eq!(profile.id.as_str(), id, "{report:?}");
        assert!(differences.contains(&difference), "{report:?}: {differences:?}");
        assert!(!differences.iter().any(|it| matches!(it, Difference::Ambiguous { .. })), "{differences:?}");
    }
}

#[test]
fn a_name_that_differs_in_case_or_is_not_in_the_table_has_no_profile() {
    for report in [
        ("NVIDIA GeForce RTX 2070 Super", 0x1e91, 8192, 40),
        ("NVIDIA GeForce RTX 2080 Super", 0x1e93, 8192, 48),
        ("NVIDIA N1X", 0x2e03, 8128, 0),
        ("NVIDIA L20X", 0, 143_771, 132),
    ] {
        assert_eq!(shipped(&read(report)).profile(), None, "{report:?}");
    }
}

/// Shipped profiles that a complete report of a driver cannot separate.
pub(super) const INSEPARABLE: [&[&str]; 2] =
    [&["gtx1650", "gtx1650-gddr6"], &["jetson-orin-nano-8gb", "jetson-orin-nano-super-8gb", "jetson-orin-nx-8gb"]];

#[test]
fn one_name_of_two_boards_is_ambiguous_until_another_field_decides() {
    let named = || reading("NVIDIA GeForce RTX 3080");
    let ambiguous = Match::Variant {
        profile: Box::new(ProfileTable::builtin_profile("rtx3080-10gb").expect("shipped")),
        differences: vec![Difference::Ambiguous { with: vec!["rtx3080-12gb".parse().expect("an id")] }],
    };
    assert_eq!(shipped(&named()), ambiguous);
    for (pci_id, mib, sm_count, id) in [
        (Some("10de:2216"), None, None, "rtx3080-10gb"),
        (Some("10de:220a"), None, None, "rtx3080-12gb"),
        (None, Some(10240), None, "rtx3080-10gb"),
        (None, Some(12288), None, "rtx3080-12gb"),
        (None, None, Some(68), "rtx3080-10gb"),
        (None, None, Some(70), "rtx3080-12gb"),
    ] {
        let mut reading = named();
        reading.pci_id = pci_id.map(|id: &str| id.parse().expect("a PCI id"));
        (reading.memory_total, reading.sm_count) = (mib.map(Bytes::from_mib), sm_count);
        assert_exact(&reading, id);
    }
}

#[test]
fn a_pci_id_of_two_boards_without_a_name_is_ambiguous() {
    let mut reading = GpuReading::default();
    reading.pci_id = Some("10de:25b6".parse().expect("a PCI id"));
    let found = shipped(&reading);
    assert_eq!(candidates(&found), ["a16", "a2"]);
    assert!(matches!(found, Match::Variant { .. }));
}
