//! Plans with the expectations for other micro-batches, and measurements.

use gpu_tuned_core::exchange::Exchange;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredOn, Mode};
use gpu_tuned_core::plan::{Expected, Explanation, Misfit, Outcome, Plan, PlanError, curve, explain, with_interval};
use gpu_tuned_core::{Bytes, Goal, grouped, three_digits};
use gpu_tuned_observe::plot::{Limit, Mark, MarkKind, MemorySpeedPlot, ModeLine, PlotSize, Point};
use maud::{Markup, PreEscaped, html};

use super::{Section, marked_up, table};
use crate::args::GoalArgs;
use crate::error::Error;
use crate::project::{Described, Project};
use crate::target::Target;
use crate::view::{self, ExchangeArgs, method};

pub(super) fn section(
    project: &Project,
    described: &Described<'_>,
    targets: &[Target],
    asked: &GoalArgs,
    add_remedy: impl Fn(&mut Misfit, &Target),
) -> Result<Section, Error> {
    let mut explained = Vec::new();
    for target in targets {
        let goal = target.goal_for(described, asked);
        let facts = target.facts_of(goal.world_size);
        let workload = described.workload_on(&facts);
        let mut exchange = None;
        let explanation = match explain(&facts, &workload, &goal) {
            Ok(mut explanation) => {
                exchange = ExchangeArgs::default().count(target, &workload, &goal, &mut explanation);
                if let Outcome::Misfit(misfit) = &mut explanation.outcome {
                    add_remedy(misfit, target);
                }
                Ok(explanation)
            }
            Err(error) if error.is_of_device() => Err(error),
            Err(source) => return Err(Error::Plan { workload: described.name.to_owned(), source }),
        };
        explained.push((target, goal, explanation, exchange));
    }
    let columns = [view::headings("GPU"), vec!["~from".to_owned()]].concat();
    let rows: Vec<_> = explained.iter().map(|(target, _, found, _)| row(&target.name, found.as_ref())).collect();
    let outcomes: Vec<_> = explained.iter().map(|(target, _, found, _)| (&*target.name, found.as_ref().ok())).collect();
    let body = html! {
        p { (marked_up(&plain(&view::heading(described, asked)))) }
        (table(&columns, &rows))
        @for (target, goal, explanation, exchange) in &explained {
            @if let Ok(explanation) = explanation {
                (details(project, described, target, goal, (explanation, exchange.as_ref())))
            }
        }
    };
    Ok(Section { heading: format!("{}: plans", described.name), summary: summary(described.name, &outcomes), body })
}

/// Ranges of the plans, each with the GPUs at its ends, and the GPUs without a plan.
fn summary(workload: &str, outcomes: &[(&str, Option<&Explanation>)]) -> String {
    let found = outcomes.iter().map(|(target, found)| (*target, found.and_then(plan_of)));
    let mut plans: Vec<_> = found.clone().filter_map(|(target, plan)| Some((target, plan?))).collect();
    plans.sort_by(|a, b| a.1.samples_per_s.total_cmp(&b.1.samples_per_s));
    let describe = |(target, plan): &(&str, &Plan)| {
        let (settings, memory) = (&plan.settings, &plan.memory);
        let speed = with_interval(plan.samples_per_s, plan.samples_per_s_interval);
        let (batch, times) = (grouped(settings.batch_size), grouped(settings.gradient_accumulation));
        let (needed, available) = (memory.total(), memory.available);
        format!("{target} with {batch} x {times} samples a step: {speed} samples/s, {needed} of {available}")
    };
    let planned = match plans.as_slice() {
        [] => String::new(),
        [only] => format!("{workload} is planned for {}.", describe(only)),
        [slowest, .., fastest] => format!(
            "{workload} is planned for {} GPUs. The fastest is predicted to be {}. The slowest is {}.",
            plans.len(),
            describe(fastest),
            describe(slowest),
        ),
    };
    let without: Vec<_> = found.filter(|(_, plan)| plan.is_none()).map(|(target, _)| target).collect();
    let without = match without.as_slice() {
        [] => String::new(),
        names => format!(" {workload} has no plan for {}: see the table.", names.join(", ")),
    };
    format!("{planned}{without}").trim().to_owned()
}

fn plan_of(explanation: &Explanation) -> Option<&Plan> {
    match &explanation.outcome {
        Outcome::Plan(plan) => Some(plan),
        Outcome::Misfit(_) => None,
    }
}

