use fake_cublaslt::Fake;
use fake_cudnn::Fake as FakeCudnn;
use fake_nvml::{MatchKind, Scenario, scenario};
use serde_json::{Value, json};

use crate::project::{Project, Ran, with_gpus};

fn targets(args: &[&str]) -> Ran {
    Project::new("declared").run(&[&["targets"], args].concat())
}

/// What the rows of an answer are of.
fn names(answer: &Value) -> Vec<&str> {
    answer["targets"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| entry["target"].as_str().expect("a name"))
        .collect()
}

#[test]
fn filters_leave_out_what_they_say() {
    let all = targets(&["--json"]).json(0);
    let count = |is_meant: &dyn Fn(&Value) -> bool| {
        all["targets"].as_array().expect("entries").iter().filter(|entry| is_meant(&entry["profile"])).count()
    };
    let number = |text: &Value| text.as_str().and_then(|text| text.parse::<f64>().ok()).expect("a number");
    let found = |args: &[&str]| names(&targets(&[args, &["--json"]].concat()).json(0)).len();
    assert_eq!(
        found(&["--min-memory", "23.5"]),
        count(&|it| it["memory"]["nominal_mib"].as_f64() >= Some(23.5 * 1024.0))
    );
    assert_eq!(found(&["--bf16"]), count(&|it| number(&it["compute_capability"]) >= 8.0));
    assert_eq!(found(&["--compute-capability", "7.0"]), count(&|it| it["compute_capability"] == "7.0"));
}

#[test]
fn details_keep_to_80_columns_and_leave_no_source_unexplained() {
    let text = targets(&["--details"]).ended(0);
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    for entry in targets(&["--json"]).json(0)["targets"].as_array().expect("entries") {
        let (profile, sources) = (&entry["profile"], &entry["sources"]);
        let peaks = profile["peaks"].as_object().expect("peaks").values().map(|peak| &peak["source"]);
        let general = profile["sources"].as_array().expect("sources").iter();
        for code in peaks.chain(general).flat_map(|codes| codes.as_str().expect("codes").split(' ')) {
            assert!(sources[code].is_string(), "{}: {code}", entry["target"]);
        }
    }
}

#[test]
fn the_limits_are_those_of_a_plan() {
    let entry = &targets(&["h200", "--json"]).json(0)["plans"][0];
    let plan = Project::new("declared").run(&["plan", "h200", "--workload", "digits", "--json"]).json(0);
    let memory = &plan[0]["plan"]["memory"];
    for figure in ["available", "headroom", "context"] {
        assert_eq!(entry["limits"][figure], memory[figure], "{figure}");
    }
}

