//! `gpu-tuned.toml`: user profiles and the places of mistakes.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;

fn parse(text: &str) -> Result<ConfigFile, Vec<String>> {
    let parsed = ConfigFile::parse(Source { file: "gpu-tuned.toml", text });
    parsed.map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

fn mistakes(text: &str) -> Vec<String> {
    parse(text).expect_err("it has mistakes")
}

#[test]
fn a_profile_takes_what_it_does_not_state_from_its_base_or_the_shipped_one_of_its_name() {
    let modified =
        "base = \"rtx4090\"\nmemory = { nominal_mib = 49152, nvml_total_mib = [49140], cuda_total_mib = [] }";
    let text = format!("[profile.rtx4090-48gb]\n{modified}\n[profile.h200]\nboard.tdp_w = 600.0\n");
    let file = parse(&text).expect("valid");
    let profile = |id: &str| file.profiles.iter().find(|profile| profile.id.as_str() == id).expect(id);
    let shipped = |id: &str| ProfileTable::builtin().get(id).expect("shipped");
    assert_eq!(profile("rtx4090-48gb").memory.usable(), Bytes::from_mib(49140));
    assert_eq!(profile("rtx4090-48gb").compute, shipped("rtx4090").compute);
    assert_eq!(profile("h200").board.tdp_w, Some(600.0));
    assert_eq!(profile("h200").memory, shipped("h200").memory);
}

#[test]
fn every_mistake_of_a_file_is_reported_with_its_place() {
    let text = r#"
[profile.rtx4090]
memory.bandwidth_gb_s = "fast"

[profile.RTX]
base = "rtx4090"

[profile.mine]
base = "rtx4900"

[workload.digits]
parameters = 1000
flops_per_sample = -1.0
activation_bytes_per_sample = 100
activation_byte = 3

[workload.lm.transformer]
layers = 0
d_model = 512
vocab = 100
seq = 10

[goal]
memory_headroom = 3.0

[gaol]
"#;
    assert_eq!(
        mistakes(text),
        [
            "gpu-tuned.toml:3:25: invalid type: string \"fast\", expected f64",
            "gpu-tuned.toml:5:10: `RTX` is not a profile id: expected lower-case letters, digits and hyphens, beginning with a letter, such as \"rtx4090\"",
            "gpu-tuned.toml:9:8: base: there is no profile `rtx4900`; did you mean `rtx4090`?",
            "gpu-tuned.toml:13:20: flops_per_sample = -1 is out of range, expected 1 to 1e24",
            "gpu-tuned.toml:15:1: unknown key `activation_byte`; workload.digits takes parameters, activation_bytes_per_sample, checkpointed_activation_bytes_per_sample, largest_tensor_bytes_per_sample, input_bytes_per_sample, flops_per_sample, kernels_per_step, family, batch_statistics, tokens_per_sample, dominant_product",
            "gpu-tuned.toml:18:10: layers = 0 is out of range, expected 1 to 65536",
            "gpu-tuned.toml:24:19: memory_headroom = 3 is out of range, expected 0 to 0.9",
            "gpu-tuned.toml:26:2: unknown section `gaol`, expected profile, workload or goal; did you mean `goal`?",
        ]
    );
}

#[test]
fn names_with_another_meaning_are_reserved() {
    for name in ["native", "generic", "default", "cuda", "cpu", "all"] {
        let found = mistakes(&format!("[profile.{name}]\nbase = \"rtx4090\"\n"));
        let [mistake] = &found[..] else { panic!("{name}: {found:#?}") };
        assert!(
            mistake.starts_with(&format!("gpu-tuned.toml:1:10: no profile may have the name `{name}`: ")),
            "{mistake}"
        );
    }
    let mistake = &mistakes("[profile.cuda]\n")[0];
    assert!(
        mistake.ends_with("the feature of this name enables training on CUDA; use another name, such as `my-cuda`")
    );
}

#[test]
fn a_table_of_an_unknown_model_is_named_with_the_models_that_exist() {
    let found = mistakes("[workload.mine.moe]\nlayers = 2\n");
    assert_eq!(
        found,
        ["gpu-tuned.toml:1:16: there is no model `moe`; `transformer` describes it; there are `transformer(…)`, \
          `encoder_decoder(…)`, `vit(…)`, `convnet(…)`, `unet(…)`, `mlp(…)`, `recurrent(…)`; `declared(…)` takes costs; any Burn program can \
          be measured, without a GPU, too: `cargo gpu-tuned measure`, then plan"]
    );
}

#[test]
fn all_missing_keys_of_a_profile_are_listed_at_once_with_meaning_and_unit() {
    let text = "[profile.mine]\nnames = [\"NVIDIA Mine\"]\nmemory.nominal_mb = 8192\n";
    let found = mistakes(text);
    let [missing, unknown] = found.as_slice() else { panic!("{found:#?}") };
    assert_eq!(
        missing,
        "gpu-tuned.toml:1:10: profile.mine: 3 keys missing:
  architecture: marketing name of the architecture, such as \"Ada\"
  compute_capability: CUDA compute capability, such as \"8.9\"
  memory.nominal_mib: advertised memory in MiB, such as 24576
optional:
  memory.nvml_total_mib: totals in MiB that nvidia-smi prints, such as [24564]; nominal_mib if absent
  memory.bandwidth_gb_s: peak bandwidth in GB/s (10^9 bytes per second), such as 1008.0; estimated if absent
  compute.sm_count: number of streaming multiprocessors, such as 128; estimated if absent
  compute.boost_mhz: boost clock in MHz, such as 2520.0; estimated if absent
  peaks.fp32: peak of the ordinary units in 10^12 operations per second, such as { tflops = 82.6, basis = \"published\", source = \"data-sheet\" }; estimated if absent
  peaks.bf16: dense peak of the tensor cores, as are tf32 and fp16, such as { tflops = 165.2, basis = \"published\", source = \"data-sheet\" }; estimated if absent
`base` takes them from a similar GPU, `cargo gpu-tuned targets --here --toml` from the GPU itself"
    );
    assert!(unknown.starts_with("gpu-tuned.toml:3:8: unknown field `nominal_mb`"), "{unknown}");
}

#[test]
fn a_profile_needs_its_required_keys_only() {
    let text = "[profile.mine]\narchitecture = \"Ada\"\ncompute_capability = \"8.9\"\nmemory.nominal_mib = 24576\n";
    let file = parse(text).expect("valid");
    let facts = DeviceFacts::nominal(&file.profiles[0]);
    assert_eq!(facts.memory_total, Bytes::from_mib(24576));
    assert_eq!(facts.estimated.len(), 3, "{facts:?}");
    let one = mistakes(&text.replace("architecture = \"Ada\"\n", ""));
    assert!(one[0].contains("profile.mine: 1 key missing:\n  architecture: "), "{one:?}");
}

#[test]
fn all_faults_of_a_profile_are_listed_at_once_with_value_range_and_its_origin() {
    let text = r#"[profile.mine]
names = ["NVIDIA GeForce RTX 4090"]
architecture = "Ada"
compute_capability = "8.9"
memory.nominal_mib = 24576
memory.nvml_total_mib = [2456]
memory.bandwidth_gb_s = 1.008
compute.sm_count = 12800
compute.boost_mhz = 2.52
peaks.fp32 = { tflops = 82.6, basis = "published", source = "a friend" }
peaks.bf16 = { tflops = 165.2, basis = "published", source = "https://example.org/4090", reached = 95.0 }
peaks.tf32 = { tflops = 825.0, basis = "published", source = "data-sheet" }
board.tdp_w = 450000.0
"#;
    assert_eq!(
        mistakes(text),
        [
            "gpu-tuned.toml:6:25: memory.nvml_total_mib = 2456 is out of range, expected 21504 to 25313 MiB (memory.nominal_mib, of which drivers keep up to an eighth)",
            "gpu-tuned.toml:7:25: memory.bandwidth_gb_s = 1.008 is out of range, expected 78.7 to 5039 GB/s (a factor of 8 around GPUs of compute capability 8.9)",
            "gpu-tuned.toml:8:20: compute.sm_count = 12800 is out of range, expected 16.2 to 1040 SMs (a factor of 8 around GPUs of compute capability 8.9)",
            "gpu-tuned.toml:9:21: compute.boost_mhz = 2.52 is out of range, expected 316 to 20240 MHz (a factor of 8 around GPUs of compute capability 8.9)",
            "gpu-tuned.toml:10:61: peaks.fp32.source = \"a friend\" is no source, expected the address of a page, `data-sheet`, `measured` or another code of core/profiles/SOURCES.md",
            "gpu-tuned.toml:11:100: peaks.bf16.reached = 95 is out of range, expected 0.05 to 1.5 (fractions of peaks in published tests, with a margin)",
            "gpu-tuned.toml:12:25: peaks.tf32.tflops = 825 is out of range, expected 20.6 to 264 TFLOP/s (2 x the fp32 peak, with a margin)",
            "gpu-tuned.toml:13:15: board.tdp_w = 450000 is out of range, expected 4 to 5000 W (GPUs from a Jetson to a GB300, with a margin)",
        ]
    );
}

/// The profile with figures of its own on those of an RTX 4090, and the place of each fault.
#[test]
fn an_impossible_figure_is_refused_where_it_is_written_and_dependent_figures_of_a_base_follow() {
    for (line, fault) in [
        (
            "compute_capability = \"42.0\"",
            Some("3:22: compute_capability = 42.0 is out of range, expected 2.0 to 15.9"),
        ),
        ("compute_capability = \"8.6\"", Some("1:10: profile.mine: architecture = \"Ada\", expected Ampere")),
        (
            "memory.bandwidth_gb_s = 100.8",
            Some("3:25: memory.bandwidth_gb_s = 100.8 is out of range, expected 608 to 1656 GB/s"),
        ),
        (
            "memory.nominal_mib = 4915200",
            Some("3:22: memory.nominal_mib = 4915200 is out of range, expected 2048 to 196608 MiB"),
        ),
        ("memory.nominal_mib = 49152", None),
        ("memory.nvml_total_mib = [49140]", Some("3:25: memory.nvml_total_mib = 49140 is out of range")),
        ("compute.cuda_cores = 14592", None),
        ("compute.sm_count = 114", None),
        ("compute.cuda_cores = 5", Some("3:22: compute.cuda_cores = 5 is out of range")),
        (
            "compute.sm_count = 20",
            Some("1:10: profile.mine: peaks.fp32.tflops = 82.6 is out of range, expected 1.61 to 20.6 TFLOP/s"),
        ),
        ("peaks.fp16.tflops = 330.3", Some("3:21: peaks.fp16.tflops = 330.3 is out of range")),
        ("pci_ids = [\"1002:2684\"]", Some("3:11: pci_ids: 1002:2684 is not NVIDIA's")),
    ] {
        let text = format!("[profile.mine]\nbase = \"rtx4090\"\n{line}\n");
        let found = parse(&text).err().unwrap_or_default();
        match fault {
            None => assert_eq!(found, [""; 0], "{line}"),
            Some(fault) => {
                let is_listed = found.iter().any(|found| found.starts_with(&format!("gpu-tuned.toml:{fault}")));
                assert!(is_listed, "{line}: {found:#?}");
            }
        }
    }
}

#[test]
fn a_profile_of_the_same_file_is_no_base() {
    let text = "[profile.y]\nbase = \"rtx4090\"\n[profile.x]\nbase = \"y\"\n";
    let expected =
        "gpu-tuned.toml:4:8: base: `y` is a profile of this file; a base is a shipped profile, so copy its keys";
    assert_eq!(mistakes(text), [expected]);
}

#[test]
fn broken_syntax_has_its_place() {
    assert_eq!(mistakes("[goal\n"), ["gpu-tuned.toml:1:6: unclosed table, expected `]`"]);
}
