//! A GPU beside its profile or the nearest one.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::Match;
use gpu_tuned_core::profile::Profile;

use super::certainty::is_in;
use crate::output::{MARKED, PLAIN, Table, styled};

const COLUMNS: [&str; 3] = ["", ">here", ">profile"];

/// A line for each figure of the driver, with the profile's; `None` without any.
pub(super) fn table(reading: &GpuReading, found: &Match) -> Option<String> {
    let lines: Vec<_> = lines(reading, found).into_iter().flatten().collect();
    if lines.is_empty() {
        return None;
    }
    let mut table = Table::new(2, COLUMNS);
    for Line { name, here, profile, remark } in lines {
        let remark = if remark.is_empty() { remark } else { styled(MARKED, remark) };
        table.row(PLAIN, [name.to_owned(), here, profile.unwrap_or_default()], remark);
    }
    Some(table.print())
}

/// Power limit as a fraction of the board's default, where it is lower.
pub(super) fn power_cap(reading: &GpuReading) -> Option<f64> {
    let (limit, shipped) = (reading.power_limit_mw?, reading.default_power_limit_mw?);
    (limit < shipped).then(|| f64::from(limit) / f64::from(shipped))
}

struct Line {
    name: &'static str,
    here: String,
    profile: Option<String>,
    remark: String,
}

fn lines(reading: &GpuReading, found: &Match) -> [Option<Line>; 8] {
    let profile = found.profile();
    let differences = match found {
        Match::Variant { differences, .. } => differences.as_slice(),
        _ => &[],
    };
    let differs = |what: &str| differences.iter().any(|difference| is_in(difference, what));
    let count = |count: u32| count.to_string();
    let bits = |bits: u32| format!("{bits} bit");
    let capability = profile.map(|profile| profile.compute_capability.to_string());
    let sms = profile.and_then(|profile| profile.compute.sm_count);
    let bus = profile.and_then(|profile| profile.memory.bus_bits);
    let other_bus = reading.memory_bus_bits.is_some() && bus.is_some() && reading.memory_bus_bits != bus;
    [
        line("memory", reading.memory_total.map(exact), profile.map(memory), differs("memory")),
        line("reserved by driver", reading.memory_reserved.filter(|kept| kept.0 > 0).map(exact), None, false),
        line("free now", reading.memory_free.map(exact), None, false),
        line("memory bus", reading.memory_bus_bits.map(bits), bus.map(bits), other_bus),
        line("SMs", reading.sm_count.map(count), sms.map(count), differs("SMs")),
        line(
            "capability",
            reading.compute_capability.map(|it| it.to_string()),
            capability,
            differs("compute capability"),
        ),
        power(reading, profile),
        line("other processes", reading.other_processes.filter(|count| *count > 0).map(count), None, false),
    ]
}

fn line(name: &'static str, here: Option<String>, profile: Option<String>, differs: bool) -> Option<Line> {
    let remark = if differs { "differs".to_owned() } else { String::new() };
    here.map(|here| Line { name, here, profile, remark })
}

fn power(reading: &GpuReading, profile: Option<&Profile>) -> Option<Line> {
    let watts = f64::from(reading.power_limit_mw?) / 1e3;
    let published = profile.and_then(|profile| profile.board.tdp_w);
    let shipped = reading.default_power_limit_mw.map(|limit| f64::from(limit) / 1e3);
    let remark = match (power_cap(reading), shipped) {
        (Some(share), Some(shipped)) => format!("capped to {:.0}% of {shipped:.0} W", share * 100.0),
        _ if published.is_some_and(|published| (watts - published).abs() >= 1.0) => "differs".to_owned(),
        _ => String::new(),
    };
    let (here, profile) = (format!("{watts:.0} W"), published.map(|watts| format!("{watts:.0} W")));
    Some(Line { name: "power limit", here, profile, remark })
}

/// Memory as NVML reports it, else as advertised.
fn memory(profile: &Profile) -> String {
    let memory = &profile.memory;
    exact(Bytes::from_mib(*memory.nvml_total_mib.first().unwrap_or(&memory.nominal_mib)))
}

fn exact(bytes: Bytes) -> String {
    format!("{:.0} MiB", bytes.mib())
}
