//! `docs/speed.md`: a plain Burn loop, this library and PyTorch on the same GPU.

mod run;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use gpu_tuned_core::Bytes;

use crate::figures::{difference, folded, geometric_mean, mib, or_dash, three_digits};
use crate::markdown::{cells, filled, table};
use crate::results::{FOLDER, folders_with, lines};
use run::{Model, Run};

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("page.md");

/// The file of raw lines in the folder of a device.
const FILE: &str = "side-by-side.jsonl";

/// Generates the page, with a section for each device.
pub(crate) fn page(root: &Path) -> Result<String> {
    let mut sections = String::new();
    for folder in folders_with(&root.join(FOLDER), FILE)? {
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        sections += &section(&lines(&path.to_string_lossy(), &text)?);
    }
    let devices = if sections.is_empty() { "Not measured yet.".to_owned() } else { sections };
    Ok(filled(PAGE, &[("devices", devices)]))
}

/// Formats the runs of a device.
fn section(runs: &[Run]) -> String {
    let models = Model::all(runs);
    let title = runs.iter().find_map(|run| Some((run.device.as_ref()?, run.torch.as_ref()?)));
    let title = title.map_or_else(|| "## GPU".to_owned(), |(gpu, torch)| format!("## {gpu}, PyTorch {torch}"));
    let gains: Vec<f64> = models.iter().filter_map(|model| model.gain("planned")).collect();
    let mean = or_dash(geometric_mean(&gains), |mean| format!("x{mean:.2}"));
    format!(
        "{title}\n\n### Planned settings\n\nThe geometric mean of the gains is {mean} over {} models. *Loss* is the mean over \
         the last tenth of the steps, after the same number of samples. *Settings* are micro-batch x \
         accumulation, precision and CUDA graphs. *Reserved* is the memory of the pools in MiB.\n\n{}\n\
         ### Each setting alone\n\nGains over the plain loop. A dash marks a setting that the plan leaves as it is.\n\n{}\n\
         ### PyTorch\n\nSamples/s with micro-batches of 64. *bf16* is autocast, *compiled* is bf16 with `torch.compile`. TF32 is \
         allowed, as in Burn. *Burn / PyTorch* compares the plain loop with TF32, and planned \
         settings with the fastest run of as many samples in a step.\n\n{}\n{}",
        gains.len(),
        planned(&models),
        alone(&models),
        peers(&models),
        folded("All runs", &every_run(runs)),
    )
}

fn planned(models: &[Model]) -> String {
    let headings = [
        "model",
        "plain, samples/s",
        "planned, samples/s",
        "gain",
        "settings",
        "loss, plain",
        "loss, planned",
        "reserved",
    ];
    let row = |model: &Model| {
        let [plain, planned] = ["plain", "planned"].map(|way| model.baseline(way));
        let rate = |run: Option<&Run>| or_dash(run.and_then(|run| run.samples_per_second), three_digits);
        let loss = |run: Option<&Run>| or_dash(run.and_then(|run| run.loss), |loss| format!("{loss:.4}"));
        let reserved = |run: Option<&Run>| or_dash(run.and_then(|run| run.reserved_bytes), |bytes| mib(Bytes(bytes)));
        let lower = model.loss_difference().map(|apart| format!(" ({})", difference(apart))).unwrap_or_default();
        cells![
            model.name,
            rate(plain),
            rate(planned),
            gain(model.gain("planned")),
            or_dash(planned, Run::settings),
            loss(plain),
            loss(planned) + &lower,
            format!("{} to {}", reserved(plain), reserved(planned)),
        ]
    };
    table(headings, models.iter().map(row))
}

fn alone(models: &[Model]) -> String {
    let row = |model: &Model| {
        let [batch, precision, graphs, all] =
            ["batch", "precision", "graphs", "planned"].map(|way| gain(model.gain(way)));
        cells![model.name, batch, precision, graphs, all]
    };
    table(["model", "micro-batch", "precision", "CUDA graphs", "all"], models.iter().map(row))
}

fn peers(models: &[Model]) -> String {
    let row = |model: &Model| {
        let peer = |way| model.peer(way);
        let fastest = model.fastest_peer();
        let over = |way, other: Option<f64>| {
            or_dash(model.rate(way).zip(other), |(burn, other)| format!("{:.2}", burn / other))
        };
        let rate = |way| or_dash(peer(way), three_digits);
        let best = or_dash(model.best_peer(), |best| {
            format!("{} at {}, {}", or_dash(best.samples_per_second, three_digits), best.batch, best.way)
        });
        cells![
            model.name,
            rate("tf32"),
            rate("bf16"),
            rate("compiled"),
            best,
            over("plain", peer("tf32")),
            over("planned", fastest)
        ]
    };
    let headings = [
        "model",
        "TF32",
        "bf16",
        "compiled",
        "best of other sizes",
        "Burn / PyTorch, plain",
        "Burn / PyTorch, planned",
    ];
    table(headings, models.iter().map(row))
}

fn every_run(runs: &[Run]) -> String {
    let row = |run: &Run| {
        let rate = |rate| or_dash(rate, three_digits);
        let range = format!("{} to {}", rate(run.lowest), rate(run.highest));
        let median = run.message.clone().unwrap_or_else(|| rate(run.samples_per_second));
        cells![
            run.model,
            if run.program == run::PEER { "PyTorch" } else { "Burn" },
            run.way,
            run.batch,
            median,
            range,
            or_dash(run.first_step_seconds, |seconds| format!("{seconds:.1}")),
            or_dash(run.reserved_bytes, |bytes| mib(Bytes(bytes)))
        ]
    };
    let headings =
        ["model", "", "run", "samples in a step", "samples/s, median", "min to max", "first step, s", "reserved, MiB"];
    table(headings, runs.iter().map(row))
}

fn gain(factor: Option<f64>) -> String {
    or_dash(factor, |factor| format!("x{factor:.2}"))
}
