use super::{Interpolation, LARGEST_MARGIN, UNKNOWN_MARGIN};

fn interpolation(measured: &[(u64, f64)]) -> Interpolation {
    Interpolation::new(measured.iter().copied()).expect("measurements")
}

/// Reserved MiB of a transformer of 27 M parameters on an H200 in f32.
const TRANSFORMER: [(u64, f64); 4] = [(8, 1477.0), (32, 4738.0), (64, 8833.0), (256, 31_872.0)];

#[test]
fn lines_join_the_measurements_and_extend_beyond_them() {
    let reserved = interpolation(&TRANSFORMER);
    for (batch, figure) in TRANSFORMER {
        assert!(reserved.has(batch) && (reserved.at(batch) - figure).abs() < 1e-9, "{batch}");
    }
    assert!(!reserved.has(128));
    // Measured at 128: 16,000.
    assert!((reserved.at(128) / 16_000.0 - 1.0).abs() < 0.04, "{}", reserved.at(128));
    assert!(reserved.is_beyond(512) && !reserved.is_beyond(256));
    let beyond = (reserved.at(512) - reserved.at(256)) / 256.0;
    assert!((beyond - (31_872.0 - 1477.0) / 248.0).abs() < 1e-9, "{beyond}");
    assert!((reserved.at(4) - 933.5).abs() < 1e-9, "{}", reserved.at(4));
    assert!((reserved.at(1) - 525.875).abs() < 1e-9, "{}", reserved.at(1));
}

#[test]
fn below_the_first_measurement_the_share_and_the_measurement_bound_the_figure() {
    let steep = interpolation(&[(8, 800.0), (16, 2400.0)]);
    assert!((steep.at(4) - 400.0).abs() < 1e-9);
    let falling = interpolation(&[(8, 800.0), (16, 700.0)]);
    assert!((falling.at(4) - 800.0).abs() < 1e-9);
}

#[test]
fn beyond_the_last_measurement_no_figure_falls() {
    let falling = interpolation(&[(8, 800.0), (16, 700.0)]);
    assert!((falling.at(1 << 30) - 700.0).abs() < 1e-9);
    // The pages of the logits are fewer at 56 samples than at 52, and 80 take more than either.
    let gpt = interpolation(&GPT);
    assert!((gpt.at(80) - (16.3 + 24.0 * 1.7 / 16.0)).abs() < 1e-9, "{}", gpt.at(80));
}

#[test]
fn a_single_measurement_bounds_from_above() {
    let single = interpolation(&[(64, 100.0)]);
    assert!((single.at(128) - 200.0).abs() < 1e-9 && (single.at(1) - 100.0).abs() < 1e-9);
    assert!((single.margin(64) - UNKNOWN_MARGIN).abs() < 1e-9);
    assert!(Interpolation::new([]).is_none());
}

/// Samples of a GPT with a vocabulary of 50,000 words and the GiB that it reserves on an H200: page counts jump by 20%.
const GPT: [(u64, f64); 3] = [(40, 14.6), (52, 18.9), (56, 16.3)];

#[test]
fn pages_of_logits_stay_below_the_bound() {
    let [low, jump, high] = GPT;
    let bound = |reserved: &Interpolation| reserved.at(jump.0) * (1.0 + reserved.margin(jump.0));
    assert!(bound(&interpolation(&[low, high])) > jump.1);
    // Measurements at which pages jump as well show the same margin.
    let twice = |(batch, gib): (u64, f64)| (2 * batch, 2.0 * gib);
    let known = interpolation(&[low, high, twice(low), twice(jump), twice(high)]);
    assert!(bound(&known) > jump.1, "{}", known.margin(jump.0));
}

#[test]
fn exact_lines_have_no_margin_and_jumps_have_a_large_one() {
    let exact = interpolation(&[(8, 80.0), (16, 160.0), (32, 320.0), (64, 640.0)]);
    assert!(exact.margin(24).abs() < 1e-9 && exact.largest_underestimate().is_some_and(|error| error.abs() < 1e-9));
    let jump = interpolation(&[(8, 80.0), (16, 200.0), (32, 320.0), (64, 640.0)]);
    // 200 over 160, and 320 over 346.7: the range is 32.7%, of which two errors show a third on average.
    assert!((jump.margin(24) - LARGEST_MARGIN).abs() < 1e-9, "{}", jump.margin(24));
    assert!(jump.largest_underestimate().is_some_and(|error| (error - 0.2).abs() < 1e-9));
}

#[test]
fn wide_gaps_widen_the_margin() {
    let reserved = interpolation(&[(8, 80.0), (16, 162.0), (32, 320.0), (64, 640.0)]);
    let near = reserved.margin(24);
    assert!(near > 0.01, "{near}");
    for (batch, factor) in [(16, 1.0), (40, 1.0), (256, 1.0), (64 * 16, 2.0), (1, 1.5)] {
        assert!((reserved.margin(batch) / near - factor).abs() < 1e-9, "{batch}");
    }
}

/// Bytes in all of every line of a record of reserved memory, in MiB, by micro-batch.
fn recorded(text: &str, begin: &str) -> Vec<(u64, f64)> {
    let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.strip_prefix(begin));
    let row = |line: &str| {
        let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
        Some((words.next()?, words.next()? as f64 / 1_048_576.0))
    };
    rows.filter_map(row).collect()
}

#[test]
fn held_out_sizes_stay_below_the_bound() {
    let lstm = include_str!("recorded/lstm-h100.txt");
    let resnet = include_str!("recorded/resnet-h100.txt");
    let (lstm_cpu, resnet_cpu) = (include_str!("recorded/lstm.txt"), include_str!("recorded/resnet.txt"));
    let mut all = vec![recorded(lstm_cpu, ""), recorded(resnet_cpu, "")];
    for (record, mode) in [(lstm, "plain"), (lstm, "checkpointed"), (resnet, "plain"), (resnet, "checkpointed")] {
        let mut rows = recorded(record, &format!("{mode} dry "));
        rows.extend(recorded(record, &format!("{mode} executed ")));
        rows.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        all.push(rows);
    }
    for rows in all {
        let (tried, held_out): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(batch, _)| batch.is_power_of_two());
        let reserved = interpolation(&tried);
        assert!(held_out.len() >= 10, "{held_out:?}");
        for (batch, mib) in held_out {
            let bound = reserved.at(batch) * (1.0 + reserved.margin(batch));
            assert!(mib <= bound, "{batch}: {mib} above {bound}, margin {}", reserved.margin(batch));
        }
    }
}

#[test]
fn the_least_for_a_sample_is_of_any_micro_batch() {
    for (first, least) in [((2, 3.0), 1.25), ((1, 0.5), 0.5)] {
        let found = interpolation(&[first, (4, 5.0), (8, 12.0)]).least_per_sample();
        assert!((found - least).abs() < 1e-9, "{found}");
    }
}
