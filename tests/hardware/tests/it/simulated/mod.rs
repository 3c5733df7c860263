//! Runs on CUDA with a driver that runs no kernels: `cargo test --release -p hardware-tests --features cuda`.

mod dry;
mod graphs;
mod ranks;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use fake_cuda::Machine;
use gpu_tuned::{Options, gpu_tuned};
use serde_json::Value;

/// The program with these arguments, on a machine with an H200.
fn hardware(machine: &Machine, words: &str) -> Command {
    let mut command = machine.command(env!("CARGO_BIN_EXE_hardware"));
    command.args(words.split(' '));
    command
}

/// Runs a program, and parses its lines.
fn run(mut command: Command) -> (Output, Vec<Value>) {
    let output = command.output().expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!lines.is_empty(), "{errors}");
    (output, lines)
}

/// Dense layers, checkpointed. Memory of convolutions depends on kernels that only a GPU's autotune chooses.
#[test]
fn memory_pools_hold_what_they_hold_on_an_h200() {
    let machine = Machine::new("h200");
    let batches = "40,80";
    let words = format!("trace --model transformer --checkpointing --batches {batches} --steps 12 --unwatched");
    let (_, found) = run(hardware(&machine, &words));
    assert_eq!(found.len(), 2, "{found:?}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/h200/trace.jsonl");
    let text = std::fs::read_to_string(file).expect("results");
    let observed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for found in found {
        let keys = ["model", "precision", "checkpointing", "accumulate", "batch", "queue"];
        let is_it = |line: &&Value| keys.iter().all(|key| line[key] == found[key]);
        let observed = observed.iter().find(is_it).unwrap_or_else(|| panic!("no observation of {found}"));
        assert_eq!(found["reserved_bytes"], observed["reserved_bytes"], "batch {}", found["batch"]);
    }
}

/// A process that plays a smaller GPU; that another one finds less there is the driver's doing, which this one does not.
#[test]
fn all_memory_but_a_part_is_held_until_the_process_is_ended() {
    let machine = Machine::new("h200");
    let ready = machine.home().join("ready");
    let mut command = hardware(&machine, "hold 8192 ready");
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says what it holds");
    let is_held = process.try_wait().expect("a process").is_none();
    process.kill().and_then(|()| process.wait()).expect("it can be ended");
    let left = 8192_u64 << 20;
    let held: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(
        is_held && held["free_bytes"].as_u64().is_some_and(|free| (left..left + (2 << 20)).contains(&free)),
        "{line}"
    );
    assert_eq!(std::fs::read_to_string(ready).expect("it is ready"), held["free_bytes"].to_string());
}

/// Allocations fail as the driver's do, in the forward pass, the backward pass, the optimizer and the loader.
#[test]
fn training_goes_on_with_the_same_samples_wherever_memory_runs_out() {
    let machine = Machine::new("h200");
    for drill in ["forward", "backward", "optimizer", "loader"] {
        let words = format!("drill {drill} --repeats 1 --before 3 --after 8 --layers 1");
        let (output, lines) = run(hardware(&machine, &words));
        let line = &lines[0];
        assert!(output.status.success() && line["error"].is_null(), "{line}");
        assert_eq!(line["samples_exact"], Value::from(true), "{line}");
        assert!(line["rescues"].as_u64() > Some(0), "{line}");
        assert!(line["micro_batch_after"].as_u64() < line["planned"].as_u64(), "{line}");
    }
}

/// The line of a session that takes its first steps with a micro-batch of 2.
fn warm(machine: &Machine, variables: &[(&str, &Path)]) -> Value {
    let mut command = hardware(machine, "warm --model transformer --micro-batches 1");
    command.env("GPU_TUNED_SET", "batch_size=2").envs(variables.iter().copied());
    run(command).1.remove(0)
}

/// Seconds of the first step.
fn first_step(machine: &Machine, variables: &[(&str, &Path)]) -> f64 {
    let line = warm(machine, variables);
    line["first_step_s"].as_f64().unwrap_or_else(|| panic!("{line}"))
}

