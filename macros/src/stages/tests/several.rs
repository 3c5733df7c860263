//! Builds for several GPUs.

use gpu_tuned_core::source::Source;
use gpu_tuned_project::lock::Lock;
use proc_macro2::TokenStream;

use super::{config, formatted, run, table};
use gpu_tuned_attribute::Table;

fn expanded(attribute: TokenStream, table: Table) -> String {
    formatted(run(attribute, &config(&quote!()), table))
}

#[test]
fn selected_targets_that_do_not_fit_are_named() {
    let attribute = quote!(transformer(seq = 1024, vocab = 50257, layers = 24, d_model = 2048));
    let expansion = expanded(attribute, table(&["gtx1080", "h200"]));
    assert!(expansion.contains("`gtx1080` is selected too, but cannot hold the workload."), "{expansion}");
    assert!(expansion.contains("misfits: &[\"gtx1080\"]"), "{expansion}");
}

/// Two GPUs: a step of 8 samples fits the first at once, and the second one sample at a time.
const LOCK: &str = r#"format = 2

[workload.lm]
parameters = 200_000
shape = "00ff"

[workload.lm.described.transformer]
layers = 2
d_model = 64
vocab = 512
seq = 32

[workload.lm.on.gtx1080]
burn = "0.22.1"
device = "NVIDIA GeForce GTX 1080"
kind = "gpu"
memory_bytes = 8_513_978_368
sm_count = 20

[workload.lm.on.gtx1080.mode.f32]
method = "dry-run"

[workload.lm.on.gtx1080.mode.f32.batch]
8 = { reserved_bytes = 7_000_000_000 }

[workload.lm.on.rtx4090]
burn = "0.22.1"
device = "NVIDIA GeForce RTX 4090"
kind = "gpu"
memory_bytes = 25_393_692_672
sm_count = 128

[workload.lm.on.rtx4090.mode.f32]
method = "dry-run"

[workload.lm.on.rtx4090.mode.f32.batch]
1 = { reserved_bytes = 16_000_000_000 }

# end of gpu-tuned.lock
"#;

#[test]
fn a_target_that_no_plan_fits_together_with_the_others_is_named() {
    let lock = Lock::parse(Source { file: Lock::NAME, text: LOCK }).expect("the lock is valid");
    let Table::Resolved(resolved) = table(&["gtx1080", "rtx4090"]) else { unreachable!() };
    let table = Table::Resolved(Box::new(resolved.with_measured(lock)));
    let attribute = quote!(transformer(layers = 2, d_model = 64, vocab = 512, seq = 32), global_batch = 8);
    let expansion = expanded(attribute, table);
    assert!(expansion.contains("# Tuned for `rtx4090`"), "{expansion}");
    assert!(expansion.contains("`gtx1080` is selected too, but no plan fits it and the others."), "{expansion}");
}
