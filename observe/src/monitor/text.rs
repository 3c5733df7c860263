//! The last samples in Prometheus' text format, and all samples in one CSV table.

use super::state::Latest;
use super::summary::Summary;
use crate::metrics::csv::{gpu_cells, gpu_columns, host_cells, host_columns, line};
use crate::metrics::prometheus::Exposition;
use crate::recording::Record;

/// Returns the first line: the names of the columns, with units.
///
/// A line belongs to one GPU at one moment, or to the host: then its column `gpu` is empty.
pub fn csv_header() -> String {
    line(gpu_columns().chain(host_columns()))
}

/// Returns the line of a sample, with the UUID of its GPU; `None` for other records.
pub fn csv_line(record: &Record, uuid: Option<&str>) -> Option<String> {
    let empty = |_| String::new();
    match record {
        Record::Gpu(sample) => Some(line(gpu_cells(sample, uuid.unwrap_or_default()).chain(host_columns().map(empty)))),
        Record::Host(sample) => {
            let time = [format!("{:.3}", sample.at)].into_iter();
            Some(line(time.chain(gpu_columns().skip(1).map(empty)).chain(host_cells(sample))))
        }
        _ => None,
    }
}

/// Formats the last samples in Prometheus' text format (version 0.0.4), to be served or left for the node exporter's
/// textfile collector. Energy is summed over the run.
///
/// Units are base units and part of the names. GPUs have the labels `gpu`, the driver's number, and `uuid`; MIG slices have
/// `mig_slot` as well. `export::prometheus` has the same metrics and labels.
pub fn to_prometheus(latest: &Latest, summary: &Summary) -> String {
    let mut exposition = Exposition::default();
    expose(&mut exposition, latest, summary);
    exposition.to_string()
}

/// Adds the last samples.
pub(crate) fn expose(exposition: &mut Exposition, latest: &Latest, summary: &Summary) {
    for sample in &latest.gpus {
        let key = (sample.gpu, sample.mig_slot);
        let gpu = latest.start.gpus.iter().find(|gpu| (gpu.gpu, gpu.mig_slot) == key);
        let energy = summary.gpus.iter().find(|summary| (summary.gpu.gpu, summary.gpu.mig_slot) == key);
        exposition.gpu(sample, gpu, energy.and_then(|summary| summary.energy_j));
    }
    if let Some(host) = &latest.host {
        exposition.host(host);
    }
    latest.values.values().for_each(|value| exposition.program_value(value));
}

#[cfg(test)]
mod tests {
    use super::{csv_header, csv_line};
    use crate::recording::{GpuSample, HostSample, Record, Throttle, Value};

    fn cells(line: &str) -> Vec<&str> {
        line.trim_end_matches('\n').split(',').collect()
    }

    #[test]
    fn every_line_has_the_columns_of_the_header() {
        let header = csv_header();
        let mut sample = GpuSample::new(1.5, 3);
        (sample.power_mw, sample.utilisation_percent) = (Some(123_456), Some(97.0));
        sample.throttle = vec![Throttle::PowerCap, Throttle::ThermalHardware];
        sample.pcie_to_gpu_bytes_per_s = Some(1_500_000_000);
        let gpu = csv_line(&Record::Gpu(sample), Some("GPU-1")).expect("a line");
        let mut host = HostSample::new(2.0);
        host.cpu_percent = Some(12.34567);
        let host = csv_line(&Record::Host(host), None).expect("a line");
        let names = cells(&header);
        let cell = |line: &str, name: &str| {
            let index = names.iter().position(|column| *column == name).expect("a column");
            cells(line)[index].to_owned()
        };
        assert_eq!((cells(&gpu).len(), cells(&host).len()), (names.len(), names.len()));
        for (line, name, expected) in [
            (&gpu, "at_s", "1.500"),
            (&gpu, "gpu", "3"),
            (&gpu, "uuid", "GPU-1"),
            (&gpu, "power_w", "123.456"),
            (&gpu, "utilisation_percent", "97"),
            (&gpu, "throttle", "power_cap thermal_hardware"),
            (&gpu, "pcie_to_gpu_bytes_per_s", "1500000000"),
            (&gpu, "temperature_c", ""),
            (&host, "at_s", "2.000"),
            (&host, "host_cpu_percent", "12.346"),
            (&host, "gpu", ""),
        ] {
            assert_eq!(cell(line, name), expected, "{name}");
        }
    }

    #[test]
    fn text_with_commas_is_quoted_and_other_records_have_no_line() {
        let mut sample = GpuSample::new(0.0, 0);
        sample.trouble = Some("lost, \"really\"".to_owned());
        let line = csv_line(&Record::Gpu(sample), None).expect("a line");
        assert!(line.contains(",\"lost, \"\"really\"\"\","), "{line}");
        assert_eq!(csv_line(&Record::Value(Value::new(0.0, "loss", 1.0)), None), None);
    }
}
