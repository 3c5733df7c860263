//! Losses of the library's kernels beside those of plain Burn loops in f32, over seeds.

use std::collections::BTreeMap;
use std::{fs, path::PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Seeds that make a band.
const SEEDS: usize = 3;

/// Options of `band`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Files with the lines of `baseline`
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// A run of `baseline` with a result.
#[derive(Deserialize)]
struct Run {
    #[serde(flatten)]
    compared: Compared,
    seed: u64,
    plain: bool,
    #[serde(flatten)]
    settings: Settings,
    loss: f64,
}

/// Equal among the runs of a band.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Compared {
    model: String,
    batch: u64,
    samples: u64,
    rate: f64,
}

/// Settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Settings {
    library: bool,
    precision: String,
    cuda_graphs: bool,
}

impl Settings {
    fn is_burn_in_f32(&self) -> bool {
        !self.library && self.precision == "f32"
    }
}

/// Losses of Burn's loop by seed, and of the runs with the library.
#[derive(Debug, Serialize)]
struct Band {
    run: &'static str,
    #[serde(flatten)]
    compared: Compared,
    burn: BTreeMap<u64, f64>,
    lowest: f64,
    highest: f64,
    library: Vec<Beside>,
}

/// Runs of some settings beside a band.
#[derive(Debug, Serialize)]
struct Beside {
    #[serde(flatten)]
    settings: Settings,
    losses: BTreeMap<u64, f64>,
    /// Largest distance of a loss from that of the loop with the same seed.
    from_same_seed: f64,
    /// True if that is less than the width of the band: the kernels change the loss less than a seed does.
    within: bool,
}

/// Prints a line for each model.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut text = String::new();
    for file in &arguments.files {
        text += &fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let bands = bands(&runs(&text)?);
    ensure!(!bands.is_empty(), "no model has plain loops of {SEEDS} seeds");
    for band in &bands {
        println!("{}", serde_json::to_string(band)?);
    }
    let within = bands.iter().flat_map(|band| &band.library).all(|beside| beside.within);
    ensure!(within, "some losses are outside of their band");
    Ok(())
}

/// Runs of `baseline` with a result; other lines are left out.
fn runs(text: &str) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_str(line)?;
        if line["run"] == "baseline" && line["loss"].is_number() {
            runs.push(serde_json::from_value(line)?);
        }
    }
    Ok(runs)
}

/// A band for all runs with equal models and samples, if there are enough seeds.
fn bands(runs: &[Run]) -> Vec<Band> {
    let mut groups: Vec<&Compared> = Vec::new();
    for run in runs {
        if !groups.contains(&&run.compared) {
            groups.push(&run.compared);
        }
    }
    groups.into_iter().filter_map(|compared| Band::new(compared, runs)).collect()
}

impl Band {
    fn new(compared: &Compared, runs: &[Run]) -> Option<Self> {
        let runs = || runs.iter().filter(|run| run.compared == *compared);
        let burn: BTreeMap<u64, f64> =
            runs().filter(|run| run.plain && run.settings.is_burn_in_f32()).map(|run| (run.seed, run.loss)).collect();
        if burn.len() < SEEDS {
            return None;
        }
        let lowest = burn.values().copied().fold(f64::INFINITY, f64::min);
        let highest = burn.values().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut library: Vec<Beside> = Vec::new();
        for run in runs().filter(|run| run.settings.library) {
            if !library.iter().any(|beside| beside.settings == run.settings) {
                let of_settings = runs().filter(|other| other.settings == run.settings);
                let losses: BTreeMap<u64, f64> = of_settings.map(|run| (run.seed, run.loss)).collect();
                let pairs = losses.iter().filter_map(|(seed, loss)| Some((loss - burn.get(seed)?).abs()));
                let (settings, from_same_seed) = (run.settings.clone(), pairs.fold(0.0, f64::max));
                let within = from_same_seed < highest - lowest;
                library.push(Beside { settings, losses, from_same_seed, within });
            }
        }
        Some(Self { run: "band", compared: compared.clone(), burn, lowest, highest, library })
    }
}

#[cfg(test)]
mod tests {
    use super::{bands, runs};

    fn line(model: &str, seed: u64, kernels: &str, loss: f64) -> String {
        let (plain, library, precision) = match kernels {
            "burn" => (true, false, "f32"),
            _ => (false, true, kernels),
        };
        format!(
            r#"{{"run":"baseline","model":"{model}","plain":{plain},"library":{library},"precision":"{precision}","batch":64,
            "cuda_graphs":false,"samples":640,"rate":0.5,"seed":{seed},"loss":{loss},"samples_per_second":1.0}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn losses_are_compared_with_those_of_burn_for_the_same_seed() {
        let lines = [
            line("gpt", 0, "burn", 1.5),
            line("gpt", 1, "burn", 1.25),
            line("gpt", 2, "burn", 1.75),
            line("gpt", 0, "f32", 1.5625),
            line("gpt", 1, "f32", 1.25),
            line("gpt", 0, "mixed_bf16", 1.875),
            line("gpt", 1, "mixed_bf16", 1.75),
            line("vit", 0, "burn", 0.5),
            r#"{"run":"peer","model":"gpt"}"#.to_owned(),
            r#"{"run":"baseline","model":"gpt","message":"lost"}"#.to_owned(),
        ];
        let found = bands(&runs(&lines.join("\n")).expect("lines"));
        let [band] = &found[..] else { panic!("{found:?}") };
        assert_eq!((band.compared.model.as_str(), band.lowest, band.highest), ("gpt", 1.25, 1.75));
        let found: Vec<_> = band
            .library
            .iter()
            .map(|beside| (&*beside.settings.precision, beside.from_same_seed, beside.within))
            .collect();
        assert_eq!(found, [("f32", 0.0625, true), ("mixed_bf16", 0.5, false)]);
    }

    #[test]
    fn a_later_run_of_a_seed_replaces_the_earlier_one_and_other_samples_are_another_band() {
        let mut lines: Vec<_> = (0..3).map(|seed| line("gpt", seed, "burn", 1.0 + seed as f64)).collect();
        lines.push(line("gpt", 2, "burn", 1.5));
        lines.push(line("gpt", 0, "f32", 9.0).replace("640", "320"));
        let found = bands(&runs(&lines.join("\n")).expect("lines"));
        assert!(found.len() == 1 && found[0].library.is_empty(), "{found:?}");
        assert_eq!((found[0].lowest, found[0].highest), (1.0, 2.0));
    }
}
