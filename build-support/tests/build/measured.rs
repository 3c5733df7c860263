//! What `gpu-tuned.lock` adds to the table, and what it has to say first.

use gpu_tuned_build::{Resolved, configure};
use gpu_tuned_core::workload::Transformer;

use crate::project::Project;

const LOCK: &str = "\
format = 1

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
            "gpu-tuned.lock: `lm` was measured on cpu with Burn 0.21.0, Cargo.lock has 0.22.1: its figures are left out, \
          run `cargo gpu-tuned measure`"
        ]
    );
    assert!(project.directives().contains(&"rerun-if-changed=ROOT/Cargo.lock".to_owned()));
    let without_burn = measured().with("Cargo.lock", "version = 4\n");
    assert_eq!(devices(&without_burn.resolve().unwrap()), ["cpu", "t4"]);
}

#[test]
fn a_member_of_a_workspace_is_held_against_the_cargo_lock_above() {
    let project = measured().with("Cargo.lock", CARGO_LOCK);
    let member = project.path("member");
    std::fs::create_dir(&member).unwrap();
    for file in ["Cargo.toml", "gpu-tuned.lock"] {
        std::fs::rename(project.path(file), member.join(file)).unwrap();
    }
    let project = project.set("CARGO_MANIFEST_DIR", member);
    assert_eq!(devices(&project.resolve().unwrap()), ["t4"]);
}

#[test]
fn two_names_for_one_description_are_told_unless_the_config_has_both() {
    let described = "[workload.NAME.transformer]\nd_model = 64\nlayers = 2\nseq = 64\nvocab = 256\n";
    let file = |name: &str| described.replace("NAME", name);
    let (_, lm) = LOCK.split_once('\n').expect("lines");
    let renamed = LOCK.to_owned() + &lm.replace("workload.lm", "workload.b-new");
    let project = || Project::enabling(&["h200"]).with("gpu-tuned.lock", &renamed);
    let told = ["gpu-tuned.lock: `b-new` and `lm` have the same description: delete one"];
    assert_eq!(project().warnings(), told);
    assert_eq!(project().with("gpu-tuned.toml", &file("b-new")).warnings(), told);
    let both = project().with("gpu-tuned.toml", &(file("b-new") + &file("lm")));
    assert_eq!(both.warnings(), [""; 0]);
    let thrice = renamed.clone() + &lm.replace("workload.lm", "workload.c");
    let told = ["gpu-tuned.lock: `b-new`, `c` and `lm` have the same description: delete all but one"];
    assert_eq!(Project::enabling(&[]).with("gpu-tuned.lock", &thrice).warnings(), told);
}

#[test]
fn a_broken_lock_stops_the_build_at_its_place() {
    let broken = LOCK.replace("host_ms_per_sample = 0.5", "host_ms_per_sample = -1");
    let expected = "\
error: workload.lm.host_ms_per_sample: expected milliseconds, more than 0 and at most 1e9; mend that, put back the file \
                    that was committed, or delete it and run `cargo gpu-tuned measure`
 --> gpu-tuned.lock:4:22
  |
4 | host_ms_per_sample = -1
  |                      ^

";
    let report = |text: &str| Project::enabling(&[]).with("gpu-tuned.lock", text).report(&configure());
    assert_eq!(report(&broken), expected);
    let conflict = report(&LOCK.replace("[workload.lm.goal]", "<<<<<<< ours\n[workload.lm.goal]"));
    assert!(
        conflict.contains("a merge left both sides here") && conflict.contains(" --> gpu-tuned.lock:14:1"),
        "{conflict}"
    );
}
