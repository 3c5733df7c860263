use serde_json::json;

use super::figure_changes;

#[test]
fn models_differ_by_figures_and_not_by_what_a_step_costs() {
    let declared = |parameters: u64, flops: f64| json!({ "model": { "declared": { "parameters": parameters, "flops_per_sample": flops } } });
    let stages = |second: u64| json!({ "model": { "convnet": { "stages": [[64, 2], [128, second]] } } });
    let transformer = json!({ "model": { "transformer": { "layers": 6 } } });
    let with_heads = json!({ "model": { "transformer": { "layers": 6, "heads": 8 } } });
    for (then, now, expected) in [
        (declared(10, 1e9), declared(10, 2e9), vec![]),
        (declared(10, 1e9), declared(20, 1e9), vec!["declared.parameters was 10, is 20"]),
        (stages(2), stages(3), vec!["convnet.stages[1][1] was 2, is 3"]),
        (transformer.clone(), with_heads, vec!["transformer.heads was not given, is 8"]),
        (transformer, stages(2), vec!["workload was transformer, is convnet"]),
    ] {
        let found: Vec<_> = figure_changes(&then, &now).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }
}
