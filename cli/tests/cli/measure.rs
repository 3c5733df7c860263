use std::fs;

use crate::project::{Project, Ran};
#[cfg(unix)]
use crate::started::{asleep, shell};

const LOCK: &str = "gpu-tuned.lock";

/// Program that follows its arguments, with the figures of another package to measure.
fn project() -> Project {
    Project::new("measuring").beside("runtime").beside("measured")
}

/// The program with measurements.
fn measured() -> Project {
    let project = project();
    fs::copy(project.path("../measured/gpu-tuned.lock"), project.path(LOCK)).expect("a lock");
    project
}

#[test]
fn what_the_program_measured_is_told() {
    let project = project();
    let ran = project.run(&["measure", "--", "write", "../measured/gpu-tuned.lock"]);
    // Output of cargo and the program passes through, beside the report.
    assert!(
        ran.stderr.contains("Compiling measuring") && ran.stderr.contains("counts: true, loud: true"),
        "{}",
        ran.stderr
    );
    let report = ran.ended(0);
    assert!(report.starts_with("gpu-tuned.lock changed in "), "{report}");
    assert!(report.ends_with("\n  lm        h200    f32   8 32 128 256  new\n"), "{report}");
    assert_eq!(project.read(LOCK), fs::read_to_string(project.path("../measured/gpu-tuned.lock")).expect("a lock"));

    let same = project.run(&["measure", "--", "same"]).ended(0);
    assert!(same.starts_with("gpu-tuned.lock is unchanged: measured the same values"), "{same}");

    // A tenth more at one of the points, and a mode that is gone.
    let text = project.read(LOCK);
    let other = text.replace("reserved_bytes = 4_968_153_088", "reserved_bytes = 5_464_968_396");
    project.write("other.lock", &other.replace("micro_step_ms = 290.2", "micro_step_ms = 275.69"));
    let before = "[workload.lm.on.h200.mode.bf16_params]\nmethod = \"dry-run\"\n\n\
        [workload.lm.on.h200.mode.bf16_params.batch]\n8 = { reserved_bytes = 1 }\n\n# end";
    project.write(LOCK, &text.replace("# end", before));
    let report = project.run(&["measure", "--json", "--", "write", "other.lock"]).json(0);
    assert_eq!(report["measured"], serde_json::json!(["lm"]));
    let [changed, gone] = report["changed"].as_array().expect("changes").as_slice() else { panic!("{report:#}") };
    assert_eq!(
        (&changed["mode"], &gone["mode"], &gone["change"]),
        (&"f32".into(), &"bf16_params".into(), &"gone".into())
    );
    let share = |name: &str| changed["change"]["other"][format!("{name}_share")].as_f64().expect("a share");
    assert!((share("memory") - 0.1).abs() < 1e-6 && (share("time") + 0.05).abs() < 1e-6, "{changed:#}");
}

#[test]
fn kernels_and_precisions_that_the_planner_compares_are_measured_in_processes_of_their_own() {
    let project = project();
    let measured = |set: &str| {
        let mut command = project.command(&["measure", "--", "auto"]);
        let ran = Ran::of(command.env("GPU_TUNED_SET", set));
        let pins: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("set: ")).map(str::to_owned).collect();
        (pins, ran.stderr)
    };
    let (pins, said) = measured("num_workers=2");
    let expected = [
        "set: num_workers=2.",
        "set: num_workers=2,precision=f32,kernels=library.",
        "set: num_workers=2,precision=mixed_bf16,kernels=library.",
        "set: num_workers=2,precision=mixed_bf16,kernels=burn.",
    ];
    assert_eq!(pins, expected, "{said}");
    assert!(said.contains("note: measuring with precision=f32,kernels=library, which the planner compares"), "{said}");
    // Pinned settings are compared with nothing.
    assert_eq!(measured("precision=f32").0, ["set: precision=f32.", "set: precision=f32,kernels=library."]);
    assert_eq!(measured("kernels=burn").0, ["set: kernels=burn.", "set: kernels=burn,precision=mixed_bf16."]);
    assert_eq!(measured("kernels=burn,precision=f32").0, ["set: kernels=burn,precision=f32."]);
}

#[test]
fn a_gpu_is_a_feature_of_the_build_and_cargo_gets_its_options() {
    let project = measured();
    for words in [&["H200"][..], &["--target", "h200"]] {
        let ran = project.run(&[&["measure", "-v"], words, &["--", "same"]].concat());
        assert!(ran.stderr.contains("\"--features=h200,tuned/counting-allocator\""), "{}", ran.stderr);
        ran.ended(0);
    }
    let folder = project.path("elsewhere");
    let options = ["--all-features", "--offline", "--locked", "--target-dir", folder.to_str().expect("UTF-8")];
    let ran = project.run(&[&["measure", "-q"], &options[..], &["--", "same"]].concat());
    assert!(ran.stderr.contains("loud: true, quiet: true") && folder.join("release").is_dir(), "{}", ran.stderr);
    assert!(!ran.stderr.contains("Compiling"), "{}", ran.stderr);
    // The lock of cargo is there now; without it `--locked` refuses to write one.
    fs::remove_file(project.path("Cargo.lock")).expect("cargo wrote it");
    let refused = project.run(&["measure", "--locked", "--", "same"]).refused(2);
    assert!(refused.contains("--locked"), "{refused}");
}

