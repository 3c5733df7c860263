//! The summary at the end.

use std::fmt::Write;

use gpu_tuned_observe::monitor::{GPU_FIGURES, GpuSummary, HOST_FIGURES, Stats, Summary};

use super::amounts::{clock, energy, gib, reason, short};
use crate::output::{BOLD, MARKED, PLAIN, Table, styled};

/// Display of a figure: name, unit, factor, and digits.
struct Shown {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    scale: f64,
    digits: usize,
}

const fn shown(key: &'static str, name: &'static str, unit: &'static str, scale: f64, digits: usize) -> Shown {
    Shown { key, name, unit, scale, digits }
}

const GIB: f64 = 1.0 / 1_073_741_824.0;

const SHOWN: [Shown; 17] = [
    shown("utilisation_percent", "utilisation", "%", 1.0, 1),
    shown("sm_activity_percent", "SM activity", "%", 1.0, 1),
    shown("sm_occupancy_percent", "SM occupancy", "%", 1.0, 1),
    shown("tensor_activity_percent", "tensor cores", "%", 1.0, 1),
    shown("dram_activity_percent", "memory bandwidth", "%", 1.0, 1),
    shown("memory_activity_percent", "memory activity", "%", 1.0, 1),
    shown("memory_used_bytes", "memory used", "GiB", GIB, 2),
    shown("power_w", "power", "W", 1.0, 1),
    shown("sm_clock_mhz", "SM clock", "MHz", 1.0, 0),
    shown("temperature_c", "temperature", "°C", 1.0, 1),
    shown("pcie_to_gpu_bytes_per_s", "PCIe to the GPU", "MB/s", 1e-6, 1),
    shown("pcie_from_gpu_bytes_per_s", "PCIe from the GPU", "MB/s", 1e-6, 1),
    shown("cpu_percent", "processors", "%", 1.0, 1),
    shown("process_cpu_percent", "program", "% of a processor", 1.0, 1),
    shown("process_memory_bytes", "program's memory", "GiB", GIB, 2),
    shown("process_busiest_thread_percent", "busiest thread", "%", 1.0, 1),
    shown("samples_per_s", "samples per second", "", 1.0, 1),
];

pub(super) fn text(summary: &Summary, trouble: &[String]) -> String {
    let mut text = format!("\n{}\n", styled(BOLD, format!("Watched for {}", clock(summary.seconds))));
    for gpu in &summary.gpus {
        text.push_str(&of_gpu(gpu, summary.seconds));
    }
    if summary.gpus.is_empty() {
        // The remedy was printed at the start.
        let why = trouble.first().and_then(|trouble| trouble.split(';').next()).unwrap_or("there is none");
        let _ = writeln!(text, "\n{}", styled(MARKED, format!("No GPU was watched: {why}")));
    }
    if !summary.gpus.is_empty() && !trouble.is_empty() {
        let lines = trouble.iter().map(|trouble| format!("{}\n", styled(MARKED, trouble)));
        text.push('\n');
        text.extend(lines);
    }
    let host = HOST_FIGURES.iter().filter_map(|figure| Some((figure.key, *summary.host.get(figure.key)?)));
    text.push_str(&table("Host", host));
    if let Some(steps) = &summary.steps {
        let heading = format!("Steps: {}, {} samples", steps.steps, steps.samples);
        text.push_str(&table(&heading, [("samples_per_s", steps.samples_per_s)].into_iter()));
        if let Some(loss) = steps.last_loss {
            let _ = writeln!(text, "  loss {} at the end", short(loss));
        }
    }
    if !summary.values.is_empty() {
        let mut table = Table::new(2, columns());
        for (name, stats) in &summary.values {
            table.row(PLAIN, cells(name, stats, 1.0, None), "");
        }
        let _ = write!(text, "\n{}\n{}", styled(BOLD, "Values"), table.print());
    }
    text
}

fn of_gpu(gpu: &GpuSummary, seconds: f64) -> String {
    let slot = gpu.gpu.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
    let name = gpu.gpu.name.as_deref().unwrap_or("a GPU without a name");
    let profile = gpu.gpu.profile.as_deref().map(|profile| format!(" ({profile})")).unwrap_or_default();
    let heading = format!("GPU {}{slot} {name}{profile}", gpu.gpu.gpu);
    let figures = GPU_FIGURES.iter().filter_map(|figure| Some((figure.key, *gpu.figures.get(figure.key)?)));
    let mut text = table(&heading, figures);
    if let Some(total) = gpu.gpu.memory_total_bytes {
        let _ = writeln!(text, "  of {:.2} GiB of memory", gib(total as f64));
    }
    if let Some(joules) = gpu.energy_j {
        let _ = writeln!(text, "  {} of energy", energy(joules));
    }
    for (throttle, held) in &gpu.throttled_s {
        let share = if seconds > 0.0 { held / seconds * 100.0 } else { 0.0 };
        let said = format!("clocks throttled for {} ({share:.0}%): {}", clock(*held), reason(*throttle));
        let _ = writeln!(text, "  {}", styled(MARKED, said));
    }
    if gpu.lost_looks > 0 {
        let _ = writeln!(text, "  {}", styled(MARKED, format!("no answer to {} polls", gpu.lost_looks)));
    }
    text
}

fn table(heading: &str, figures: impl Iterator<Item = (&'static str, Stats)>) -> String {
    let mut table = Table::new(2, columns());
    let mut is_empty = true;
    for (key, stats) in figures {
        let Some(shown) = SHOWN.iter().find(|shown| shown.key == key) else { continue };
        let name =
            if shown.unit.is_empty() { shown.name.to_owned() } else { format!("{}, {}", shown.name, shown.unit) };
        table.row(PLAIN, cells(&name, &stats, shown.scale, Some(shown.digits)), "");
        is_empty = false;
    }
    if is_empty { String::new() } else { format!("\n{}\n{}", styled(BOLD, heading), table.print()) }
}

fn columns() -> [&'static str; 5] {
    ["", ">mean", ">min", ">max", ">std. dev."]
}

fn cells(name: &str, stats: &Stats, scale: f64, digits: Option<usize>) -> Vec<String> {
    let number = |figure: f64| {
        let figure = figure * scale;
        digits.map_or_else(|| short(figure), |digits| format!("{figure:.digits$}"))
    };
    let deviation = stats.standard_deviation.map_or_else(|| "-".to_owned(), number);
    vec![format!("{name:<26}"), number(stats.mean), number(stats.min), number(stats.max), deviation]
}
