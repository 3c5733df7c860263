use super::{csv_header, csv_line, quoted};
use crate::recording::{GpuSample, HostSample, Record, Throttle, Value};

#[test]
fn cells_are_neither_formulas_nor_several_cells() {
    for (text, cell) in [
        ("loss", "loss"),
        ("a,b", "\"a,b\""),
        ("a;=1", "\"a;=1\""),
        ("a\t=1", "\"a\t=1\""),
        ("say \"a\"", "\"say \"\"a\"\"\""),
        ("=HYPERLINK(\"http://a\",\"b\")", "\"'=HYPERLINK(\"\"http://a\"\",\"\"b\"\")\""),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-1+1", "'-1+1"),
        ("\u{ff1d}1", "'\u{ff1d}1"),
        ("\n=1", "\"'\n=1\""),
        ("\u{1b}[31m##vso[a]", "\u{fffd}[31m#\u{fffd}#\u{fffd}vso[a]"),
    ] {
        assert_eq!(quoted(text), cell);
    }
}

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
