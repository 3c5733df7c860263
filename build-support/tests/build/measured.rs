//! Measurements of `gpu-tuned.lock` in the table, and its mistakes.

use gpu_tuned_build::{Resolved, configure};
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_project::lock::Lock;

use crate::project::Project;

const LOCK: &str = "\
format = 2

[workload.lm]
host_ms_per_sample = 0.5
parameters = 1_000
shape = \"00ff\"

[workload.lm.described.transformer]
d_model = 64
layers = 2
seq = 64
vocab = 256

[workload.lm.goal]
global_batch = 64

[workload.lm.on.t4]
burn = \"0.22.1\"
device = \"Tesla T4\"
kind = \"gpu\"
memory_bytes = 16_000_000_000
sm_count = 40

[workload.lm.on.cpu]
burn = \"0.21.0\"
device = \"CPU\"
kind = \"cpu\"
memory_bytes = 16_000_000_000
sm_count = 0

# end of gpu-tuned.lock
";

const CARGO_LOCK: &str = "\
version = 4

[[package]]
name = \"user\"
version = \"0.0.0\"
dependencies = [\"burn 0.22.1\"]

[[package]]
name = \"other\"
version = \"0.0.0\"
dependencies = [\"burn 0.21.0\"]

[[package]]
name = \"burn\"
version = \"0.21.0\"

[[package]]
name = \"burn\"
version = \"0.22.1\"
";

fn measured() -> Project {
    Project::enabling(&["h200"]).with("gpu-tuned.lock", LOCK)
}

fn devices(resolved: &Resolved) -> Vec<String> {
    resolved.workload(None, &Transformer::new(2, 64, 256, 64).into()).measured.on.into_keys().collect()
}

#[test]
fn what_was_measured_is_in_both_tables() {
    let project = measured();
    let resolved = project.resolve().unwrap();
    assert_eq!(devices(&resolved), ["cpu", "t4"]);
    for table in ["out/gpu-tuned.resolved.toml", "out/gpu-tuned.runtime.toml"] {
        let read = Resolved::from_toml(&std::fs::read_to_string(project.path(table)).unwrap()).unwrap();
        assert_eq!(read.measured, resolved.measured, "{table}");
    }
    assert_eq!(project.warnings(), Vec::<String>::new(), "there is no Cargo.lock to compare with");
}

#[test]
fn figures_of_another_release_of_burn_are_left_out_with_a_warning() {
    let project = measured().with("Cargo.lock", CARGO_LOCK);
    assert_eq!(devices(&project.resolve().unwrap()), ["t4"]);
    assert_eq!(
        project.warnings(),
        [
            "gpu-tuned.lock: `lm` was measured on cpu with Burn 0.21.0, ROOT/Cargo.lock has 0.22.1: its figures are left out, \
          run `cargo gpu-tuned measure`"
        ]
    );
    assert!(project.directives().contains(&"rerun-if-changed=ROOT/Cargo.lock".to_owned()));
    let without_burn = measured().with("Cargo.lock", "version = 4\n");
    assert_eq!(devices(&without_burn.resolve().unwrap()), ["cpu", "t4"]);
}

#[test]
fn a_member_of_a_workspace_is_held_against_the_cargo_lock_above() {
    // As a path dependency of a package above it has no workspace.
    for root in [None, Some("[workspace]\n")] {
        assert_eq!(devices(&in_folder(root, None).resolve().unwrap()), ["t4"], "{root:?}");
    }
}

/// The package in a folder below one that has this manifest and a `Cargo.lock`, perhaps with a `Cargo.lock` of its own.
fn in_folder(root: Option<&str>, own: Option<&str>) -> Project {
    let project = measured().with("Cargo.lock", CARGO_LOCK);
    let member = project.path("crates/member");
    std::fs::create_dir_all(&member).unwrap();
    for file in ["Cargo.toml", "gpu-tuned.lock"] {
        std::fs::rename(project.path(file), member.join(file)).unwrap();
    }
    for (path, text) in [("Cargo.toml", root), ("crates/member/Cargo.lock", own)] {
        if let Some(text) = text {
            project.file(path, text);
        }
    }
    project.set("CARGO_MANIFEST_DIR", member)
}

#[test]
fn a_cargo_lock_that_cargo_passes_over_says_nothing() {
    // Cargo's files from when the package was outside the workspace.
    let stale = CARGO_LOCK.replace("[\"burn 0.22.1\"]", "[\"burn 0.21.0\"]");
    let reported = |lock: &str, burn: &str, on: &str, now: &str| {
        format!(
            "gpu-tuned.lock: `lm` was measured on {on} with Burn {burn}, ROOT/{lock} has {now}: its figures are left out, \
             run `cargo gpu-tuned measure`"
        )
    };
    let of_root = [reported("Cargo.lock", "0.21.0", "cpu", "0.22.1")];
    let own = [reported("crates/member/Cargo.lock", "0.22.1", "t4", "0.21.0")];
    for (root, expected) in [
        ("[workspace]\nmembers = [\"crates/*\"]\n", &of_root),
        ("[workspace]\nexclude = [\"crates\"]\nmembers = [\"crates/member\"]\n", &of_root),
        ("[workspace]\nexclude = [\"crates/other\"]\n", &of_root),
        ("[workspace]\nexclude = [\"crates\"]\n", &own),
        ("[package]\nname = \"above\"\n", &own),
    ] {
        let project = in_folder(Some(root), Some(&stale));
        assert_eq!(&project.warnings(), expected, "{root}");
    }
    // The package names its workspace, or is one.
    let (root, manifest) = ("[workspace]\nexclude = [\"crates\"]\n", "crates/member/Cargo.toml");
    let pointing = in_folder(Some(root), Some(&stale));
    pointing.file(manifest, "[package]\nname = \"user\"\nworkspace = \"../..\"\n");
    assert_eq!(pointing.warnings(), [reported("Cargo.lock", "0.21.0", "cpu", "0.22.1")]);
    let alone = in_folder(Some("[workspace]\n"), Some(&stale));
    alone.file(manifest, "[package]\nname = \"user\"\n\n[workspace]\n");
    assert_eq!(alone.warnings(), own);
}

#[test]
fn what_was_measured_with_the_burn_of_the_workspace_is_kept_without_a_warning() {
    let stale = CARGO_LOCK.replace("[\"burn 0.22.1\"]", "[\"burn 0.21.0\"]");
    let project = in_folder(Some("[workspace]\nmembers = [\"crates/member\"]\n"), Some(&stale));
    let lock = LOCK.replace("burn = \"0.21.0\"", "burn = \"0.22.1\"");
    project.file("crates/member/gpu-tuned.lock", &lock);
    assert_eq!(project.warnings(), [""; 0]);
    assert_eq!(devices(&project.resolve().unwrap()), ["cpu", "t4"]);
}

#[test]
fn two_names_for_one_description_are_told_unless_the_config_has_both() {
    let described = "[workload.NAME.transformer]\nd_model = 64\nlayers = 2\nseq = 64\nvocab = 256\n";
    let file = |name: &str| described.replace("NAME", name);
    let (_, lm) = LOCK.split_once('\n').expect("lines");
    let also = |lock: &str, name: &str| lock.replace(Lock::END, &lm.replace("workload.lm", name));
    let renamed = also(LOCK, "workload.b-new");
    let project = || Project::enabling(&["h200"]).with("gpu-tuned.lock", &renamed);
    let reported = ["gpu-tuned.lock: `b-new` and `lm` have the same description: delete one"];
    assert_eq!(project().warnings(), reported);
    assert_eq!(project().with("gpu-tuned.toml", &file("b-new")).warnings(), reported);
    let both = project().with("gpu-tuned.toml", &(file("b-new") + &file("lm")));
    assert_eq!(both.warnings(), [""; 0]);
    let thrice = also(&renamed, "workload.c");
    let reported = ["gpu-tuned.lock: `b-new`, `c` and `lm` have the same description: delete all but one"];
    assert_eq!(Project::enabling(&[]).with("gpu-tuned.lock", &thrice).warnings(), reported);
}

#[test]
fn a_broken_lock_stops_the_build_at_its_place() {
    let broken = LOCK.replace("host_ms_per_sample = 0.5", "host_ms_per_sample = -1");
    let expected = "\
error: workload.lm.host_ms_per_sample: expected milliseconds from 1e-6 to 1e9; mend that, put back the file \
                    that was committed, or delete it and run `cargo gpu-tuned measure`
 --> gpu-tuned.lock:4:22
  |
4 | host_ms_per_sample = -1
  |                      ^

";
    let report = |text: &str| Project::enabling(&[]).with("gpu-tuned.lock", text).report(&configure());
    assert_eq!(report(&broken), expected);
    let no_text = Project::enabling(&[]);
    std::fs::write(no_text.path("gpu-tuned.lock"), b"# one\n# tw\xff\n").unwrap();
    let expected = "\
error: this is no UTF-8; put back the file that was committed, or delete it and run `cargo gpu-tuned measure`
 --> gpu-tuned.lock:2:5
  |
2 | # tw\u{fffd}
  |     ^

";
    assert_eq!(no_text.report(&configure()), expected);
    let conflict = report(&LOCK.replace("[workload.lm.goal]", "<<<<<<< ours\n[workload.lm.goal]"));
    assert!(
        conflict.contains("a merge left both sides here") && conflict.contains(" --> gpu-tuned.lock:14:1"),
        "{conflict}"
    );
}
