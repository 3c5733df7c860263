use clap::Parser;
use gpu_tuned_core::Precision;

use super::BenchArgs;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    bench: BenchArgs,
}

fn args(words: &[&str]) -> Result<BenchArgs, String> {
    let parsed = Args::try_parse_from(["bench"].iter().chain(words));
    parsed.map(|args| args.bench).map_err(|error| error.to_string())
}

#[test]
fn batches_are_numbers_and_powers_of_two_in_ranges() {
    let batches = |list| args(&["--batch", list]).expect("a list").batches();
    assert_eq!(batches("48,16..70,16"), [16, 32, 48, 64]);
    assert_eq!(batches("16..=64"), [16, 32, 64]);
    assert_eq!(args(&[]).expect("nothing is needed").batches(), [0; 0]);
    for wrong in ["0", "16..", "a", "5..7", "64..16", ""] {
        assert!(args(&["--batch", wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn workers_and_prefetch_depths_are_combined() {
    let feeds = |words: &[&str]| -> Vec<_> {
        let feeds = args(words).expect("lists").feeds();
        feeds.iter().map(|feed| (feed.workers, feed.prefetch)).collect()
    };
    assert_eq!(feeds(&["--workers", "2,0", "--prefetch", "4,1"]), [(0, 0), (2, 1), (2, 4)]);
    assert_eq!(feeds(&["--workers", "3"]), [(3, 2)]);
    assert_eq!(feeds(&[]), []);
    assert!(args(&["--prefetch", "2"]).is_err() && args(&["--workers", "1", "--prefetch", "0"]).is_err());
}

#[test]
fn precisions_are_distinct() {
    let precisions = |words: &[&str]| args(words).map(|args| args.precisions());
    let both = precisions(&["--precision", "bf16_params,f32,f32"]).expect("a list");
    assert_eq!(both, [Some(Precision::F32), Some(Precision::Bf16Params)]);
    assert_eq!(precisions(&[]).expect("nothing is needed"), [None]);
    assert_eq!(precisions(&["--precision", "mixed_bf16"]).expect("one"), [Some(Precision::MixedBf16)]);
    let unknown = precisions(&["--precision", "f8"]).expect_err("there is none such");
    assert!(unknown.contains("expected f32, mixed_bf16 (bf16 AMP), mixed_f16"), "{unknown}");
    assert_eq!(precisions(&["--precision", "fp32, bf16-true"]).expect("a list"), both);
}

#[test]
fn checkpointing_is_tried_both_ways_by_default() {
    let switches = |words: &[&str]| args(words).expect("a list").checkpointing();
    assert_eq!(switches(&[]), [false, true]);
    assert_eq!(switches(&["--checkpointing", "on,off"]), [false, true]);
    assert_eq!(switches(&["--checkpointing", "on"]), [true]);
}
