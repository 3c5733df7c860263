//! `trace` and `export`, which read recordings.

use std::fs;

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

/// A limit of file sizes stands for a full disk.
#[cfg(unix)]
#[test]
fn an_event_file_that_cannot_be_written_is_removed() {
    use std::process::Command;

    let project = recorded();
    let export = project.command(&["export", "run.jsonl", "--tensorboard", "runs"]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""])
        .arg(export.get_program())
        .args(export.get_args());
    let said = Ran::of(limited.current_dir(project.path(""))).refused(2);
    assert!(said.contains("cannot write `runs/events.out.tfevents."), "{said}");
    assert_eq!(fs::read_dir(project.path("runs")).expect("a folder").count(), 0);
}

/// Events of a trace take several times the memory of their records.
#[cfg(target_os = "linux")]
#[test]
fn a_trace_takes_no_more_memory_than_other_readers_of_its_recording() {
    let project = recorded();
    let text = project.read("run.jsonl");
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    project.write("long.jsonl", &format!("{}{}", lines[0], lines[1..3].concat().repeat(20_000)));
    let peak = |args: &[&str]| {
        let mut child = project.command(args).stdout(std::process::Stdio::null()).spawn().expect("the command starts");
        let status = format!("/proc/{}/status", child.id());
        let mut peak_kib = 0;
        while child.try_wait().expect("a child").is_none() {
            let found = fs::read_to_string(&status).unwrap_or_default();
            let kib =
                found.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            peak_kib = kib.unwrap_or(peak_kib);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(child.wait().expect("a child").code(), Some(0), "{args:?}");
        peak_kib
    };
    let [trace, other] = [&["trace", "long.jsonl"][..], &["monitor", "--replay", "long.jsonl"]].map(peak);
    assert!(other > 10_000 && trace * 2 < other * 3, "{trace} and {other} KiB");
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
