//! `init` with a checkout as the source of the crates.

use std::fs;

use std::process::Command;

use crate::init::{PLAIN, inheriting, package, written};
use crate::project::{Project, Ran};

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn a_checkout_takes_the_place_of_the_release() {
    let project = package(PLAIN);
    let read = written(&project, &["--checkout", CHECKOUT]);
    let path = read["packages"][0]["dependencies"][0]["path"].as_str().expect("it has a path");
    assert!(path.ends_with("/runtime"), "{path}");
}

#[test]
fn a_package_that_has_it_from_elsewhere_is_moved_to_the_checkout() {
    let here = fs::canonicalize(CHECKOUT).expect("it is there").join("runtime");
    let here = here.to_str().expect("it is UTF-8");
    let old = package("[package]\nname = \"gpu-tuned\"\nversion = \"0.1.0\"\n\n[features]\nburn = []\ncuda = []\n");
    for (dependency, moved) in [
        (
            "gpu-tuned = \"0.1\" # ours\n",
            "gpu-tuned = { version = \"0.1\", features = [\"burn\"], path = \"HERE\" } # ours\n",
        ),
        (
            "gpu-tuned = { path = \"OLD\", features = [\"burn\"] } # ours\n",
            "gpu-tuned = { path = \"HERE\", features = [\"burn\"] } # ours\n",
        ),
        (
            "gpu-tuned = { git = \"https://example.org/x\", rev = \"abc\", features = [\"burn\"] }\n",
            "gpu-tuned = { features = [\"burn\"], path = \"HERE\" }\n",
        ),
        (
            "gpu-tuned.version = \"0.1\"\ngpu-tuned.features = [\"burn\"]\n",
            "gpu-tuned.version = \"0.1\"\ngpu-tuned.features = [\"burn\"]\ngpu-tuned.path = \"HERE\"\n",
        ),
        (
            "\n[dependencies.gpu-tuned]\nversion = \"0.1\"\nfeatures = [\"burn\"]\n",
            "version = \"0.1\"\nfeatures = [\"burn\"]\npath = \"HERE\"\n",
        ),
    ] {
        let dependency = dependency.replace("OLD", &old.path("").display().to_string());
        let project = package(&format!("{PLAIN}\n[dependencies]\n{dependency}"));
        let read = written(&project, &["--checkout", CHECKOUT]);
        let after = project.read("Cargo.toml");
        assert!(after.contains(&moved.replace("HERE", here)), "{dependency}: {after}");
        let path = read["packages"][0]["dependencies"][0]["path"].as_str();
        assert_eq!(path, Some(here), "{after}");
    }
    // Cargo has one source of a package.
    let twice = "[dependencies]\ngpu-tuned = \"0.1\"\n\n[dev-dependencies]\ngpu-tuned = { version = \"0.1\", features = [\"cuda\"] }\n\n\
                 [target.'cfg(unix)'.dev-dependencies]\ntuned = { package = \"gpu-tuned\", version = \"0.1\" }\n";
    let project = package(&format!("{PLAIN}\n{twice}"));
    written(&project, &["--checkout", CHECKOUT]);
    let after = project.read("Cargo.toml");
    assert_eq!(after.matches(&format!("path = \"{here}\"")).count(), 3, "{after}");
    // Dependencies of the whole workspace move there.
    let project = inheriting("anyhow.workspace = true\n");
    written(&project, &["-p", "two"]);
    let before = project.read("two/Cargo.toml");
    written(&project, &["-p", "two", "--checkout", CHECKOUT]);
    assert_eq!(project.read("two/Cargo.toml"), before);
    let root = project.read("Cargo.toml");
    assert!(root.contains(&format!("gpu-tuned = {{ version = \"0.1\", path = \"{here}\" }}")), "{root}");
}

/// Puts crates in place of those of a checkout beside the package's folder.
fn checked_out(project: &Project, crates: &[(&str, &str)]) {
    for (folder, name) in crates {
        let folder = project.path("..").join("tuned").join(folder);
        fs::create_dir_all(folder.join("src")).expect("a folder can be made");
        let features = "[features]\nburn = []\ncuda = []\nnative = []\n\n[workspace]\n";
        let manifest = format!("[package]\nname = {name:?}\nversion = \"0.1.3\"\nedition = \"2024\"\n\n{features}");
        fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest can be written");
        fs::write(folder.join("src/lib.rs"), "").expect("a source can be written");
    }
}

const BOTH: [(&str, &str); 2] = [("runtime", "gpu-tuned"), ("build-support", "gpu-tuned-build")];

