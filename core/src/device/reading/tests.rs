use super::*;

const A: &str = "a0000000-0000-0000-0000-00000000000a";
const B: &str = "b0000000-0000-0000-0000-00000000000b";

fn cuda(index: usize, bus: Option<u8>, uuid: Option<&str>) -> CudaDevice {
    let pci_address = bus.map(|bus| format!("0000:{bus:02x}:00.0").parse().expect("an address"));
    CudaDevice { index, pci_address, uuid: uuid.map(str::to_owned), ..CudaDevice::default() }
}

fn found(bus: Option<u8>, uuid: Option<&str>, alone: bool, devices: &[CudaDevice]) -> Vec<usize> {
    let pci_address = bus.and_then(|bus| format!("0000:{bus:02x}:00.0").parse().ok());
    let identity = GpuIdentity { pci_address, uuid, name: None };
    identity.find(alone, devices).into_iter().map(|device| device.index).collect()
}

#[test]
fn uuid_and_address_join_a_gpu() {
    let two = [cuda(0, Some(0x81), Some(B)), cuda(1, Some(0x01), Some(A))];
    let no_uuid = [cuda(0, Some(0x81), None), cuda(1, Some(0x01), None)];
    let no_address = [cuda(0, None, Some(B)), cuda(1, None, Some(A))];
    let nvml_uuid = format!("GPU-{A}");
    for (devices, bus, uuid, expected) in [
        (&two, Some(1), Some(&*nvml_uuid), &[1][..]),
        (&two, Some(1), None, &[1]),
        (&no_uuid, Some(1), Some(&nvml_uuid), &[1]),
        (&no_address, Some(1), Some(&nvml_uuid), &[1]),
        (&two, Some(2), None, &[]),
        (&two, None, None, &[]),
    ] {
        assert_eq!(found(bus, uuid, true, devices), expected, "{bus:?}, {uuid:?}");
    }
}

#[test]
fn the_uuid_distinguishes_slices_of_one_gpu() {
    let slices = [cuda(0, Some(1), Some(A)), cuda(1, Some(1), Some(B))];
    let slice = format!("MIG-{B}");
    assert_eq!(found(Some(1), Some(&slice), false, &slices), [1]);
    assert_eq!(found(Some(1), Some(&slice), false, &slices[..1]), [0; 0]);
    assert_eq!(found(Some(1), Some("MIG-GPU-old/7/0"), false, &slices), [0, 1]);
}

#[test]
fn the_only_gpu_of_both_sides_needs_no_identifier() {
    let one = [cuda(0, None, None)];
    assert_eq!(found(Some(1), None, true, &one), [0]);
    assert_eq!(found(Some(1), None, false, &one), [0; 0]);
    assert_eq!(found(Some(1), None, true, &[cuda(0, Some(2), None)]), [0; 0]);
}

#[test]
fn the_only_gpu_of_another_name_is_another_gpu() {
    for (nvml, cuda, is_same) in
        [("Orin (nvgpu)", "Orin", true), ("NVIDIA GB10", "NVIDIA GB10", true), ("NVIDIA L4", "Orin", false)]
    {
        let device = CudaDevice { name: Some(cuda.to_owned()), ..CudaDevice::default() };
        let identity = GpuIdentity { name: Some(nvml), ..GpuIdentity::default() };
        assert_eq!(!identity.find(true, &[device]).is_empty(), is_same, "{nvml}, {cuda}");
    }
}
