use fake_nvml::{MatchKind, SCENARIO_VARIABLE, Scenario, library, scenario};
use serde_json::Value;

use crate::project::{Project, Ran};

/// The command on a machine with the GPUs of a scenario.
fn on(machine: &str, project: &Project, args: &[&str]) -> Ran {
    let mut command = project.command(&[&["targets"], args].concat());
    Ran::of(command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, scenario(machine)))
}

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

/// A package with a profile of its own and a shipped one with other figures.
fn with_own_profiles() -> Project {
    let project = Project::new("declared");
    let own = "[profile.mine]\nbase = \"l4\"\nnames = [\"NVIDIA L4 Mine\"]\n[profile.rtx4090]\nmemory.bandwidth_gb_s = 900.0\n";
    project.write("gpu-tuned.toml", own);
    project
}

#[test]
fn all_profiles_are_listed_newest_first_within_80_columns() {
    let table = targets(&[]).ended(0);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    insta::assert_snapshot!("targets", table);
}

#[test]
fn every_word_has_to_be_found() {
    insta::assert_snapshot!("targets_4090", targets(&["4090"]).ended(0));
    for (words, found) in [
        (&["rtx", "4090"][..], &["rtx4090"][..]),
        (&["GeForce", "RTX 4090", "laptop"], &["rtx4090-laptop"]),
        (&["a100", "80"], &["a100-sxm4-80gb", "a100-pcie-80gb"]),
        (&["turing", "titan"], &["titan-rtx"]),
        (&["AD103"], &["rtx4500-ada", "rtx4080-super", "rtx4080", "rtx4070-ti-super", "rtx4090-laptop"]),
        (&["10DE:2684"], &["rtx4090-48gb", "rtx4090"]),
        (&["nvidia h200"], &["h200"]),
        (&["generic"], &["generic"]),
    ] {
        assert_eq!(names(&targets(&[words, &["--json"]].concat()).json(0)), found, "{words:?}");
    }
}

#[test]
fn filters_leave_out_what_they_say() {
    insta::assert_snapshot!(
        "targets_filtered",
        targets(&["ampere", "--min-memory", "40", "--compute-capability", "8.0", "--bf16"]).ended(0)
    );
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
    assert_eq!(names(&targets(&["--project", "--json"]).json(0)), ["h200", "rtx4090", "gtx1080"]);
}

#[test]
fn of_one_all_is_told_that_is_known_and_from_where() {
    let ran = targets(&["RTX", "4090"]);
    assert_eq!(ran.stderr, "note: also with `RTX 4090`: rtx4090-48gb, rtx4090-d, rtx4090-laptop\n");
    insta::assert_snapshot!("targets_rtx4090", ran.ended(0));
    insta::assert_snapshot!("targets_jetson", Project::new("bare").run(&["targets", "--details", "orin"]).ended(0));
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
fn own_profiles_are_among_them_and_marked() {
    let project = with_own_profiles();
    insta::assert_snapshot!("targets_own", project.run(&["targets", "ada", "l4"]).ended(0));
    let of_mine = project.run(&["targets", "mine"]).ended(0);
    assert!(of_mine.starts_with("mine\n  a profile of gpu-tuned.toml"), "{of_mine}");
    let list = project.run(&["targets", "ada", "--json"]).json(0);
    let own = |entry: &&Value| entry["own"] == true;
    let own: Vec<_> = list["targets"].as_array().expect("entries").iter().filter(own).collect();
    let own: Vec<_> =
        own.iter().map(|entry| (&entry["target"], &entry["profile"]["memory"]["bandwidth_gb_s"])).collect();
    assert_eq!(own, [(&"rtx4090".into(), &900.0.into()), (&"mine".into(), &300.0.into())]);
}

#[test]
fn nothing_found_is_1_with_what_is_near() {
    let outside = "gpu-tuned plans for NVIDIA GPUs: on a machine with this one, `cargo gpu-tuned targets --here --toml` prints its profile";
    for (args, said) in [
        (&["rtx-4900"][..], "no profile matches `rtx-4900`; did you mean `rtx4090`?".to_owned()),
        (&["GeForce RTX", "4900"], "no profile matches `GeForce RTX 4900`; did you mean `rtx4090`?".to_owned()),
        (&["4900"], "no profile matches `4900`; did you mean `rtx4090`?".to_owned()),
        (&["rtx", "5065"], format!("no profile matches `rtx 5065`; {outside}")),
        (&["4080", "ti"], format!("no profile matches `4080 ti`; {outside}")),
        (&["voodoo2"], format!("no profile matches `voodoo2`; {outside}")),
        (&["@"], format!("no profile matches `@`; {outside}")),
        (
            &["4090", "--min-memory", "80"],
            "no profile matches `4090` and passes the filters; without them: rtx4090-48gb, rtx4090, rtx4090-d, rtx4090-laptop"
                .to_owned(),
        ),
        (&["--compute-capability", "3.5"], "no profile passes the filters".to_owned()),
    ] {
        let ran = targets(args);
        assert_eq!((ran.stderr.as_str(), ran.stdout.as_str()), (&*format!("note: {said}\n"), ""), "{args:?}");
        assert_eq!(ran.code, 1, "{args:?}");
        assert_eq!(targets(&[args, &["--json"]].concat()).json(1)["targets"], Value::Array(Vec::new()), "{args:?}");
    }
    let ran = Project::new("bare").run(&["targets", "--project"]);
    assert_eq!(ran.stderr, "note: `bare` declares no GPU; declare one in Cargo.toml: [features] h200 = []\n");
    ran.ended(1);
}

#[test]
fn a_package_is_needed_for_its_own_targets_only() {
    let project = Project::new("declared");
    let outside = |args: &[&str]| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Ran::of(project.command(args).current_dir(folder.path()))
    };
    assert!(outside(&["targets", "h200"]).ended(0).starts_with("h200\n"));
    assert!(outside(&["targets", "--project"]).refused(2).starts_with("error: no Cargo.toml in this folder"));
    let said = Project::new("broken").run(&["targets"]).refused(2);
    assert!(said.contains("gpu-tuned.toml"), "{said}");
}

