//! `init` on machines with GPUs.

use fake_nvml::{MatchKind, Scenario};
use serde_json::Value;

use crate::init::{WITH_BURN, package};
use crate::project::{Project, Ran, with_gpus};

fn on(file: &std::path::Path, project: &Project, args: &[&str]) -> Ran {
    Ran::of(with_gpus(&mut project.command(&[&["init", "--dry-run"], args].concat()), file))
}

#[test]
fn every_scenario_names_its_gpu_and_gives_commands_that_build_for_it() {
    let project = package(WITH_BURN);
    for file in fake_nvml::scenarios() {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let played = Scenario::load(&file).expect("a scenario");
        let expected = played.expect.as_ref().expect("an expectation");
        let setup = on(&file, &project, &["--json"]).json(0);
        let gpus = setup["gpus"].as_array().expect("GPUs");
        let text = on(&file, &project, &[]);
        if expected.matched == MatchKind::Cpu {
            assert!(gpus.is_empty(), "{name}");
            for gpu in played.gpu.iter().filter(|_| expected.gpus > 0) {
                // A name that is no text is none.
                let is_named = gpu.name.as_deref().is_some_and(|name| text.stderr.contains(name));
                assert!(is_named || text.stderr.contains("GPU 0 (without a name)"), "{name}: {}", text.stderr);
            }
            assert!(text.stderr.contains("this machine has no usable GPU"), "{name}: {}", text.stderr);
            assert!(!text.stdout.contains(",cuda\n"), "{name}: {}", text.stdout);
            continue;
        }
        assert_eq!(gpus.len(), expected.gpus, "{name}");
        assert!(!text.stderr.contains("no usable GPU"), "{name}: {}", text.stderr);
        let (gpu, profile) = (gpus[0]["name"].as_str().expect("a name"), gpus[0]["profile"].as_str());
        assert!(text.stdout.contains(", for this machine's "), "{name}: {}", text.stdout);
        let is_printable = !gpu.contains(char::is_control) && gpu.is_ascii();
        assert!(!is_printable || text.stdout.contains(gpu), "{name}: {}", text.stdout);
        let named = played.gpu.iter().filter_map(|gpu| gpu.name.as_deref()).collect::<Vec<_>>();
        assert!(
            named.is_empty() || named.iter().any(|name| gpu.starts_with(name)) || gpu.starts_with("GPU "),
            "{name}: {gpu}"
        );
        let feature = profile.unwrap_or("native");
        let features = format!("--features {feature},cuda");
        let steps = setup["steps"].as_array().expect("steps");
        let steps: Vec<&str> = steps.iter().filter_map(Value::as_str).collect();
        assert_eq!(steps.iter().filter(|step| step.ends_with(&features)).count(), 2, "{name}: {steps:?}");
        let declares = format!("+{feature} = ");
        assert!(text.stdout.contains(&declares), "{name}: {}", text.stdout);
        if expected.host_memory_mib.is_none() && gpus.len() == 1 {
            assert_eq!(profile.is_some(), expected.matched == MatchKind::Exact, "{name}");
        }
    }
}
