//! `docs/absolute.md`: speeds predicted from dimensions compared with measured ones.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, iter};

use anyhow::{Context as _, Result, anyhow, ensure};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{SPEED_ERRORS, SpeedError, TRANSFER_ERROR, plan, speed_interval, with_interval};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::source::Source;
use gpu_tuned_core::workload::Family;
use gpu_tuned_core::{Goal, Kernels, Precision, grouped, three_digits};
use gpu_tuned_project::config::ConfigFile;

use crate::figures::{max, median, min};
use crate::generated::{cells, filled, table};

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("absolute.md");

/// Folder of the data.
const FOLDER: &str = "lab/pages/data/measured";

/// Share of speeds that an interval is to have, 0 to 1.
const COVERED: f64 = 0.9;

pub fn page(root: &Path) -> Result<String> {
    let speeds = Speed::all(root)?;
    let fewest = [SpeedError::Absolute, SpeedError::LaunchBound].map(|error| worst_of_models(&speeds, error).len());
    let fewest = fewest.into_iter().min().unwrap_or_default();
    let parts = [
        ("intervals", intervals(&speeds)?),
        ("fewest", fewest.to_string()),
        ("further", (fewest + 1).to_string()),
        ("kinds", kinds(&speeds)),
        ("speeds", all(&speeds)),
    ];
    Ok(filled(PAGE, &parts))
}

/// A measured speed, with the prediction for the same step.
struct Speed {
    workload: String,
    family: Family,
    gpu: String,
    precision: Precision,
    checkpointing: bool,
    kernels: Kernels,
    cuda_graphs: bool,
    micro_batch: u64,
    accumulation: u64,
    measured: f64,
    predicted: f64,
    interval: Option<[f64; 2]>,
    error: SpeedError,
    /// The constant of the planner that the model was fitted with; empty for a model that judges.
    fitted: String,
    source: String,
}

