use super::{clock, energy, rate, short, size};

#[test]
fn amounts_have_few_digits_and_the_right_unit() {
    assert_eq!([size(5 << 30), size(300 << 20), size(0)], ["5.0 GiB", "300 MiB", "0 MiB"]);
    assert_eq!([rate(2.345e9), rate(94e6), rate(12_345.0), rate(0.0)], ["2.3 GB/s", "94 MB/s", "12 kB/s", "0 kB/s"]);
    assert_eq!([energy(7.2e6), energy(34_200.0), energy(12.0)], ["2.00 kWh", "34.2 kJ (9.50 Wh)", "12 J"]);
    assert_eq!([clock(5.4), clock(65.0), clock(3725.0), clock(-1.0)], ["0:05", "1:05", "1:02:05", "0:00"]);
    let shortened = [1_234_567.0, 512.3, 24.06, 2.412, 0.0314, 0.000_03, 0.0].map(short);
    assert_eq!(shortened, ["1.235e6", "512", "24.1", "2.41", "0.0314", "3.00e-5", "0.00"]);
}
