use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Kernels, Precision};
use gpu_tuned_observe::bench::{Comparison, Feed, Figures, Header, Interval, Outcome, Planned, Row, Setup};

use super::text;

fn header() -> Header {
    let described: WorkloadSpec = toml::from_str("[model.mlp]\nwidths = [4, 2]\n").expect("a workload");
    Header {
        format: Header::FORMAT,
        workload: "lm".to_owned(),
        device: "NVIDIA H200".to_owned(),
        kind: DeviceKind::Gpu,
        memory_bytes: Bytes::from_mib(143_771),
        sm_count: 132,
        cpu_threads: None,
        driver: Some("580.95.05".to_owned()),
        burn: "0.22.1".to_owned(),
        cubecl: Some("0.11.3".to_owned()),
        parameters: 27_300_000,
        shape: "00".to_owned(),
        described,
        debug: true,
        counts_memory: true,
        full_f32: false,
        kernels: Kernels::Burn,
    }
}

fn row(batch: u64, feed: Option<Feed>, median: f64) -> Row {
    let setup = Setup { precision: Precision::Bf16Params, checkpointing: true, batch, feed };
    let figures = Figures {
        samples_per_s: Interval { median, least: median * 0.9, most: median * 1.1 },
        repeats: 5,
        step_ms: 1e3 * batch as f64 / median,
        phases: None,
        waiting_percent: feed.map(|_| 12.5),
        reserved_bytes: feed.is_none().then(|| Bytes::from_mib(2048)),
        in_use_bytes: None,
        predicted_bytes: None,
        gpu_percent: Some(93.4),
        cpu_percent: Some(50.0),
        is_finite: false,
    };
    let (outcome, kernels) = (Outcome::Measured(figures), Kernels::Burn);
    Row { setup, outcome, frontier: false, planned: false, full_f32: false, kernels }
}

fn lines(rows: Vec<Row>) -> Vec<String> {
    let (precision, checkpointing, kernels) = (Precision::F32, false, Kernels::Burn);
    let planned = Planned { precision, checkpointing, batch: 32, workers: 1, prefetch: 2, accumulation: 4, kernels };
    let text = text(&Comparison { header: header(), planned, rows }, None, 61.2);
    anstream::adapter::strip_str(&text).to_string().lines().map(str::to_owned).collect()
}

#[test]
fn rows_show_utilization_and_a_loss_that_is_not_finite() {
    let lines = lines(vec![row(8, None, 812.4)]);
    assert_eq!(
        lines,
        [
            "lm on NVIDIA H200: 27,300,000 parameters, driver 580.95.05, Burn 0.22.1, CubeCL 0.11.3, a debug build: \
             slower than training",
            "  mode                      batch  samples/s  min - max  step ms  forward  backward  optimizer   memory  GPU",
            "  bf16_params-checkpointed      8        812  731 - 894     9.85        -         -          -  2.0 GiB  93%  \
             the loss is not finite",
            "",
            "planned: f32, batch 32: not among what ran",
            "kept in gpu-tuned.bench.jsonl, --again repeats all; 61 s, building included",
        ]
    );
}

#[test]
fn configurations_with_a_loader_have_their_own_table() {
    let feed = Feed { workers: 2, prefetch: 4 };
    let not_run = |batch, workers, outcome| Row { outcome, ..row(batch, Some(Feed { workers, prefetch: 0 }), 1.0) };
    let misfit = Outcome::TooLarge { samples: 8 };
    let too_large = Row { outcome: misfit.clone(), ..row(16, None, 1.0) };
    let unfed = [0, 1].map(|workers| not_run(8, workers, Outcome::Unfed));
    let others = [row(8, Some(feed), 640.0), not_run(16, 0, misfit)];
    let lines = lines([row(8, None, 812.4), too_large].into_iter().chain(unfed).chain(others).collect());
    assert_eq!(
        &lines[5..14],
        [
            "with a loader, without uploads",
            "  mode                      batch  workers  prefetch  samples/s  min - max  waiting  GPU",
            "  bf16_params-checkpointed      8        0         0          -          -        -    -  (1)",
            "  bf16_params-checkpointed      8        1         0          -          -        -    -  (1)",
            "  bf16_params-checkpointed      8        2         4        640  576 - 704      12%  93%",
            "  bf16_params-checkpointed     16        0         0          -          -        -    -  (2)",
            "  (1) not run: the program has no `host_batch` to prepare batches with",
            "  (2) not run: a step has 8 samples",
            "",
        ]
    );
}
