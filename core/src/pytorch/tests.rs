use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use toml::Table;

use super::{Layout, Loss, OptimizerState, Run, Sharding, Weights, peak};
use crate::device::DeviceFacts;
use crate::profile::ProfileTable;
use crate::workload::{Mlp, ModelSpec, Norm, Positions, Training, Transformer, WorkloadSpec};
use crate::{Bytes, Precision};

/// Published figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    models: BTreeMap<String, ModelSpec>,
    sources: Vec<Source>,
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    source: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    name: String,
    address: String,
    date: String,
    unit: Unit,
    measure: Measure,
    context_mib: Option<u64>,
    unknown: Option<String>,
    #[serde(default)]
    fitted: bool,
    #[serde(default)]
    training: Table,
    #[serde(default)]
    run: Table,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    model: String,
    seq: u64,
    #[serde(default)]
    training: Table,
    #[serde(default)]
    run: Table,
    peak: f64,
    #[serde(default)]
    in_book: bool,
}

#[derive(Clone, Copy, Deserialize)]
enum Unit {
    #[serde(rename = "GB")]
    Gigabytes,
    #[serde(rename = "GiB")]
    Gibibytes,
    #[serde(rename = "MiB")]
    Mebibytes,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Measure {
    Allocated,
    Reserved,
    ReservedFreely,
    Device,
}

fn merged<T: serde::de::DeserializeOwned>(shared: &Table, own: &Table) -> T {
    let mut all = shared.clone();
    all.extend(own.clone());
    all.try_into().expect("the settings of a row")
}

impl Source {
    fn estimate(&self, row: &Row, models: &BTreeMap<String, ModelSpec>) -> f64 {
        let mut model = models[&row.model].clone();
        let ModelSpec::Transformer(transformer) = &mut model else { panic!("{}: no transformer", row.model) };
        transformer.seq = row.seq;
        let training: Training = merged(&self.training, &row.training);
        let run: Run = merged(&self.run, &row.run);
        let estimated = peak(&WorkloadSpec { model, training }, &run).expect("a transformer");
        let mut device = DeviceFacts::nominal(&ProfileTable::builtin_profile("a100-sxm4-80gb").expect("a profile"));
        device.context = self.context_mib.map_or(device.context, Bytes::from_mib);
        let bytes = match self.measure {
            Measure::Allocated => estimated.allocated,
            Measure::Reserved => estimated.reserved,
            Measure::ReservedFreely => estimated.reserved_freely.min(device.memory_available),
            Measure::Device => estimated.on_device(&device),
        };
        bytes.0 as f64 / self.unit.bytes()
    }
}

impl Unit {
    const fn bytes(self) -> f64 {
        match self {
            Self::Gigabytes => 1e9,
            Self::Gibibytes => (1_u64 << 30) as f64,
            Self::Mebibytes => (1_u64 << 20) as f64,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Gigabytes => "GB",
            Self::Gibibytes => "GiB",
            Self::Mebibytes => "MiB",
        }
    }
}

impl Row {
    /// The row's settings in words, for the book.
    fn method(&self, source: &Source) -> String {
        let (training, run): (Training, Run) =
            (merged(&source.training, &self.training), merged(&source.run, &self.run));
        let adapters = training.lora_rank.map(|rank| match run.frozen {
            Weights::Full | Weights::Half => format!("LoRA {rank}"),
            Weights::Int8 => format!("LoRA {rank} on 8 bits"),
            Weights::Nf4 | Weights::Nf4Double => format!("LoRA {rank} on NF4"),
        });
        let method = adapters.unwrap_or_else(|| match run.precision {
            Precision::F32 => "fp32".to_owned(),
            Precision::Bf16Params => "pure bf16".to_owned(),
            Precision::MixedBf16 | Precision::MixedF16 => "mixed precision".to_owned(),
        });
        let parts = [
            (run.checkpointing && !run.offloads, "checkpointing"),
            (run.offloads, "checkpointing with offloading"),
            (run.state != OptimizerState::Full, "8-bit state"),
            (run.loss == Loss::Chunked, "chunked loss"),
            (run.sharding == Sharding::Zero3, "ZeRO-3"),
            (run.sharding == Sharding::Fsdp, "FSDP"),
        ];
        let parts = parts.into_iter().filter(|(is_given, _)| *is_given).map(|(_, part)| part.to_owned());
        let devices = (run.devices > 1).then(|| format!("{} GPUs", run.devices));
        let parts: Vec<String> = core::iter::once(method).chain(parts).chain(devices).collect();
        format!("{} x {} | {}", run.micro_batch, self.seq, parts.join(", "))
    }
}

/// Errors of all rows, and the table of the book.
fn compared() -> (Vec<f64>, String) {
    let published: Published = toml::from_str(include_str!("published_memory.toml")).expect("the data");
    assert!(published.left_out.iter().all(|one| !one.source.is_empty() && !one.reason.is_empty()));
    let mut errors = Vec::new();
    let mut book = String::new();
    for source in &published.sources {
        assert!(source.address.starts_with("https://") && !source.date.is_empty(), "{}", source.name);
        println!("{} ({}) {}", source.name, source.date, source.unknown.as_deref().unwrap_or_default());
        for (at, row) in source.rows.iter().enumerate() {
            let is_fitted = source.fitted && at % 2 == 0;
            let (estimated, unit) = (source.estimate(row, &published.models), source.unit.name());
            let error = estimated / row.peak - 1.0;
            let line = format!("{} | {} | {} {unit} | {estimated:.1} {unit}", row.model, row.method(source), row.peak);
            println!("{:+5.0}%  {line}{}", 100.0 * error, if is_fitted { " (fitted)" } else { "" });
            if row.in_book {
                let _ = writeln!(book, "| {line} | [{}]({}) |", source.name, source.address);
            }
            if !is_fitted {
                errors.push(error.abs());
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    (errors, book)
}

#[test]
fn peaks_are_near_those_published_and_in_the_book() {
    let (errors, table) = compared();
    let at = |share: f64| errors[(errors.len() as f64 * share) as usize];
    let (count, median, most, worst) = (errors.len(), at(0.5), at(0.9), errors[errors.len() - 1]);
    let summary = format!(
        "{count} published figures that were not used to fit: error {:.0}% in the median, at most {:.0}% in nine of ten, {:.0}% at worst",
        100.0 * median,
        100.0 * most,
        100.0 * worst
    );
    assert!(median <= 0.08 && most <= 0.25, "{summary}");
    println!("{summary}");
    let book = include_str!("../../../docs/optimize.md");
    for line in table.lines().chain([summary.as_str()]) {
        assert!(book.contains(line), "docs/optimize.md lacks a line: replace the table by\n{table}{summary}");
    }
}

#[test]
fn a_layer_keeps_what_its_published_formula_counts() {
    // Korthikanti et al., 2022, equation 1: s b h (34 + 5 a s / h) bytes, with 16-bit values.
    let model = Transformer { heads: Some(16), ..Transformer::new(1, 1024, 1, 2048) };
    let spec = WorkloadSpec::from(model.clone());
    let run = Run { micro_batch: 1, precision: Precision::Bf16Params, ..Run::default() };
    let layout = Layout::new(&spec, &model, &run);
    assert!((layout.layer() - 1024.0 * (34.0 + 5.0 * 16.0 * 2048.0 / 1024.0)).abs() < 1e-6);
}

#[test]
fn states_are_those_of_the_paper_on_zero() {
    // Rajbhandari et al., 2020, figure 1: 7.5 billion parameters on 64 GPUs, in GB.
    let model = Transformer { vocab: 1, ..Transformer::new(1, 1024, 1, 16) };
    let spec = WorkloadSpec::from(model.clone());
    let values = spec.parameters() as f64;
    for (sharding, gigabytes) in
        [(Sharding::Zero1, 31.4), (Sharding::Zero2, 16.6), (Sharding::Zero3, 1.9), (Sharding::Fsdp, 1.9)]
    {
        let run = Run { precision: Precision::MixedF16, devices: 64, sharding, ..Run::default() };
        let state = Layout::new(&spec, &model, &run).state();
        let ours = (state.fixed + state.gradients) / values * 7.5;
        assert!((ours - gigabytes).abs() < 0.06, "{sharding:?}: {ours:.2} GB against {gigabytes}");
    }
}

#[test]
fn hybrid_sharding_has_the_state_of_a_node() {
    // PyTorch, `ShardingStrategy`: HYBRID_SHARD shards within a node, and replicates over nodes.
    let model = Transformer { vocab: 1, ..Transformer::new(1, 1024, 1, 16) };
    let spec = WorkloadSpec::from(model.clone());
    let state = |devices: u64, shards: u64, sharding: Sharding| {
        let run = Run { precision: Precision::MixedBf16, devices, shards, sharding, ..Run::default() };
        let state = Layout::new(&spec, &model, &run).state();
        state.fixed + state.gradients
    };
    assert_eq!(state(64, 8, Sharding::Fsdp).to_bits(), state(8, 0, Sharding::Fsdp).to_bits());
    assert!(state(64, 8, Sharding::Fsdp) > 7.0 * state(64, 0, Sharding::Fsdp));
}

/// Llama 3.2 1B on an H200, evaluated after a step in batches of 8 x 2048 tokens by `Trainer` of transformers 5.17 and PyTorch 2.11.
#[test]
fn evaluation_has_the_measured_peak() {
    let model = Transformer {
        heads: Some(32),
        kv_heads: Some(8),
        d_ff: Some(8192),
        gated: true,
        norm: Norm::Rms,
        positions: Positions::Rotary,
        bias: false,
        dropout: false,
        ..Transformer::new(16, 2048, 128_256, 2048)
    };
    let spec = WorkloadSpec::from(model);
    for (precision, measured) in
        [(Precision::Bf16Params, 26.60), (Precision::MixedBf16, 35.87), (Precision::F32, 29.66)]
    {
        let run = Run { micro_batch: 1, precision, eval_batch: 8, flash_attention: true, ..Run::default() };
        let gib = peak(&spec, &run).expect("a transformer").allocated.0 as f64 / f64::from(1 << 30);
        assert!((gib / measured - 1.0).abs() < 0.05, "{precision}: {gib} of {measured}");
    }
}

#[test]
fn gpt_2_at_the_settings_of_nanogpt_fits_24_gib() {
    let model = Transformer { dropout: false, bias: false, ..Transformer::new(12, 768, 50304, 1024) };
    let run = Run {
        micro_batch: 12,
        precision: Precision::MixedBf16,
        flash_attention: true,
        accumulates: true,
        ..Run::default()
    };
    let needed = peak(&model.into(), &run).expect("a transformer").reserved;
    assert!(needed > Bytes::from_mib(12 << 10) && needed < Bytes::from_mib(23 << 10), "{needed}");
}

/// GB at the loss and in the backward pass of 1 and 4 sequences, by PyTorch 2.11 on an H200: autocast in bf16 over fp32 or bf16 weights, the
/// same with reentrant and other checkpointing. `torch.cuda.max_memory_allocated()` has 0.1 GB for cuBLAS beside them.
#[test]
fn casts_of_autocast_are_those_of_a_run() {
    let model = Transformer::new(16, 2048, 32_000, 512);
    let plain = Transformer { positions: Positions::Rotary, bias: false, dropout: false, tied_head: false, ..model };
    let llama = Transformer { heads: Some(16), d_ff: Some(5504), gated: true, norm: Norm::Rms, ..plain };
    let rows = [
        (Some(Weights::Full), false, [6.503, 9.033]),
        (Some(Weights::Full), true, [4.339, 5.241]),
        (Some(Weights::Half), false, [2.815, 5.234]),
        (Some(Weights::Half), true, [2.266, 3.067]),
        (None, false, [15.354, 17.999]),
        (None, true, [15.356, 15.467]),
    ];
    for (frozen, checkpointing, peaks) in rows {
        for (micro_batch, measured) in [1, 4].into_iter().zip(peaks) {
            let training = Training { lora_rank: frozen.map(|_| 16), ..Training::default() };
            let spec = WorkloadSpec { model: llama.clone().into(), training };
            let frozen = frozen.unwrap_or_default();
            let (precision, flash_attention) = (Precision::MixedBf16, true);
            let run = Run { micro_batch, precision, frozen, flash_attention, checkpointing, ..Run::default() };
            let estimated = peak(&spec, &run).expect("a transformer").allocated.0 as f64 / 1e9;
            let error = estimated / (measured - 0.1) - 1.0;
            println!("{frozen:?}, checkpointing {checkpointing}, {micro_batch}: {:+.1}%", 100.0 * error);
            assert!(error.abs() < 0.04, "{run:?}: {estimated} for {measured}");
        }
    }
}

#[test]
fn other_models_have_no_estimate() {
    let experts = Transformer { experts: Some(8), ..Transformer::new(12, 768, 50257, 1024) };
    assert_eq!(peak(&experts.into(), &Run::default()), None);
    assert_eq!(peak(&Mlp { widths: vec![784, 10] }.into(), &Run::default()), None);
}

/// Published runs of llm-foundry in 16 bits, each with a micro-batch that fits its GPU.
#[test]
fn published_micro_batches_of_llm_foundry_fit() {
    let widths = |name: &str| match name {
        "125m" => (12, 768, 12),
        "350m" => (24, 1024, 16),
        "760m" => (24, 1536, 12),
        "1b" => (24, 2048, 16),
        "3b" => (32, 2560, 20),
        "7b" => (32, 4096, 32),
        "13b" => (40, 5120, 40),
        "30b" => (48, 7168, 56),
        _ => (80, 8192, 64),
    };
    let (mut all, mut over) = (0, Vec::new());
    for line in include_str!("published_runs.csv").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        let ((layers, width, heads), seq) = (widths(fields[0]), number(1));
        let mpt = Transformer::new(layers, width, 50368, seq);
        let model = Transformer { heads: Some(heads), dropout: false, bias: false, ..mpt };
        let run = Run {
            micro_batch: number(4),
            precision: Precision::MixedBf16,
            flash_attention: true,
            checkpointing: fields[7] == "True",
            accumulates: number(5) > 1,
            loss: Loss::InPlace,
            foreach: true,
            devices: number(2),
            sharding: if fields[6] == "FULL_SHARD" { Sharding::Fsdp } else { Sharding::FsdpGradients },
            ..Run::default()
        };
        let gpu = match fields[3] {
            "a100_40gb" => "a100-sxm4-40gb",
            "a100_80gb" => "a100-sxm4-80gb",
            _ => "h100-sxm5-80gb",
        };
        let device = DeviceFacts::nominal(&ProfileTable::builtin_profile(gpu).expect("a profile"));
        all += 1;
        if peak(&model.into(), &run).expect("a transformer").on_device(&device) > device.memory_available {
            over.push(line);
        }
    }
    assert_eq!(all, 209);
    assert!(over.len() * 20 <= all, "{} of {all} do not fit: {over:#?}", over.len());
}