#[test]
fn the_build_crate_comes_from_beside_a_runtime_that_is_by_path() {
    for (dependency, added) in [
        ("gpu-tuned = { path = \"../tuned/runtime\" }\n", "gpu-tuned-build = { path = \"../tuned/build-support\" }\n"),
        (
            "\n[dependencies.gpu-tuned]\npath = \"../tuned/runtime/\"\nversion = \"0.1.2\"\n",
            "gpu-tuned-build = { path = \"../tuned/build-support\", version = \"0.1.2\" }\n",
        ),
    ] {
        let project = package(&format!("{PLAIN}\n[dependencies]\n{dependency}"));
        checked_out(&project, &BOTH);
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

#[test]
fn the_build_crate_is_described_where_the_runtime_is() {
    // For the whole workspace, by a path from there on.
    let project = inheriting("anyhow.workspace = true\ngpu-tuned.workspace = true\n");
    project.replace("Cargo.toml", "anyhow = ", "gpu-tuned = { path = \"../tuned/runtime\" }\nanyhow = ");
    checked_out(&project, &BOTH);
    written(&project, &["-p", "two"]);
    let root = project.read("Cargo.toml");
    assert!(root.contains("gpu-tuned-build = { path = \"../tuned/build-support\" }\n"), "{root}");
    assert!(project.read("two/Cargo.toml").contains("gpu-tuned-build.workspace = true\n"));
    // By the package itself, although it has others from the workspace.
    let project = inheriting("anyhow.workspace = true\ngpu-tuned = { path = \"../../tuned/runtime\" }\n");
    let before = project.read("Cargo.toml");
    checked_out(&project, &BOTH);
    written(&project, &["-p", "two"]);
    let member = project.read("two/Cargo.toml");
    assert!(member.contains("gpu-tuned-build = { path = \"../../tuned/build-support\" }\n"), "{member}");
    assert_eq!(project.read("Cargo.toml"), before);
    // Existing dependencies of the workspace are used.
    let offered = "gpu-tuned-build = { path = \"../tuned/build-support\", features = [\"native\"] }\n";
    project.replace("Cargo.toml", "anyhow = ", &format!("{offered}anyhow = "));
    written(&project, &["-p", "one"]);
    assert!(project.read("one/Cargo.toml").contains("gpu-tuned-build.workspace = true\n"));
}

#[test]
fn the_build_crate_comes_from_the_repository_or_the_registry_of_the_runtime() {
    for (source, added) in [
        ("git = \"https://example.org/x\", rev = \"abc\"", "git = \"https://example.org/x\", rev = \"abc\""),
        ("version = \"0.1\", registry = \"ours\"", "registry = \"ours\", version = \"0.1\""),
    ] {
        let project = package(&format!("{PLAIN}\n[dependencies]\ngpu-tuned = {{ {source}, features = [\"burn\"] }}\n"));
        fs::create_dir(project.path(".cargo")).expect("a folder can be made");
        project.write(".cargo/config.toml", "[registries.ours]\nindex = \"https://example.org/index\"\n");
        let said = project.run(&["init", "--dry-run"]);
        assert!(!said.stderr.contains("no release of gpu-tuned"), "{}", said.stderr);
        said.ended(0);
        written(&project, &[]);
        let after = project.read("Cargo.toml");
        assert!(after.contains(&format!("gpu-tuned-build = {{ {added} }}\n")), "{after}");
    }
}

#[test]
fn where_the_build_crate_would_be_a_release_the_checkout_is_told() {
    let depends = "gpu-tuned = { path = \"../tuned/runtime\", features = [\"burn\"] }\n";
    let project = package(&format!("{PLAIN}\n[dependencies]\n{depends}"));
    // The folder beside it is another crate.
    checked_out(&project, &[BOTH[0], ("build-support", "other")]);
    for args in [&["init", "--dry-run"][..], &["init", "--force", "--yes"], &["init", "--force", "--yes"]] {
        let said = project.run(args);
        assert!(said.stderr.contains("gpu-tuned has no release yet"), "{}", said.stderr);
        said.ended(0);
    }
    assert!(project.read("Cargo.toml").contains("gpu-tuned-build = \"0.1\"\n"));
}

#[test]
fn a_package_that_would_have_the_release_is_told_of_the_checkout() {
    let told = "gpu-tuned has no release yet";
    let command = "`cargo gpu-tuned init --checkout ";
    for dependency in ["", "gpu-tuned = \"0.1\"\n"] {
        let project = package(&format!("{PLAIN}\n[dependencies]\n{dependency}"));
        let said = project.run(&["init", "--yes", "--force"]).stderr;
        assert!(said.contains(told) && said.contains(command), "{said}");
        let said = project.run(&["init", "--yes", "--checkout", CHECKOUT]).stderr;
        assert!(!said.contains(told), "{said}");
        // It is where it is to stay.
        let said = project.run(&["init"]).stderr;
        assert!(!said.contains(told), "{said}");
    }
}
