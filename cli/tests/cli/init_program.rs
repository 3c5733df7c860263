//! Proposals of `init` for whole programs with Burn's own loop.

use std::fs;

use crate::project::{Project, Ran, apply};

const MANIFEST: &str = "[package]\nname = \"plain\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";

/// A package with these files, set up but for its program.
fn set_up(manifest: &str, files: &[(&str, &str)]) -> Project {
    let project = Project::new("bare");
    fs::remove_file(project.path("src/main.rs")).expect("it is there");
    project.write("Cargo.toml", manifest);
    for (name, text) in files {
        fs::create_dir_all(project.path(name).parent().expect("it is in a folder")).expect("a folder can be made");
        project.write(name, text);
    }
    project.run(&["init", "--yes", "--force", "--target", "h200"]).ended(0);
    project
}

/// The proposal, and its number of lines.
fn proposed(project: &Project) -> (Ran, u64) {
    let lines = project.run(&["init", "--json"]).json(0)["proposal"]["lines"].as_u64().expect("a number");
    (project.run(&["init"]), lines)
}

/// A library that trains, a binary that calls it and one that does not.
const SHAPES: [(&str, &str); 5] = [
    ("src/lib.rs", "pub mod data;\npub mod learn;\n"),
    (
        "src/data.rs",
        "/// Pictures with what they show.\n#[derive(Clone, Debug)]\npub struct Pictures {\n    pub pictures: Tensor<3>,\n    \
         pub shows: Tensor<1, Int>,\n}\n\nfn load() -> Cifar10Dataset {\n    Cifar10Dataset::train()\n}\n",
    ),
    (
        "src/learn.rs",
        "#[derive(Config)]\npub struct NetConfig {\n    num_classes: usize,\n}\n\nfn net() {\n    \
         Conv2dConfig::new([3, 12], [3, 3]);\n    Conv2dConfig::new([12, 24], [3, 3]);\n    MaxPool2dConfig::new([2, \
         2]);\n}\n\nimpl TrainStep for Net {\n    type Input = Pictures;\n}\n\n#[derive(Config, Debug)]\npub struct \
         LearningConfig {\n    pub net: NetConfig,\n    #[config(default = 48)]\n    pub batch_size: usize,\n    \
         #[config(default = 3)]\n    pub num_workers: usize,\n    #[config(default = 2)]\n    pub num_epochs: \
         usize,\n}\n\npub fn learn(config: &LearningConfig, device: Device) {\n    let loader = \
         DataLoaderBuilder::new(batcher).batch_size(config.batch_size).build(load());\n    let training = \
         SupervisedTraining::new(\"out\", loader.clone(), loader)\n        .num_epochs(config.num_epochs)\n        \
         .summary();\n    training.launch(Learner::new(model, optimizer, 1e-3));\n}\n",
    ),
    ("src/bin/look.rs", "fn main() {\n    let device = Device::cuda(0);\n    shapes::data::show(device);\n}\n"),
    (
        "src/bin/teach.rs",
        "use shapes::learn;\n\nfn main() {\n    // The first there is.\n    let device = \
         Device::vulkan(DeviceKind::DefaultDevice);\n    \
         learn::learn(&LearningConfig::new(NetConfig::new(7)), device);\n}\n",
    ),
];

#[test]
fn a_library_that_trains_takes_six_lines() {
    let (ran, lines) = proposed(&set_up(MANIFEST, &SHAPES));
    assert_eq!(lines, 6);
    insta::assert_snapshot!("init_program_library", ran.ended(0));
}

