//! `trace` and `export`, which read recordings.

use std::fs;

use serde_json::Value;

use crate::project::{Project, Ran};

/// A program's start, three steps of half a second, and a look at a GPU in each.
fn recorded() -> Project {
    let project = Project::new("bare");
    let start = "{\"kind\":\"run\",\"at\":1000.0,\"pid\":77,\"workload\":\"digits\",\"world_size\":1}\n".to_owned();
    let steps = (1..=3).map(|step| {
        let at = 1000.0 + 0.5 * f64::from(step);
        format!(
            "{{\"kind\":\"step\",\"at\":{at},\"step\":{step},\"seconds\":0.5,\"samples\":64,\"micro_batches\":1,\
             \"micro_batch\":64,\"waited_s\":0.1,\"loss_s\":0.05,\"drain_s\":0.3,\"loss\":{},\"applied\":true}}\n\
             {{\"kind\":\"gpu\",\"at\":{},\"gpu\":0,\"utilisation_percent\":60.0,\"throttle\":[]}}\n",
            1.0 / f64::from(step),
            at - 0.1
        )
    });
    let text: String = std::iter::once(start).chain(steps).collect();
    project.write("run.jsonl", &text);
    project
}

#[test]
fn a_trace_lies_beside_its_recording() {
    let project = recorded();
    insta::assert_snapshot!(project.run(&["trace", "run.jsonl"]).ended(0), @"
    run.trace.json: 3 steps, 28 events
    Open it at https://ui.perfetto.dev
    ");
    let trace: Value = serde_json::from_str(&project.read("run.trace.json")).expect("JSON");
    let steps = trace["traceEvents"]
        .as_array()
        .expect("events")
        .iter()
        .filter(|event| event["ph"] == "X" && event["name"].as_str().is_some_and(|name| name.starts_with("step ")));
    assert_eq!(steps.count(), 3);
    let said = project.run(&["trace", "run.jsonl", "--steps", "2..3", "-o", "two.json", "--json"]).ended(0);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&said["file"], &said["steps"]), (&"two.json".into(), &2.into()));
    let piped = project.run(&["trace", "run.jsonl", "--steps", "2", "-o", "-"]).ended(0);
    assert!(serde_json::from_str::<Value>(&piped).expect("JSON")["traceEvents"].is_array());
}

#[test]
fn steps_that_were_not_recorded_are_answered_with_1_and_those_that_were() {
    let project = recorded();
    let Ran { code, stdout, stderr } = project.run(&["trace", "run.jsonl", "--steps", "7..9"]);
    assert_eq!((code, &*stdout), (1, ""));
    assert_eq!(stderr, "note: `run.jsonl` has none of these steps: it has 1..3\n");
    assert!(!project.path("run.trace.json").exists());
}

#[test]
fn a_recording_without_records_is_refused_with_2_by_every_command() {
    let project = Project::new("measured");
    project.write("empty.jsonl", "");
    // What is written as one line at a time may have no end yet.
    project.write("torn.jsonl", "{\"kind\":\"start\",\"at\":1.0,");
    for file in ["empty.jsonl", "torn.jsonl"] {
        for args in [
            &["trace", file][..],
            &["export", file, "--csv"],
            &["diagnose", file],
            &["diagnose", "--before", file, "--", "true"],
            &["monitor", "--replay", file],
            &["report", "h200", "--recording", file],
        ] {
            let said = project.run(args).refused(2);
            let expected = format!("error: `{file}` has no records\n  help: GPU_TUNED_RECORD=FILE records");
            assert!(said.starts_with(&expected), "{args:?}: {said}");
        }
    }
}

#[test]
fn a_recording_is_exported_as_tables_and_text() {
    let project = recorded();
    let table = project.run(&["export", "run.jsonl", "--csv"]).ended(0);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("at_s,step,rank,seconds,samples,") && lines.len() == 4, "{table}");
    assert!(lines[2].starts_with("1001.000000,2,0,0.5,64,1,64,0.5,"), "{table}");
    assert_eq!(project.run(&["export", "run.jsonl", "--csv=gpus"]).ended(0).lines().count(), 4);
    let Ran { code, stdout, stderr } = project.run(&["export", "run.jsonl", "--csv=values"]);
    assert_eq!((code, &*stdout), (0, "at_s,name,step,value\n"));
    assert_eq!(stderr, "note: `run.jsonl` has no records for this export\n");
    let text = project.run(&["export", "run.jsonl", "--prometheus"]).ended(0);
    for line in ["gpu_tuned_steps_total{rank=\"0\"} 3", "gpu_tuned_gpu_utilisation_ratio{gpu=\"0\"} 0.6"] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in {text}");
    }
    assert_eq!(project.run(&["export", "run.jsonl", "--prometheus", "-o", "run.prom"]).ended(0), "run.prom\n");
    assert_eq!(project.read("run.prom"), text);
}