#[test]
fn every_scenario_is_answered_as_it_expects() {
    let project = Project::new("bare");
    let mut unexpected = Vec::new();
    for file in fake_nvml::scenarios() {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let expected = Scenario::load(&file).expect("a scenario").expect.expect("what is expected of it");
        let ran = project.on(&name, &["targets", "--here", "--json"]);
        let here = ran.json(i32::from(expected.matched == MatchKind::Cpu));
        let gpus = here["gpus"].as_array().expect("GPUs");
        let trouble = here["trouble"].as_array().map(Vec::len);
        assert_eq!((gpus.len(), trouble), (expected.gpus, Some(expected.trouble)), "{name}");
        let Some(gpu) = gpus.iter().find(|gpu| gpu["device"]["profile"] == "rtx4090").or(gpus.first()) else {
            continue;
        };
        if expected.matched == MatchKind::Cpu {
            assert!(gpu["limits"].is_null(), "{name}");
            continue;
        }
        assert!(gpu["limits"].is_object(), "{name}");
        if expected.host_memory_mib.is_some() {
            // The match depends on the memory of this host.
            continue;
        }
        let matched = serde_json::to_value(expected.matched).expect("a match is JSON");
        let device = &gpu["device"];
        let (found, expected) =
            ((&device["match"], device["profile"].as_str()), (&matched, expected.profile.as_deref()));
        if found != expected {
            unexpected.push(format!("{name}: {found:?}, not {expected:?}"));
        }
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

#[test]
fn colours_are_for_those_who_ask() {
    let project = Project::new("declared");
    let plain = project.on("rtx4090", &["targets", "--here"]).ended(0);
    assert!(!plain.contains('\x1b'), "{plain}");
    let coloured = project.on("rtx4090", &["targets", "--here", "--color", "always"]).ended(0);
    assert!(coloured.contains('\x1b'), "{coloured}");
}

/// Answers of `targets --here` with libraries in these folders: text, and JSON of a library.
fn with_libraries(folders: &str, behaviour: &str, library: &str) -> (String, Value) {
    let project = Project::new("declared");
    let run = |args: &[&str]| {
        let mut command = project.command(&[&["targets", "--here"], args].concat());
        command.env("GPU_TUNED_LIBRARIES", folders);
        command.env(fake_cublaslt::VARIABLE, behaviour).env(fake_cudnn::VARIABLE, behaviour);
        Ran::of(with_gpus(&mut command, &scenario("rtx4090")))
    };
    (run(&[]).ended(0), run(&["--json"]).json(0)[library].clone())
}

#[test]
fn the_library_of_kernels_is_shown_with_its_version() {
    let fake = Fake::new();
    let folders = std::env::join_paths(["/nonexistent".as_ref(), fake.folder()]).expect("folders");
    let (text, library) = with_libraries(folders.to_str().expect("UTF-8"), "version=120405", "cublaslt");
    let file = fake.path().display().to_string();
    assert!(text.contains(&format!("\n  cuBLASLt 12.4.5  {file}\n")), "{text}");
    assert_eq!(library, json!({ "file": file, "version": "12.4.5", "searched": [], "failures": [] }));
}

#[test]
fn a_missing_library_of_kernels_is_shown_with_the_places_searched() {
    let (text, library) = with_libraries("/nonexistent/a:/nonexistent/b", "", "cublaslt");
    assert!(text.contains("  no cuBLASLt: programs use Burn's kernels\n"), "{text}");
    assert!(text.contains("  searched: /nonexistent/a, /nonexistent/b\n"), "{text}");
    let searched = ["/nonexistent/a", "/nonexistent/b"];
    assert_eq!(library, json!({ "file": null, "version": null, "searched": searched, "failures": [] }));
}

#[test]
fn libraries_that_cannot_be_loaded_are_shown_with_the_reason() {
    let [old, torn] = [Fake::new(), Fake::without("cublasLtMatmul")];
    let folders = std::env::join_paths([old.folder(), torn.folder()]).expect("folders");
    let (_, library) = with_libraries(folders.to_str().expect("UTF-8"), "version=111103", "cublaslt");
    let failures = library["failures"].as_array().expect("failures");
    let is_about = |index: usize, fake: &Fake, part: &str| {
        let text = failures[index].as_str().expect("text");
        assert!(text.contains(&fake.path().display().to_string()) && text.contains(part), "{text}");
    };
    assert_eq!((failures.len(), &library["file"]), (2, &Value::Null));
    is_about(0, &old, "version 111103");
    is_about(1, &torn, "cublasLtMatmul");
}

#[test]
fn cudnn_is_shown_with_its_version() {
    let fake = FakeCudnn::new();
    let (text, library) = with_libraries(fake.folder().to_str().expect("UTF-8"), "version=91002", "cudnn");
    let file = fake.path().display().to_string();
    assert!(text.contains(&format!("\n  cuDNN 9.10.2  {file}\n")), "{text}");
    assert!(text.contains("  no cuBLASLt: programs use Burn's kernels\n"), "{text}");
    assert_eq!(library, json!({ "file": file, "version": "9.10.2", "searched": [], "failures": [] }));
}

#[test]
fn a_missing_cudnn_is_shown_with_its_package() {
    let fake = Fake::new();
    let (text, _) = with_libraries(fake.folder().to_str().expect("UTF-8"), "version=120405", "cudnn");
    assert!(text.contains("  no cuDNN: convolutions use Burn's kernels\n"), "{text}");
    assert!(text.contains("`pip install nvidia-cudnn-cu13`"), "{text}");
    assert!(!text.contains("`pip install nvidia-cublas`"), "{text}");
}

#[test]
fn cudnn_before_version_9_is_shown_with_the_reason() {
    let [old, torn] = [FakeCudnn::new(), FakeCudnn::without("cudnnGetVersion")];
    let folders = std::env::join_paths([old.folder(), torn.folder()]).expect("folders");
    let (_, library) = with_libraries(folders.to_str().expect("UTF-8"), "version=8907", "cudnn");
    let failures = library["failures"].as_array().expect("failures");
    let [of_old, of_torn] = &failures[..] else { panic!("{failures:?}") };
    assert!(of_old.as_str().is_some_and(|text| text.contains("version 8907 of cuDNN")), "{of_old}");
    assert!(of_torn.as_str().is_some_and(|text| text.contains("cudnnGetVersion")), "{of_torn}");
}
