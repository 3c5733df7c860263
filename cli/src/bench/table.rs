//! Results as text.

#[cfg(test)]
mod tests;

use std::path::Path;

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{grouped, three_digits};
use gpu_tuned_observe::bench::{Comparison, Feed, Figures, Phases, Row};

use super::Results;
use crate::output::{BAD, BOLD, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, styled, wrapped};

pub(super) fn text(comparison: &Comparison, svg: Option<&Path>, seconds: f64) -> String {
    let mut parts = vec![format!("{}\n{}", heading(comparison), alone(comparison))];
    parts.extend(fed(comparison));
    parts.push(conclusions(comparison, svg).concat());
    let kept = format!("kept in {}, --again repeats all; {seconds:.0} s, building included", Results::NAME);
    format!("{}{}\n", parts.join("\n"), styled(FAINT, kept))
}

fn heading(comparison: &Comparison) -> String {
    let header = &comparison.header;
    let mut said = vec![format!("{} parameters", grouped(header.parameters))];
    said.extend(header.driver.as_ref().map(|driver| format!("driver {driver}")));
    said.push(format!("Burn {}", header.burn));
    said.extend(header.cubecl.as_ref().map(|cubecl| format!("CubeCL {cubecl}")));
    if header.debug {
        said.push(styled(MARKED, "a debug build: slower than training"));
    }
    format!("{} on {}: {}", styled(BOLD, &header.workload), header.device, said.join(", "))
}

/// Utilization of the GPU, or of the CPU without one.
fn busy(comparison: &Comparison) -> (&'static str, fn(&Figures) -> Option<f64>) {
    let has_gpu =
        comparison.rows.iter().any(|row| row.outcome.figures().is_some_and(|figures| figures.gpu_percent.is_some()));
    if has_gpu { (">GPU", |figures| figures.gpu_percent) } else { (">CPU", |figures| figures.cpu_percent) }
}

/// Configurations without a loader.
fn alone(comparison: &Comparison) -> String {
    let (busy, busy_percent) = busy(comparison);
    let columns = [
        "mode",
        ">batch",
        ">samples/s",
        ">min - max",
        ">step ms",
        ">forward",
        ">backward",
        ">optimizer",
        ">memory",
        busy,
    ];
    let mut table = Table::new(2, columns);
    for row in comparison.rows.iter().filter(|row| row.setup.feed.is_none()) {
        let mut cells = vec![row.mode().to_string(), grouped(row.setup.batch)];
        let Some(figures) = row.outcome.figures() else {
            table.row(PLAIN, cells, format!("{}  {}", styled(BAD, &row.outcome), marks(row)).trim_end());
            continue;
        };
        cells.extend(speed(figures));
        cells.push(ms(figures.step_ms));
        let parts = |phases: Phases| [phases.forward_ms, phases.backward_ms, phases.optimizer_ms].map(ms);
        cells.extend(figures.phases.map_or_else(|| ["-"; 3].map(str::to_owned), parts));
        cells.push(or_dash(figures.reserved_bytes));
        cells.push(percent(busy_percent(figures)));
        table.row(PLAIN, cells, marks(row));
    }
    table.print()
}

/// Configurations with a loader.
fn fed(comparison: &Comparison) -> Option<String> {
    let (busy, busy_percent) = busy(comparison);
    let columns = ["mode", ">batch", ">workers", ">prefetch", ">samples/s", ">min - max", ">waiting", busy];
    let mut table = Table::new(2, columns);
    let mut reasons: Vec<String> = Vec::new();
    let all: Vec<_> = comparison.rows.iter().filter_map(|row| Some((row, row.setup.feed?))).collect();
    for (row, Feed { workers, prefetch }) in &all {
        let (mode, batch) = (row.mode().to_string(), grouped(row.setup.batch));
        let mut cells = vec![mode, batch, workers.to_string(), prefetch.to_string()];
        let Some(figures) = row.outcome.figures() else {
            cells.extend(["-"; 4].map(str::to_owned));
            table.row(PLAIN, cells, styled(BAD, format!("({})", number(comparison.why_not(row), &mut reasons))));
            continue;
        };
        cells.extend(speed(figures));
        cells.push(percent(figures.waiting_percent));
        cells.push(percent(busy_percent(figures)));
        table.row(PLAIN, cells, "");
    }
    let below: String = (1..).zip(&reasons).map(|(number, why)| below(number, why)).collect();
    let heading = "with a loader, without uploads";
    (!all.is_empty()).then(|| format!("{heading}\n{}{below}", table.print()))
}

/// Number of a reason among the notes below the table.
fn number(why: Option<String>, reasons: &mut Vec<String>) -> usize {
    let why = why.unwrap_or_default();
    let known = reasons.iter().position(|known| *known == why);
    known.unwrap_or_else(|| {
        reasons.push(why);
        reasons.len() - 1
    }) + 1
}

fn below(number: usize, why: &str) -> String {
    let mark = format!("({number})");
    format!("  {} {}\n", styled(BAD, &mark), wrapped(why, mark.len() + 3))
}

fn marks(row: &Row) -> String {
    let mut marks = Vec::new();
    if row.frontier {
        marks.push(styled(GOOD, "frontier"));
    }
    if row.planned {
        marks.push(styled(MARKED, "planned"));
    }
    if row.full_f32 {
        marks.push(styled(FAINT, "without TF32"));
    }
    if row.kernels.is_library() {
        marks.push(styled(FAINT, "library kernels"));
    }
    if row.outcome.figures().is_some_and(|figures| !figures.is_finite) {
        marks.push(styled(BAD, "the loss is not finite"));
    }
    marks.join("  ")
}

/// Lines on the plan, on unknown memory, and on the picture.
fn conclusions(comparison: &Comparison, svg: Option<&Path>) -> Vec<String> {
    let mut lines = vec![planned(comparison)];
    if !comparison.has_memory() {
        lines.push(format!("no frontier: {}\n", comparison.without_memory()));
    }
    lines.extend(svg.map(|path| format!("picture: {}\n", path.display())));
    lines
}

fn planned(comparison: &Comparison) -> String {
    let planned = &comparison.planned;
    let as_asked = Mode::new(planned.precision, planned.checkpointing).with_library(planned.kernels.is_library());
    let mode = comparison.rows.iter().find(|row| row.planned).map_or(as_asked, Row::mode);
    let plan = format!("planned: {mode}, batch {}", grouped(planned.batch));
    let fastest = comparison.alone().max_by(|a, b| a.1.samples_per_s.median.total_cmp(&b.1.samples_per_s.median));
    let Some((best, fastest)) = fastest else { return format!("{plan}\n") };
    let Some((_, figures)) = comparison.alone().find(|(row, _)| row.planned) else {
        return format!("{plan}: not among what ran\n");
    };
    let share = 100.0 * figures.samples_per_s.median / fastest.samples_per_s.median;
    let speed = three_digits(figures.samples_per_s.median);
    if best.planned {
        return format!("{plan}: {speed} samples/s, the fastest\n");
    }
    let (of, name) = (three_digits(fastest.samples_per_s.median), best.name());
    format!("{plan}: {speed} samples/s, {share:.1}% of the fastest ({of}, {name})\n")
}

fn speed(figures: &Figures) -> [String; 2] {
    let speed = figures.samples_per_s;
    [three_digits(speed.median), format!("{} - {}", three_digits(speed.least), three_digits(speed.most))]
}

fn ms(ms: f64) -> String {
    format!("{ms:.2}")
}

fn percent(percent: Option<f64>) -> String {
    or_dash(percent.map(|percent| format!("{percent:.0}%")))
}
