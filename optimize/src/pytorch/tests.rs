use std::collections::BTreeMap;
use std::fmt::Write as _;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{ModelSpec, Training, Transformer, WorkloadSpec};
use serde::Deserialize;
use toml::Table;

use super::{Run, peak};

/// Published figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    models: BTreeMap<String, ModelSpec>,
    sources: Vec<Source>,
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
        let context = || match self.context_mib {
            Some(mib) => (mib << 20) as f64,
            None => {
                DeviceFacts::nominal(&ProfileTable::builtin_profile("a100-sxm4-80gb").expect("a profile")).context.0
                    as f64
            }
        };
        let bytes = match self.measure {
            Measure::Allocated => estimated.allocated.0 as f64,
            Measure::Reserved => estimated.reserved.0 as f64,
            Measure::Device => estimated.reserved.0 as f64 + context(),
        };
        bytes / self.unit.bytes()
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
}

#[test]
fn peaks_are_near_those_published() {
    let published: Published = toml::from_str(include_str!("../../tests/published_memory.toml")).expect("the data");
    let mut table = String::new();
    let mut errors = Vec::new();
    for source in &published.sources {
        assert!(source.address.starts_with("https://") && !source.date.is_empty(), "{}", source.name);
        let _ = writeln!(table, "{} ({}){}", source.name, source.date, source.unknown.as_deref().map_or("", |_| " *"));
        for row in &source.rows {
            let estimated = source.estimate(row, &published.models);
            let error = estimated / row.peak - 1.0;
            let _ = writeln!(
                table,
                "  {:18} seq {:5} {:10.2} {estimated:10.2} {:+6.0}%  {} {}",
                row.model,
                row.seq,
                row.peak,
                100.0 * error,
                row.training,
                row.run.to_string().replace('\n', ", ")
            );
            errors.push(error.abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    println!("{table}{} rows, median error {:.1}%, worst {:.1}%", errors.len(), 100.0 * median, 100.0 * worst);
    assert!(errors.len() >= 25, "{} rows", errors.len());
    assert!(median <= 0.25 && worst <= 0.5, "median {median:.3}, worst {worst:.3}\n{table}");
}

#[test]
fn a_layer_keeps_what_its_published_formula_counts() {
    // Korthikanti et al., 2022, equation 1: s b h (34 + 5 a s / h) bytes, with 16-bit values.
    let model = Transformer { heads: Some(16), ..Transformer::new(1, 1024, 1, 2048) };
    let spec = WorkloadSpec::from(model.clone());
    let run = Run { micro_batch: 1, precision: gpu_tuned_core::Precision::Bf16Params, ..Run::default() };
    let layout = super::Layout::new(&spec, &model, &run);
    assert!((layout.layer() - 1024.0 * (34.0 + 5.0 * 16.0 * 2048.0 / 1024.0)).abs() < 1e-6);
}
