//! Samples as a table of comma-separated values.

use std::fmt::Write;

use crate::recording::{GpuSample, HostSample, Record};

use super::figure::{GPU_FIGURES, HOST_FIGURES};

/// The name of a column, and where samples have what is in it.
type Column<N, S> = (N, fn(&S) -> Option<f64>);

/// The first line: names of the columns, each with its unit.
///
/// A line belongs to a GPU at one moment, or to the host: then its column `gpu` is empty.
pub fn csv_header() -> String {
    format!("{},{}\n", gpu_columns(), host_columns())
}

/// The columns of GPUs, in every table that has them. A slice of a GPU has the GPU's number and a slot.
pub(crate) fn gpu_columns() -> String {
    let figures = of_gpu().map(|(name, _)| name);
    let columns = ["at_s", "gpu", "mig_slot", "uuid"].into_iter().chain(figures).chain(["throttle", "trouble"]);
    columns.collect::<Vec<_>>().join(",")
}

/// The columns of the host, in every table that has them.
pub(crate) fn host_columns() -> String {
    of_host().map(|(name, _)| name).collect::<Vec<_>>().join(",")
}

/// What is known of a GPU, by the names of columns.
pub(crate) fn of_gpu() -> impl Iterator<Item = Column<&'static str, GpuSample>> {
    let rest: [Column<&str, GpuSample>; 4] = [
        ("power_limit_w", |gpu| gpu.power_limit_mw.map(|milliwatts| f64::from(milliwatts) / 1e3)),
        ("memory_clock_mhz", |gpu| gpu.memory_clock_mhz.map(f64::from)),
        ("pcie_generation", |gpu| gpu.pcie_generation.map(f64::from)),
        ("pcie_lanes", |gpu| gpu.pcie_lanes.map(f64::from)),
    ];
    GPU_FIGURES.iter().map(|figure| (figure.key, figure.of)).chain(rest)
}

/// What is known of the host, by the names of columns.
pub(crate) fn of_host() -> impl Iterator<Item = Column<String, HostSample>> {
    HOST_FIGURES.iter().map(|figure| (format!("host_{}", figure.key), figure.of))
}

/// The line of a sample, with `uuid` telling which GPU it is of; other records have none.
pub fn csv_line(record: &Record, uuid: Option<&str>) -> Option<String> {
    let mut line = String::new();
    match record {
        Record::Gpu(sample) => {
            write_gpu(&mut line, sample, uuid.unwrap_or_default());
            line.extend(of_host().map(|_| ','));
        }
        Record::Host(sample) => {
            let _ = write!(line, "{:.3}", sample.at);
            // The first column has the time.
            line.extend(gpu_columns().matches(','));
            write_host(&mut line, sample);
        }
        _ => return None,
    }
    line.push('\n');
    Some(line)
}

/// A GPU's cells in the columns that it has in every table.
pub(crate) fn write_gpu(line: &mut String, sample: &GpuSample, uuid: &str) {
    let slot = sample.mig_slot.map(|slot| slot.to_string()).unwrap_or_default();
    let _ = write!(line, "{:.3},{},{slot},{}", sample.at, sample.gpu, quoted(uuid));
    for (_, of) in of_gpu() {
        let _ = write!(line, ",{}", number(of(sample)));
    }
    let reasons: Vec<_> = sample.throttle.iter().map(|reason| super::text::key(*reason)).collect();
    let trouble = sample.trouble.as_deref().unwrap_or_default();
    let _ = write!(line, ",{},{}", reasons.join(" "), quoted(trouble));
}

/// The host's cells in the columns that it has in every table, each after a comma.
pub(crate) fn write_host(line: &mut String, sample: &HostSample) {
    for (_, of) in of_host() {
        let _ = write!(line, ",{}", number(of(sample)));
    }
}

/// Three digits after the point, where they are not zero: figures are no more exact than that.
fn number(figure: Option<f64>) -> String {
    figure.map(|figure| ((figure * 1e3).round() / 1e3).to_string()).unwrap_or_default()
}

/// As RFC 4180 has it.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use crate::recording::{GpuSample, HostSample, Record, Throttle, Value};

    use super::{csv_header, csv_line};

    fn fields(line: &str) -> Vec<&str> {
        line.trim_end_matches('\n').split(',').collect()
    }

    #[test]
    fn every_line_has_the_columns_of_the_first() {
        let header = csv_header();
        let mut sample = GpuSample::new(1.5, 3);
        (sample.power_mw, sample.utilisation_percent) = (Some(123_456), Some(97.0));
        sample.throttle = vec![Throttle::PowerCap, Throttle::ThermalHardware];
        sample.pcie_to_gpu_bytes_per_s = Some(1_500_000_000);
        let gpu = csv_line(&Record::Gpu(sample), Some("GPU-1")).expect("a line");
        let mut host = HostSample::new(2.0);
        host.cpu_percent = Some(12.34567);
        let host = csv_line(&Record::Host(host), None).expect("a line");
        let names = fields(&header);
        let of = |line: &str, name: &str| {
            let place = names.iter().position(|column| *column == name).expect("a column");
            fields(line)[place].to_owned()
        };
        assert_eq!((fields(&gpu).len(), fields(&host).len()), (names.len(), names.len()));
        assert_eq!((of(&gpu, "at_s"), of(&gpu, "gpu"), of(&gpu, "uuid")), ("1.500".into(), "3".into(), "GPU-1".into()));
        assert_eq!((of(&gpu, "power_w"), of(&gpu, "utilisation_percent")), ("123.456".into(), "97".into()));
        assert_eq!(of(&gpu, "throttle"), "power_cap thermal_hardware");
        assert_eq!(
            (of(&gpu, "pcie_to_gpu_bytes_per_s"), of(&gpu, "temperature_c")),
            ("1500000000".into(), String::new())
        );
        assert_eq!((of(&host, "host_cpu_percent"), of(&host, "gpu")), ("12.346".into(), String::new()));
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
