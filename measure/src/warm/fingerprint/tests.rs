use gpu_tuned_core::device::{ComputeCapability, GpuReading};

use super::Fingerprint;

pub(in crate::warm) fn reading(name: &str, sm_count: u32) -> GpuReading {
    let mut gpu = GpuReading::default();
    (gpu.name, gpu.sm_count) = (Some(name.to_owned()), Some(sm_count));
    gpu.compute_capability = Some(ComputeCapability::new(9, 0));
    gpu
}

pub(in crate::warm) fn h200() -> Fingerprint {
    Fingerprint::new([&reading("NVIDIA H200", 132)], Some("580.95.05")).expect("a GPU")
}

#[test]
fn an_environment_is_named_after_all_that_it_depends_on() {
    assert_eq!(h200().environment(), "gpu-tuned-nvidia-h200-sm90-x132-driver-580.95.05-burn-0.22.1-cubecl-0.11.3");
    let unknown = Fingerprint::new([&GpuReading::default()], None).expect("a GPU").environment();
    assert_eq!(unknown, "gpu-tuned-unnamed-gpu-burn-0.22.1-cubecl-0.11.3");
    assert_eq!(Fingerprint::new([], None), None);
}

#[test]
fn gpus_of_a_kind_count_once_and_in_no_order() {
    let (a, b) = (reading("NVIDIA H200", 132), reading("NVIDIA H100 NVL", 132));
    let name = |gpus: &[&GpuReading]| Fingerprint::new(gpus.iter().copied(), None).expect("GPUs").environment();
    assert_eq!(name(&[&a, &a]), name(&[&a]));
    assert_eq!(name(&[&a, &b]), name(&[&b, &a]));
    assert_ne!(name(&[&a, &b]), name(&[&a]));
}

#[test]
fn a_name_is_one_of_a_file_whatever_the_driver_says() {
    let odd = reading("../GPU \u{fc}ber/\0 alles", 1);
    let name = Fingerprint::new([&odd], Some("../../etc")).expect("a GPU").environment();
    assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c)), "{name}");
    let many: Vec<_> = (0..20).map(|kind| reading("NVIDIA RTX PRO 6000 Blackwell Server Edition", kind)).collect();
    let name = |gpus: &[GpuReading]| Fingerprint::new(gpus, None).expect("GPUs").environment();
    assert!(name(&many).len() < 200);
    assert_ne!(name(&many), name(&many[1..]));
}

#[test]
fn without_tf32_is_elsewhere_and_older_fingerprints_had_it() {
    let full = h200().full_f32(true);
    assert_eq!(full.environment(), format!("{}-full-f32", h200().environment()));
    assert_eq!(full.differences(&h200()), ["made with f32 products in TF32, here it is f32"]);
    assert_eq!(h200().differences(&full), ["made with f32 products in f32, here it is TF32"]);
    let mut older = serde_json::to_value(&full).expect("JSON");
    older.as_object_mut().expect("fields").remove("full_f32");
    assert_eq!(serde_json::from_value::<Fingerprint>(older).expect("a fingerprint"), h200());
}

#[test]
fn what_differs_is_told_on_both_sides() {
    let here = h200();
    assert!(here.differences(&here).is_empty());
    let made = Fingerprint::new([&reading("NVIDIA H200", 66)], None).expect("a GPU");
    let made = Fingerprint { burn: "0.23.0".to_owned(), ..made };
    assert_eq!(
        here.differences(&made),
        [
            "made with NVIDIA H200 (compute capability 9.0, 66 multiprocessors), here it is NVIDIA H200 (compute \
             capability 9.0, 132 multiprocessors)",
            "made with driver unknown, here it is 580.95.05",
            "made with Burn 0.23.0, here it is 0.22.1",
        ]
    );
}
