use super::Losses;
use crate::sources::Source;

fn losses(text: &str) -> Losses {
    Losses::new(&[&Source::of_text("src/main.rs", text)])
}

fn edit(text: &str) -> String {
    let edits = losses(text).edits;
    let [only] = &edits[..] else { panic!("{edits:?}") };
    only.clone()
}

/// The loss that the program's `whole_batch_loss` is for.
fn coupling(text: &str) -> Option<String> {
    losses(text).whole_batch.map(|(loss, place)| format!("{loss} in {place}"))
}

const PADDED: &str = "
fn loss(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let loss = CrossEntropyLossConfig::new()
        .with_pad_tokens(Some(vec![PAD]))
        .init(&logits.device());
    loss.forward(logits, batch.targets.clone())
}
";

#[test]
fn padding_makes_a_loss_the_mean_over_targets() {
    let said = edit(PADDED);
    assert!(
        said.starts_with("src/main.rs:4: the mean of `CrossEntropyLoss` is over targets that are not padding"),
        "{said}"
    );
    let returned =
        "Return `(loss, batch.targets.not_equal_scalar(PAD as i64).int().sum())` from the closure of `trainer.step`";
    assert!(said.ends_with(returned), "{said}");
    for (loss, weight) in [
        (
            "ChunkedCrossEntropy::new(64).with_pad_tokens(vec![-100]).forward(hidden, w, None, labels)",
            "labels.not_equal_scalar(-100)",
        ),
        ("CrossEntropyLoss::new(Some(0), &device).forward(logits, labels)", "targets.not_equal_scalar(0)"),
        ("CrossEntropyLossConfig::new().with_pad_tokens(tokens).init(&device)", "targets.not_equal_scalar(pad)"),
    ] {
        let said = edit(&format!("fn loss() -> Tensor<1> {{ {loss} }}"));
        assert!(said.contains(&format!("`(loss, {weight}.int().sum())`")), "{said}");
    }
}

#[test]
fn burns_loop_returns_the_weight_with_its_output() {
    let said = edit(&format!(
        "{PADDED}\nimpl TrainStep for Model {{ fn step(&self, batch: Batch) -> TrainOutput<O> {{ panic!() }} }}"
    ));
    assert!(said.contains("In `TrainStep::step`, return `Weighted::new(output, batch.targets."), "{said}");
    assert!(said.contains("gpu_tuned::train::Weighted"), "{said}");
}

#[test]
fn class_weights_make_a_loss_the_mean_over_them() {
    let weighted = "CrossEntropyLossConfig::new().with_smoothing(Some(0.1)).with_weights(Some(weights.clone()))";
    let said = edit(&format!("fn f() {{ {weighted}.init(&device).forward(logits, targets) }}"));
    assert!(
        said.contains("is over class weights") && said.contains("`(loss, class_weights.select(0, targets).sum())`"),
        "{said}"
    );
    let said =
        edit(&format!("fn f() {{ {weighted}.with_pad_tokens(Some(vec![0])).init(&device).forward(logits, targets) }}"));
    assert!(said.contains(".mask_fill(targets.equal_scalar(0), 0.0).sum()"), "{said}");
}

#[test]
fn means_over_samples_need_no_edit() {
    for text in [
        "fn f() { CrossEntropyLossConfig::new().with_pad_tokens(None).with_weights(None).init(&device) }",
        "fn f() { CrossEntropyLoss::new(None, &device).forward(logits, targets) }",
        // The mean of this loss is over samples, whatever its weights.
        "fn f() { BinaryCrossEntropyLossConfig::new().with_weights(Some(weights)).init(&device) }",
        "fn f() { SamplerConfig::new().with_weights(Some(weights)).with_pad_tokens(Some(vec![0])).init() }",
        "// CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0]))\nfn f() { print(\"contrastive with_weights(1)\") }",
        "#[cfg(test)] mod tests { fn f() { CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0])).init(&device) } }",
    ] {
        assert_eq!(losses(text).edits, [""; 0], "{text}");
    }
}

#[test]
fn a_program_that_returns_weights_needs_no_edit() {
    for step in [
        "fn main() { trainer.step(rate, batch, |model, micro| (model.loss(micro), count)); }",
        "fn main() { trainer.step(rate, batch, |model, micro| { let pair = (loss(micro), n); pair }); }",
        "fn main() { trainer.step(rate, batch, |model, micro| model.both(micro)); }\nfn both() -> (Tensor<1>, Tensor<1, Int>) { panic!() }",
        "fn main() { trainer.step(rate, batch, |model, micro| model.both(micro)); }\nfn both() -> Loss { panic!() }",
        "fn step() -> TrainOutput<Weighted<ClassificationOutput>> { panic!() }",
    ] {
        assert_eq!(losses(&format!("{PADDED}{step}")).edits, [""; 0], "{step}");
    }
    // Neither a plain loss nor a step of something else is a weight.
    for step in [
        "fn main() { trainer.step(rate, batch, |model, micro| model.loss(micro)); }",
        "fn main() { clock.step(|tick| (tick, 1)); }",
    ] {
        edit(&format!("{PADDED}{step}"));
    }
}

