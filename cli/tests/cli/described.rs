//! Profiles that `targets --here --toml` prints.

use fake_nvml::{MatchKind, Scenario};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::{Profile, ProfileTable};
use gpu_tuned_core::source::Source;
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Goal, plan};
use gpu_tuned_project::config::ConfigFile;

use crate::project::{Project, Ran};

fn printed(machine: &str) -> Ran {
    Project::new("bare").on(machine, &["targets", "--here", "--toml"])
}

/// Figures that the driver reports for a profile's GPU.
fn figures(profile: &Profile) -> [(&'static str, Option<f64>); 5] {
    let Profile { memory, compute, .. } = profile;
    [
        ("nominal_mib", Some(memory.nominal_mib as f64)),
        ("bus_bits", memory.bus_bits.map(f64::from)),
        ("bandwidth_gb_s", memory.bandwidth_gb_s),
        ("sm_count", compute.sm_count.map(f64::from)),
        ("boost_mhz", compute.boost_mhz),
    ]
}

#[test]
fn every_scenario_prints_profiles_that_a_file_can_have_or_a_reason() {
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    for file in fake_nvml::scenarios() {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let expected = Scenario::load(&file).expect("a scenario").expect.expect("an expectation");
        let ran = printed(&name);
        if ran.stdout.is_empty() {
            assert!(ran.code == 1 && ran.stderr.starts_with("note: "), "{name}: {} {}", ran.code, ran.stderr);
            assert!(!matches!(expected.matched, MatchKind::Exact), "{name}");
            continue;
        }
        let text = ran.ended(0);
        let parsed = ConfigFile::parse(Source { file: "gpu-tuned.toml", text: &text });
        let parsed = parsed.unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}\n{text}"));
        for profile in &parsed.profiles {
            let facts = DeviceFacts::nominal(profile);
            let planned = plan(&facts, &workload, &Goal::default());
            assert_eq!(planned.is_ok(), facts.refusal.is_none(), "{name}: {planned:?}\n{text}");
        }
        // With unified memory the match depends on the memory of this host.
        let is_exact = expected.matched == MatchKind::Exact && expected.host_memory_mib.is_none();
        let Some(shipped) = expected.profile.as_deref().filter(|_| is_exact) else { continue };
        let shipped = ProfileTable::builtin_profile(shipped).expect("shipped");
        let profile = parsed.profiles.iter().find(|profile| profile.id == shipped.id);
        let profile = profile.unwrap_or_else(|| panic!("{name}: {text}"));
        for ((figure, here), (_, published)) in figures(profile).into_iter().zip(figures(&shipped)) {
            let Some((here, published)) = here.zip(published) else { continue };
            assert!((here / published - 1.0).abs() <= 0.05, "{name}: {figure} {here}, not {published}");
        }
    }
}

#[test]
fn a_gpu_outside_the_table_is_planned_by_its_printed_profile() {
    let text = printed("l20x").ended(0);
    let project = Project::new("declared");
    let file = project.read("gpu-tuned.toml") + &text;
    project.write("gpu-tuned.toml", &file);
    let planned = project.run(&["plan", "l20x", "--workload", "digits"]).ended(0);
    assert!(planned.contains("l20x"), "{planned}");
    let matched = project.on("l20x", &["targets", "--here", "--json"]).json(0);
    assert_eq!(matched["gpus"][0]["device"]["match"], "exact");
    assert_eq!(matched["gpus"][0]["device"]["profile"], "l20x");
}