/// Caches of an earlier process, or an archive from another machine, save most of compilation and autotune.
#[test]
fn first_steps_are_short_where_kernels_were_kept_or_come_in_a_bundle() {
    let [maker, used, fresh] = [(); 3].map(|()| Machine::new("h200"));
    let bundles = maker.home().join("bundles");
    let cold = first_step(&used, &[]);
    let kept = first_step(&used, &[]);
    let made = warm(&maker, &[("GPU_TUNED_WARM", &bundles), ("GPU_TUNED_WARM_JSON", Path::new("1"))]);
    assert_eq!(made["micro_batches"], serde_json::json!([2, 1]), "{made}");
    let taken = first_step(&fresh, &[("GPU_TUNED_WARM_BUNDLE", &bundles)]);
    assert!(kept < cold / 5.0 && taken < cold / 5.0, "{cold} s at first, {kept} s then, {taken} s with a bundle");
}

/// Without a replacement, a database that was cut makes every start ten times slower than a cold one.
#[test]
fn a_damaged_cache_costs_one_cold_start() {
    let machine = Machine::new("h200");
    let cold = first_step(&machine, &[]);
    let caches = std::fs::read_dir(machine.home().join(".cache/cubecl")).expect("a folder");
    let files = caches.map(|file| file.expect("a file").path());
    let database =
        files.into_iter().find(|path| path.extension().is_some_and(|name| name == "db")).expect("a database");
    let file = std::fs::File::options().write(true).open(database).expect("it is writable");
    file.set_len(file.metadata().expect("a length").len() * 2 / 3).expect("it is cut");
    let (damaged, next) = (first_step(&machine, &[]), first_step(&machine, &[]));
    assert!(
        damaged < cold * 2.0 && next < cold / 5.0,
        "{cold} s at first, {damaged} s with the cut one, {next} s then"
    );
}

/// Counts the kernels on tensor cores, and those of them in TF32. Autotune loads all candidates.
fn tensor_core_kernels(machine: &Machine) -> [usize; 2] {
    let kernels = machine.kernels();
    assert!(kernels.len() > 20, "{} kernels were loaded", kernels.len());
    ["mma.", ".tf32"].map(|of| kernels.iter().filter(|kernel| kernel.contains(of)).count())
}

#[test]
fn no_candidate_for_f32_takes_tensor_cores_once_tf32_is_off() {
    let words = "exact --global-batch 2 --micro-batches 2 --large-batch 0";
    let (with, without) = (Machine::new("h200"), Machine::new("h200"));
    for (machine, words) in [(&with, words), (&without, &format!("{words} --full-f32"))] {
        let (_, lines) = run(hardware(machine, words));
        assert_eq!(lines.len(), 3, "{lines:?}");
    }
    let [kernels, in_tf32] = tensor_core_kernels(&with);
    assert!(in_tf32 > 0 && in_tf32 == kernels, "{in_tf32} of {kernels}");
    assert_eq!(tensor_core_kernels(&without), [0, 0]);
}

/// A session that takes its first steps with a micro-batch of 2.
fn session(machine: &Machine, allow_tf32: bool, precision: &str) -> Command {
    let mut command = hardware(machine, &format!("warm --model transformer --precision {precision} --micro-batches 1"));
    command.env("GPU_TUNED_SET", format!("batch_size=2,allow_tf32={allow_tf32}"));
    command
}

#[test]
fn a_session_switches_tf32_off_where_it_is_not_allowed_and_keeps_its_kernels_apart() {
    let (with, without) = (Machine::new("h200"), Machine::new("h200"));
    let reported = |machine, allow_tf32| run(session(machine, allow_tf32, "f32")).1[0]["warm"].to_string();
    let caches = [reported(&with, true), reported(&without, false)];
    assert_eq!(caches.each_ref().map(|reported| reported.contains("full-f32")), [false, true], "{caches:?}");
    assert!(tensor_core_kernels(&with)[1] > 0);
    assert_eq!(tensor_core_kernels(&without), [0, 0]);
}

#[test]
fn bf16_keeps_tensor_cores_without_tf32() {
    let machine = Machine::new("h200");
    run(session(&machine, false, "bf16"));
    let [kernels, in_tf32] = tensor_core_kernels(&machine);
    assert!(kernels > 0 && in_tf32 == 0, "{in_tf32} of {kernels}");
}