/// Sentences, by an encoder whose config is Burn's; trained by an example that is asked for its device by a feature.
const SENTENCES: [(&str, &str); 3] = [
    (
        "src/lib.rs",
        "pub mod tuning;\n\n#[derive(Debug, Clone)]\npub struct Sentences {\n    pub tokens: Tensor<2, Int>,\n}\n\nimpl \
         TrainStep for Reader {\n    type Input = Sentences;\n}\n\nfn tokens() {\n    \
         Tokenizer::from_pretrained(\"gpt2\", None);\n}\n\nimpl Topics for News {\n    fn n_classes() -> usize {\n        \
         5\n    }\n}\n\nimpl Topics for Letters {\n    fn n_classes() -> usize {\n        9\n    }\n}\n\n#[derive(Config)]\npub \
         struct ReadingConfig {\n    pub encoder: TransformerEncoderConfig,\n    #[config(default = \
         \"SeqLengthOption::Max(96)\")]\n    pub length: SeqLengthOption,\n    #[config(default = 16)]\n    pub batch_size: \
         usize,\n    #[config(default = 1)]\n    pub num_epochs: usize,\n}\n\npub fn read<T: Topics>(strategy: \
         ExecutionStrategy, encoder: TransformerEncoderConfig) -> Result<(), Box<dyn Error>> {\n    let config = \
         ReadingConfig::new(encoder).with_num_epochs(2);\n    let training = SupervisedTraining::new(\"out\", train, \
         valid)\n        .with_training_strategy(strategy.into())\n        .num_epochs(config.num_epochs);\n    \
         training.launch(Learner::new(model, optimizer, 1e-3));\n    Ok(())\n}\n",
    ),
    (
        "src/tuning.rs",
        "pub fn tune(config: ReadingConfig) {\n    SupervisedTraining::new(\"out\", train, valid).launch(learner);\n}\n",
    ),
    (
        "examples/letters.rs",
        "fn main() {\n    #[cfg(feature = \"cpu\")]\n    let device = Device::flex();\n    \
         sentences::read::<Letters>(device.into(), TransformerEncoderConfig::new(48, 96, 6, 3));\n}\n",
    ),
];

#[test]
fn a_nested_config_of_burns_is_read_where_it_is_made() {
    let manifest = format!("{MANIFEST}\n[features]\ncpu = [\"burn/flex\"]\n\n[dependencies]\nburn = \"0.22.1\"\n");
    let (ran, lines) = proposed(&set_up(&manifest, &SENTENCES));
    assert_eq!(lines, 5);
    let note = "src/tuning.rs:1: `tune` has a training loop, too, which needs the same lines";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    insta::assert_snapshot!("init_program_nested", ran.ended(0));
}

/// A forecast, whose config holds the program's own, which holds Burn's.
const FORECAST: [(&str, &str); 2] = [
    (
        "src/model.rs",
        "#[derive(Config, Debug)]\npub struct ForecasterConfig {\n    pub features: usize,\n    #[config(default = 64)]\n    \
         pub hidden_size: usize,\n    #[config(default = 2)]\n    pub num_layers: usize,\n    #[config(default = 30)]\n    \
         seq_len: usize,\n    pub head: HeadConfig,\n}\n\n#[derive(Config, Debug)]\npub struct HeadConfig {\n    pub \
         output_size: usize,\n}\n\npub struct Forecaster {\n    gru: Gru,\n}\n",
    ),
    (
        "src/main.rs",
        "mod model;\n\n#[derive(Config, Debug)]\npub struct TrainingConfig {\n    pub model: ForecasterConfig,\n    \
         #[config(default = 32)]\n    pub batch_size: usize,\n    #[config(default = 3)]\n    pub num_epochs: usize,\n}\n\nfn \
         main() {\n    let features = 5;\n    let model = ForecasterConfig::new(features, HeadConfig::new(4))\n        \
         .with_num_layers(3)\n        .with_seq_len(60);\n    train(&TrainingConfig::new(model));\n}\n",
    ),
];

#[test]
fn dimensions_are_found_in_the_programs_own_configs() {
    let (ran, _) = proposed(&set_up(MANIFEST, &FORECAST));
    let said = ran.ended(0);
    // What another module cannot read, and what no number says, is not named; what is set counts before what it would be.
    let held = "+    #[tuned(dims(hidden: hidden_size = 64, layers: num_layers = 3, outputs: head.output_size = 4))]\n";
    assert!(said.contains(held), "{said}");
    let model = "+#[gpu_tuned::gpu_tuned(recurrent(inputs = …, seq = 60, cell = \"gru\"), global_batch = 32)]\n";
    assert!(said.contains(model), "{said}");
}