#[test]
fn sums_are_no_steps() {
    for step in [
        "trainer.step(rate, batch, |model, micro| model.errors(micro).sum())",
        "trainer.step(rate, batch, |model, micro| { let loss = model.errors(micro).sum(); loss })",
        "trainer.step(rate, batch, |model, micro| (model.errors(micro).sum(), count))",
        "trainer.step(rate, batch, |model, micro| model.total(micro))",
        "MseLoss::new().forward(output, targets, Reduction::Sum)",
        "MseLoss::new().forward(output, targets, nn::loss::Reduction::Sum)",
    ] {
        let said = edit(&format!("fn total(&self) -> Tensor<1> {{ errors.sum() }}\nfn main() {{ {step}; }}"));
        assert!(said.contains("a step is the mean over its samples"), "{said}");
        assert!(said.starts_with("src/main.rs:"), "{said}");
    }
    for step in [
        "trainer.step(rate, batch, |model, micro| model.errors(micro).mean())",
        "trainer.step(rate, batch, |model, micro| model.errors(micro).sum_dim(1).mean())",
        "trainer.step(rate, batch, |model, micro| (model.errors(micro).sum() / count, count))",
        "MseLoss::new().forward(output, targets, Reduction::Sum) / 8",
        "MseLoss::new().forward(output, targets, Reduction::Sum).div_scalar(8)",
        "MseLoss::new().forward(output, targets, Reduction::Mean)",
        "let total = counts.iter().sum()",
    ] {
        assert_eq!(losses(&format!("fn main() {{ {step}; }}")).edits, [""; 0], "{step}");
    }
}

#[test]
fn losses_that_compare_samples_are_found_by_their_names() {
    for (text, name) in [
        ("fn info_nce(a: Tensor<2>) {}", "info_nce"),
        ("fn f() { let loss = nt_xent(a, b); }", "nt_xent"),
        ("struct InfoNCELoss;", "InfoNCELoss"),
        ("fn f() { NTXentLossConfig::new().init() }", "NTXentLossConfig"),
        ("struct Model { loss: losses::SupConLoss }", "SupConLoss"),
        ("fn f() { self.clip_loss(image, text) }", "clip_loss"),
        ("fn f() { vicreg::VicReg::default() }", "VicReg"),
        ("impl Model { fn barlow_twins(&self) {} }", "barlow_twins"),
        ("fn f() { losses::in_batch_negatives(q, k) }", "in_batch_negatives"),
    ] {
        assert_eq!(coupling(text), Some(format!("`{name}` in src/main.rs:1")), "{text}");
    }
    for text in [
        "struct Config { clip_norm: f32, contrastive_weight: f64 }",
        "fn f() { trainer.clip_norm(1.0); let contrastive = 0.5; contrastive + 1.0 }",
        "/// A contrastive loss.\nfn f() { let name = \"simclr\"; } // info_nce",
        "#[cfg(test)] fn info_nce() {}",
    ] {
        assert_eq!(coupling(text), None, "{text}");
    }
}

#[test]
fn logits_of_samples_against_each_other_compare_them() {
    let function = |product: &str, targets: &str| {
        format!(
            "fn f() {{ let logits = a.clone().matmul({product}); let at = {targets}; ce.forward(logits, at.clone()) }}"
        )
    };
    let arange = "Tensor::<1, Int>::arange(0..n as i64, &device)";
    for product in ["a.transpose()", "text.clone().t()", "b.swap_dims(0, 1)"] {
        let found = coupling(&function(product, arange));
        assert_eq!(
            found.as_deref(),
            Some("a product with a transpose, and targets in order in src/main.rs:1"),
            "{product}"
        );
    }
    // Attention, a classifier, positions.
    assert_eq!(coupling(&function("k.transpose()", "batch.targets")), None);
    assert_eq!(coupling(&function("weight", arange)), None);
    let positions =
        format!("fn f() {{ let at = {arange}; embedding.forward(at) }}\nfn g() {{ q.matmul(k.transpose()) }}");
    assert_eq!(coupling(&positions), None);
}

#[test]
fn the_key_is_missing_until_the_attribute_has_it() {
    let loss = "fn info_nce() {}\n";
    let (key, reason) = losses(loss).missing_key().expect("a key");
    assert_eq!(key, "whole_batch_loss = true");
    assert!(reason.contains("`info_nce` in src/main.rs:1"), "{reason}");
    let annotated = format!("{loss}#[gpu_tuned(mlp(widths = [1, 1]), whole_batch_loss = true)]\nstruct Config {{}}\n");
    assert_eq!(losses(&annotated).missing_key(), None);
    assert_eq!(losses(loss).notes().count(), 1);
    assert_eq!(losses(&annotated).notes().count(), 0);
}