#[test]
fn a_file_of_another_kind_is_not_overwritten() {
    let project = recorded();
    for (args, kind) in [
        (&["trace", "run.jsonl", "-o", "Cargo.toml"][..], "a trace"),
        (&["export", "run.jsonl", "--csv", "-o", "Cargo.toml"], "an export of this form"),
        (&["export", "run.jsonl", "--prometheus", "-o", "Cargo.toml"], "an export of this form"),
        (&["bench", "--svg", "Cargo.toml"], "a picture of this command"),
    ] {
        let said = project.run(args).refused(2);
        assert_eq!(
            said,
            format!("error: `Cargo.toml` exists and is not {kind}; not overwritten\n  help: name another file\n")
        );
    }
    for args in [
        &["trace", "run.jsonl"][..],
        &["export", "run.jsonl", "--csv", "-o", "run.csv"],
        &["export", "run.jsonl", "--csv=gpus", "-o", "run.csv"],
        &["export", "run.jsonl", "--csv=host", "-o", "run.csv"],
        &["export", "run.jsonl", "--csv=values", "-o", "run.csv"],
        &["export", "run.jsonl", "--prometheus", "-o", "run.prom"],
    ] {
        (0..2).for_each(|_| drop(project.run(args).ended(0)));
    }
    // Pages and traces of others begin alike.
    project.write("page.html", "<!DOCTYPE html><p>mine");
    project.run(&["report", "--recording", "run.jsonl", "-o", "page.html"]).refused(2);
    project.write("other.json", "{\"displayTimeUnit\":\"ms\"}");
    project.run(&["trace", "run.jsonl", "-o", "other.json"]).refused(2);
    assert_eq!(
        project.read("page.html") + &project.read("other.json"),
        "<!DOCTYPE html><p>mine{\"displayTimeUnit\":\"ms\"}"
    );
    let said = project.run(&["bench", "--svg", "none/picture.svg"]).refused(2);
    assert!(said.ends_with("help: make the folder, or name another file\n"), "{said}");
}

#[test]
fn a_recording_is_exported_for_tensorboard() {
    let project = recorded();
    let said = project.run(&["export", "run.jsonl", "--tensorboard", "runs/first"]).ended(0);
    assert!(said.starts_with("runs/first/events.out.tfevents."), "{said}");
    assert!(said.ends_with("\nView it with: tensorboard --logdir runs/first\n"), "{said}");
    let files: Vec<_> = fs::read_dir(project.path("runs/first")).expect("a folder").collect();
    assert_eq!(files.len(), 1);
    let bytes = fs::read(files[0].as_ref().expect("a file").path()).expect("it can be read");
    assert!(bytes.windows(10).any(|part| part == b"train/loss"));
}

#[cfg(target_os = "linux")]
#[test]
fn the_environment_is_no_recording() {
    let project = Project::new("measured");
    std::os::unix::fs::symlink("/proc/self/environ", project.path("run.jsonl")).expect("a link");
    for args in [&["diagnose", "run.jsonl"][..], &["report", "h200", "--recording", "run.jsonl"]] {
        let said = project.run(args).refused(2);
        assert!(said.contains("it is not a file on a disk") && !said.contains("PATH="), "{said}");
    }
}

/// Apple's file systems have no such names.
#[test]
#[cfg(all(unix, not(target_vendor = "apple")))]
fn names_that_are_no_utf_8_are_shown_in_json_as_elsewhere() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let project = recorded();
    let name = |ending: &[u8]| OsStr::from_bytes(&[b"na\xefve", ending].concat()).to_owned();
    fs::copy(project.path("run.jsonl"), project.path("").join(name(b".jsonl"))).expect("it can be copied");
    let said = |args: &[&str], ending: &[u8]| Ran::of(project.command(args).arg(name(ending)).arg("--json")).json(0);
    assert_eq!(said(&["trace"], b".jsonl")["file"], "na\u{fffd}ve.trace.json");
    assert_eq!(said(&["export", "run.jsonl", "--csv", "-o"], b".csv")["file"], "na\u{fffd}ve.csv");
    let events = said(&["export", "run.jsonl", "--tensorboard"], b"")["file"].clone();
    assert!(events.as_str().is_some_and(|file| file.starts_with("na\u{fffd}ve/events.out.")), "{events}");
    let report = said(&["report", "--recording", "run.jsonl", "-o"], b".html");
    assert_eq!(report["file"], "na\u{fffd}ve.html");
}

