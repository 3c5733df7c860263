//! Which changes cause a rebuild.

use std::collections::BTreeSet;

use feature_matrix::{Build, Fixture, sources};

const FEATURES: [&str; 2] = ["--features", "rtx4090"];

fn new(name: &str) -> Fixture {
    Fixture::new(env!("CARGO_TARGET_TMPDIR"), name)
}

fn is_untouched(build: &Build, when: &str) {
    assert!(build.succeeded, "{}", build.stderr);
    assert_eq!(build.compiled, BTreeSet::new(), "{when}");
}

#[test]
fn a_changed_number_changes_the_constant_and_no_change_rebuilds_nothing() {
    let package = new("numbers")
        .with("src/main.rs", &sources::program("", sources::NAMED))
        .with("gpu-tuned.toml", &sources::config(1 << 28))
        .with("gpu-tuned.lock", &sources::lock(1 << 28, 3 << 30));
    let measured = package.build(&FEATURES).constants();
    is_untouched(&package.build(&FEATURES), "with both files");

    // The larger of the two measured micro-batches no longer fits 24 GiB.
    package.write("gpu-tuned.lock", &sources::lock(1 << 28, 12 << 30));
    let remeasured = package.build(&FEATURES);
    assert_eq!(remeasured.compiled, BTreeSet::from(["numbers".to_owned()]));
    let before = remeasured.constants();
    assert_ne!(before["batch_size"], measured["batch_size"]);
    assert_eq!(before["global_batch"], measured["global_batch"]);

    package.write("gpu-tuned.toml", &sources::config(1 << 30));
    let after = package.build(&FEATURES);
    assert_eq!(after.compiled, BTreeSet::from(["numbers".to_owned()]));
    assert_ne!(after.constant("batch_size"), before["batch_size"]);
    assert_eq!(after.constant("global_batch"), before["global_batch"]);
    is_untouched(&package.build(&FEATURES), "after the change");

    package.remove("gpu-tuned.lock");
    assert!(package.build(&FEATURES).succeeded);
    is_untouched(&package.build(&FEATURES), "without the lock file");
}

#[test]
fn without_any_file_nothing_is_rebuilt_until_one_appears() {
    let package = new("fileless");
    assert_eq!(package.build(&FEATURES).constant("target"), "rtx4090");
    is_untouched(&package.build(&FEATURES), "without gpu-tuned.toml");

    package.write("gpu-tuned.toml", "[goal]\nworld_size = 512\n");
    let appeared = package.build(&FEATURES);
    assert_eq!(appeared.constant("batch_size"), "1", "512 ranks with one sample each make up the global batch");
    is_untouched(&package.build(&FEATURES), "with gpu-tuned.toml");

    package.remove("gpu-tuned.toml");
    assert_ne!(package.build(&FEATURES).constant("batch_size"), "1");
    is_untouched(&package.build(&FEATURES), "after the file is gone");
}

/// Caches of compilers, such as sccache, compare the inputs that the compiler names. `gpu-tuned.resolved.toml` has the workloads.
#[test]
fn what_changes_the_expansion_is_an_input_of_the_compilation() {
    let package = new("inputs").with("src/main.rs", &sources::program("", sources::NAMED));
    package.write("gpu-tuned.toml", &sources::config(1 << 28));
    assert!(package.build(&FEATURES).succeeded);
    let inputs = package.inputs();
    for input in [
        "/gpu-tuned.resolved.toml:",
        "/gpu-tuned.runtime.toml:",
        "# env-dep:GPU_TUNED_TABLE=",
        "# env-dep:GPU_TUNED_RUNTIME_TABLE=",
        "# env-dep:GPU_TUNED_EXPAND_DIR\n",
    ] {
        assert!(inputs.contains(input), "{input}: {inputs}");
    }
    // A build that is otherwise fresh writes the expansions.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("matrix/inputs/expanded");
    let package = package.set("GPU_TUNED_EXPAND_DIR", &folder);
    assert_eq!(package.build(&FEATURES).compiled, BTreeSet::from(["inputs".to_owned()]));
    assert!(folder.join("inputs/Config.rs").is_file());
    is_untouched(&package.build(&FEATURES), "with the expansions");
}

#[test]
fn a_source_file_does_not_run_the_build_script() {
    let package = new("sources");
    assert!(package.build(&FEATURES).succeeded);
    package.write("src/main.rs", &(sources::program("", sources::DIMENSIONS) + "// a remark\n"));
    let build = package.build(&[FEATURES[0], FEATURES[1], "--verbose"]);
    assert_eq!(build.compiled, BTreeSet::from(["sources".to_owned()]));
    assert!(!build.stderr.contains("build-script-build"), "{}", build.stderr);
}

#[test]
fn a_mistake_in_the_file_stops_the_build_at_its_place() {
    let package = new("mistakes").with("gpu-tuned.toml", "[goal]\nmemory_headroom = 2\n\n[profil.mine]\n");
    let build = package.build(&FEATURES);
    for place in ["gpu-tuned.toml:2:19", "gpu-tuned.toml:4:2"] {
        assert!(build.error().contains(&format!(" --> {place}\n")), "{}", build.stderr);
    }
    assert!(!build.stderr.contains("panicked"), "{}", build.stderr);
    package.write("gpu-tuned.toml", "");
    assert!(package.build(&FEATURES).succeeded);
}

#[test]
fn the_resolved_table_is_printed_on_request() {
    let package = new("printing").set("GPU_TUNED_PRINT", "1");
    let build = package.build(&FEATURES);
    assert!(build.error().contains("[selected]\n"), "{}", build.stderr);
    assert!(build.stderr.contains("the build stops here because GPU_TUNED_PRINT is set"), "{}", build.stderr);
}
