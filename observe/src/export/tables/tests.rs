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

#[test]
fn lines_of_gpus_and_of_the_host_have_the_columns_of_the_header() {
    let mut gpu = GpuSample::new(1.5, 3);
    (gpu.power_mw, gpu.utilisation_percent) = (Some(123_456), Some(97.0));
    gpu.throttle = vec![Throttle::PowerCap, Throttle::ThermalHardware];
    (gpu.pcie_to_gpu_bytes_per_s, gpu.trouble) = (Some(1_500_000_000), Some("lost, \"really\"".to_owned()));
    let mut host = HostSample::new(2.0);
    host.cpu_percent = Some(12.34567);
    let gpu = csv_line(&Record::Gpu(gpu), Some("GPU-1")).expect("a line");
    let host = csv_line(&Record::Host(host), None).expect("a line");
    assert_eq!(csv_header().matches(',').count(), host.matches(',').count());
    insta::assert_snapshot!(csv_header() + &gpu + &host);
    assert_eq!(csv_line(&Record::Value(Value::new(0.0, "loss", 1.0)), None), None);
}
