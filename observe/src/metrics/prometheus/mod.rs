//! The Prometheus text format (version 0.0.4): one table of metrics and one writer.

mod collect;
mod table;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use table::metrics;

/// Values of metrics by their labels. Prints as the text format.
#[derive(Debug, Default)]
pub(crate) struct Exposition(BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>);

impl Exposition {
    fn value(&mut self, metric: &'static str, labels: &[&str]) -> &mut f64 {
        let labels = labels.iter().map(|&value| value.to_owned()).collect();
        self.0.entry(metric).or_default().entry(labels).or_default()
    }

    /// Sets a gauge, unless there is no value. The labels' values come in the order of the table.
    fn set(&mut self, metric: &'static str, labels: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            *self.value(metric, labels) = value;
        }
    }

    /// Adds to a counter.
    fn add(&mut self, metric: &'static str, labels: &[&str], amount: f64) {
        *self.value(metric, labels) += amount;
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for metric in metrics() {
            let Some(values) = self.0.get(metric.name) else { continue };
            let (name, kind) = (metric.name, metric.kind());
            writeln!(f, "# HELP {name} {}\n# TYPE {name} {kind}", escaped(metric.help))?;
            for (labels, value) in values {
                writeln!(f, "{name}{} {}", labelled(metric.labels, labels), number(*value))?;
            }
        }
        Ok(())
    }
}

/// Formats labels. An empty value is left out: to Prometheus it is the same as no label.
fn labelled(names: &[&str], values: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in names.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
        let separator = if text.is_empty() { '{' } else { ',' };
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{name}=\"{}\"", escaped(value).replace('"', "\\\""));
    }
    if text.is_empty() { text } else { text + "}" }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Formats a number; the format spells infinity with a sign.
fn number(value: f64) -> String {
    if value.is_infinite() { format!("{}Inf", if value > 0.0 { '+' } else { '-' }) } else { value.to_string() }
}
