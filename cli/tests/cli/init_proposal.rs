//! Annotations that `init` proposes.

use crate::init::{PLAIN, package};
use crate::project::{Project, Ran};

/// The training config of a program on handwritten digits, as Burn's guides have it.
const CONFIG: &str = "\
mod model;

use burn::config::Config;

/// How it is trained.
#[derive(Config, Debug)]
pub struct TrainingConfig {
    pub model: ModelConfig,
    #[config(default = 10)]
    pub num_epochs: usize,
    #[config(default = 64)]
    pub batch_size: usize,
    #[config(default = 4)]
    pub num_workers: usize,
    #[config(default = 42)]
    pub seed: u64,
    #[config(default = 1.0e-4)]
    pub learning_rate: f64,
}

/// How it is looked at.
pub struct ViewConfig { pub batch_size: usize, pub seed: u64 }

fn main() { let _ = SupervisedTraining::new; }
";

fn proposed(files: &[(&str, &str)]) -> (Project, Ran) {
    let project = package(PLAIN);
    for (name, text) in files {
        project.write(name, text);
    }
    project.run(&["init", "--yes", "--force", "--target", "h200"]).ended(0);
    let ran = project.run(&["init"]);
    (project, ran)
}

#[test]
fn the_first_command_plans_before_any_edit() {
    let model = "pub struct Model { conv: Conv2d, linear: Linear }\n";
    let (project, ran) = proposed(&[("src/main.rs", CONFIG), ("src/model.rs", model)]);
    assert!(ran.stderr.contains("the code does not have `image`, `classes`, `stages`"), "{}", ran.stderr);
    let report = project.run(&["init", "--json"]).json(0);
    let command = report["now"].as_str().expect("a command").strip_prefix("cargo gpu-tuned ").expect("this command");
    let [before, model, behind] = command.split('\'').collect::<Vec<_>>()[..] else { panic!("{command}") };
    let args: Vec<&str> = before.split_whitespace().chain([model]).chain(behind.split_whitespace()).collect();
    let planned = project.run(&args).ended(0);
    assert!(planned.contains("global batch 64") && planned.contains("h200"), "{planned}");
    // Once the struct is annotated, the command is `plan` alone.
    project.replace(
        "src/main.rs",
        "#[derive(Config, Debug)]",
        "#[gpu_tuned::gpu_tuned(mlp(widths = [1, 1]))]\n#[derive(Config, Debug)]",
    );
    project.replace("src/main.rs", "#[config(default = 64)]", "#[tuned]");
    assert_eq!(project.run(&["init", "--json"]).json(0)["now"], serde_json::Value::Null);
    project.run(&["plan"]).ended(0);
}

#[test]
fn a_training_config_is_told_with_its_annotation() {
    let model = "// Not a TransformerEncoder.\npub struct Model { conv: Conv2d, linear: Linear }\n";
    let (project, ran) = proposed(&[("src/main.rs", CONFIG), ("src/model.rs", model)]);
    assert!(ran.stderr.contains("src/main.rs:22: `ViewConfig` also looks like a training config"), "{}", ran.stderr);
    insta::assert_snapshot!("init_proposal", ran.ended(0));
    // It is only shown.
    assert_eq!(project.read("src/main.rs"), CONFIG);
    let report = project.run(&["init", "--json"]).json(0);
    assert_eq!((&report["proposal"]["line"], &report["proposal"]["family"]), (&7.into(), &"convnet".into()));
    // What has been annotated is not proposed again, nor is anything else.
    project.replace("src/main.rs", "#[derive(Config, Debug)]", "#[gpu_tuned::gpu_tuned(mlp(widths = [1, 1]))]");
    let said = project.run(&["init"]).ended(0);
    assert!(!said.contains("looks like"), "{said}");
}

#[test]
fn dimensions_that_fields_hold_are_proposed_as_such() {
    let config = "pub mod config {\n    #[derive(Clone)]\n    pub(crate) struct LmConfig {\n        pub n_layers: usize,\n        \
                  pub d_model: usize,\n        /// Of a text.\n        pub max_seq_length: usize,\n        pub batch_size: \
                  usize,\n        pub lr: f64,\n    }\n}\nmod broken;\nstruct Model(TransformerEncoder);\n";
    let (_, ran) = proposed(&[("src/lib.rs", config), ("src/broken.rs", "fn (\n")]);
    assert!(ran.stderr.contains("src/broken.rs:1: ") && ran.stderr.contains("was skipped"), "{}", ran.stderr);
    insta::assert_snapshot!("init_proposal_dims", ran.ended(0));
}

