//! What `init` makes of a checkout that the crates are to come from.

use std::fs;

use crate::init::{PLAIN, inheriting, package, written};

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn a_checkout_takes_the_place_of_the_release() {
    let project = package(PLAIN);
    let read = written(&project, &["--checkout", CHECKOUT]);
    let path = read["packages"][0]["dependencies"][0]["path"].as_str().expect("it has a path");
    assert!(path.ends_with("/runtime"), "{path}");
    let said = project.run(&["init", "--checkout", "src"]).refused(2);
    assert_eq!(said, "error: `src` is no checkout of gpu-tuned: it has no `runtime`\n");
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
    // What is described for a whole workspace moves there.
    let project = inheriting("anyhow.workspace = true\n");
    written(&project, &["-p", "two"]);
    let before = project.read("two/Cargo.toml");
    written(&project, &["-p", "two", "--checkout", CHECKOUT]);
    assert_eq!(project.read("two/Cargo.toml"), before);
    let root = project.read("Cargo.toml");
    assert!(root.contains(&format!("gpu-tuned = {{ version = \"0.1\", path = \"{here}\" }}")), "{root}");
}

#[test]
fn a_package_that_would_have_the_release_is_told_of_the_checkout() {
    let told = "no release of gpu-tuned is out yet";
    let command = "`cargo gpu-tuned init --checkout ";
    for dependency in ["", "gpu-tuned = \"0.1\"\n"] {
        let project = package(&format!("{PLAIN}\n[dependencies]\n{dependency}"));
        let said = project.run(&["init", "--yes"]).stderr;
        assert!(said.contains(told) && said.contains(command), "{said}");
        let said = project.run(&["init", "--yes", "--checkout", CHECKOUT]).stderr;
        assert!(!said.contains(told), "{said}");
        // It is where it is to stay.
        let said = project.run(&["init"]).stderr;
        assert!(!said.contains(told), "{said}");
    }
}