impl Speed {
    fn all(root: &Path) -> Result<Vec<Self>> {
        let read = |name: &str| {
            let path = root.join(FOLDER).join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let (models, speeds) = (read(ConfigFile::NAME)?, read("speeds.tsv")?);
        let models = ConfigFile::parse(Source { file: ConfigFile::NAME, text: &models });
        let models = models.map_err(|mistakes| anyhow!("{}", mistakes[0]))?;
        let numbered = speeds.lines().enumerate().skip(1);
        numbered
            .map(|(index, line)| Self::new(line, &models).with_context(|| format!("speeds.tsv:{}", index + 1)))
            .collect()
    }

    fn new(line: &str, models: &ConfigFile) -> Result<Self> {
        let cells: Vec<_> = line.split('\t').collect();
        let [workload, gpu, precision, checkpointing, kernels, graphs, batch, times, measured, fitted, source] =
            cells[..]
        else {
            return Err(anyhow!("{} cells", cells.len()));
        };
        let spec = models.workloads.get(workload).with_context(|| format!("there is no model {workload}"))?;
        let profile = ProfileTable::builtin().get(gpu).with_context(|| format!("there is no profile {gpu}"))?;
        let (device, model) = (DeviceFacts::nominal(profile), spec.workload());
        let precision = precision.parse::<Precision>().map_err(|error| anyhow!("{error}"))?;
        let kernels = if kernels == "library" { Kernels::Library } else { Kernels::Burn };
        let (checkpointing, cuda_graphs) = (checkpointing == "yes", graphs == "yes");
        let (micro_batch, accumulation): (u64, u64) = (batch.parse()?, times.parse()?);
        let mut goal = Goal {
            global_batch: Some(micro_batch * accumulation),
            precision: Some(precision.into()),
            kernels: Some(kernels),
            ..Goal::default()
        };
        goal.pins.batch_size = Some(micro_batch);
        goal.pins.gradient_checkpointing = Some(checkpointing);
        goal.pins.cuda_graphs = Some(cuda_graphs);
        let plan = plan(&device, &model, &goal)?;
        let measured = measured.parse()?;
        ensure!(measured > 0.0, "{measured} samples/s");
        Ok(Self {
            workload: workload.to_owned(),
            family: model.family,
            gpu: gpu.to_owned(),
            precision,
            checkpointing,
            kernels,
            cuda_graphs,
            micro_batch,
            accumulation,
            measured,
            predicted: plan.samples_per_s,
            interval: plan.samples_per_s_interval,
            error: plan.samples_per_s_error.context("a predicted speed has an error")?,
            fitted: fitted.to_owned(),
            source: source.to_owned(),
        })
    }

    const fn is_held_out(&self) -> bool {
        self.fitted.is_empty()
    }

    fn ratio(&self) -> f64 {
        self.predicted / self.measured
    }

    /// Factor between the predicted and the measured speed, in either direction.
    fn factor(&self) -> f64 {
        self.ratio().max(1.0 / self.ratio())
    }
}

/// Held-out speeds with this error.
fn held_out(speeds: &[Speed], error: SpeedError) -> impl Iterator<Item = &Speed> {
    speeds.iter().filter(move |speed| speed.is_held_out() && speed.error == error)
}

/// The largest factor of each held-out model.
fn worst_of_models(speeds: &[Speed], error: SpeedError) -> BTreeMap<&str, f64> {
    let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
    for speed in held_out(speeds, error) {
        let factor = worst.entry(&speed.workload).or_insert(1.0);
        *factor = factor.max(speed.factor());
    }
    worst
}

/// The factor that a further model lies within with a probability of [`COVERED`], or the largest where there are too few models.
fn stated(speeds: &[Speed], error: SpeedError) -> Option<f64> {
    let mut worst: Vec<_> = worst_of_models(speeds, error).into_values().collect();
    worst.sort_by(f64::total_cmp);
    let rank = ((worst.len() + 1) as f64 * COVERED).ceil() as usize;
    worst.get(rank.min(worst.len()).checked_sub(1)?).copied()
}

fn intervals(speeds: &[Speed]) -> Result<String> {
    let on = |gpu: &str, error| {
        let profile = ProfileTable::builtin().get(gpu).with_context(|| format!("there is no profile {gpu}"))?;
        let interval = speed_interval(&DeviceFacts::nominal(profile), 1.0, Some(error));
        Ok::<_, anyhow::Error>(interval.context("an error has an interval")?[1])
    };
    let mut rows = Vec::new();
    for (error, _) in SPEED_ERRORS.into_iter().filter(|(error, _)| *error != SpeedError::BetweenGpus) {
        let factors: Vec<_> = held_out(speeds, error).map(Speed::factor).collect();
        let (typical, largest) = median(&factors).zip(stated(speeds, error)).context("there is no held-out speed")?;
        let models = worst_of_models(speeds, error).len();
        let [typical, largest, here, elsewhere] =
            [typical, largest, on("h200", error)?, on("h100-sxm5-80gb", error)?].map(|factor| format!("x{factor:.2}"));
        rows.push(cells![error, models, factors.len(), typical, largest, here, elsewhere]);
    }
    rows.push(cells![SpeedError::BetweenGpus, "-", "-", "-", "-", "-", format!("x{TRANSFER_ERROR:.2}")]);
    let headings =
        ["error", "models", "speeds", "error, median", "nine of ten models", "stated for an H200", "for another GPU"];
    Ok(table(headings, rows))
}

fn kinds(speeds: &[Speed]) -> String {
    let key = |speed: &Speed| {
        let bits = if speed.precision == Precision::F32 { "f32" } else { "16 bits" };
        [speed.family.to_string(), bits.to_owned(), speed.error.to_string()]
    };
    let kinds: BTreeSet<_> = speeds.iter().filter(|speed| speed.is_held_out()).map(key).collect();
    let rows = kinds.iter().map(|kind| {
        let alike = || speeds.iter().filter(|speed| speed.is_held_out() && key(speed) == *kind);
        let ratios: Vec<_> = alike().map(Speed::ratio).collect();
        let models: BTreeSet<_> = alike().map(|speed| &speed.workload).collect();
        let [lowest, typical, highest] = [min(&ratios), median(&ratios), max(&ratios)]
            .map(|ratio| format!("{:.2}", ratio.expect("BUG: a kind has a speed")));
        let [family, bits, error] = kind;
        cells![family, bits, error, models.len(), ratios.len(), lowest, typical, highest]
    });
    table(["kind of network", "precision", "error", "models", "speeds", "lowest", "median", "highest"], rows)
}

fn all(speeds: &[Speed]) -> String {
    let rows = speeds.iter().map(|speed| {
        let ways = [
            (speed.kernels.is_library(), "library"),
            (speed.cuda_graphs, "graphs"),
            (speed.checkpointing, "checkpointing"),
        ];
        let ways = ways.into_iter().filter(|(is_on, _)| *is_on).map(|(_, way)| way.to_owned());
        let mode: Vec<_> = iter::once(speed.precision.to_string()).chain(ways).collect();
        let split = format!("{} x {}", grouped(speed.micro_batch), grouped(speed.accumulation));
        let predicted = with_interval(speed.predicted, speed.interval);
        let (measured, ratio) = (three_digits(speed.measured), format!("{:.2}", speed.ratio()));
        cells![
            speed.workload,
            speed.gpu,
            mode.join(", "),
            split,
            measured,
            predicted,
            ratio,
            speed.fitted,
            speed.source
        ]
    });
    let headings =
        ["model", "GPU", "mode", "micro-batches", "measured, samples/s", "predicted", "ratio", "fitted", "source"];
    table(headings, rows)
}
