//! Fields with a switch for CUDA graphs.

use proc_macro2::TokenStream;

use super::{LOCK, config, formatted, measured, run};

#[test]
fn a_field_lets_the_planner_use_cuda_graphs_that_were_measured_to_gain() {
    let graphs = "\n[workload.lm.on.h200.mode.f32-graphs]\nmethod = \"executed\"\n
        [workload.lm.on.h200.mode.f32-graphs.batch]
        32 = { micro_step_ms = 20.0, optimizer_ms = 1.0, reserved_bytes = 6_970_000_000, \
        reserved_accumulating_bytes = 6_970_000_000 }\n";
    let lock = format!("{LOCK}{graphs}");
    let attribute = quote!(transformer(seq = 256, vocab = 8192, layers = 6, d_model = 512), global_batch = 512);
    let with = |goal: TokenStream, field: TokenStream| {
        formatted(run(quote!(#attribute #goal), &config(&field), measured(&lock, 6)))
    };
    assert!(with(quote!(), quote!()).contains("cuda_graphs: false,"));
    let field = quote!(#[tuned] pub cuda_graphs: bool);
    let tuned = with(quote!(), field.clone());
    assert!(tuned.contains("cuda_graphs: true,") && tuned.contains("batch_size: 32"), "{tuned}");
    let refused = with(quote!(, allow_cuda_graphs = false), field);
    assert!(refused.contains("cuda_graphs: false,"), "{refused}");
}
