//! Plans, explanations and findings as several commands print them.

mod device;
mod exchange;
mod explanation;
mod plan;

use gpu_tuned_observe::diagnose::{Finding, Quantity};

pub(crate) use device::{memory_origin, remarks};
pub(crate) use exchange::{ExchangeArgs, describe_exchange, exchange_aside};
pub(crate) use explanation::{aside, explanation, method};
pub(crate) use plan::{cells, heading, headings, kept_from_builds, with_graphs};

/// Expected effect of a change, and the reason.
pub(crate) fn expectation(finding: &Finding) -> String {
    let Some(prediction) = &finding.prediction else {
        return "the recording does not show how much this gains".to_owned();
    };
    let (now, then) = (prediction.quantity.describe(prediction.now), prediction.quantity.describe(prediction.then));
    let what = match prediction.quantity {
        Quantity::FailsAtStep => format!("without it, out of memory at {then}"),
        Quantity::FailsAfterS => format!("without it, out of memory in {then}"),
        _ if now == then => format!("{now}, as now"),
        Quantity::SamplesPerS => format!("{then} in place of {now}, {:.2} times as fast", finding.gain()),
        _ => format!("{then} in place of {now}"),
    };
    let behind = finding.behind.map_or_else(String::new, |kind| format!("; more once {kind} is fixed"));
    format!("{what}{behind}: {}", prediction.how)
}

/// Name of a figure with its unit, and its divisor.
pub(crate) fn readable(key: &str) -> (String, f64) {
    const UNITS: [(&str, &str, f64); 6] = [
        ("_bytes_per_s", "MB/s", 1e6),
        ("_bytes", "GiB", (1_u64 << 30) as f64),
        ("_percent", "%", 1.0),
        ("_mhz", "MHz", 1.0),
        ("_w", "W", 1.0),
        ("_c", "°C", 1.0),
    ];
    let unit = UNITS.into_iter().find_map(|(suffix, unit, scale)| Some((key.strip_suffix(suffix)?, unit, scale)));
    let Some((name, unit, scale)) = unit else { return (key.to_owned(), 1.0) };
    let words = name.split('_').map(|word| match word {
        "cpu" | "dram" | "gpu" | "sm" => word.to_uppercase(),
        "pcie" => "PCIe".to_owned(),
        word => word.to_owned(),
    });
    (format!("{}, {unit}", words.collect::<Vec<_>>().join(" ")), scale)
}