#[test]
fn bad_input_is_2() {
    for args in [
        &["--min-memory", "lots"][..],
        &["--min-memory", "inf"],
        &["--compute-capability", "8"],
        &["--here", "h200"],
        &["--here", "--details"],
    ] {
        let said = targets(args).refused(2);
        assert!(said.starts_with("error: "), "{args:?}: {said}");
    }
    assert!(targets(&["--compute-capability", "8"]).stderr.contains("expected MAJOR.MINOR, such as \"8.9\""));
}

#[test]
fn the_gpus_of_this_machine_are_marked() {
    let project = Project::new("declared");
    insta::assert_snapshot!("targets_marked", on("two-gpus", &project, &["90", "--bf16", "rtx"]).ended(0));
    let modified = on("rtx2080-ti-22gb", &project, &["2080"]).ended(0);
    assert!(modified.contains("\n~ rtx2080-ti ") && modified.contains("\n~: nearest to"), "{modified}");
    assert_eq!(on("rtx4090-48gb", &project, &["rtx4090-48gb", "--json"]).json(0)["targets"][0]["here"], "exact");
    // A process can use a slice, and not the whole GPU beside it.
    assert_eq!(on("h200-mig-beside-whole", &project, &["h200", "--json"]).json(0)["targets"][0]["here"], "variant");
    assert_eq!(on("only-gpu-lost", &project, &["rtx4090", "--json"]).json(0)["targets"][0]["here"], Value::Null);
}

#[test]
fn here_says_which_gpus_they_are_how_sure_that_is_and_what_differs() {
    let project = Project::new("declared");
    for machine in [
        "rtx4090",
        "rtx4090-48gb",
        "rtx4090-laptop",
        "h200-mig-beside-whole",
        "two-gpus",
        "power-capped",
        "name-only",
        "quadro-rtx8000",
        "nonsense",
    ] {
        let text = on(machine, &project, &["--here"]).ended(0);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(format!("targets_here_{machine}"), text);
    }
}

#[test]
fn every_scenario_is_answered_as_it_expects() {
    let project = Project::new("bare");
    let mut unexpected = Vec::new();
    for file in fake_nvml::scenarios() {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let expected = Scenario::load(&file).expect("a scenario").expect.expect("what is expected of it");
        let ran = on(&name, &project, &["--here", "--json"]);
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
fn without_a_gpu_here_is_1_and_why() {
    let project = Project::new("declared");
    for (machine, why) in [
        ("driver-not-loaded", "the NVIDIA kernel module is not loaded"),
        ("only-gpu-lost", "GPU 0: the GPU is lost"),
        ("mig-without-slices", "GPU 0: MIG is switched on and there is no slice to use"),
        ("no-gpu", "the driver works and shows no GPU"),
    ] {
        let ran = on(machine, &project, &["--here"]);
        assert!(ran.stderr.starts_with(&format!("note: {why}")), "{machine}: {}", ran.stderr);
        assert_eq!(ran.ended(1), "this machine has no usable GPU\n", "{machine}");
    }
    let ran = project.run(&["targets", "--here"]);
    assert!(ran.stderr.starts_with("note: no NVIDIA management library found: tried"), "{}", ran.stderr);
    ran.ended(1);
    let here = project.run(&["targets", "--here", "--json"]).json(1);
    assert_eq!((here["gpus"].as_array().map(Vec::len), here["trouble"].as_array().map(Vec::len)), (Some(0), Some(1)));
}

#[test]
fn a_gpu_in_trouble_does_not_hide_the_other() {
    let ran = on("gpu-lost", &Project::new("declared"), &["--here", "--json"]);
    assert!(ran.stderr.starts_with("note: GPU 0: the GPU is lost"), "{}", ran.stderr);
    let here = ran.json(0);
    assert_eq!(here["gpus"][0]["device"]["profile"], "rtx4090");
    assert_eq!(here["trouble"].as_array().map(Vec::len), Some(1));
}

#[test]
fn here_as_json_has_the_reading_and_what_is_made_of_it() {
    let project = Project::new("declared");
    let capped = on("power-capped", &project, &["--here", "--json"]).json(0);
    let gpu = &capped["gpus"][0];
    assert_eq!((&gpu["device"]["match"], &gpu["device"]["profile"]), (&"exact".into(), &"rtx4090".into()));
    assert_eq!(gpu["power_cap_share"], 250.0 / 450.0);
    assert_eq!(gpu["reading"]["power_limit_mw"], 250_000);
    let sliced = on("h200-mig-beside-whole", &project, &["--here", "--json"]).json(0);
    assert_eq!(sliced["gpus"][0]["reading"]["mig"]["gpu_instance"], 9);
    let memory = sliced["gpus"][0]["limits"]["available_bytes"].as_u64().expect("bytes");
    assert_eq!(memory, 16371 << 20);
    assert_eq!(sliced["gpus"].as_array().map(Vec::len), Some(1));
}

#[test]
fn colours_are_for_those_who_ask() {
    let project = Project::new("declared");
    let plain = on("rtx4090", &project, &["--here"]).ended(0);
    assert!(!plain.contains('\x1b'), "{plain}");
    let coloured = on("rtx4090", &project, &["--here", "--color", "always"]).ended(0);
    assert!(coloured.contains('\x1b'), "{coloured}");
}