/// The user's caches may contain kernels tuned with TF32, and Burn panics if a cached choice is not applicable.
#[test]
fn tf32_that_cannot_be_switched_off_is_a_fallback_which_strict_mode_refuses() {
    let machine = Machine::new("h200");
    std::fs::write(machine.home().join("cubecl.toml"), "[compilation]\ncache = true\n").expect("it can be written");
    let (output, lines) = run(session(&machine, false, "f32"));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(lines[0]["error"].is_null() && reported.contains("TF32 stays on"), "{reported}");
    assert!(tensor_core_kernels(&machine)[1] > 0);
    let mut strict = session(&machine, false, "f32");
    strict.env("GPU_TUNED_STRICT", "1");
    let error = run(strict).1[0]["error"].to_string();
    assert!(error.contains("strict mode") && error.contains("TF32 stays on"), "{error}");
}

/// Environment variable: true if the first of two sessions allows TF32. The second does the opposite.
const FIRST_ALLOWS: &str = "FIRST_ALLOWS_TF32";

#[gpu_tuned(mlp(widths = [64, 64]), global_batch = 64, target = "h200")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    allow_tf32: bool,
}

#[test]
#[ignore = "a program for the test below"]
fn program_that_starts_two_sessions() {
    let first = std::env::var(FIRST_ALLOWS).is_ok_and(|allows| allows == "true");
    for allow_tf32 in [first, !first] {
        let set = format!("allow_tf32={allow_tf32}").parse().expect("a setting");
        let session = Options::default().set(set).start(Config::default()).expect("it starts");
        println!("{}\nused: {}", session.selection(), session.config().allow_tf32);
        println!("{}\nkept: {}", session.plan(), session.warm_start());
    }
}

#[test]
fn a_gpu_that_is_hidden_from_cuda_is_said_to_be() {
    let machine = Machine::new("h200");
    let mut command = machine.command(std::env::current_exe().expect("a test knows its own path"));
    command.args(own_process::arguments(program_that_starts_two_sessions));
    let output = command.env("CUDA_VISIBLE_DEVICES", "").output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stdout);
    let expected = "CUDA shows none of the driver's GPUs (NVIDIA H200): CUDA_VISIBLE_DEVICES is ``";
    assert!(
        message.contains("no usable GPU") && message.contains(expected),
        "{message}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Output of the second session, depending on the first.
fn output_of_second_session(first_allows: bool) -> String {
    let machine = Machine::new("h200");
    let mut command = machine.command(std::env::current_exe().expect("a test knows its own path"));
    command.args(own_process::arguments(program_that_starts_two_sessions));
    let output = command.env(FIRST_ALLOWS, first_allows.to_string()).output().expect("it starts");
    let message = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{message}{}", String::from_utf8_lossy(&output.stderr));
    let (_, second) = message.split_once("kept: ").and_then(|(_, rest)| rest.split_once('\n')).expect("two sessions");
    second.to_owned()
}

#[test]
fn what_a_process_has_done_about_tf32_stays() {
    let second = output_of_second_session(true);
    assert!(second.contains("TF32 stays on") && second.contains("used: true"), "{second}");
    assert!(!second.contains("full-f32"), "{second}");
    let second = output_of_second_session(false);
    assert!(second.contains("switched off in this process before") && second.contains("used: false"), "{second}");
    assert!(!second.contains("TF32 stays on") && second.contains("full-f32"), "{second}");
}

/// The second start is the same process, and has all memory again.
#[test]
fn a_model_that_is_not_ready_for_16_bits_is_trained_in_f32_after_a_second_start() {
    let machine = Machine::new("h200");
    let (output, lines) = run(hardware(&machine, "unready --hold-mib 64"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("norm.running_mean") && errors.contains("starts again and trains in f32"), "{errors}");
    let [first, second, trained] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!([&first["precision"], &second["precision"], &trained["precision"]], ["mixed_bf16", "f32", "f32"]);
    assert_eq!(first["fallbacks"], serde_json::json!([]));
    assert!(second["fallbacks"][0].as_str().expect("a fallback").contains("norm.running_mean"), "{second}");
}
