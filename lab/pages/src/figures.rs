//! Statistics, and their formats.

use gpu_tuned_core::Bytes;

/// Median; `None` without figures.
pub fn median(figures: &[f64]) -> Option<f64> {
    let sorted = sorted(figures);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(low.midpoint(*high))
}

/// Percentile by nearest rank, for a fraction from 0 to 1; `None` without figures.
pub fn percentile(figures: &[f64], share: f64) -> Option<f64> {
    let rank = (figures.len() as f64 * share).ceil() as usize;
    sorted(figures).get(rank.max(1) - 1).copied()
}

/// Geometric mean; `None` without figures.
pub fn geometric_mean(figures: &[f64]) -> Option<f64> {
    let logarithms: f64 = figures.iter().map(|figure| figure.ln()).sum();
    (!figures.is_empty()).then(|| (logarithms / figures.len() as f64).exp())
}

/// Minimum; `None` without figures.
pub fn min(figures: &[f64]) -> Option<f64> {
    figures.iter().copied().reduce(f64::min)
}

/// Maximum; `None` without figures.
pub fn max(figures: &[f64]) -> Option<f64> {
    figures.iter().copied().reduce(f64::max)
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Formats a fraction in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// Formats a fraction in percent, with its sign.
pub fn difference(share: f64) -> String {
    format!("{:+.2}%", share * 100.0)
}

/// Formats mebibytes, without a unit.
pub fn mib(bytes: Bytes) -> String {
    format!("{:.0}", bytes.mib())
}

/// Formats a figure, or a dash without one.
pub fn or_dash<T>(figure: Option<T>, text: impl Fn(T) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), text)
}

/// A table below a summary that unfolds it.
pub fn folded(summary: &str, table: &str) -> String {
    format!("<details><summary>{summary}</summary>\n\n{table}\n</details>\n\n")
}

#[cfg(test)]
mod tests {
    use super::{geometric_mean, median, percentile};

    /// Against Python's `statistics` (median, geometric mean), and the definition of the nearest rank.
    #[test]
    fn statistics_are_those_of_the_textbook() {
        let close = |found: Option<f64>, wanted: f64| (found.expect("a figure") - wanted).abs() < 1e-9;
        assert!(close(median(&[54.0, 24.0, 36.0]), 36.0));
        assert!(close(median(&[4.0, 1.0, 3.0, 2.0]), 2.5));
        assert!(close(geometric_mean(&[54.0, 24.0, 36.0]), 36.0));
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!(close(percentile(&hundred, 0.95), 95.0));
        assert!(close(percentile(&[15.0, 20.0, 35.0, 40.0, 50.0], 0.3), 20.0));
        assert!(close(percentile(&[15.0, 20.0, 35.0, 40.0, 50.0], 0.95), 50.0));
        assert_eq!((median(&[]), percentile(&[], 0.95), geometric_mean(&[])), (None, None, None));
    }
}