#[test]
fn a_dimension_is_said_once() {
    let lib = SENTENCES[0].1.replace("pub encoder: TransformerEncoderConfig,", "pub model: ModelConfig,");
    let lib = format!("mod model;\n{lib}");
    let model = "#[derive(Config)]\npub struct ModelConfig {\n    pub encoder: TransformerEncoderConfig,\n    pub n_classes: \
                 usize,\n}\n\nfn made() {\n    ModelConfig::new(TransformerEncoderConfig::new(48, 96, 6, 3), 4);\n}\n";
    let said = proposed(&set_up(MANIFEST, &[("src/lib.rs", &lib), ("src/model.rs", model)])).0.ended(0);
    let dims = "+    #[tuned(dims(d_model: encoder.d_model = 48, d_ff: encoder.d_ff = 96, heads: encoder.n_heads = 6, layers: \
                encoder.n_layers = 3, classes: n_classes = 4))]\n";
    assert!(said.contains(dims), "{said}");
    assert!(said.contains("transformer(vocab = 50257, seq = 96, causal = false, final_norm = false)"), "{said}");
}

#[test]
fn what_init_printed_is_all_there_is_to_do() {
    let project = set_up(MANIFEST, &SHAPES);
    let diff = project.run(&["init", "--json"]).json(0)["proposal"]["diff"].as_str().expect("a diff").to_owned();
    apply(&project.path(""), &diff);
    let ran = project.run(&["init"]);
    assert!(!ran.stdout.contains("to edit by hand"), "{}", ran.stdout);
    assert!(ran.stdout.contains("cargo gpu-tuned measure -p plain --bin teach --features h200\n"), "{}", ran.stdout);
}

#[test]
fn code_that_is_nested_too_deeply_is_skipped_with_its_line() {
    let project = Project::new("measured");
    project.write("src/deep.rs", &format!("\nfn f() {{ {}1{}; }}\n", "(".repeat(20_000), ")".repeat(20_000)));
    project.write("src/main.rs", "mod deep;\nfn main() {}\n");
    let said = project.run(&["init", "--dry-run"]);
    let skipped = "src/deep.rs:2: code is nested or chained too deeply, and is not read; this file was skipped";
    assert!(said.stderr.contains(skipped), "{}", said.stderr);
    said.ended(0);
}

#[cfg(unix)]
#[test]
fn files_outside_of_the_workspace_are_left_alone() {
    let project = Project::new("bare");
    let outside = project.path("../elsewhere.rs");
    fs::write(&outside, "fn main() {}\n").expect("a file");
    project.replace("Cargo.toml", "[package]\n", "[package]\nbuild = \"../elsewhere.rs\"\n");
    let said = project.run(&["init", "h200", "--yes", "--force"]);
    assert!(said.stdout.contains("elsewhere.rs, which is outside of the package or workspace:"), "{}", said.stdout);
    assert!(said.stdout.contains("+    gpu_tuned_build::configure().emit();"), "{}", said.stdout);
    assert_eq!(fs::read_to_string(&outside).expect("a file"), "fn main() {}\n");

    // A build script without its dependency does not compile.
    let project = Project::new("bare");
    let manifest = project.path("../elsewhere.toml");
    fs::rename(project.path("Cargo.toml"), &manifest).expect("a file");
    std::os::unix::fs::symlink(&manifest, project.path("Cargo.toml")).expect("a link");
    let said = project.run(&["init", "h200", "--yes", "--force"]);
    let (outside, script) =
        ("Cargo.toml, which is outside of the package or workspace:", "build.rs, which needs the edit of Cargo.toml:");
    assert!(said.stdout.contains(outside) && said.stdout.contains(script), "{}", said.stdout);
    assert!(!project.path("build.rs").exists());

    let project = Project::new("bare");
    std::os::unix::fs::symlink("nowhere/build.rs", project.path("build.rs")).expect("a link");
    let refused = project.run(&["init", "h200", "--yes", "--force"]).refused(2);
    assert!(refused.contains("it is a link to a file that is not there"), "{refused}");
    assert!(project.path("build.rs").is_symlink());
}
