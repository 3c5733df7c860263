//! Findings as text.

use anstyle::Style;
use gpu_tuned_observe::diagnose::{Finding, Judged, Outcome, Quantity, Severity, Tested};

use super::Report;
use super::trial::describe;
use crate::output::{BAD, BOLD, FAINT, GOOD, MARKED, styled, wrapped};
use crate::view::expectation;

const INDENT: usize = 10;

pub(super) fn text(report: &Report) -> String {
    let diagnosis = &report.diagnosis;
    let mut text: String = diagnosis.findings.iter().map(|finding| paragraph(finding, report)).collect();
    if diagnosis.findings.is_empty() && diagnosis.judged.steps > 0 {
        text += &line(GOOD, "ok", "nothing slows training down");
    }
    text += &line(FAINT, "judged", &judged(&diagnosis.judged));
    for unjudged in &diagnosis.unjudged {
        text += &line(MARKED, "missing", &format!("{}; {}", unjudged.what, unjudged.how));
    }
    if let Some(program) = report.program.as_ref().filter(|program| program.failed()) {
        text += &line(BAD, "program", &format!("it {}", program.describe()));
    }
    text + &compared(&report.compared)
}

fn paragraph(finding: &Finding, report: &Report) -> String {
    let style = match finding.severity {
        Severity::Critical => BAD,
        Severity::Warning => MARKED,
        _ => FAINT,
    };
    let headline = wrapped(&format!("{} [{}]", finding.headline, finding.kind), INDENT);
    let mut text = format!("{}{}\n", label(style, finding.severity.name()), styled(BOLD, headline));
    for evidence in &finding.evidence {
        text += &line(FAINT, "", evidence);
    }
    text += &line(FAINT, "change", &finding.change.what);
    if let Some(command) = &finding.change.command {
        text += &line(FAINT, "", &format!("$ {command}"));
    }
    text += &line(FAINT, "expect", &expectation(finding));
    for trial in report.tried.iter().filter(|trial| trial.tested.kind == finding.kind) {
        let words = format!("{} ({})", describe(&trial.tested), trial.settings);
        text += &line(outcome(trial.tested.outcome), "tried", &words);
    }
    text + "\n"
}

fn judged(judged: &Judged) -> String {
    let mut parts = Vec::new();
    if judged.steps > 0 {
        parts.push(format!("{} steps after {} of warm-up", judged.steps, judged.warm_up_steps));
    }
    if judged.seconds > 0.0 {
        parts.push(format!("{:.1} s", judged.seconds));
    }
    parts.extend(judged.samples_per_s.map(|rate| Quantity::SamplesPerS.describe(rate)));
    parts.extend(judged.gpu_busy_share.map(|busy| format!("GPU busy {:.0}%", busy * 100.0)));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// Predictions of an earlier recording against this one.
fn compared(compared: &[Tested]) -> String {
    let line = |tested: &Tested| {
        let words = format!("{}: {}", tested.kind, describe(tested));
        line(outcome(tested.outcome), "before", &words)
    };
    compared.iter().map(line).collect()
}

const fn outcome(outcome: Outcome) -> Style {
    match outcome {
        Outcome::Hit => GOOD,
        Outcome::Miss => BAD,
        _ => FAINT,
    }
}

fn line(style: Style, word: &str, text: &str) -> String {
    format!("{}{}\n", label(style, word), wrapped(text, INDENT))
}

fn label(style: Style, word: &str) -> String {
    styled(style, format!("{word:<INDENT$}"))
}