#[test]
fn a_model_of_no_known_kind_is_declared() {
    let config = "struct TrainConfig { batch_size: u32, gradient_checkpointing: bool }\n";
    let (_, ran) = proposed(&[("src/lib.rs", config)]);
    let said = ran.ended(0);
    let line = "+#[gpu_tuned::gpu_tuned(declared(parameters = …, activation_bytes_per_sample = …, flops_per_sample = …), global_batch = …)]\n";
    assert!(said.contains(line), "{said}");
    assert!(
        said.contains("+struct TrainConfig { #[tuned] batch_size: u32, #[tuned] gradient_checkpointing: bool }"),
        "{said}"
    );
    assert!(said.contains("help: the code does not identify the kind of model"), "{said}");
}

#[test]
fn a_config_that_has_a_default_is_told_to_lose_it() {
    let derived = "#[derive(Clone, Default)]\nstruct TrainConfig { batch_size: usize, seed: u64 }\n";
    let (_, ran) = proposed(&[("src/lib.rs", derived)]);
    assert!(
        ran.stdout.contains("-#[derive(Clone, Default)]\n") && ran.stdout.contains("+#[derive(Clone)]\n"),
        "{}",
        ran.stdout
    );
    let other = "struct TrainConfig { batch_size: usize, seed: u64 }\nmod more;\n";
    let by_hand = "impl Clone for super::TrainConfig {}\n\nimpl Default for super::TrainConfig {}\n";
    let (_, ran) = proposed(&[("src/lib.rs", other), ("src/more.rs", by_hand)]);
    assert!(ran.stdout.contains("help: src/more.rs:3: remove this `impl Default`"), "{}", ran.stdout);
}

#[test]
fn a_field_for_the_precision_is_planned_with_the_edits_for_16_bits() {
    let config = "mod model;\n#[derive(Clone)]\nstruct TrainConfig { batch_size: usize, amp: bool, seed: u64 }\n";
    let model = "#[derive(Module, Debug)]\nstruct Model {\n    conv: Conv2d,\n    norms: Vec<BatchNorm>,\n    fine: \
                 InF32<BatchNorm>,\n    plain: LayerNorm,\n}\nfn loss(output: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> \
                 {\n    CrossEntropyLossConfig::new().init(&output.device()).forward(output, targets)\n}\n";
    let (project, ran) = proposed(&[("src/lib.rs", config), ("src/model.rs", model)]);
    assert!(ran.stdout.contains("#[tuned(setting = precision)] amp: bool"), "{}", ran.stdout);
    let edits = |said: &str| said.lines().filter(|line| line.contains("model.rs:")).count();
    assert!(ran.stdout.contains("src/model.rs:4: `norms`: hold the `BatchNorm` in an `InF32`"), "{}", ran.stdout);
    assert!(ran.stdout.contains("src/model.rs:9: pass the model's output"), "{}", ran.stdout);
    let of_precision = edits(&ran.stdout);
    // A program that is in f32 needs none of them.
    project.replace("src/lib.rs", "amp: bool, ", "");
    assert_eq!((of_precision - edits(&project.run(&["init"]).ended(0))), 2);
}

#[test]
fn losses_that_depend_on_the_micro_batch_are_listed_with_their_edits() {
    let config = "mod model;\n#[derive(Clone)]\nstruct TrainConfig { batch_size: usize, seed: u64 }\n";
    let model = "fn loss(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {\n    let loss = \
                 CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0])).init(&logits.device());\n    \
                 loss.forward(logits, targets)\n}\nfn info_nce(a: Tensor<2>, b: Tensor<2>) -> Tensor<1> { todo!() }\n";
    let (project, ran) = proposed(&[("src/lib.rs", config), ("src/model.rs", model)]);
    let edit = "src/model.rs:2: the mean of `CrossEntropyLoss` is over targets that are not padding";
    assert!(ran.stdout.contains(&format!("  help: {edit}")), "{}", ran.stdout);
    assert!(ran.stdout.contains("`(loss, targets.not_equal_scalar(0).int().sum())`"), "{}", ran.stdout);
    assert!(ran.stdout.contains(", whole_batch_loss = true)]"), "{}", ran.stdout);
    assert!(ran.stdout.contains("because of `info_nce` in src/model.rs:5"), "{}", ran.stdout);
    // An annotated program gets notes, which leave nothing to do by hand.
    project.replace(
        "src/lib.rs",
        "#[derive(Clone)]",
        "#[gpu_tuned::gpu_tuned(mlp(widths = [1, 1]))]\n#[derive(Clone)]",
    );
    let again = project.run(&["init"]);
    assert!(again.stderr.contains(edit) && again.stderr.contains("`info_nce` in src/model.rs:5"), "{}", again.stderr);
    assert!(!again.stdout.contains("by hand: src/model.rs"), "{}", again.stdout);
}
