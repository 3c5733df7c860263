//! Error of simulated memory: allocations of a CPU, dealt out by a model of the GPU's memory manager.

use crate::Precision::{self, Bf16Params, F32};
use crate::measured::Mode;
use crate::workload::Family::{self, Convnet, Recurrent, Transformer};

/// 95th percentile of the error, as a fraction of the bytes that an H200 reserved; of two models of a family the larger.
/// Source: `tests/models/REPLAYED.md`, Burn 0.22.1.
const ERRORS: [(Family, Precision, bool, f64); 9] = [
    (Transformer, F32, false, 0.110),
    (Transformer, F32, true, 0.085),
    (Transformer, Bf16Params, false, 0.072),
    (Transformer, Bf16Params, true, 0.098),
    (Convnet, F32, false, 0.163),
    (Convnet, F32, true, 0.126),
    (Convnet, Bf16Params, false, 0.072),
    (Convnet, Bf16Params, true, 0.238),
    (Recurrent, F32, false, 0.099),
];

/// The same error where gradients are accumulated under checkpointing. Source: `tests/models/REPLAYED.md`.
const ACCUMULATING_CHECKPOINTED_ERROR: f64 = 0.269;

/// Returns the margin that makes simulated memory an upper bound, as a fraction of it.
///
/// A family or mode that was never compared with a GPU gets the largest error of all.
pub(super) fn margin(family: Family, mode: Mode) -> f64 {
    let Mode { precision, checkpointing, .. } = mode;
    let is_same = |row: &&(Family, Precision, bool, f64)| (row.0, row.1, row.2) == (family, precision, checkpointing);
    let largest = || ERRORS.iter().map(|row| row.3).fold(0.0, f64::max);
    let single = ERRORS.iter().find(is_same).map_or_else(largest, |row| row.3);
    let error = if checkpointing { ACCUMULATING_CHECKPOINTED_ERROR.max(single) } else { single };
    // The simulation may be too low by this error, relative to the real bytes.
    error / (1.0 - error)
}

#[cfg(test)]
mod tests {
    use super::{ACCUMULATING_CHECKPOINTED_ERROR, ERRORS, margin};
    use crate::Precision;
    use crate::measured::Mode;
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
            let same = ERRORS.iter().find(|row| (row.0, row.1, row.2) == (*family, *precision, *checkpointing));
            let worst = reported.iter().filter(|row| (row.0, row.1, row.2) == (*family, *precision, *checkpointing));
            let worst = worst.map(|row| row.3).fold(*share, f64::max);
            assert!(same.is_some_and(|row| (row.3 - worst).abs() < 1e-9), "{family:?} {precision:?} {checkpointing}");
        }
        assert!(reported.len() > ERRORS.len(), "{reported:?}");
        assert!(REPORT.contains(&format!("{:.1}%", ACCUMULATING_CHECKPOINTED_ERROR * 100.0)));
    }

    #[test]
    fn families_without_a_comparison_get_the_largest_error() {
        let margin = |family, mode: &str| margin(family, mode.parse::<Mode>().expect("a mode"));
        // 83.7% of the real bytes, raised by this margin, are all of them.
        assert!((0.837 * (1.0 + margin(Family::Convnet, "f32")) - 1.0).abs() < 1e-9);
        assert!((0.762 * (1.0 + margin(Family::Other, "f32")) - 1.0).abs() < 1e-9);
        assert!((0.762 * (1.0 + margin(Family::Recurrent, "bf16_params")) - 1.0).abs() < 1e-9);
        assert!((0.731 * (1.0 + margin(Family::Transformer, "f32-checkpointed")) - 1.0).abs() < 1e-9);
    }
}