fn row(target: &str, explained: Result<&Explanation, &PlanError>) -> Vec<String> {
    let refusal = match explained.map(|explanation| &explanation.outcome) {
        Ok(Outcome::Plan(plan)) => return view::cells(target, plan).into_iter().chain([source(plan)]).collect(),
        Ok(Outcome::Misfit(misfit)) => misfit.in_one_line(),
        Err(error) => error.to_string(),
    };
    vec![target.to_owned(), refusal]
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn source(plan: &Plan) -> String {
    let graphs = view::with_graphs(plan);
    format!("memory {}, speed {}{graphs}", plan.memory.provenance, plan.speed_source())
}

fn details(
    project: &Project,
    described: &Described<'_>,
    target: &Target,
    goal: &Goal,
    (explanation, exchange): (&Explanation, Option<&Exchange>),
) -> Markup {
    let arithmetic = view::explanation(project, target, explanation);
    let advice = plan_of(explanation).map_or(&[][..], |plan| &plan.advice);
    html! {
        h3 { (target.name) }
        @if let Some(svg) = frontier(described, target, goal, explanation) { (PreEscaped(svg)) }
        @for advice in advice { p { (marked_up(advice)) } }
        @if let Some(exchange) = exchange { p { (marked_up(&view::describe_exchange(exchange))) } }
        details open[plan_of(explanation).is_none()] {
            summary { "The arithmetic" }
            pre { (plain(&arithmetic)) }
        }
    }
}

/// Throughput over memory of the candidates that fit, with the plan and what others would choose.
fn frontier(described: &Described<'_>, target: &Target, goal: &Goal, explanation: &Explanation) -> Option<String> {
    let plan = plan_of(explanation)?;
    let facts = target.facts_of(goal.world_size);
    let expected = curve(&facts, &described.workload_on(&facts), goal).ok()?;
    let mode = |checkpointing| Mode { checkpointing, cuda_graphs: false, ..facts.mode(&plan.settings) };
    let of_mode = |checkpointing| {
        let is_drawn = move |expected: &&Expected| expected.fits && expected.checkpointing == checkpointing;
        expected.iter().filter(is_drawn)
    };
    let line = |checkpointing| {
        let points = of_mode(checkpointing).map(|expected| Point {
            batch: expected.batch,
            memory: Bytes(expected.memory_bytes),
            samples_per_s: expected.samples_per_s,
            interval: None,
        });
        ModeLine { mode: mode(checkpointing), points: points.collect() }
    };
    let lines: Vec<_> = [false, true].map(line).into_iter().filter(|line| !line.points.is_empty()).collect();
    let mark = |kind: MarkKind, expected: &Expected| {
        let (batch, memory) = (expected.batch, Bytes(expected.memory_bytes));
        let (speed, samples_per_s) = (three_digits(expected.samples_per_s), expected.samples_per_s);
        let kind_name = if kind == MarkKind::Fixed { String::new() } else { format!("{kind}: ") };
        let title = format!("{kind_name}batch {}, {speed} samples/s, {memory}", grouped(batch));
        Mark { kind, batch, memory, samples_per_s, until: Vec::new(), title }
    };
    let (batch, speed) = (plan.settings.batch_size, plan.samples_per_s);
    let (memory, interval) = (plan.memory.total(), with_interval(speed, plan.samples_per_s_interval));
    let title = format!("planned: batch {}, {interval} samples/s, {memory}", grouped(batch));
    let planned = Mark { kind: MarkKind::Planned, batch, memory, samples_per_s: speed, until: Vec::new(), title };
    // Batch finders do not try checkpointing.
    let largest = of_mode(false).max_by_key(|expected| expected.batch).map(|it| mark(MarkKind::Largest, it));
    let fixed = of_mode(false).find(|expected| expected.batch == MarkKind::FIXED_BATCH);
    let fixed = fixed.map(|expected| mark(MarkKind::Fixed, expected));
    let budget = plan.memory.budget();
    let figure = MemorySpeedPlot {
        size: PlotSize::Narrow,
        title: format!("{} on {}", described.name, target.name),
        note: "predicted; labels: micro-batch in samples".to_owned(),
        lines,
        limits: vec![Limit { memory: budget, label: format!("memory budget {budget}") }],
        marks: [Some(planned), largest, fixed].into_iter().flatten().collect(),
        ..MemorySpeedPlot::default()
    };
    Some(figure.svg())
}

const COLUMNS: [&str; 9] = [
    "precision",
    ">batch",
    ">reserved",
    ">in use",
    ">micro-step, ms",
    ">optimizer, ms",
    ">samples/s",
    ">spread",
    "~method",
];

/// The measurements of a workload; `None` where there are none.
pub(super) fn measurements(described: &Described<'_>) -> Option<Section> {
    let workload = described.workload();
    let measured: &Measured = &workload.measured;
    if measured.on.is_empty() {
        return None;
    }
    let body = html! {
        @for (name, on) in &measured.on {
            h3 { (name) }
            p { (device(on)) }
            (table(&COLUMNS, &rows(on)))
        }
    };
    Some(Section { heading: format!("{}: measurements", described.name), summary: String::new(), body })
}

fn device(on: &MeasuredOn) -> String {
    let driver = on.driver.as_ref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    let cubecl = on.cubecl.as_ref().map(|cubecl| format!(", CubeCL {cubecl}")).unwrap_or_default();
    format!("{}, {}{driver}, Burn {}{cubecl}", on.device, on.memory_bytes, on.burn)
}

fn rows(on: &MeasuredOn) -> Vec<Vec<String>> {
    let of_mode = on.mode.iter().flat_map(|(mode, points)| {
        let method = method(points.method);
        points.batch.iter().map(move |(batch, point)| cells(*mode, *batch, point, method))
    });
    of_mode.collect()
}

fn cells(mode: Mode, batch: u64, point: &MeasuredBatch, method: &str) -> Vec<String> {
    let cell = |figure: Option<String>| figure.unwrap_or_default();
    let ms = |figure: Option<f64>| cell(figure.map(|ms| format!("{ms:.2}")));
    let seconds = point.micro_step_ms.map(|micro_step| (micro_step + point.optimizer_ms.unwrap_or(0.0)) / 1e3);
    vec![
        mode.to_string(),
        grouped(batch),
        cell(point.reserved_bytes.map(|bytes| bytes.to_string())),
        cell(point.in_use_bytes.map(|bytes| bytes.to_string())),
        ms(point.micro_step_ms),
        ms(point.optimizer_ms),
        cell(seconds.map(|seconds| three_digits(batch as f64 / seconds))),
        cell(point.spread.map(|spread| format!("{:.1}%", spread * 100.0))),
        method.to_owned(),
    ]
}
