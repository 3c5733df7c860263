//! The summary at the end.

use std::fmt::Write;

use gpu_tuned_observe::monitor::{GPU_FIGURES, GpuSummary, HOST_FIGURES, Stats, Summary};

use crate::output::{BOLD, MARKED, PLAIN, Table, one_line, or_dash, styled};
use crate::view::readable;
use gpu_tuned_observe::monitor::amounts::{clock, energy, gib, reason, short};

pub(super) fn text(summary: &Summary, trouble: &[String]) -> String {
    let mut text = format!("\n{}\n", styled(BOLD, format!("Watched for {}", clock(summary.seconds))));
    for gpu in &summary.gpus {
        text.push_str(&of_gpu(gpu, summary.seconds));
    }
    if summary.gpus.is_empty() {
        // The remedy was printed at the start.
        let why = trouble.first().and_then(|trouble| trouble.split(';').next()).unwrap_or("there is none");
        let _ = writeln!(text, "\n{}", styled(MARKED, format!("No GPU was watched: {}", one_line(why))));
    }
    if !summary.gpus.is_empty() && !trouble.is_empty() {
        let lines = trouble.iter().map(|trouble| format!("{}\n", styled(MARKED, one_line(trouble))));
        text.push('\n');
        text.extend(lines);
    }
    let host = HOST_FIGURES.iter().filter_map(|figure| Some((figure.key, summary.host.get(figure.key)?)));
    text.push_str(&table("Host", host));
    if let Some(steps) = &summary.steps {
        let heading = format!("Steps: {}, {} samples", steps.steps, steps.samples);
        text.push_str(&table(&heading, [("samples/s", &steps.samples_per_s)].into_iter()));
        if let Some(loss) = steps.last_loss {
            let _ = writeln!(text, "  loss {} at the end", short(loss));
        }
    }
    text + &table("Values", summary.values.iter().map(|(name, stats)| (name.as_str(), stats)))
}

fn of_gpu(gpu: &GpuSummary, seconds: f64) -> String {
    let slot = gpu.gpu.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
    let name = gpu.gpu.name.as_deref().unwrap_or("a GPU without a name");
    let profile = gpu.gpu.profile.as_deref().map(|profile| format!(" ({profile})")).unwrap_or_default();
    let heading = format!("GPU {}{slot} {name}{profile}", gpu.gpu.gpu);
    let figures = GPU_FIGURES.iter().filter_map(|figure| Some((figure.key, gpu.figures.get(figure.key)?)));
    let mut text = table(&heading, figures);
    if let Some(total) = gpu.gpu.memory_total_bytes {
        let shared = if gpu.gpu.unified_memory { ", shared with the host" } else { "" };
        let _ = writeln!(text, "  of {:.2} GiB of memory{shared}", gib(total as f64));
    }
    if let Some(joules) = gpu.energy_j {
        let _ = writeln!(text, "  {} of energy", energy(joules));
    }
    for (throttle, held) in &gpu.throttled_s {
        let share = if seconds > 0.0 { held / seconds * 100.0 } else { 0.0 };
        let said = format!("clocks throttled for {} ({share:.0}%): {}", clock(*held), reason(*throttle));
        let _ = writeln!(text, "  {}", styled(MARKED, said));
    }
    if gpu.lost_polls > 0 {
        let _ = writeln!(text, "  {}", styled(MARKED, format!("no answer to {} polls", gpu.lost_polls)));
    }
    text
}

fn table<'s>(heading: &str, figures: impl Iterator<Item = (&'s str, &'s Stats)>) -> String {
    let mut table = Table::new(2, ["", ">mean", ">min", ">max", ">std. dev."]);
    let mut is_empty = true;
    for (key, stats) in figures {
        let (name, scale) = readable(key);
        let number = |figure: f64| short(figure / scale);
        let [mean, min, max] = [stats.mean, stats.min, stats.max].map(number);
        let deviation = or_dash(stats.standard_deviation.map(number));
        table.row(PLAIN, [format!("{name:<26}"), mean, min, max, deviation], "");
        is_empty = false;
    }
    if is_empty { String::new() } else { format!("\n{}\n{}", styled(BOLD, one_line(heading)), table.print()) }
}
