//! Errors of simulated memory.

use crate::Precision;
use crate::measured::Mode;
use crate::plan::measured::{ACCUMULATING_CHECKPOINTED_ERROR, SIMULATION_ERRORS, simulation_margin};
use crate::workload::Family;

const REPORT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/REPLAYED.md"));

/// Family, precision, checkpointing and 95th percentile of each row of the report.
fn reported() -> Vec<(Family, Precision, bool, f64)> {
    let mut family = Family::Other;
    let cells = REPORT.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let rows = cells.filter(|cells| cells.len() == 8 && cells[5].ends_with('%'));
    rows.map(|cells| {
        family = match cells[1].split([',', ' ']).next() {
            Some("transformer") => Family::Transformer,
            Some("8" | "ResNet-18") => Family::Convnet,
            Some("LSTM") => Family::Recurrent,
            _ => family,
        };
        let precision = if cells[2] == "f32" { Precision::F32 } else { Precision::Bf16Params };
        let percent: f64 = cells[5].trim_end_matches('%').parse().expect("a percentage");
        (family, precision, cells[3] == "yes", percent / 100.0)
    })
    .collect()
}

#[test]
fn errors_are_those_of_the_report() {
    let reported = reported();
    for (family, precision, checkpointing, share) in &reported {
        let same = SIMULATION_ERRORS.iter().find(|row| (row.0, row.1, row.2) == (*family, *precision, *checkpointing));
        let worst = reported.iter().filter(|row| (row.0, row.1, row.2) == (*family, *precision, *checkpointing));
        let worst = worst.map(|row| row.3).fold(*share, f64::max);
        assert!(same.is_some_and(|row| (row.3 - worst).abs() < 1e-9), "{family:?} {precision:?} {checkpointing}");
    }
    assert!(reported.len() > SIMULATION_ERRORS.len(), "{reported:?}");
    assert!(REPORT.contains(&format!("{:.1}%", ACCUMULATING_CHECKPOINTED_ERROR * 100.0)));
}

#[test]
fn families_without_a_comparison_get_the_largest_error() {
    let margin = |family, mode: &str| simulation_margin(family, mode.parse::<Mode>().expect("a mode"));
    // 83.7% of the real bytes, raised by this margin, are all of them.
    assert!((0.837 * (1.0 + margin(Family::Convnet, "f32")) - 1.0).abs() < 1e-9);
    assert!((0.762 * (1.0 + margin(Family::Other, "f32")) - 1.0).abs() < 1e-9);
    assert!((0.762 * (1.0 + margin(Family::Recurrent, "bf16_params")) - 1.0).abs() < 1e-9);
    assert!((0.731 * (1.0 + margin(Family::Transformer, "f32-checkpointed")) - 1.0).abs() < 1e-9);
}
