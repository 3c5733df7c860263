use super::*;

#[test]
fn old_product_lines_have_a_compute_capability_that_is_refused() {
    assert!(OLD_LINES.iter().all(|(_, capability)| capability.refusal().is_some()));
    for (name, expected) in [
        ("NVIDIA GeForce GTX 980", Some("5.2")),
        ("GeForce GTX 750 Ti", Some("5.0")),
        ("GeForce GTX TITAN Black", Some("3.5")),
        ("Tesla K40c", Some("3.5")),
        ("Tesla M2090", Some("2.0")),
        ("NVIDIA GeForce GTX 1650", None),
        ("NVIDIA GeForce GT 1030", None),
        ("NVIDIA RTX 4000 Ada Generation", None),
        ("NVIDIA GeForce GTX 1080", None),
        ("NVIDIA TITAN X (Pascal)", None),
        ("Tesla T4", None),
        ("", None),
    ] {
        let capability = ProductName::parse(name).old_capability().map(|it| it.to_string());
        assert_eq!(capability.as_deref(), expected, "{name}");
    }
}

#[test]
fn a_name_is_of_its_product_with_and_without_the_maker() {
    for (name, product) in [
        ("GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
        ("Tesla T4", "Tesla T4"),
        ("NVIDIA Tesla T4", "Tesla T4"),
    ] {
        let name = ProductName::parse(name);
        assert!(name.is_of(product) && !name.is_vgpu && !name.is_mig_slice, "{name:?}");
    }
}

#[test]
fn the_names_of_virtual_shares_are_of_their_boards() {
    // Names that nvidia-smi prints in guests, with the boards of NVIDIA's vGPU types reference.
    for (name, product) in [
        ("GRID V100D-8Q", "Tesla V100-PCIE-32GB"),
        ("GRID V100DX-32C", "Tesla V100-SXM2-32GB"),
        ("GRID T4-16Q", "Tesla T4"),
        ("GRID A100DX-80C", "NVIDIA A100-SXM4-80GB"),
        ("GRID A100DX-1-10C", "NVIDIA A100-SXM4-80GB"),
        ("GRID A100-1-5CME", "NVIDIA A100-PCIE-40GB"),
        ("GRID A100-1-5C MIG 1g.5gb", "NVIDIA A100-PCIE-40GB"),
        ("NVIDIA A40-12Q", "NVIDIA A40"),
        ("NVIDIA A40-1B4", "NVIDIA A40"),
        ("NVIDIA A40 vGPU", "NVIDIA A40"),
        ("NVIDIA L40S-48Q", "NVIDIA L40S"),
        ("NVIDIA H100XM-80C", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100L-94C", "NVIDIA H100 NVL"),
        ("NVIDIA H200-141C", "NVIDIA H200 NVL"),
        ("NVIDIA H200X-1-18C", "NVIDIA H200"),
        ("NVIDIA RTX6000-Ada-48Q", "NVIDIA RTX 6000 Ada Generation"),
    ] {
        let name = ProductName::parse(name);
        assert!(name.is_vgpu && name.is_of(product), "{name:?} against {product}");
    }
    assert!(!ProductName::parse("NVIDIA H200-141C").is_of("NVIDIA H200"));
}

#[test]
fn names_that_only_look_like_shares_are_whole() {
    for name in ["A100-SXM4-80GB", "Tesla V100-PCIE-16GB", "NVIDIA GeForce RTX 4090 D", "-8Q", "8Q", "A40-Q", "", "-"] {
        let parsed = ProductName::parse(name);
        assert!(!parsed.is_vgpu && parsed.is_of(name), "{name}");
    }
}

#[test]
fn names_have_the_line_of_their_product() {
    let of = |name| ProductLine::new(Some(name), ComputeCapability::new(8, 6));
    for name in ["NVIDIA GeForce RTX 3090", "NVIDIA TITAN RTX"] {
        assert_eq!(of(name), Some(ProductLine::GeForce), "{name}");
    }
    for name in ["NVIDIA GeForce RTX 3080 Laptop GPU", "GeForce GTX 1070 with Max-Q Design"] {
        assert_eq!(of(name), Some(ProductLine::Laptop), "{name}");
    }
    for name in ["NVIDIA A10G", "NVIDIA L40S", "Tesla T4", "NVIDIA GB200", "NVIDIA H100 PCIe", "NVIDIA RTX A4000"] {
        assert_eq!(of(name), Some(ProductLine::Professional), "{name}");
    }
    for name in ["", "NVIDIA Graphics Device", "GPU 0", "a new one"] {
        assert_eq!(of(name), None, "{name}");
    }
    let with_orins = |name| ProductLine::new(Some(name), ComputeCapability::new(8, 7));
    for name in ["Orin (nvgpu)", "NVIDIA GB10", ""] {
        assert_eq!(with_orins(name), Some(ProductLine::Integrated), "{name}");
    }
    // A driver that reports the capability of a Jetson for a board is wrong.
    assert_eq!(with_orins("NVIDIA GeForce RTX 4090"), Some(ProductLine::GeForce));
}

#[test]
fn nvml_packs_the_device_above_the_vendor() {
    assert_eq!(PciId::from_nvml(0x2684_10de).to_string(), "10de:2684");
}

#[test]
fn addresses_of_every_width_are_the_same_place() {
    let place = PciAddress { domain: 0, bus: 0x41, device: 0 };
    for text in ["00000000:41:00.0", "0000:41:00.0", "41:00", " 0000:41:00.0 "] {
        assert_eq!(text.parse::<PciAddress>().expect(text), place);
    }
    for text in ["", "zz:00.0", "1:2:3:4.0", "0000:141:00.0"] {
        assert!(text.parse::<PciAddress>().is_err(), "{text}");
    }
}
