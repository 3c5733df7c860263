use std::thread;

use super::{CudaDevice, OpenError, Place, catching, catching_on_thread};

fn cuda(index: usize) -> CudaDevice {
    let mut device = CudaDevice::default();
    device.index = index;
    device.pci_address = format!("0000:{:02x}:00.0", index + 1).parse().ok();
    device
}

fn nvml(address: &str) -> Place {
    Place::Nvml { pci_address: address.parse().ok(), uuid: None, alone: false }
}

#[test]
fn a_place_is_one_device() {
    let two = [cuda(0), cuda(1)];
    for (place, expected) in [(Place::Index(1), 1), (nvml("0000:01:00.0"), 0)] {
        assert_eq!(place.find(&two).map(|device| device.index).ok(), Some(expected), "{place}");
    }
    assert!(matches!(Place::Index(2).find(&two), Err(OpenError::NoSuchDevice { .. })));
    assert!(matches!(Place::Only.find(&two), Err(OpenError::Ambiguous { found, .. }) if found.len() == 2));
}

#[test]
fn a_missing_device_is_reported_with_the_others() {
    let error = nvml("0000:07:00.0").find(&[cuda(1)]).expect_err("another place").to_string();
    assert!(error.contains("00000000:07:00.0"), "{error}");
    assert!(error.contains("00000000:02:00.0"), "{error}");
}

#[test]
fn a_panic_becomes_its_message() {
    assert_eq!(catching(|| 1), Ok(1));
    assert_eq!(catching(|| panic!("lost")), Err::<(), _>("lost".to_owned()));
    assert_eq!(catching(|| panic!("lost {}", 7)), Err::<(), _>("lost 7".to_owned()));
}

#[test]
fn a_thread_returns_its_value_or_the_message_of_its_panic() {
    let caller = thread::current().id();
    assert_eq!(catching_on_thread(|| thread::current().id() == caller), Ok(false));
    assert_eq!(catching_on_thread(|| panic!("lost")), Err::<(), _>("lost".to_owned()));
}
