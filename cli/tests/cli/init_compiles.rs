//! Programs with Burn, of the kinds that people write, after the edits that `init` prints.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::project::{Ran, apply, copy};

const PROGRAMS: [&str; 5] = ["loop", "by_hand", "arguments", "setter", "library"];

const DEPENDENCIES: &str = "[dependencies]\nanyhow = \"1\"\nburn = { version = \"0.22\", default-features = false, features = \
                            [\"std\", \"flex\", \"optim\", \"dataset\", \"train\"] }\nclap = { version = \"4\", \
                            default-features = false, features = [\"std\", \"derive\", \"help\"] }\nmiette = \"7\"\n";

#[test]
fn programs_get_these_edits() {
    edit(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("edited"));
}

/// Checks the programs in a target folder that later runs use again: the first one compiles Burn.
#[test]
#[ignore = "compiles Burn, for 150 seconds of processor time; `.ci/nightly` runs it"]
fn programs_compile_after_the_edits() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    edit(&folder);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--workspace", "--bins", "--examples", "--features", "rtx4090"]);
    cargo.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target")).env("DOCS_RS", "1");
    let checked = Ran::of(cargo.args(["--message-format", "short"]));
    assert_eq!(checked.code, 0, "{}", checked.stderr);
}

/// Writes the programs as one workspace into a folder, and makes the edits of `init`.
fn edit(folder: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (programs, checkout) = (here.join("tests/programs"), here.join(".."));
    fs::create_dir_all(folder).expect("a folder can be made");
    fs::copy(checkout.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the lock is there");
    fs::write(folder.join("Cargo.toml"), format!("[workspace]\nresolver = \"3\"\nmembers = {PROGRAMS:?}\n"))
        .expect("it can be written");
    for name in PROGRAMS {
        let package = folder.join(name);
        fs::remove_dir_all(&package)
            .or_else(|error| if package.exists() { Err(error) } else { Ok(()) })
            .expect("it can be removed");
        copy(&programs.join(name), &package);
        fs::copy(programs.join("model.rs"), package.join("src/model.rs")).expect("it can be copied");
        let head = format!("[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n");
        fs::write(package.join("Cargo.toml"), head + DEPENDENCIES).expect("it can be written");
    }
    for name in PROGRAMS {
        let init = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned"));
            command.args(["init", "-p", name, "rtx4090", "--checkout"]).arg(&checkout).args(args).current_dir(folder);
            Ran::of(command.env("GPU_TUNED_NVML_PATH", "/nonexistent/libnvidia-ml.so.1"))
        };
        let report = init(&["--json", "--yes"]).json(0);
        let proposal = &report["proposal"];
        let diff = proposal["diff"].as_str().unwrap_or_else(|| panic!("{name}: no proposal"));
        assert!(!diff.contains('…'), "{name}: {diff}");
        insta::assert_snapshot!(format!("init_compiles_{name}"), diff);
        apply(folder, diff);
    }
}
