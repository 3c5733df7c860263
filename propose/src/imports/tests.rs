use std::collections::BTreeSet;

use super::{FASTER, ImportProposal};
use crate::sources::Source;

/// Changes of a transformer's source: line, and path to write.
fn changes(text: &str) -> Vec<(usize, String)> {
    let source = Source::of_text("src/model.rs", text);
    let found = ImportProposal::new([&source].into_iter(), "transformer", "gpu_tuned");
    let imports = found.map(|found| found.imports).unwrap_or_default();
    assert!(imports.iter().all(|import| import.from.replacen("burn", "gpu_tuned", 1) == import.to), "{imports:?}");
    imports.into_iter().map(|import| (import.line, import.to)).collect()
}

fn one(line: usize, to: &str) -> Vec<(usize, String)> {
    vec![(line, to.to_owned())]
}

#[test]
fn imports_of_faster_modules_are_found_in_every_form() {
    for (text, expected) in [
        ("use burn::nn::Linear;", one(1, "gpu_tuned::nn::Linear")),
        ("\nuse burn::nn::{Dropout, Linear, LinearConfig};", one(2, "gpu_tuned::nn::{Linear, LinearConfig}")),
        (
            "use burn::{\n    nn::{Linear as Dense, loss::CrossEntropyLossConfig},\n    tensor::Tensor,\n};",
            one(1, "gpu_tuned::nn::{Linear as Dense, loss::CrossEntropyLossConfig}"),
        ),
        ("use burn::nn::*;\nstruct A { norm: LayerNorm }", one(1, "gpu_tuned::nn::*")),
        ("use burn::nn;\nstruct A { a: nn::attention::MultiHeadAttention }", one(1, "gpu_tuned::nn")),
        ("use burn::nn::{self, Dropout};\nstruct A { a: nn::Linear }", one(1, "gpu_tuned::nn")),
        ("use burn::nn::loss;\nfn f() { loss::CrossEntropyLossConfig::new(); }", one(1, "gpu_tuned::nn::loss")),
        ("use burn::prelude::*;\nfn f() { nn::LinearConfig::new(1, 1); }", one(1, "gpu_tuned::nn")),
        ("use burn as b;\nfn f() { b::nn::LinearConfig::new(1, 1); }", one(2, "gpu_tuned::nn::LinearConfig")),
        ("\nfn f() { burn::nn::LinearConfig::new(1, 1); }", one(2, "gpu_tuned::nn::LinearConfig")),
        ("fn f() {\n    use burn::nn::LinearConfig;\n}", one(2, "gpu_tuned::nn::LinearConfig")),
        ("mod inner {\n    use burn::nn::Embedding;\n}", one(2, "gpu_tuned::nn::Embedding")),
        ("use burn::nn::conv::{Conv2d, Conv2dConfig};", one(1, "gpu_tuned::nn::{conv::Conv2d, conv::Conv2dConfig}")),
        ("use burn::optim::AdamWConfig;", one(1, "gpu_tuned::optim::AdamWConfig")),
        ("use burn::*;\nfn f() { optim::AdamConfig::new(); }", one(1, "gpu_tuned::optim")),
    ] {
        assert_eq!(changes(text), expected, "{text}");
    }
}

#[test]
fn modules_and_optimizers_of_one_import_are_two_changes() {
    let text = "use burn::{nn::{Linear, gru::Gru}, optim::{AdamW, Sgd}};";
    assert_eq!(
        changes(text),
        [one(1, "gpu_tuned::nn::{Linear, gru::Gru}"), one(1, "gpu_tuned::optim::AdamW")].concat()
    );
}

#[test]
fn modules_and_names_of_one_import_are_two_changes() {
    let text = "use burn::{nn::LayerNorm, prelude::*};\nstruct A { norm: LayerNorm, head: nn::Linear }";
    assert_eq!(changes(text), [one(1, "gpu_tuned::nn"), one(1, "gpu_tuned::nn::LayerNorm")].concat());
}

#[test]
fn other_modules_and_imports_that_are_there_are_left_alone() {
    for text in [
        "use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};\nuse burn::nn::Dropout;",
        "use burn::optim::{Sgd, SgdConfig};",
        "use burn::nn::*;\nstruct A { dropout: Dropout }",
        "use burn::prelude::*;\nstruct Linear;\nfn f(a: Linear) {}",
        "use gpu_tuned::nn::{Linear, LinearConfig};\nuse burn::nn::Dropout;\nfn f() { LinearConfig::new(1, 1); }",
        "use burn::prelude::*;\nuse gpu_tuned::nn;\nfn f() { nn::LinearConfig::new(1, 1); }",
        "use burn::nn::*;\nuse gpu_tuned::nn::Linear;\nstruct A { linear: Linear }",
        "use other::nn::Linear;\nfn f() { other::nn::LayerNorm::new(); }",
    ] {
        assert_eq!(changes(text), [], "{text}");
    }
}

#[test]
fn kinds_without_a_measured_gain_get_no_proposal() {
    let source = Source::of_text("src/model.rs", "use burn::nn::Linear;");
    let gain = |kind| ImportProposal::new([&source].into_iter(), kind, "tuned").map(|found| found.gain);
    for (kind, factor) in [("vit", "2.6 to 3.4"), ("unet", "2.4 to 4.6"), ("recurrent", "53")] {
        assert!(
            gain(kind).is_some_and(|gain| gain.starts_with(&format!("{factor} times as fast on an H200"))),
            "{kind}"
        );
    }
    assert_eq!(["mlp", "declared"].map(gain), [const { None }; 2]);
}

/// Types and configs of a module's source, but for what it re-exports from Burn.
fn own_names(source: &str) -> BTreeSet<&str> {
    let words = |text| str::split(text, |letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let defined = |keyword| {
        source.lines().filter_map(move |line: &str| line.strip_prefix(keyword)?.split(['<', '(', ' ']).next())
    };
    let names = ["pub type ", "pub struct "].into_iter().flat_map(defined);
    let exported = source.split("\npub use ").skip(1).filter_map(|text| text.split(';').next());
    let exported = exported.filter_map(|text| {
        let text = text.strip_prefix("super::").unwrap_or(text);
        text.strip_prefix("config::").or_else(|| text.strip_prefix("recurrent::"))
    });
    let is_type = |name: &&str| name.starts_with(char::is_uppercase) && *name != "ByLibrary";
    names.chain(exported.flat_map(words)).filter(is_type).collect()
}

#[test]
fn every_module_with_a_faster_version_is_proposed() {
    for (module, source) in [
        ("nn", include_str!("../../../kernels/src/nn.rs")),
        ("nn::attention", include_str!("../../../kernels/src/nn/attention.rs")),
        ("nn::conv", include_str!("../../../kernels/src/nn/conv.rs")),
        ("nn::gru", include_str!("../../../kernels/src/nn/gru.rs")),
        ("nn::transformer", include_str!("../../../kernels/src/nn/transformer.rs")),
        ("nn::loss", include_str!("../../../kernels/src/nn/loss.rs")),
        ("optim", include_str!("../../../kernels/src/optim.rs")),
    ] {
        let (_, proposed) = FASTER.iter().find(|(of, _)| *of == module).expect("a module");
        assert_eq!(proposed.iter().copied().collect::<BTreeSet<_>>(), own_names(source), "{module}");
    }
}
