use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_core::workload::{Mlp, Transformer, WorkloadSpec};

use super::{Resolved, Selected};
use crate::config::ConfigFile;
use crate::lock::Lock;

#[test]
fn a_program_takes_along_what_is_selected_and_what_is_the_users_own() {
    let text = "[profile.mine]\nbase = \"l4\"\n\n[profile.t4]\nboard.tdp_w = 60.0\n";
    let file = ConfigFile::parse(Source { file: "gpu-tuned.toml", text }).expect("valid");
    let mut table = ProfileTable::builtin().clone();
    file.profiles.iter().cloned().for_each(|profile| table.insert(profile));
    let id = |id: &str| id.parse().expect("an id");
    let declared = ["h200", "rtx4090", "t4", "a100-sxm4-80gb"].map(id).to_vec();
    let resolved = Resolved::new(Selected::Targets(vec![id("h200")]), declared, &file, &table);
    let with_workload = ConfigFile::parse(Source { file: "gpu-tuned.toml", text: WORKLOAD }).expect("valid");
    let whole = Resolved::new(Selected::Generic, Vec::new(), &with_workload, &table);
    assert_eq!((whole.workload.len(), whole.for_runtime().workload.len()), (1, 0));
    let taken = resolved.for_runtime();
    let ids: Vec<_> = taken.profile.iter().map(|profile| profile.id.as_str()).collect();
    assert_eq!(ids, ["generic", "h200", "mine", "t4"]);
    assert_eq!(Resolved::from_toml(&taken.to_toml()).expect("it reads back"), taken);
}

/// A test passes the variables of its build script on to the cargo that it runs.
#[test]
fn a_table_is_of_the_package_that_wrote_it_and_of_its_compile_tests() {
    let table = || Resolved::from_builtin("h200").expect("a profile");
    let of_package = table().with_package("lm");
    for (package, expected) in [("lm", true), ("lm-tests", true), ("other", false), ("other-tests", false)] {
        assert_eq!(of_package.is_of(package), expected, "{package}");
    }
    assert!(table().with_package("my-tests").is_of("my-tests"));
    assert!(table().is_of("any"));
    assert!(!of_package.for_runtime().to_toml().contains("lm"));
}

const WORKLOAD: &str = "[workload.m.mlp]\nwidths = [8, 4]\n";

const LOCK: &str = r#"format = 2

[workload.lm]
host_ms_per_sample = 0.5
parameters = 1_000
shape = "00ff"

[workload.lm.described.transformer]
d_model = 64
layers = 2
seq = 64
vocab = 256

[workload.lm.goal]
global_batch = 64

[workload.lm.on.t4]
burn = "0.22.1"
device = "Tesla T4"
kind = "gpu"
memory_bytes = 16_000_000_000
sm_count = 40

[workload.lm.on.t4.mode.f32]
method = "executed"

[workload.lm.on.t4.mode.f32.batch]
8 = { micro_step_ms = 10.5, reserved_bytes = 4_000_000 }
"#;

fn with_measured() -> Resolved {
    let lock = Lock::parse(Source { file: Lock::NAME, text: &format!("{LOCK}{}", Lock::END) }).expect("it is valid");
    Resolved::from_builtin("t4").expect("it is shipped").with_measured(lock)
}

