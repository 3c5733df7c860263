//! Amounts as text.

use crate::metrics::THROTTLES;
use crate::recording::{GpuSample, Throttle};

/// Converts bytes to GiB.
pub fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

/// Converts milliwatts to watts.
pub fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// A part, with the whole where that is known.
pub fn part_of(part: f64, all: Option<f64>, unit: &str, digits: usize) -> String {
    let all = all.map(|all| format!("/{all:.digits$}")).unwrap_or_default();
    format!("{part:.digits$}{all} {unit}")
}

/// Formats bytes in GiB, or in MiB below one.
pub fn size(bytes: u64) -> String {
    let gib = gib(bytes as f64);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{:.0} MiB", gib * 1024.0) }
}

/// Bytes per second, in the largest unit that keeps them above one.
pub fn rate(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate >= 1e9 => format!("{:.1} GB/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.0} MB/s", rate / 1e6),
        rate => format!("{:.0} kB/s", rate / 1e3),
    }
}

/// Energy in the unit that keeps it readable.
pub fn energy(joules: f64) -> String {
    match joules {
        energy if energy >= 3.6e6 => format!("{:.2} kWh", energy / 3.6e6),
        energy if energy >= 1e3 => format!("{:.1} kJ ({:.2} Wh)", energy / 1e3, energy / 3.6e3),
        energy => format!("{energy:.0} J"),
    }
}

/// Formats seconds as minutes or hours.
pub fn clock(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// A figure with few digits: `0.031`, `2.41`, `512`.
pub fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 1e6 => format!("{figure:.3e}"),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{figure:.2}"),
        size if size >= 1e-3 => format!("{figure:.4}"),
        _ => format!("{figure:.2e}"),
    }
}

/// Names a throttle reason.
pub fn reason(reason: Throttle) -> &'static str {
    THROTTLES.iter().find(|(throttle, ..)| *throttle == reason).map_or("unknown", |(.., name)| name)
}

/// Lists the throttle reasons of a sample.
pub fn reasons(sample: &GpuSample) -> String {
    sample.throttle.iter().map(|throttle| reason(*throttle)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{clock, energy, rate, short, size};

    #[test]
    fn amounts_have_few_digits_and_the_right_unit() {
        assert_eq!([size(5 << 30), size(300 << 20), size(0)], ["5.0 GiB", "300 MiB", "0 MiB"]);
        assert_eq!(
            [rate(2.345e9), rate(94e6), rate(12_345.0), rate(0.0)],
            ["2.3 GB/s", "94 MB/s", "12 kB/s", "0 kB/s"]
        );
        assert_eq!([energy(7.2e6), energy(34_200.0), energy(12.0)], ["2.00 kWh", "34.2 kJ (9.50 Wh)", "12 J"]);
        assert_eq!([clock(5.4), clock(65.0), clock(3725.0), clock(-1.0)], ["0:05", "1:05", "1:02:05", "0:00"]);
        let shortened = [1_234_567.0, 512.3, 24.06, 2.412, 0.0314, 0.000_03, 0.0].map(short);
        assert_eq!(shortened, ["1.235e6", "512", "24.1", "2.41", "0.0314", "3.00e-5", "0.00"]);
    }
}