#[test]
fn bad_input_is_refused_with_2_and_its_place() {
    let project = recorded();
    let said = project.run(&["export", "none.jsonl", "--csv"]).refused(2);
    assert!(said.starts_with("error: cannot read `none.jsonl`"), "{said}");
    project.write("broken.jsonl", "{\"kind\":\"gpu\",\"at\":1.0,\"gpu\":0}\nnonsense\n");
    for args in [&["export", "broken.jsonl", "--csv"][..], &["trace", "broken.jsonl"]] {
        let said = project.run(args).refused(2);
        assert!(said.contains("broken.jsonl:2:") && said.contains("not a line of a recording"), "{said}");
    }
    for args in [
        &["export", "run.jsonl"][..],
        &["export", "run.jsonl", "--csv", "--prometheus"],
        &["export", "run.jsonl", "--csv=tables"],
        &["trace", "run.jsonl", "--steps", "9..7"],
        &["trace"],
    ] {
        project.run(args).refused(2);
    }
    let said = project.run(&["trace", "run.jsonl", "-o", "none/trace.json"]).refused(2);
    assert!(said.starts_with("error: cannot write `none/trace.json`"), "{said}");
}

#[test]
fn a_recording_that_is_still_written_is_read_as_far_as_it_goes() {
    let project = recorded();
    let text = project.read("run.jsonl");
    project.write("torn.jsonl", &text[..text.len() - 20]);
    let Ran { code, stdout, stderr } = project.run(&["export", "torn.jsonl", "--csv"]);
    assert_eq!((code, stdout.lines().count()), (0, 4));
    assert!(stderr.starts_with("note: `torn.jsonl`: the last line is incomplete"), "{stderr}");
}

#[test]
fn a_record_that_another_program_went_on_behind_takes_none_of_its_with_it() {
    let project = recorded();
    let torn = "{\"kind\":\"step\",\"at\":1000.5,\"st";
    let lines: Vec<_> = project.read("run.jsonl").lines().map(str::to_owned).collect();
    let merge = |torn_before: &[usize]| {
        let line = |(index, line): (usize, &String)| {
            let torn = if torn_before.contains(&(index + 1)) { torn } else { "" };
            format!("{torn}{line}\n")
        };
        project.write("merged.jsonl", &lines.iter().enumerate().map(line).collect::<String>());
    };
    let table = |file: &str| project.run(&["export", file, "--csv"]).ended(0);
    let whole = table("run.jsonl");
    for (torn_before, said) in [
        (&[4][..], "line 4 has an incomplete record, which is left out: a program was killed"),
        (&[2, 4], "lines 2, 4 have incomplete records, which are left out: a program"),
        (&[1, 2, 3, 4, 5, 6, 7], "lines 1, 2, 3, 4, 5 and 2 more have incomplete records"),
    ] {
        merge(torn_before);
        assert_eq!(table("merged.jsonl"), whole);
        for args in
            [&["trace", "merged.jsonl"][..], &["diagnose", "merged.jsonl"], &["monitor", "--replay", "merged.jsonl"]]
        {
            let Ran { code, stderr, .. } = project.run(args);
            // A recording without steps cannot be diagnosed.
            assert_eq!(code, if args[0] == "diagnose" { 4 } else { 0 }, "{stderr}");
            assert!(stderr.contains(&format!("note: `merged.jsonl`: {said}")), "{args:?}: {stderr}");
            assert!(!stderr.contains("the last line"), "{stderr}");
        }
    }
}

#[test]
fn of_a_file_that_is_something_else_only_an_excerpt_is_shown() {
    let project = recorded();
    let long = "x\u{1b}[31m".repeat(50_000);
    project.write("other.jsonl", &format!("{long}\n"));
    project.write("train.toml", &format!("a = {long}"));
    project.write("train.yaml", &format!("a: [{long}"));
    project.write("train.json", &format!("{{\"a\": {long}"));
    project.write("gpu-tuned.toml", &format!("[workload.{}]\n", "x".repeat(100_000)));
    for args in [
        &["diagnose", "other.jsonl"][..],
        &["export", "other.jsonl", "--csv"],
        &["optimize", "train.toml", "--target", "h200"],
        &["optimize", "train.yaml", "--target", "h200"],
        &["optimize", "train.json", "--target", "h200"],
        &["plan"],
    ] {
        let said = project.run(args).refused(2);
        assert!(said.chars().count() < 1_000 && !said.contains('\u{1b}'), "{args:?}: {said}");
    }
    std::fs::remove_file(project.path("gpu-tuned.toml")).expect("it is there");
    for file in ["train.toml", "train.yaml", "train.json"] {
        let said = project.run(&["optimize", file, "--target", "h200"]).refused(2);
        assert!(said.contains(file) && said.chars().count() < 1_000 && !said.contains('\u{1b}'), "{file}: {said}");
    }
}
