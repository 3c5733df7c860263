use std::time::Duration;

use clap::Parser;
use gpu_tuned_core::{Precision, PrecisionPolicy};

use super::{GpuNames, PrecisionName, count, gib, parse_time, share};

#[test]
fn counts_and_fractions_are_taken_as_people_write_them() {
    for (text, number) in [("512", 512), ("1_000", 1000), ("1e3", 1000), ("1.5e3", 1500), (" 8 ", 8)] {
        assert_eq!(count(text), Ok(number), "{text}");
    }
    assert_eq!(count(&u64::MAX.to_string()), Ok(u64::MAX));
    for text in ["", "1.5", "-1", "1e99", "nan", "inf", "10%", "1k"] {
        assert!(count(text).is_err(), "{text}");
    }
    for (text, fraction) in [("10%", 0.1), ("0.1", 0.1), ("12.5 %", 0.125), ("0", 0.0), ("1e-1", 0.1)] {
        assert_eq!(share(text), Ok(fraction), "{text}");
    }
    for text in ["", "%", "ten", "nan", "10%%", "10", "-0.1"] {
        assert!(share(text).is_err(), "{text}");
    }
    assert_eq!((gib("24"), gib("80 GiB"), gib("80GB")), (Ok(24.0), Ok(80.0), Ok(80.0)));
    assert!(gib("24 MiB").is_err() && gib("-1").is_err());
}

#[test]
fn times_have_units() {
    for (text, milliseconds) in [
        ("500ms", 500),
        ("2s", 2000),
        ("2", 2000),
        ("1.5s", 1500),
        ("3m", 180_000),
        ("1h", 3_600_000),
        ("1 min", 60_000),
    ] {
        assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    for text in ["", "s", "-1s", "0s", "1d", "nan", "1e999", "1.2.3s", "99999999999999999999999h", "٣s"] {
        assert!(parse_time(text).is_err(), "{text}");
    }
}

#[test]
fn names_of_other_frameworks_are_taken_with_a_note() {
    let own = ["auto", "f32", "mixed_bf16", "mixed_f16", "bf16_params"];
    for name in own.into_iter().chain(["fp32", "32-true"]) {
        assert_eq!(name.parse::<PrecisionName>().expect(name).note, None, "{name}");
    }
    for (name, precision) in [
        ("bf16", Precision::MixedBf16),
        ("bf16-mixed", Precision::MixedBf16),
        ("16-mixed", Precision::MixedF16),
        ("fp16", Precision::MixedF16),
        ("bf16-true", Precision::Bf16Params),
    ] {
        let PrecisionName { policy, note } = name.parse().expect(name);
        assert_eq!(policy, PrecisionPolicy::Fixed(precision), "{name}");
        assert!(note.is_some_and(|note| note.contains(name) && note.contains(precision.name())), "{name}");
    }
    for (name, expected) in [("amp", "mixed_bf16 or mixed_f16, or auto"), ("f8", "expected f32, mixed_bf16")] {
        assert!(name.parse::<PrecisionName>().is_err_and(|error| error.contains(expected)), "{name}");
    }
}

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    names: GpuNames,
}

fn items(args: &[&str]) -> String {
    let args = Args::parse_from([&["test"], args].concat());
    args.names.items().iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_name_has_several_words_and_commas_and_options_end_it() {
    for (args, expected) in [
        (&[][..], ""),
        (&["RTX", "4090"], "RTX 4090"),
        (&["NVIDIA GeForce RTX 4090"], "NVIDIA GeForce RTX 4090"),
        (&["--target", "RTX 4090"], "RTX 4090"),
        (&["rtx4090", "--target=rtx_4090", "rtx4090,"], "rtx4090 rtx4090; rtx_4090"),
        (&["rtx4070-ti,h200,rtx4090"], "rtx4070-ti; h200; rtx4090"),
        (&["RTX", "4070", "Ti", "H200"], "RTX 4070 Ti H200"),
        (&["RTX 4070 Ti, H200", "rtx4090"], "RTX 4070 Ti; H200 rtx4090"),
        (&["--target", "rtx4070-ti,h200", "--target", "RTX 4090"], "rtx4070-ti; h200; RTX 4090"),
    ] {
        assert_eq!(items(args), expected, "{args:?}");
    }
}
