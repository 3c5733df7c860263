//! The ways of naming a GPU, each in a package that cargo really builds.

use feature_matrix::{Build, Fixture, sources};

fn new(name: &str) -> Fixture {
    Fixture::new(env!("CARGO_TARGET_TMPDIR"), name)
}

fn is_for(build: &Build, target: &str, targets: &str) {
    let constants = build.constants();
    assert_eq!((constants["target"].as_str(), constants["targets"].as_str()), (target, targets));
    assert_eq!(constants["misfits"], "");
    assert_eq!(constants["has_table"], "true");
    // The struct's default is the constant. The micro-batches cover the global batch, and the last one is not empty.
    assert_eq!(constants["default_batch_size"], constants["batch_size"]);
    let number = |name: &str| constants[name].parse::<u64>().unwrap();
    let (batch, steps) = (number("batch_size"), number("default_gradient_accumulation"));
    assert!((steps - 1) * batch < 512 && 512 <= steps * batch, "{steps} x {batch}");
    assert_eq!(number("global_batch"), 512);
}

#[test]
fn features_name_none_one_two_or_all() {
    let package = new("features").with("gpu-tuned.toml", &sources::config(1 << 28));
    let package = package.with("src/main.rs", &sources::program("", sources::NAMED));
    let build = |arguments: &[&str]| package.build(arguments);
    let batch = |build: &Build| build.constant("batch_size").parse::<u64>().unwrap();

    is_for(&build(&[]), "generic", "");
    let small = build(&["--features", "rtx4090"]);
    is_for(&small, "rtx4090", "rtx4090");
    let small = batch(&small);
    let large = build(&["--features", "h200"]);
    is_for(&large, "h200", "h200");
    assert!(batch(&large) > small, "what an H200 holds is more than {small}");
    let both = build(&["--features", "rtx4090,h200"]);
    is_for(&both, "h200 + rtx4090", "h200 rtx4090");
    assert_eq!(batch(&both), small);
    let all = build(&["--all-features"]);
    is_for(&all, "h200 + rtx4090", "h200 rtx4090");
    assert!(all.stderr.contains("`native` has no say"), "{}", all.stderr);
}

#[test]
fn native_names_the_gpu_in_the_machine() {
    let package = new("native-h200")
        .set("GPU_TUNED_NVML_PATH", fake_nvml::library())
        .set(fake_nvml::SCENARIO_VARIABLE, fake_nvml::scenario("h200"));
    is_for(&package.build(&["--features", "native"]), "native (NVIDIA H200)", "");
}

#[test]
fn native_without_a_driver_is_generic_with_a_warning() {
    let build = new("native-none").set("GPU_TUNED_NVML_PATH", "/nowhere/nvml.so").build(&["--features", "native"]);
    is_for(&build, "generic", "");
    assert!(build.stderr.contains("warning: native-none@0.0.0: native: found no usable GPU"), "{}", build.stderr);
}

#[test]
fn the_variable_overrides_the_features() {
    let package = new("override").set("GPU_TUNED_TARGET", "t4");
    is_for(&package.build(&["--features", "h200"]), "t4", "t4");
    let unknown = package.set("GPU_TUNED_TARGET", "rtx4900").build(&[]);
    let error = "error: GPU_TUNED_TARGET: there is no profile `rtx4900`; did you mean `rtx4090`?";
    assert!(unknown.error().contains(error), "{}", unknown.stderr);
    assert!(!unknown.stderr.contains("panicked"), "{}", unknown.stderr);
}

#[test]
fn without_a_build_script_the_attribute_names_the_gpu() {
    let manifest =
        sources::package("scriptless", &format!("[dependencies]\n{}", sources::dependency("gpu-tuned", "runtime")));
    let package = Fixture::empty(env!("CARGO_TARGET_TMPDIR"), "scriptless").with("Cargo.toml", &manifest);
    let package = package.with("src/main.rs", &sources::program("target = \"h200\", ", sources::DIMENSIONS));
    let constants = package.build(&[]).constants();
    assert_eq!((constants["target"].as_str(), constants["has_table"].as_str()), ("h200", "false"));

    package.write("src/main.rs", &sources::program("", sources::DIMENSIONS));
    let build = package.build(&[]);
    assert!(build.error().contains("has no target"), "{}", build.stderr);
    assert_eq!(build.stderr.matches("error: ").count(), 2, "one mistake, and cargo's summary: {}", build.stderr);
}

#[test]
fn a_binarys_features_reach_its_config_crate() {
    let config = "forwarding-config";
    let library = format!("{}\n", sources::tuned_struct("", sources::DIMENSIONS));
    let (runtime, build) =
        (sources::dependency("gpu-tuned", "runtime"), sources::dependency("gpu-tuned-build", "build-support"));
    let binary = format!(
        "[features]\nh200 = [\"{config}/h200\"]\n\n[dependencies]\n{runtime}{config} = {{ path = \"config\" }}\n"
    );
    let library_manifest = format!(
        "[package]\nname = \"{config}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[features]\n{}\n\
         [dependencies]\n{runtime}\n[build-dependencies]\n{build}",
        sources::FEATURES
    );
    let package = Fixture::empty(env!("CARGO_TARGET_TMPDIR"), "forwarding")
        .with("Cargo.toml", &sources::package("forwarding", &binary))
        .with("src/main.rs", &format!("use forwarding_config::Config;\n{}", sources::PRINTING))
        .with("config/Cargo.toml", &library_manifest)
        .with("config/build.rs", sources::BUILD_SCRIPT)
        .with("config/src/lib.rs", &library);
    is_for(&package.build(&[]), "generic", "");
    is_for(&package.build(&["--features", "h200"]), "h200", "h200");
}
