//! Explanations of plans, section by section.

use gpu_tuned_core::measured::{Measured, MeasurementMethod};
use gpu_tuned_core::plan::{Explanation, Outcome, Plan, PrecisionVerdict, Verdict, with_interval};
use gpu_tuned_core::{Bytes, Provenance, Setting, grouped};

use super::device;
use crate::output::{BOLD, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, section, styled, wrapped};
use crate::project::Project;
use crate::target::Target;

const FIGURES: [&str; 2] = ["", ">"];

pub(crate) fn explanation(project: &Project, target: &Target, explanation: &Explanation) -> String {
    let mut text = section("device", &of_device(project, target));
    text += &section("workload", &of_workload(explanation));
    text += &section(&memory_heading(explanation), &memory(explanation));
    if let Outcome::Plan(plan) = &explanation.outcome {
        text += &section(&time_heading(plan), &time(explanation, plan));
    }
    if explanation.precisions.len() > 1 {
        text += &section("precisions considered", &precisions(explanation));
    }
    text += &section("micro-batches considered", &considered(explanation));
    match &explanation.outcome {
        Outcome::Plan(plan) => {
            text += &section("settings", &settings(plan));
            text.extend(plan.advice.iter().map(|advice| format!("\n{}", aside("note:", advice))));
        }
        Outcome::Misfit(misfit) => {
            text.push('\n');
            text.extend(misfit.remedies.iter().map(|remedy| aside("help:", &remedy.to_string())));
        }
    }
    text
}

/// A line with a label.
pub(crate) fn aside(label: &str, text: &str) -> String {
    format!("{} {}\n", styled(MARKED, label), wrapped(text, label.len() + 1))
}

fn of_device(project: &Project, target: &Target) -> String {
    let mut table = Table::new(2, FIGURES);
    for (name, value, from) in device::facts(target) {
        table.row(PLAIN, [name.to_owned(), value], styled(FAINT, from));
    }
    let profile = device::profile(project, target);
    table.print() + &profile.map_or_else(String::new, |profile| format!("  {}\n", styled(FAINT, wrapped(&profile, 2))))
}

fn of_workload(explanation: &Explanation) -> String {
    let workload = &explanation.workload;
    let (parameters, sample) = (&workload.parameters, &workload.sample);
    let mut table = Table::new(2, FIGURES);
    let figures = [
        ("frozen parameters", (parameters.frozen > 0).then(|| grouped(parameters.frozen))),
        ("packed weights", (parameters.packed > Bytes::ZERO).then(|| parameters.packed.to_string())),
        ("kept for each sample", Some(sample.activations.to_string())),
        ("  with checkpointing", sample.checkpointed_activations.map(|bytes| bytes.to_string())),
        ("input of a sample", sample.input.map(|bytes| bytes.to_string())),
        ("operations on a sample", Some(format!("{:.3e}", sample.flops))),
        ("kernels of a step", Some(grouped(workload.kernels))),
    ];
    let (trained, counted) = workload.trained_parameters();
    table.row(PLAIN, ["trained parameters".to_owned(), grouped(trained)], styled(FAINT, counted));
    for (name, value) in figures {
        if let Some(value) = value {
            table.row(PLAIN, [name.to_owned(), value], styled(FAINT, workload.provenance));
        }
    }
    if let Some(ms) = sample.host_ms {
        let is_measured = workload.measured.host_ms_per_sample == Some(ms);
        let from = if is_measured { Provenance::Measured } else { workload.provenance };
        table.row(PLAIN, ["preparing a sample".to_owned(), format!("{ms} ms")], styled(FAINT, from));
    }
    table.row(PLAIN, ["optimizer".to_owned(), workload.optimizer.to_string()], String::new());
    table.print() + &measured(&workload.measured)
}

pub(crate) const fn method(method: MeasurementMethod) -> &'static str {
    match method {
        MeasurementMethod::Executed => "executed",
        MeasurementMethod::DryRun => "dry run",
        MeasurementMethod::Simulated => "CPU trace",
    }
}

/// Measurements: a line for each device and mode.
fn measured(measured: &Measured) -> String {
    let mut table = Table::new(2, FIGURES);
    for (name, on) in &measured.on {
        for (mode, of_mode) in &on.mode {
            let batches: Vec<_> = of_mode.batch.keys().map(|batch| grouped(*batch)).collect();
            let found = format!("at batch {} ({}, Burn {})", batches.join(", "), method(of_mode.method), on.burn);
            let which = match of_mode.method {
                MeasurementMethod::Executed | MeasurementMethod::DryRun => format!("measured on {name}"),
                MeasurementMethod::Simulated => format!("simulated for {}", Measured::simulated_profile(name)),
            };
            table.row(PLAIN, [which, mode.to_string()], styled(FAINT, found));
        }
    }
    table.print()
}

