//! A profile as a table of `gpu-tuned.toml`, with a comment beside each figure that the driver does not report.

use gpu_tuned_core::profile::{Basis, DetectedFigures, Figure, PeakFigure, ProfileId};
use toml::Value;

const SOURCE: &str = DetectedFigures::SOURCE;

/// Properties that neither NVML nor CUDA reports.
const UNREPORTED: [&str; 5] = ["chip", "kind of memory", "ECC as shipped", "PCI Express", "NVLink"];

pub(super) fn profile(id: &ProfileId, figures: &DetectedFigures) -> String {
    let mut text = Text(format!("[profile.{id}]\n"));
    if let Some(name) = &figures.name {
        text.line("names", vec![name.as_str()], "");
        text.line("names_source", SOURCE, "");
    }
    if let Some(pci_id) = figures.pci_id {
        text.line("pci_ids", vec![pci_id.to_string()], "");
        text.line("pci_ids_source", SOURCE, "");
    }
    let family = figures.capability.architecture();
    let note = if family.is_some() { "" } else { "not listed for this compute capability" };
    text.line("architecture", family.unwrap_or("unknown"), note);
    text.line("compute_capability", figures.capability.to_string(), "");
    if figures.is_mobile {
        text.line("mobile", true, "");
    }
    text.line("sources", vec![SOURCE], "");
    text.line("unknown", unknown(figures), "");
    let rates = [("sm_count", &figures.sm_count.origin), ("bandwidth", &figures.bandwidth_gb_s.origin)];
    let estimated: Vec<&str> =
        rates.into_iter().filter(|(_, origin)| origin.is_estimate()).map(|(key, _)| key).collect();
    if !estimated.is_empty() {
        text.line("estimated", estimated, "delete a figure's name after its correction");
    }

    text.0 += &format!("\n[profile.{id}.memory]\n");
    text.line("nominal_mib", integer(figures.nominal_mib), "the driver's total, rounded up to a size that is sold");
    if let Some(total) = figures.nvml_total_mib {
        text.line("nvml_total_mib", vec![integer(total)], "");
    }
    if let Some(total) = figures.cuda_total_mib {
        text.line("cuda_total_mib", vec![integer(total)], "");
    }
    if let Some(bits) = figures.bus_bits {
        text.line("bus_bits", i64::from(bits), "");
    }
    text.figure("bandwidth_gb_s", &figures.bandwidth_gb_s);

    text.0 += &format!("\n[profile.{id}.compute]\n");
    let count = &figures.sm_count;
    text.line("sm_count", i64::from(count.value), &count.origin.to_string());
    let is_known = !count.origin.is_estimate() && figures.capability.architecture().is_some();
    let lanes = figures.capability.cores_per_sm().filter(|_| is_known);
    if let Some(cores) = lanes.and_then(|lanes| lanes.checked_mul(count.value)) {
        text.line("cuda_cores", i64::from(cores), "");
    }
    text.figure("boost_mhz", &figures.boost_mhz);
    if let Some(mib) = figures.l2_mib {
        text.line("l2_mib", rounded(mib), "");
        text.line("l2_source", SOURCE, "");
    }
    let note = if figures.is_half_rate { "GeForce: tensor cores run at half rate with fp32 accumulation" } else { "" };
    text.line("half_rate_fp32_accumulate", figures.is_half_rate, note);

    text.0 += &format!("\n[profile.{id}.peaks]\n");
    for peak in &figures.peaks {
        text.peak(peak);
    }
    if let Some(watts) = figures.tdp_w {
        text.0 += &format!("\n[profile.{id}.board]\n");
        text.line("tdp_w", rounded(watts), "");
    }
    text.0
}

/// Properties that the driver does not report.
fn unknown(figures: &DetectedFigures) -> Vec<&'static str> {
    let missing = [("L2 cache", figures.l2_mib.is_none()), ("board power", figures.tdp_w.is_none())];
    let missing = missing.into_iter().filter(|(_, is_missing)| *is_missing).map(|(property, _)| property);
    UNREPORTED.into_iter().chain(missing).collect()
}

struct Text(String);

impl Text {
    /// Adds a key, its value, and a comment if there is a note.
    fn line(&mut self, key: &str, value: impl Into<Value>, note: &str) {
        let comment = if note.is_empty() { String::new() } else { format!(" # {note}") };
        self.0 += &format!("{key} = {}{comment}\n", value.into());
    }

    fn figure(&mut self, key: &str, figure: &Figure<f64>) {
        self.line(key, rounded(figure.value), &figure.origin.to_string());
    }

    fn peak(&mut self, PeakFigure { key, tflops, basis, source }: &PeakFigure) {
        let basis = match basis {
            Basis::Published => "published",
            Basis::Derived => "derived",
            Basis::Borrowed => "borrowed",
            Basis::Estimated => "estimated",
        };
        let (value, note) = (Value::Float(rounded(tflops.value)), &tflops.origin);
        let source = Value::from(source.as_str());
        self.0 += &format!("{key} = {{ tflops = {value}, basis = \"{basis}\", source = {source} }} # {note}\n");
    }
}

/// A number with one digit behind the point, and three digits at least.
fn rounded(value: f64) -> f64 {
    let digits = if value < 10.0 { 100.0 } else { 10.0 };
    (value * digits).round() / digits
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[test]
fn figures_have_three_digits_at_least() {
    let rounded = [9.996, 10.04, 82.58, 1.234, 0.5].map(rounded);
    assert_eq!(rounded.map(|value| value.to_string()), ["10", "10", "82.6", "1.23", "0.5"]);
}
