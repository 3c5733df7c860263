//! `native`, with the real reading of a fake driver.

use std::path::Path;

use fake_nvml::{Scenario, scenario};
use gpu_tuned_build::Selected;
use gpu_tuned_core::Bytes;

use crate::project::Project;

fn machine(library: &Path) -> Project {
    Project::enabling(&["native"]).set("GPU_TUNED_NVML_PATH", library)
}

/// The selection, with the warnings.
fn in_scenario(name: &str) -> (Selected, Vec<String>) {
    fake_nvml::play(name, |library| {
        let project = machine(library);
        (project.resolve().unwrap().selected, project.warnings())
    })
}

fn name(selected: Selected) -> String {
    let Selected::Native(gpu) = selected else { panic!("{selected:?}") };
    gpu.name.clone().unwrap()
}

#[test]
fn the_gpu_in_the_machine_is_selected() {
    let (selected, warnings) = in_scenario("h200");
    assert_eq!(name(selected), "NVIDIA H200");
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn the_feature_with_this_crate_s_native_selects_the_gpu_under_any_name() {
    let manifest = "[package]\nname = \"user\"\n\n[features]\nnative = [\"rfd\"]\nrfd = []\nnative-gpu = \
                    [\"gpu-tuned-build/native\"]\n";
    fake_nvml::play("h200", |library| {
        let selected = |features: &str| {
            let project = machine(library).set("CARGO_CFG_FEATURE", features).with("Cargo.toml", manifest);
            project.resolve().unwrap().selected
        };
        assert_eq!(selected("native,rfd"), Selected::Generic);
        assert_eq!(name(selected("native,rfd,native-gpu")), "NVIDIA H200");
    });
}

#[test]
fn what_belongs_to_the_moment_or_the_board_stays_out_of_the_table() {
    let (Selected::Native(gpu), _) = in_scenario("neighbour") else { panic!("no GPU") };
    assert_eq!((gpu.memory_free, gpu.other_processes, &gpu.uuid, gpu.pci_address), (None, None, &None, None));
    assert!(gpu.memory_total.is_some());
}

#[test]
fn of_different_gpus_the_one_with_the_least_memory_is_selected_by_name() {
    let (selected, warnings) = in_scenario("two-gpus");
    assert_eq!(name(selected), "NVIDIA GeForce RTX 4090");
    assert_eq!(
        warnings,
        [
            "native: this machine has different GPUs (NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3090); the constants are \
          for the one with the least memory, NVIDIA GeForce RTX 4090"
        ]
    );
}

#[test]
fn a_gpu_that_cuda_hides_is_not_selected() {
    fake_nvml::play("two-gpus", |library| {
        for (list, expected) in [("0", "NVIDIA GeForce RTX 4090"), ("1", "NVIDIA GeForce RTX 3090")] {
            let project = machine(library).set("CUDA_VISIBLE_DEVICES", list);
            assert_eq!(name(project.resolve().unwrap().selected), expected);
            assert_eq!(project.warnings(), [""; 0]);
        }
        let project = machine(library).set("CUDA_VISIBLE_DEVICES", "");
        assert_eq!(project.resolve().unwrap().selected, Selected::Generic);
        assert!(project.warnings()[0].ends_with("CUDA_VISIBLE_DEVICES is ``"), "{:?}", project.warnings());
        assert!(project.directives().contains(&"rerun-if-env-changed=CUDA_VISIBLE_DEVICES".to_owned()));
    });
}

#[test]
fn limits_of_the_multi_process_service_bound_the_constants() {
    fake_nvml::play("rtx4090", |library| {
        let variables = [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")];
        let project = variables.iter().fold(machine(library), |project, (name, value)| project.set(name, value));
        let whole = machine(library).resolve().unwrap().devices().unwrap().remove(0);
        let limited = project.resolve().unwrap().devices().unwrap().remove(0);
        assert_eq!(limited.memory_available, Bytes::from_mib(4096));
        assert_eq!(limited.fp32_tflops.zip(whole.fp32_tflops).map(|(part, whole)| part / whole), Some(0.5));
        for (warning, (variable, _)) in project.warnings().iter().zip(variables) {
            assert!(warning.starts_with(&format!("native: {variable} limits this process to ")), "{warning}");
            assert!(project.directives().contains(&format!("rerun-if-env-changed={variable}")));
        }
        assert_eq!(project.warnings().len(), 2);
    });
}

#[test]
fn without_a_gpu_the_generic_profile_is_selected_and_the_reason_is_a_warning() {
    let found_none = "native: found no usable GPU; the constants are those of the `generic` profile";
    for (scenario, reasons) in [("no-gpu", 0), ("driver-not-loaded", 1), ("no-permission", 1)] {
        let (selected, warnings) = in_scenario(scenario);
        assert_eq!(selected, Selected::Generic, "{scenario}");
        assert_eq!(warnings.len(), reasons + 1, "{scenario}: {warnings:?}");
        assert_eq!(warnings.last().unwrap(), found_none, "{scenario}");
    }
}

#[test]
fn a_gpu_that_reports_no_memory_is_named_and_the_generic_profile_is_selected() {
    let (selected, warnings) = in_scenario("vgpu-without-memory");
    assert_eq!(selected, Selected::Generic);
    let found_none = "native: found no usable GPU; the constants are those of the `generic` profile";
    let why = "native: GPU 0 (GRID A100DX-1-10C) cannot be planned for: the driver does not report its memory";
    assert_eq!(warnings, [why, found_none]);
}

#[test]
fn a_gpu_that_reports_no_memory_is_named_beside_the_selected_one() {
    let load = |name| Scenario::load(&scenario(name)).unwrap();
    let mut both = load("rtx4090");
    both.gpu.extend(load("vgpu-without-memory").gpu);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.toml");
    both.save(&file).unwrap();
    let (selected, warnings) = fake_nvml::play_file(&file, |library| {
        let project = machine(library);
        (project.resolve().unwrap().selected, project.warnings())
    });
    assert_eq!(name(selected), "NVIDIA GeForce RTX 4090");
    let why = "native: GPU 1 (GRID A100DX-1-10C) cannot be planned for: the driver does not report its memory";
    assert_eq!(warnings, [why]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_gpu_that_shares_the_hosts_memory_is_selected_with_it() {
    for scenario in ["gb10", "orin-nvgpu", "jetson-orin"] {
        let (Selected::Native(gpu), warnings) = in_scenario(scenario) else { panic!("{scenario}: no GPU") };
        assert_eq!(warnings, [""; 0], "{scenario}");
        assert!(gpu.unified_memory && gpu.memory_total.is_some(), "{gpu:?}");
    }
}

#[test]
fn a_gpu_that_burn_cannot_train_on_is_named_and_left_out() {
    let (selected, warnings) = in_scenario("k80");
    assert_eq!(selected, Selected::Generic);
    assert!(warnings[0].starts_with("native: Tesla K80: CUDA 13 has dropped compute capability 3.7"), "{warnings:?}");
}

#[test]
fn without_a_library_the_generic_profile_is_selected() {
    let project = machine(Path::new("/nowhere/libnvidia-ml.so.1"));
    assert_eq!(project.resolve().unwrap().selected, Selected::Generic);
    assert!(project.warnings()[0].contains("/nowhere/libnvidia-ml.so.1"));
}

#[test]
fn a_gpu_that_cannot_be_used_is_named_and_left_out() {
    let (selected, warnings) = in_scenario("gpu-denied");
    assert!(matches!(selected, Selected::Native(_)), "{selected:?}");
    assert!(warnings[0].starts_with("native: GPU "), "{warnings:?}");
}

#[test]
fn the_variable_can_ask_for_native_and_the_librarys_place_is_watched() {
    fake_nvml::play("h200", |library| {
        let project = machine(library).set("CARGO_CFG_FEATURE", "").set("GPU_TUNED_TARGET", "native");
        assert!(matches!(project.resolve().unwrap().selected, Selected::Native(_)));
        assert!(project.directives().contains(&"rerun-if-env-changed=GPU_TUNED_NVML_PATH".to_owned()));
    });
}
