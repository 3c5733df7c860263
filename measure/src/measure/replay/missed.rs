//! Deviation of simulated memory from that of GPUs.

use gpu_tuned_core::Precision::{self, Bf16Params, F32};
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::workload::Family::{self, Convnet, Recurrent, Transformer};

/// Version of Burn whose steps were compared with a GPU's.
const BURN: &str = "0.22.";

/// Ninety-fifth percentiles of the error, as shares of what an H200 reserved: `tests/models/REPLAYED.md`. Of two models of
/// a family the worse one.
const MISSED: [(Family, Precision, bool, f64); 9] = [
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

/// The same when gradients are added up under checkpointing, where replaying is not to be trusted.
const MISSED_ADDING_UP_CHECKPOINTED: f64 = 0.269;

/// Margin of simulated memory, as a share of it, so that a GPU reserves no more. `None` for a version of Burn that was
/// not compared with a GPU.
///
/// Other families and modes have the worst margin of all.
pub fn missed(family: Family, mode: Mode, burn: &str) -> Option<f64> {
    let Mode { precision, checkpointing, .. } = mode;
    let is_it = |row: &(Family, Precision, bool, f64)| (row.0, row.1, row.2) == (family, precision, checkpointing);
    let worst = || MISSED.iter().map(|row| row.3).fold(0.0, f64::max);
    let one_micro_batch = MISSED.iter().find(|row| is_it(row)).map_or_else(worst, |row| row.3);
    // A point has one residual, with gradients added up and without.
    let share = if checkpointing { MISSED_ADDING_UP_CHECKPOINTED.max(one_micro_batch) } else { one_micro_batch };
    // As if always too little was replayed: so much less than there was is this much more on top of it.
    burn.starts_with(BURN).then_some(share / (1.0 - share))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Precision;
    use gpu_tuned_core::measured::Mode;
    use gpu_tuned_core::workload::Family;

    use super::{MISSED, MISSED_ADDING_UP_CHECKPOINTED, missed};

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
    fn what_is_missed_is_what_was_reported() {
        let reported = reported();
        for (family, precision, checkpointing, share) in &reported {
            let same = MISSED.iter().find(|row| (row.0, row.1, row.2) == (*family, *precision, *checkpointing));
            let worst = reported.iter().filter(|row| (row.0, row.1, row.2) == (*family, *precision, *checkpointing));
            let worst = worst.map(|row| row.3).fold(*share, f64::max);
            assert!(same.is_some_and(|row| (row.3 - worst).abs() < 1e-9), "{family:?} {precision:?} {checkpointing}");
        }
        assert!(reported.len() > MISSED.len(), "{reported:?}");
        assert!(REPORT.contains(&format!("{:.1}%", MISSED_ADDING_UP_CHECKPOINTED * 100.0)));
    }

    #[test]
    fn what_was_never_held_against_a_gpu_is_missed_by_the_most() {
        let of = |family, mode: &str| missed(family, mode.parse::<Mode>().expect("a mode"), "0.22.1").expect("known");
        // 83.7% of what there was, raised by this, is all of it.
        assert!((0.837 * (1.0 + of(Family::Convnet, "f32")) - 1.0).abs() < 1e-9);
        assert!((0.762 * (1.0 + of(Family::Other, "f32")) - 1.0).abs() < 1e-9);
        assert!((0.762 * (1.0 + of(Family::Recurrent, "bf16_params")) - 1.0).abs() < 1e-9);
        assert!((0.731 * (1.0 + of(Family::Transformer, "f32-checkpointed")) - 1.0).abs() < 1e-9);
        assert_eq!(missed(Family::Transformer, "f32".parse().expect("a mode"), "0.23.0"), None);
    }
}
