use super::{MOST_MICRO_BATCHES, between_widest, divisors, micro_batches};

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
