//! The configs of the tuning guides.

use proptest::prelude::*;

use super::tuned;
use crate::Format;

/// The two configs of the tuning guides, in each format.
const GUIDES: [(&str, [&str; 3]); 2] = [
    (
        "4 blocks of 32 channels over patches of 128",
        [
            "{\n  \"model\": {\"type\": \"cnn\", \"channels\": 32, \"num_blocks\": 4},\n  \"patch_size\": 128,\n  \"batch_size\": BATCH, // kept\n  \"accumulation_steps\": STEPS,\n  \"num_workers\": 0\n}\n",
            "patch_size = 128\nbatch_size = BATCH # kept\naccumulation_steps = STEPS\nnum_workers = 0\n[model]\ntype = \"cnn\"\nchannels = 32\nnum_blocks = 4\n",
            "model: {type: cnn, channels: 32, num_blocks: 4}\npatch_size: 128\nbatch_size: BATCH # kept\naccumulation_steps: STEPS\nnum_workers: 0\n",
        ],
    ),
    (
        "an LSTM over 7 to 30 days",
        [
            "{\"lstm\": {\"hidden_size\": 64, \"num_layers\": 2, \"sequence_length\": [7, 30]}, // kept\n \"batch_size\": BATCH, \"accumulation_steps\": STEPS}",
            "batch_size = BATCH # kept\naccumulation_steps = STEPS\n[lstm]\nhidden_size = 64\nnum_layers = 2\nsequence_length = { min = 7, max = 30 }\n",
            "batch_size: BATCH # kept\naccumulation_steps: STEPS\nlstm:\n  hidden_size: 64\n  num_layers: 2\n  sequence_length: {min: 7, max: 30}\n",
        ],
    ),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A step keeps its samples with any batch and GPU, and tuning twice changes nothing more.
    #[test]
    fn the_global_batch_stays_and_tuning_is_idempotent(
        batch in prop_oneof![1_u64..300, 1_u64..100_000],
        steps in 1_u64..40,
        ranks in 1_u64..5,
        guide in 0_usize..2,
        format in 0_usize..3,
        target in prop::sample::select(vec!["rtx4090", "gtx1080", "h200", "generic"]),
    ) {
        let text = GUIDES[guide].1[format].replace("BATCH", &batch.to_string()).replace("STEPS", &steps.to_string());
        let format = [Format::Json, Format::Toml, Format::Yaml][format];
        let ranks = ranks.to_string();
        let words = ["--world-size", &ranks];
        let (once, step) = tuned(format, &text, target, &words).expect("an answer");
        if let Some(once) = once.text {
            let (twice, again) = tuned(format, &once, target, &words).expect("an answer");
            prop_assert_eq!((twice.text.as_ref(), again.configured()), (Some(&once), step.global));
            prop_assert!(once.contains("kept"));
        }
    }
}

#[test]
fn the_guides_have_one_plan_in_each_format() {
    for (name, texts) in GUIDES {
        let formats = [Format::Json, Format::Toml, Format::Yaml];
        let of = |(format, text): (Format, &str)| {
            let text = text.replace("BATCH", "16").replace("STEPS", "2");
            let (tuned, step) =
                tuned(format, &text, "h200", &[]).unwrap_or_else(|error| panic!("{name} as {format:?}: {error}"));
            (tuned.plan.map(|plan| (plan.settings, plan.samples_per_s)), step)
        };
        let all: Vec<_> = formats.into_iter().zip(texts).map(of).collect();
        assert!(all[0].0.is_some() && all.iter().all(|one| *one == all[0]), "{name}: {all:#?}");
    }
}
