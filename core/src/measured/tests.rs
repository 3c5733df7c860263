use super::*;

#[test]
fn modes_are_read_as_they_are_written() {
    for text in [
        "f32",
        "f32-checkpointed",
        "full_f32",
        "full_f32-checkpointed",
        "bf16_params-checkpointed",
        "f32-graphs",
        "full_f32-checkpointed-graphs",
        "mixed_bf16-library",
        "full_f32-checkpointed-graphs-library",
    ] {
        assert_eq!(text.parse::<Mode>().expect("a mode").to_string(), text);
    }
    for text in [
        "",
        "-checkpointed",
        "f33",
        "f32-",
        "f32-checkpointed-checkpointed",
        "full_bf16_params",
        "-graphs",
        "f32-graphs-checkpointed",
        "-library",
        "f32-library-graphs",
    ] {
        assert!(text.parse::<Mode>().is_err(), "{text}");
    }
}

#[test]
fn sizes_lie_near_powers_of_two_and_divide_the_step_where_they_can() {
    for (largest, samples, expected) in [
        (1, Some(1), &[1][..]),
        (512, Some(512), &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]),
        (360, Some(360), &[1, 2, 4, 8, 15, 30, 45, 60, 90, 120, 180, 360]),
        (48, Some(48), &[1, 2, 3, 4, 6, 8, 12, 16, 24, 48]),
        (514, Some(514), &[1, 2, 4, 8, 16, 32, 64, 128, 257, 514]),
        (720, Some(720), &[1, 2, 4, 8, 16, 30, 60, 120, 180, 240, 360, 720]),
        (1 << 16, None, &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]),
        (1 << 16, Some(1 << 16), &[1, 4, 16, 64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]),
    ] {
        assert_eq!(micro_batches(largest, samples), expected, "{largest} of {samples:?}");
    }
}

#[test]
fn few_divisors_without_wide_gaps_are_all_measured() {
    let widest = |sizes: &[u64]| sizes.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64).fold(1.0, f64::max);
    let steps = (1..=2048).map(|samples| (samples, divisors(samples, samples)));
    let mut steps = steps.filter(|(_, all)| all.len() <= MOST_MICRO_BATCHES && widest(all) <= 2.0).peekable();
    assert!(steps.peek().is_some());
    for (samples, all) in steps {
        let sizes = micro_batches(samples, Some(samples));
        assert!(all.iter().all(|divisor| sizes.contains(divisor)), "{all:?}, {sizes:?}");
    }
}

/// All cases: four of them have gaps between 3.0 and 3.1.
#[test]
fn sizes_are_few_ascending_and_close() {
    let shares = (0..=8).map(|times| (times > 0).then_some(times));
    for (largest, times) in (1..=2048).flat_map(|largest| shares.clone().map(move |times| (largest, times))) {
        let sizes = micro_batches(largest, times.map(|times: u64| times * largest));
        assert!(sizes.len() <= MOST_MICRO_BATCHES && sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
        assert!(sizes.first() == Some(&1) && sizes.last() == Some(&largest), "{sizes:?}");
        let widest = sizes.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64).fold(1.0, f64::max);
        assert!(widest <= 3.1, "{sizes:?}");
    }
}

#[test]
fn the_widest_gap_gets_the_divisor_nearest_to_its_middle() {
    for (sizes, divisors, expected) in [
        (&[1, 64][..], &[1, 2, 8, 32, 64][..], Some(8)),
        // Both are four times as far from 8, and the larger is preferred.
        (&[1, 64], &[1, 2, 32, 64], Some(32)),
        (&[1, 4, 64], &[1, 2, 4, 16, 64], Some(16)),
        (&[1, 2], &[1, 2], None),
    ] {
        assert_eq!(between_widest(sizes, divisors), expected, "{sizes:?}");
    }
}

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
