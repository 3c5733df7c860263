//! Recordings: read, diagnosed and exported, or refused with the line.
#![no_main]

use gpu_tuned_observe::monitor::Summary;
use gpu_tuned_observe::{diagnose, export, recording, trace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(read) = recording::parse("fuzz", text) else { return };
    let summary = Summary::from_records(&read.records);
    assert!(summary.gpus.iter().flat_map(|gpu| &gpu.figures).all(|(_, stats)| stats.mean.is_finite()));
    for finding in diagnose::diagnose(&read.records).findings {
        // Advice may name samples with NaN.
        assert!(!format!("{} {:?} {:?}", finding.headline, finding.evidence, finding.figures).contains("NaN"));
    }
    for table in [export::Table::Steps, export::Table::Gpus] {
        let csv = export::csv(&read.records, table);
        let starts_formula = |cell: &str| cell.trim_start_matches('"').starts_with(['=', '@']);
        assert!(!csv.lines().flat_map(|line| line.split(',')).any(starts_formula), "{csv}");
    }
    export::prometheus(&read.records);
    if let Some(trace) = trace::from_records(&read.records, trace::Steps::ALL) {
        trace.write(std::io::sink()).expect("a sink takes all bytes");
    }
});
