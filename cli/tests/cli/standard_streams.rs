//! What is on standard output, with `--json` and with `-`, which is standard input where something is read, standard output
//! where something is written, and never a file.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::project::{Project, Ran};

const RECORDING: &str = "{\"kind\":\"run\",\"at\":1000.0,\"pid\":77,\"workload\":\"digits\",\"world_size\":1}\n\
    {\"kind\":\"step\",\"at\":1000.5,\"step\":1,\"seconds\":0.5,\"samples\":64,\"micro_batches\":1,\"micro_batch\":64}\n\
    {\"kind\":\"gpu\",\"at\":1000.6,\"gpu\":0,\"utilisation_percent\":60.0,\"throttle\":[]}\n";

fn project() -> Project {
    let project = Project::new("measured");
    project.write("run.jsonl", RECORDING);
    project
}

fn fed(project: &Project, args: &[&str]) -> Ran {
    let mut command = project.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    child.stdin.take().expect("its standard input").write_all(RECORDING.as_bytes()).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("the command prints UTF-8");
    Ran { code: output.status.code().expect("a code"), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn recordings_are_read_from_standard_input() {
    let project = project();
    for args in [
        &["export", "RUN", "--csv"][..],
        &["trace", "RUN", "-o", "-"],
        &["diagnose", "RUN"],
        &["monitor", "--replay", "RUN"],
        &["report", "h200", "--recording", "RUN", "-o", "-"],
    ] {
        let with = |recording: &str| args.iter().map(|arg| arg.replace("RUN", recording)).collect::<Vec<_>>();
        let (piped, named) = (with("-"), with("run.jsonl"));
        let piped = fed(&project, &piped.iter().map(String::as_str).collect::<Vec<_>>());
        let named = project.run(&named.iter().map(String::as_str).collect::<Vec<_>>());
        let code = named.code;
        let text = named.ended(code);
        assert!(!text.is_empty());
        // The page names its recording.
        assert_eq!(piped.ended(code), text.replace("run.jsonl", "standard input"), "{args:?}");
    }
    // What would lie beside a file is printed.
    assert!(fed(&project, &["trace", "-"]).ended(0).contains("traceEvents"));
    assert!(!project.path("-").exists() && !project.path("-.trace.json").exists());
}

#[test]
fn what_is_written_is_printed_and_nothing_else() {
    let project = project();
    project.write("train.toml", "batch_size = 16\nd_model = 64\n");
    let page = project.run(&["report", "h200", "-o", "-"]).ended(0);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"), "{page}");
    let table = project.run(&["export", "run.jsonl", "--csv"]).ended(0);
    assert_eq!(project.run(&["export", "run.jsonl", "--csv", "-o", "-"]).ended(0), table);
    let config = ["optimize", "train.toml", "--workload", "lm", "--target", "rtx4090"];
    let ran = project.run(&[&config[..], &["-o", "-"]].concat());
    assert!(ran.stderr.contains("copied unchanged: standard output\n"), "{}", ran.stderr);
    let copy = ran.ended(0);
    project.run(&[&config[..], &["-o", "copy.toml"]].concat()).ended(0);
    assert_eq!(copy, project.read("copy.toml"));
    for args in [&["report", "h200"][..], &config] {
        let said = project.run(&[args, &["-o", "-", "--json"]].concat()).refused(2);
        assert!(said.contains("leave --json out, or name a file with -o"), "{args:?}: {said}");
    }
    assert!(!project.path("-").exists());
}

/// Names come from wherever: they may have what a terminal does something on.
#[test]
fn names_do_nothing_to_a_terminal() {
    let said = project().run(&["diagnose", "a\x1b[2J\u{202e}b.jsonl"]).refused(2);
    assert!(said.starts_with("error: cannot read `a\u{fffd}[2J\u{fffd}b.jsonl`: "), "{said}");
    let said = project().run(&["plan", "--sort=a\u{202e}\n::warning file=a::b"]).refused(2);
    assert!(said.contains("a\u{fffd}\n") && !said.lines().any(|line| line.starts_with("::")), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_text_that_cannot_be_printed_is_an_error() {
    let project = project();
    for args in [&["--help"][..], &["plan", "--help"], &["--version"], &["generate", "schema"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let ran = project.command(args).stdout(full).stderr(Stdio::piped()).spawn().expect("a start");
        let ran = ran.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.code() == Some(2) && said.starts_with("error: cannot print: "), "{args:?}: {said}");
    }
}

/// Messages go to standard error; an answer is JSON.
#[test]
fn with_json_standard_output_has_that_or_nothing() {
    // What it had recorded until then is judged.
    const FAILING: &[&str] = &["diagnose", "--", "sh", "-c", "exit 7"];
    let project = project();
    project.write("broken.jsonl", "nonsense\n");
    for (args, code) in [
        (&["init", "--target", "voodoo2"][..], 2),
        (&["init", "--force"], 1),
        (&["plan", "voodoo2"], 2),
        (&["plan", "h200"], 0),
        (&["explain", "voodoo2"], 2),
        (&["explain", "h200"], 0),
        (&["explain", "t4", "--precision", "mixed_bf16"], 1),
        (&["plan", "t4", "--precision", "mixed_bf16"], 1),
        (&["report", "t4", "--precision", "mixed_bf16"], 1),
        (&["check", "--workload", "none"], 2),
        (&["check"], 0),
        (&["targets", "voodoo2"], 1),
        (&["optimize", "none.toml", "--target", "h200"], 2),
        (&["bench", "--batch", "none"], 2),
        (&["measure", "--bin", "none"], 2),
        (&["warm", "--bin", "none"], 2),
        (&["diagnose", "broken.jsonl"], 2),
        (&["diagnose", "--", "no-such-program"], 2),
        (&["diagnose", "run.jsonl"], 4),
        (&["diagnose", "--", "echo", "hello"], 4),
        (FAILING, 3),
        (&["monitor", "--replay", "broken.jsonl"], 2),
        (&["trace", "broken.jsonl"], 2),
        (&["trace", "run.jsonl", "--steps", "7..9"], 1),
        (&["trace", "run.jsonl"], 0),
        (&["export", "broken.jsonl", "--csv"], 2),
        (&["export", "run.jsonl", "--csv"], 2),
        (&["export", "run.jsonl", "--csv", "-o", "steps.csv"], 0),
        (&["trace", "run.jsonl", "-o", "-"], 2),
        (&["report", "h200", "-o", "none/page.html"], 2),
        (&["report", "h200"], 0),
        (&["launch", "--", "sh", "-c", "exit 1"], 1),
    ] {
        // Options go before the program that is run.
        let ran = project.run(&[&args[..1], &["--json"], &args[1..]].concat());
        assert_eq!(ran.code, code, "{args:?}: {}{}", ran.stdout, ran.stderr);
        let is_refused = ran.stdout.is_empty() && ran.stderr.contains("error: ");
        let has_an_answer = code < 2 || code == 4 || args == FAILING;
        assert!(is_refused || has_an_answer, "{args:?}: {}", ran.stdout);
        assert!(args != FAILING || !ran.stdout.is_empty(), "{}", ran.stderr);
        let is_json = serde_json::from_str::<serde_json::Value>(&ran.stdout).is_ok();
        assert!(is_json || ran.stdout.is_empty() && code > 1, "{args:?}: {}", ran.stdout);
    }
}

/// Foreign text affects neither a terminal nor a CI system, and files and pipes get it whole.
#[test]
fn foreign_names_are_shown_and_not_obeyed() {
    let project = project();
    let name = "\\u001b]52;c;aGk=\\u0007\\n::warning file=a::b";
    project.write(
        "gpu-tuned.toml",
        &format!("[workload.\"{name}\".mlp]\nwidths = [784, 10]\n[goal]\nglobal_batch = 64\n"),
    );
    let values = format!("{{\"kind\":\"value\",\"at\":1000.7,\"name\":\"{name}\",\"step\":1,\"value\":2.0}}\n");
    project.write("named.jsonl", &(RECORDING.replace("digits", name) + &values));
    for args in [&["plan", "h200"][..], &["check"], &["explain", "h200"], &["monitor", "--replay", "named.jsonl"]] {
        let said = project.run(args);
        let all = said.stdout.clone() + &said.stderr;
        assert!(all.contains("]52;c;aGk="), "{args:?}: {all}");
        let is_harmful = |it: char| it.is_control() && !"\n\t".contains(it);
        assert_eq!(all.find(is_harmful), None, "{args:?}: {all:?}");
        assert!(!all.lines().any(|line| line.trim_start().starts_with("::")), "{args:?}: {all}");
    }
    let exported = project.run(&["export", "named.jsonl", "--csv=values"]).ended(0);
    project.run(&["export", "named.jsonl", "--csv=values", "-o", "values.csv"]).ended(0);
    assert!(!exported.contains('\u{1b}'), "{exported:?}");
    assert_eq!(exported, project.read("values.csv"));
}

#[test]
fn names_of_a_recording_are_no_commands_in_any_output() {
    let name = "a##vso[task.complete]\u{9b}31m\u{202e}";
    let project = Project::new("measured");
    let start =
        format!("{{\"kind\":\"start\",\"at\":1.0,\"gpus\":[{{\"gpu\":0,\"name\":\"{name}\",\"uuid\":\"{name}\"}}]}}\n");
    let records = [
        format!("{{\"kind\":\"run\",\"at\":1.0,\"workload\":\"{name}\",\"device\":{{\"is_gpu\":true}}}}\n"),
        format!("{{\"kind\":\"gpu\",\"at\":2.0,\"gpu\":0,\"trouble\":\"{name}\"}}\n").repeat(9),
        format!("{{\"kind\":\"value\",\"at\":2.0,\"name\":\"{name}\",\"value\":1.0}}\n"),
        "{\"kind\":\"step\",\"at\":2.0,\"step\":1,\"seconds\":0.5,\"loss_s\":0.1}\n".to_owned(),
    ];
    project.write("run.jsonl", &(start + &records.concat()));
    for args in [
        &["monitor", "--replay", "run.jsonl", "--json"][..],
        &["monitor", "--replay", "run.jsonl", "--csv"],
        &["export", "run.jsonl", "--csv=values"],
        &["export", "run.jsonl", "--csv=gpus"],
        &["export", "run.jsonl", "--prometheus"],
        &["trace", "run.jsonl", "-o", "-"],
        &["diagnose", "run.jsonl", "--json"],
        &["report", "h200", "--recording", "run.jsonl", "-o", "-"],
    ] {
        let said = project.run(args);
        let text = said.stdout;
        assert!(text.contains("vso["), "{args:?} shows no name: {text}");
        assert!(!text.contains("##vso[") && !text.contains(['\u{9b}', '\u{202e}']), "{args:?}: {text}");
    }
    let replayed = project.run(&["monitor", "--replay", "run.jsonl", "--json"]).ended(0);
    let mut lines = replayed.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    assert!(lines.any(|line| line["name"] == name), "{replayed}");
    assert_eq!(project.run(&["diagnose", "run.jsonl"]).code, 4);
}
