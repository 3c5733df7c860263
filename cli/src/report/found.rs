//! Findings on a recorded run.

use gpu_tuned_observe::diagnose::{Finding, Severity, diagnose};
use gpu_tuned_observe::recording::Record;
use maud::{Markup, html};

use crate::view::expectation;

/// The findings in their order, and what could not be judged.
pub(super) fn findings(records: &[Record]) -> Markup {
    let diagnosis = diagnose(records);
    html! {
        h3 { "Findings" }
        @if diagnosis.findings.is_empty() && diagnosis.judged.steps > 0 {
            p class="good" { "Nothing slows training down." }
        }
        @for found in &diagnosis.findings { (finding(found)) }
        @for unjudged in &diagnosis.unjudged { p class="faint" { (unjudged.what) "; " (unjudged.how) } }
    }
}

fn finding(found: &Finding) -> Markup {
    let class = if found.severity == Severity::Critical { "bad" } else { "text" };
    html! {
        p {
            span class=(class) { (found.severity.name()) } " "
            strong { (found.headline) } " "
            span class="faint" { "[" (found.kind) "]" }
        }
        ul {
            @for evidence in &found.evidence { li class="faint" { (evidence) } }
            li {
                (found.change.what)
                @if let Some(command) = &found.change.command { ": " code { (command) } }
            }
            li { (expectation(found)) }
        }
    }
}