#[test]
fn the_budget_is_passed_to_every_process() {
    let project = project();
    let budgets = |args: &[&str]| {
        let stderr = project.run(args).stderr;
        stderr.lines().filter(|line| line.starts_with("budget: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(budgets(&["measure", "--budget", "300", "--", "auto"]), ["budget: 300."; 4]);
    assert_eq!(budgets(&["measure", "--budget", "5m", "--", "same"]), ["budget: 300."]);
    assert_eq!(budgets(&["measure", "--", "same"]), ["budget: none."]);
}

#[test]
fn settings_that_fail_leave_the_measured_ones() {
    let project = measured();
    for (fails, failed) in [("kernels=library", 2), ("mixed_bf16", 2), ("mixed_bf16,kernels=library", 1)] {
        let ran = project.run(&["measure", "--", "auto", fails]);
        let notes =
            ran.stderr.lines().filter(|line| line.contains(" was not measured (exit status 7): builds plan with"));
        assert_eq!((ran.code, notes.clone().count()), (0, failed), "{}", ran.stderr);
        assert!(notes.clone().all(|line| line.contains(fails)), "{}", ran.stderr);
        // The last process ran, too.
        assert_eq!(ran.stderr.matches("\nset: ").count(), 4, "{}", ran.stderr);
    }
}

#[test]
fn features_are_those_that_are_asked_for_and_the_counting_one_where_there_is_no_gpu() {
    let project = project();
    let said = project.run(&["measure", "--no-default-features", "-F", "quiet", "--", "same"]).stderr;
    assert!(said.contains("counts: true, loud: false, quiet: true"), "{said}");

    let said = project.on("rtx4090", &["measure", "--", "same"]).stderr;
    assert!(said.contains("counts: false, loud: true, quiet: false"), "{said}");

    // A release that cannot count is not asked to.
    project.replace("../runtime/Cargo.toml", "counting-allocator = []\n", "");
    let said = project.run(&["measure", "--", "same"]).stderr;
    assert!(said.contains("counts: false, loud: true, quiet: false"), "{said}");
}

#[test]
fn a_program_that_fails_or_never_measures_is_told_apart_from_both() {
    let project = project();
    let failed = project.run(&["measure", "--", "fail"]).refused(3);
    assert!(failed.contains("error: the program failed: exit status 7\n"), "{failed}");
    let never = project.run(&["measure"]).refused(3);
    assert!(never.contains("trained\n"), "{never}");
    let told = "error: the program of `measuring` ended without measuring anything\n  help: train with \
                `session.trainer(model, optimizer)?` of `gpu-tuned`, or call `session.measure_if_asked(\"NAME\", &subject)?` \
                in `main`, before the model is made";
    assert!(never.contains(told), "{never}");
    assert!(!project.path(LOCK).exists());
    // A line of the program is no measurement: the lock lacks it.
    assert!(project.run(&["measure", "--", "same"]).refused(3).contains(told));

    project.write("src/main.rs", "fn main() { broken }");
    let broken = project.run(&["measure"]).refused(2);
    let told = "error: cargo could not build the program\n  help: its messages are above; nothing was changed\n";
    assert!(broken.contains("cannot find value `broken`") && broken.ends_with(told), "{broken}");
    project.write("src/main.rs", "fn main() { panic!(\"lost\") }");
    let panics = project.run(&["measure"]).refused(3);
    assert!(panics.contains("error: the program failed: exit status 101"), "{panics}");
    let none = project.run(&["measure", "--bin", "none"]).refused(2);
    assert!(none.contains("no bin target named `none`"), "{none}");
}

/// The signal goes to the command, to cargo and to the program, as from a terminal.
#[cfg(unix)]
#[test]
fn an_interruption_before_anything_is_measured_leaves_the_lock_as_it_was() {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

    let project = measured();
    let before = project.read(LOCK);
    let (mut child, _lines) = asleep(project.command(&["measure", "--", "sleep"]).process_group(0));
    shell(&format!("kill -TERM -{}", child.id()));
    let status = child.wait().expect("the command ends");
    assert_eq!(status.signal(), Some(15), "{status}");
    assert_eq!(project.read(LOCK), before);
}

/// An interruption after the measurement keeps the lock.
#[cfg(unix)]
#[test]
fn an_interruption_after_the_measurement_loses_nothing() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use rustix::process::{Pid, Signal, kill_process};

    let project = measured();
    let mut command = project.command(&["measure", "--json", "--", "leaves"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let said = BufReader::new(child.stderr.take().expect("its standard error"));
    let has_ended = |line: String| line.starts_with("note: program exited; terminating its remaining child processes");
    assert!(said.lines().map_while(Result::ok).any(has_ended), "it left nothing behind");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    let output = child.wait_with_output().expect("the command ends");
    assert_eq!(output.status.code(), Some(0), "{}", output.status);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["measured"], serde_json::json!(["lm"]));
}