fn memory_heading(explanation: &Explanation) -> String {
    let checkpointing = match &explanation.outcome {
        Outcome::Plan(plan) => plan.settings.gradient_checkpointing,
        Outcome::Misfit(misfit) => misfit.checkpointing,
    };
    let how = if checkpointing { " with checkpointing" } else { "" };
    format!("memory at batch {}{how}", grouped(explanation.outcome.memory().batch))
}

fn memory(explanation: &Explanation) -> String {
    let mut table = Table::new(2, FIGURES);
    for item in &explanation.memory {
        table.row(PLAIN, [item.name.to_owned(), item.bytes.to_string()], made_of(&item.formula, item.provenance));
    }
    let memory = explanation.outcome.memory();
    let share = memory.headroom_share() * 100.0;
    let left = format!("= {} available - {} ({share:.0}%) memory headroom", memory.available, memory.headroom);
    let rest = if explanation.needed <= explanation.budget {
        format!("{} to spare", explanation.budget - explanation.needed)
    } else {
        format!("{} too much", explanation.needed - explanation.budget)
    };
    table.row(BOLD, ["needed".to_owned(), explanation.needed.to_string()], format!("= the sum; {rest}"));
    table.row(BOLD, ["budget".to_owned(), explanation.budget.to_string()], left);
    table.print()
}

fn made_of(formula: &str, provenance: Provenance) -> String {
    format!("= {formula} {}", styled(FAINT, format!("({provenance})")))
}

fn time_heading(plan: &Plan) -> String {
    let schedule = &plan.schedule;
    let ranks =
        if schedule.world_size > 1 { format!(" on each of {} ranks", schedule.world_size) } else { String::new() };
    format!("time of a step of {} samples{ranks}", grouped(schedule.samples_per_rank()))
}

fn time(explanation: &Explanation, plan: &Plan) -> String {
    let mut table = Table::new(2, FIGURES);
    let milliseconds = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
    for term in &explanation.time {
        table.row(PLAIN, [term.name.to_owned(), milliseconds(term.seconds)], made_of(&term.formula, term.provenance));
    }
    let total = explanation.time.iter().map(|term| term.seconds).sum();
    let speed = with_interval(plan.samples_per_s, plan.samples_per_s_interval);
    let speed = format!("{speed} samples/s, {}", provenance(plan.samples_per_s_provenance));
    table.row(BOLD, ["step".to_owned(), milliseconds(total)], format!("= the sum; {speed}"));
    table.print()
}

fn provenance(provenance: Provenance) -> String {
    match provenance {
        Provenance::Derived => "from the data sheet".to_owned(),
        other => other.to_string(),
    }
}

/// Precisions that were compared: a line each.
fn precisions(explanation: &Explanation) -> String {
    let mut table = Table::new(0, ["", "precision", ">batch", ">memory", ">samples/s"]);
    for one in &explanation.precisions {
        let is_taken = one.verdict == PrecisionVerdict::Taken;
        let cells = [
            if is_taken { ">" } else { "" }.to_owned(),
            one.precision.to_string(),
            or_dash(one.batch_size.map(grouped)),
            or_dash(one.memory.map(|bytes| bytes.to_string())),
            or_dash(one.samples_per_s.map(|speed| with_interval(speed, one.samples_per_s_interval))),
        ];
        table.row(if is_taken { GOOD } else { PLAIN }, cells, one.verdict.to_string());
    }
    table.print()
}

fn considered(explanation: &Explanation) -> String {
    let columns = ["", ">batch", ">accum.", "ckpt.", ">memory", ">samples/s"];
    let mut table = Table::new(0, columns);
    for one in &explanation.considered {
        let is_taken = one.verdict == Verdict::Taken;
        let cells = [
            if is_taken { ">" } else { "" }.to_owned(),
            grouped(one.batch_size),
            grouped(one.micro_steps),
            if one.gradient_checkpointing { "on" } else { "off" }.to_owned(),
            one.memory.to_string(),
            or_dash(one.samples_per_s.map(|speed| with_interval(speed, one.samples_per_s_interval))),
        ];
        table.row(if is_taken { GOOD } else { PLAIN }, cells, one.verdict.to_string());
    }
    table.print()
}

fn settings(plan: &Plan) -> String {
    let mut table = Table::new(2, FIGURES);
    for reason in &plan.reasons {
        let value = plan.settings.get(reason.setting).to_string();
        let why = format!("{} {}", reason.why, styled(FAINT, format!("({})", reason.provenance)));
        table.row(PLAIN, [Setting::name(reason.setting).to_owned(), value], why);
    }
    if let Some(threads) = plan.cpu_threads {
        table.row(PLAIN, ["cpu threads".to_owned(), threads.to_string()], "CPU cores without those of the workers");
    }
    table.print()
}
