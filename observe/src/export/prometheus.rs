//! A recording in Prometheus' text format.

use crate::metrics::prometheus::Exposition;
use crate::monitor::{Gathering, Latest, expose};
use crate::recording::{Record, belongs_to, last_run};

/// Formats the end of a recording in Prometheus' text format (version 0.0.4): counters of the run that began last, and
/// gauges of the last samples. There are no times in it, as the node exporter's textfile collector requires.
///
/// Metrics and labels are those of [`monitor::to_prometheus`](crate::monitor::to_prometheus), and metrics of steps.
pub fn prometheus(records: &[Record]) -> String {
    let run = last_run(records);
    let begin = run.map_or(f64::NEG_INFINITY, |run| run.at);
    let (mut exposition, mut latest, mut gathering) = (Exposition::default(), Latest::default(), Gathering::default());
    if let Some(run) = run {
        exposition.run(run);
    }
    for record in records {
        match record {
            Record::Step(step) if belongs_to(run, step) => exposition.step(step),
            Record::Value(value) if value.at < begin => {}
            record => {
                latest.observe(record);
                gathering.observe(record);
            }
        }
    }
    expose(&mut exposition, &latest, &gathering.summary());
    exposition.to_string()
}
