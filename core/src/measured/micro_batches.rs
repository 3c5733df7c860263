//! Selection of the micro-batch sizes that `measure` tries.

/// Most micro-batches that are measured in a mode.
pub const MOST_MICRO_BATCHES: usize = 12;

/// Largest micro-batch where no global batch asks for one: throughput hardly grows beyond it.
const LARGEST_FREE: u64 = 2048;

/// Neighbours farther apart than this ratio get a size between them that need not divide the step.
const WIDE: f64 = 2.25;

/// Returns the micro-batches to measure, ascending, from 1 to `largest`.
///
/// The sizes lie near powers of two, where throughput changes by less than a plan's tolerance from one to the next.
/// `samples` is a rank's share of the global batch: near a power of two its divisors are preferred, because they split
/// a step evenly. At most [`MOST_MICRO_BATCHES`] are returned. Few divisors without wide gaps are all returned. If sizes are
/// left over, they go into the widest gaps, the largest micro-batches first. Without `samples` no size exceeds 2048.
///
/// ```
/// use gpu_tuned_core::measured::micro_batches;
///
/// assert_eq!(micro_batches(360, Some(360)), [1, 2, 4, 8, 15, 30, 45, 60, 90, 120, 180, 360]);
/// assert_eq!(micro_batches(100, Some(512)), [1, 2, 4, 8, 16, 32, 64, 100]);
/// ```
pub fn micro_batches(largest: u64, samples: Option<u64>) -> Vec<u64> {
    let largest = samples.map_or(largest.min(LARGEST_FREE), |_| largest).max(1);
    let divisors = divisors(samples.unwrap_or(1), largest);
    let has_gap = divisors.windows(2).any(|pair| pair[1] as f64 > WIDE * pair[0] as f64);
    if divisors.len() <= MOST_MICRO_BATCHES && divisors.last() == Some(&largest) && !has_gap {
        return divisors;
    }
    let mut sizes: Vec<u64> = powers_of_two(largest).map(|power| nearest_divisor(power, &divisors)).collect();
    sizes.push(largest);
    sizes.sort_unstable();
    sizes.dedup();
    thin(&mut sizes);
    while sizes.len() < MOST_MICRO_BATCHES {
        let Some(size) = between_widest(&sizes, &divisors) else { break };
        sizes.insert(sizes.partition_point(|known| *known < size), size);
    }
    sizes
}

/// Divisors of `samples` up to `largest`, ascending.
fn divisors(samples: u64, largest: u64) -> Vec<u64> {
    let small = (1..=samples.isqrt()).filter(|divisor| samples.is_multiple_of(*divisor));
    let mut all: Vec<u64> = small.flat_map(|divisor| [divisor, samples / divisor]).collect();
    all.retain(|divisor| *divisor <= largest);
    all.sort_unstable();
    all.dedup();
    all
}

/// Powers of two that are at least half an octave below the largest size.
fn powers_of_two(largest: u64) -> impl Iterator<Item = u64> {
    (0..=largest.ilog2()).map(|exponent| 1 << exponent).filter(move |power| 2 * power * power <= largest * largest)
}

/// The divisor nearest to a power of two, if it is less than a third of an octave away; else the power of two.
fn nearest_divisor(power: u64, divisors: &[u64]) -> u64 {
    let distance = |divisor: u64| (divisor as f64 / power as f64).log2().abs();
    let near = divisors.iter().copied().filter(|divisor| distance(*divisor) < 1.0 / 3.0);
    near.min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(power)
}

/// Removes sizes until few enough are left: from the smallest on, those whose neighbours are nearest to each other.
fn thin(sizes: &mut Vec<u64>) {
    while sizes.len() > MOST_MICRO_BATCHES {
        let ratio = |at: usize| sizes[at + 1] as f64 / sizes[at - 1] as f64;
        let nearest = (1..sizes.len() - 1).min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        sizes.remove(nearest.expect("BUG: more than two sizes are left"));
    }
}

/// The size that splits the widest gap best: a divisor, or where the gap is wide, any size. `None` where no gap has one.
fn between_widest(sizes: &[u64], divisors: &[u64]) -> Option<u64> {
    let split = |pair: &[u64]| {
        let (low, high) = (pair[0], pair[1]);
        let ratio = high as f64 / low as f64;
        let middle = (low as f64 * high as f64).sqrt();
        let distance = |size: u64| (size as f64 / middle).ln().abs();
        let inside = divisors.iter().copied().filter(|size| low < *size && *size < high);
        // Rounding makes equal distances differ, and the larger size is preferred.
        let nearest = inside.min_by_key(|size| ((distance(*size) * 1e6).round() as u64, core::cmp::Reverse(*size)));
        let any = || (ratio > WIDE && high - low > 1).then(|| (middle.round() as u64).clamp(low + 1, high - 1));
        Some((ratio, nearest.or_else(any)?))
    };
    let gaps = sizes.windows(2).filter_map(split);
    gaps.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, size)| size)
}

#[cfg(test)]
#[path = "micro_batches_tests.rs"]
mod tests;
