//! Published training speeds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::figures::median;

/// Folder of the data.
const FOLDER: &str = "xtask/data/published";

/// Training speeds that are comparable with each other: one workload, number format, and software.
#[derive(Debug)]
pub(super) struct Series {
    pub workload: String,
    pub family: String,
    /// True for a workload by which constants are fitted; false for one that tests them.
    pub is_fitting: bool,
    /// `fp32`, `tf32`, `fp16` or `bf16`.
    pub format: String,
    pub framework: String,
    /// Median speed by profile.
    pub speeds: BTreeMap<String, f64>,
}

/// Rows of a table: cells by column.
pub(super) fn rows(root: &Path, file: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let path = root.join(FOLDER).join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let columns: Vec<_> = lines.next().context("no heading")?.split('\t').map(str::to_owned).collect();
    let row = |(number, line): (usize, &str)| {
        let cells: Vec<_> = line.split('\t').map(str::to_owned).collect();
        ensure!(cells.len() == columns.len(), "{file}, line {}: {} cells", number + 2, cells.len());
        Ok(columns.iter().cloned().zip(cells).collect())
    };
    lines.enumerate().map(row).collect()
}

/// Training speeds; without the rows that their sources put in doubt unless `with_doubtful`.
pub(super) fn training(root: &Path, with_doubtful: bool) -> Result<Vec<Series>> {
    let mut found: BTreeMap<[String; 3], Series> = BTreeMap::new();
    let mut speeds: BTreeMap<([String; 3], String), Vec<f64>> = BTreeMap::new();
    for row in rows(root, "training.tsv")? {
        let value: f64 = row["value"].parse().with_context(|| format!("a value of {}", row["workload"]))?;
        ensure!(value > 0.0, "{}: {value}", row["workload"]);
        if !row["doubt"].is_empty() && !with_doubtful {
            continue;
        }
        let speed = if row["unit"].contains("lower is better") { 1.0 / value } else { value };
        let key = ["workload", "format", "framework"].map(|column| row[column].clone());
        speeds.entry((key.clone(), row["gpu"].clone())).or_default().push(speed);
        let [workload, format, framework] = key.clone();
        let (family, is_fitting) = (row["family"].clone(), row["half"] == "fit");
        let series = Series { workload, family, is_fitting, format, framework, speeds: BTreeMap::new() };
        found.entry(key).or_insert(series);
    }
    for ((key, gpu), values) in speeds {
        found.entry(key).and_modify(|series| series.speeds.extend(median(&values).map(|speed| (gpu, speed))));
    }
    Ok(found.into_values().collect())
}