#[test]
fn measurements_go_along_and_belong_to_their_description() {
    let resolved = with_measured();
    let taken = Resolved::from_toml(&resolved.for_runtime().to_toml()).expect("it reads back");
    assert_eq!(taken.measured, resolved.measured);
    let lm = Transformer::new(2, 64, 256, 64);
    let measured = taken.workload(None, &lm.clone().into());
    assert_eq!((measured.measured.on.len(), measured.sample.host_ms), (1, Some(0.5)));
    let deeper = Transformer { layers: 3, ..lm.clone() };
    assert_eq!(taken.workload(None, &deeper.clone().into()), deeper.workload());
    let before = taken.measured.measured_before(None, &deeper.into()).expect("it is of the same kind");
    let message = "gpu-tuned.lock: `lm` was measured with layers = 2, now 3: run `cargo gpu-tuned measure`";
    assert_eq!(before.to_string(), message);
    let images: WorkloadSpec = Mlp { widths: vec![8, 8] }.into();
    assert_eq!(taken.measured.measured_before(None, &images), None);
    assert_eq!(taken.measured.measured_before(Some("other"), &images), None);
    assert!(taken.measured.measured_before(Some("lm"), &images).is_some());
    assert_eq!(taken.measured.measured_before(Some("lm"), &lm.into()), None);
}

/// Measurements in `LOCK` of a T4, and of an H200 under an older name.
fn with_renamed(target: &str) -> Resolved {
    let (_, lm) = LOCK.split_once('\n').expect("lines");
    let older = lm.replace("workload.lm", "workload.a-old").replace("ms_per_sample = 0.5", "ms_per_sample = 0.25");
    let older = older.replace("on.t4", "on.h200").replace("Tesla T4", "NVIDIA H200").replace("= 40", "= 132");
    let lock =
        Lock::parse(Source { file: Lock::NAME, text: &format!("{LOCK}{older}{}", Lock::END) }).expect("it is valid");
    Resolved::from_builtin(target).expect("it is shipped").with_measured(lock)
}

#[test]
fn of_equal_descriptions_the_own_name_counts_then_the_device() {
    let (lm, older) = (Some(0.5), Some(0.25));
    let spec = Transformer::new(2, 64, 256, 64).into();
    let host_ms = |target: &str, name| with_renamed(target).workload(name, &spec).sample.host_ms;
    for target in ["t4", "h200", "generic"] {
        assert_eq!((host_ms(target, Some("lm")), host_ms(target, Some("a-old"))), (lm, older), "{target}");
    }
    assert_eq!((host_ms("t4", None), host_ms("h200", None)), (lm, older));
    // A name without measurements is ignored.
    assert_eq!((host_ms("t4", Some("other")), host_ms("h200", Some("other"))), (lm, older));
    let found = |id: &str| {
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("it is shipped"));
        with_renamed("generic").workload_on(None, &spec, &[facts]).sample.host_ms
    };
    assert_eq!((found("t4"), found("h200")), (lm, older));
    // Nothing is left of figures of another Burn.
    let mut emptied = with_renamed("generic");
    emptied.measured.workload.get_mut("a-old").expect("it is there").measured.on.clear();
    assert_eq!(emptied.workload(None, &spec).sample.host_ms, lm);
}

#[test]
fn a_measurement_that_no_lock_may_hold_is_a_damaged_table() {
    let text = with_measured().to_toml();
    for (good, bad) in [
        ("host_ms_per_sample = 0.5", "host_ms_per_sample = nan"),
        ("micro_step_ms = 10.5", "micro_step_ms = -10.5"),
        ("batch.8]", "batch.0]"),
        ("reserved_bytes = 4000000", "reserved_bytes = 2251799813685248"),
        ("layers = 2", "layers = 0"),
        ("parameters = 1000\n", ""),
        ("shape = \"00ff\"", "shape = 5"),
    ] {
        assert!(text.contains(good), "{text}");
        let error = Resolved::from_toml(&text.replace(good, bad)).expect_err(bad);
        assert!(error.to_string().ends_with("; save build.rs, and build again"), "{error}");
    }
}

#[test]
fn an_embedded_table_is_parsed_once() {
    let text: &'static str = with_measured().to_toml().leak();
    let first = Resolved::embedded(text).expect("it is valid");
    assert_eq!(*first, with_measured());
    assert!(core::ptr::eq(first, Resolved::embedded(text).expect("it is valid")));
    assert!(Resolved::embedded("format = 1\n").is_err());
}
