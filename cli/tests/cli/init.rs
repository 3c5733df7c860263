use std::fs;
use std::process::Command;

use crate::project::{Project, Ran};

const FILES: [&str; 3] = ["Cargo.toml", "build.rs", "gpu-tuned.toml"];

/// A package with this manifest.
pub(crate) fn package(manifest: &str) -> Project {
    let project = Project::new("bare");
    project.write("Cargo.toml", manifest);
    project
}

pub(crate) const PLAIN: &str = "[package]\nname = \"plain\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";

/// The package with Burn.
pub(crate) const WITH_BURN: &str = "[package]\nname = \"plain\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nburn = \
                                    \"0.22.1\"\n\n[workspace]\n";

/// With comments, lists of several lines, inline tables, features of the same names, and a build script.
const RICH: &str = "\
# Trains things.
[package]
name = \"rich\" # the name
version = \"0.1.0\"
edition = \"2024\"

[features]
default = [\"cpu\"]
cpu = []
cuda = [
    \"burn/cuda\", # the real thing
]
h200 = [\"cuda\"]

[dependencies]
# For errors.
anyhow = \"1\"
burn = { version = \"0.22.1\", features = [\"train\"] } # 0.23 is not out

# For files.
serde = { version = \"1\", features = [\"derive\"] }

[dependencies.clap]
version = \"4\"

[build-dependencies]
cc = \"1\"

[profile.release]
lto = \"thin\"

[workspace]
";

fn rich() -> Project {
    let project = package(RICH);
    project.write(
        "build.rs",
        "//! Builds C.\n\nfn main() {\n    // First of all:\n    println!(\"cargo::warning=hi\");\n}\n",
    );
    project.write("src/main.rs", "fn main() { let _ = SupervisedTraining::new; }\n");
    project
}

/// Metadata of the package, by cargo.
fn metadata(project: &Project) -> serde_json::Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--offline", "--no-deps", "--format-version=1"]).current_dir(project.path(""));
    Ran::of(&mut cargo).json(0)
}

/// Writes, sees to it that cargo still reads the package, and that there is nothing to write any more.
fn written(project: &Project, args: &[&str]) -> serde_json::Value {
    let all = |more: &[&'static str]| [&["init"], args, more].concat();
    project.run(&all(&["--yes", "--force"])).ended(0);
    let read = metadata(project);
    let said = project.run(&all(&["--yes", "--force"])).ended(0);
    assert!(said.starts_with("nothing to write; left to do by hand:\nby hand: no training config found: "), "{said}");
    assert_eq!(project.run(&all(&["--json"])).json(0)["files"].as_array().map(Vec::len), Some(0));
    read
}

#[test]
fn a_plain_package_is_set_up() {
    let project = package(WITH_BURN);
    insta::assert_snapshot!("init_plain", project.run(&["init", "--dry-run"]).ended(0));
    // The README's picture.
    check_out(&project);
    let with_checkout = project.run(&["init", "--checkout", "../gpu-tuned", "--dry-run"]);
    insta::assert_snapshot!("init_checkout", with_checkout.ended(0));
    let read = written(&project, &[]);
    let package = &read["packages"][0];
    let dependencies = package["dependencies"].as_array().expect("it has dependencies");
    let named: Vec<_> = dependencies.iter().map(|it| (it["name"].as_str(), it["kind"].as_str())).collect();
    assert_eq!(named, [(Some("burn"), None), (Some("gpu-tuned"), None), (Some("gpu-tuned-build"), Some("build"))]);
    assert_eq!(package["features"]["native"][0], "gpu-tuned-build/native");
    // The commands that come next see the GPUs.
    project.write("gpu-tuned.toml", "[workload.small.mlp]\nwidths = [784, 512, 10]\n");
    let planned = project.run(&["plan"]).ended(0);
    assert!(planned.contains("h200") && planned.contains("rtx4090"), "{planned}");
}

#[test]
fn what_is_there_is_kept() {
    let project = rich();
    let ran = project.run(&["init", "--dry-run", "--target", "h200", "l4"]);
    assert!(ran.stderr.contains("the feature `cuda` exists, and now enables `gpu-tuned/cuda`, too"), "{}", ran.stderr);
    insta::assert_snapshot!("init_rich", ran.ended(0));
    let read = written(&project, &["--target", "h200,l4"]);
    assert_eq!(read["packages"][0]["features"]["cuda"], serde_json::json!(["burn/cuda", "gpu-tuned/cuda"]));
    let after = project.read("Cargo.toml");
    assert!(RICH.lines().all(|line| after.lines().any(|kept| kept == line)), "{after}");
}

#[test]
fn line_endings_stay() {
    let project = rich();
    for file in ["Cargo.toml", "build.rs"] {
        let crlf = project.read(file).replace('\n', "\r\n");
        project.write(file, &crlf);
    }
    written(&project, &[]);
    for file in FILES {
        let text = project.read(file);
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{file}: {text:?}");
    }
    // A package that had the feature's name before keeps it.
    let hidden = "\n[features]\nfast = [\"dep:cuda\"]\n\n[dependencies]\ncuda = { version = \"1\", optional = true }\n";
    written(&package(&format!("{PLAIN}{hidden}")), &[]);
}

#[test]
fn nothing_is_written_unless_it_is_asked_for() {
    for (args, code) in [(&["init"][..], 1), (&["init", "--json"], 1), (&["init", "--dry-run"], 0)] {
        let project = package(WITH_BURN);
        let ran = project.run(args);
        assert!(ran.stdout.contains("gpu-tuned-build"), "{}", ran.stdout);
        ran.ended(code);
        assert_eq!(project.read("Cargo.toml"), WITH_BURN);
        let mut left: Vec<_> = fs::read_dir(project.path("")).expect("it can be read").flatten().collect();
        left.sort_by_key(fs::DirEntry::file_name);
        assert_eq!(left.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(), ["Cargo.toml", "src"]);
    }
}

#[test]
fn when_one_file_cannot_be_written_none_is() {
    let project = rich();
    let mut permissions = fs::metadata(project.path("build.rs")).expect("it is there").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(project.path("build.rs"), permissions).expect("it can be set");
    let before = project.read("Cargo.toml");
    let said = project.run(&["init", "--yes", "--force"]).refused(2);
    assert!(said.contains("cannot write `") && said.contains("build.rs`: the file is read-only"), "{said}");
    assert_eq!(project.read("Cargo.toml"), before);
    assert!(!project.path("gpu-tuned.toml").exists());
}

/// Puts the crates of a checkout beside the package's folder.
fn check_out(project: &Project) {
    for (folder, name) in [("runtime", "gpu-tuned"), ("build-support", "gpu-tuned-build")] {
        let features = "[features]\nburn = []\ncuda = []\nnative = []\n\n[workspace]\n";
        let manifest = format!("[package]\nname = {name:?}\nversion = \"0.1.3\"\nedition = \"2024\"\n\n{features}");
        project.write(&format!("../gpu-tuned/{folder}/Cargo.toml"), &manifest);
        project.write(&format!("../gpu-tuned/{folder}/src/lib.rs"), "");
    }
}

#[test]
fn a_relative_checkout_stays_relative_to_the_manifest_that_names_it() {
    let member =
        "[package]\nname = \"two\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nburn.workspace = true\n";
    let root = "[workspace]\nmembers = [\"two\"]\n\n[workspace.dependencies]\nburn = \"0.22\"\n";
    let project = package(root);
    check_out(&project);
    project.write("two/Cargo.toml", member);
    project.write("two/src/lib.rs", "");
    for (folder, checkout) in [("two", "../../gpu-tuned"), ("", "../gpu-tuned")] {
        let mut init = project.command(&["init", "-p", "two", "--yes", "--force", "--checkout", checkout]);
        Ran::of(init.current_dir(project.path(folder))).ended(0);
        let after = project.read("Cargo.toml");
        for krate in ["runtime", "build-support"] {
            assert!(after.contains(&format!("path = \"../gpu-tuned/{krate}\"")), "{checkout}: {after}");
        }
        project.write("Cargo.toml", root);
        project.write("two/Cargo.toml", member);
    }
    // In a package without a workspace, also in place of a repository.
    for dependency in ["", "\n[dependencies]\ngpu-tuned = { git = \"https://example.com/tuned\" }\n"] {
        let project = package(&format!("{PLAIN}{dependency}"));
        check_out(&project);
        project.run(&["init", "--yes", "--force", "--checkout", "../gpu-tuned"]).ended(0);
        let after = project.read("Cargo.toml");
        assert!(after.contains("path = \"../gpu-tuned/runtime\""), "{after}");
        assert!(after.contains("path = \"../gpu-tuned/build-support\""), "{after}");
    }
}

#[test]
fn the_build_crate_comes_from_beside_a_runtime_that_is_by_path() {
    for (dependency, added) in [
        (
            "gpu-tuned = { path = \"../gpu-tuned/runtime\" }\n",
            "gpu-tuned-build = { path = \"../gpu-tuned/build-support\" }\n",
        ),
        (
            "\n[dependencies.gpu-tuned]\npath = \"../gpu-tuned/runtime/\"\nversion = \"0.1.2\"\n",
            "gpu-tuned-build = { path = \"../gpu-tuned/build-support\", version = \"0.1.2\" }\n",
        ),
    ] {
        let project = package(&format!("{PLAIN}\n[dependencies]\n{dependency}"));
        check_out(&project);
        let said = project.run(&["init", "--yes", "--force"]);
        assert!(!said.stderr.contains("no release of gpu-tuned"), "{}", said.stderr);
        said.ended(0);
        let after = project.read("Cargo.toml");
        assert!(after.contains(added), "{dependency}: {after}");
        // All that the package depends on is found without a registry.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--offline", "--format-version=1"]).current_dir(project.path(""));
        assert_eq!(Ran::of(&mut cargo).json(0)["packages"].as_array().map(Vec::len), Some(3));
        written(&project, &[]);
    }
}
