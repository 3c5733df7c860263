//! Edits of files, files of other programs, and time.

use proptest::prelude::*;

use super::{DIMS, MODEL, refused, tuned};
use crate::Format;
use crate::dialect::DIALECTS;

#[test]
fn many_keys_of_one_name_are_read_in_linear_time() {
    let tables = |text: &dyn Fn(usize) -> String| {
        let tables: String = (0..30_000).map(|at| format!("\"t{at}\": {{{}}},\n", text(at))).collect();
        refused(Format::Json, &format!("{{{tables} \"lr\": 1, {DIMS}}}"))
    };
    let words = tables(&|at| format!("\"batch_size\": 1{at}"));
    assert!(words.contains("`t0.batch_size` and `t1.batch_size` both look like the batch_size"), "{words}");
    let words = tables(&|at| format!("\"batch_size\": \"${{u{at}.batch_size}}\", \"x\": {{\"batch_size\": 1}}"));
    assert!(words.starts_with("config:1:23: `t0.batch_size` refers to `\"${u0.batch_size}\"`"), "{words}");
    assert_eq!(words.lines().count(), 101);
}

/// Eight times the keys take about eight times as long: a quadratic reader would take 64 times.
#[test]
fn time_grows_with_the_size_of_the_file() {
    for format in [Format::Yaml, Format::Json, Format::Toml] {
        let text = |keys: usize| {
            let lines = (0..keys).map(|index| match format {
                Format::Yaml => format!("seed_{index}: {{label: {index}, note: 'a # b'}} # kept\n"),
                Format::Json => format!("\"seed_{index}\": {{\"label\": {index}, \"note\": \"a\"}},\n"),
                Format::Toml => format!("seed_{index} = {{ label = {index}, note = 'a' }} # kept\n"),
            });
            let lines: String = lines.collect();
            match format {
                Format::Yaml => format!("{MODEL}batch_size: 8\nlr: 1\n{lines}"),
                Format::Json => format!("{{{DIMS}, \"batch_size\": 8, \"lr\": 1,\n{lines} \"step\": 1}}"),
                Format::Toml => format!(
                    "n_layer = 2\nn_head = 4\nn_embd = 64\nblock_size = 128\nvocab_size = 256\nbatch_size = 8\nlr = 1\n{lines}"
                ),
            }
        };
        let seconds = |keys: usize| {
            let text = text(keys);
            let start = std::time::Instant::now();
            tuned(format, &text, "h200", &[]).expect("a plan");
            start.elapsed().as_secs_f64()
        };
        // Other programs that run meanwhile slow one of the two: one good ratio is enough.
        let is_linear = (0..6).any(|_| seconds(2_000) / seconds(250) < 32.0);
        assert!(is_linear, "{format:?}: eight times the keys take 32 times as long");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Configs of keys of all dialects with any values are planned with the same step, or refused.
    #[test]
    fn any_keys_with_any_values_keep_the_step_or_are_refused(
        keys in prop::collection::vec((0_usize..400, 0_usize..24), 1..8),
        ranks in 1_u64..4,
        options in prop::sample::subsequence(vec!["--add", "--host"], 0..=2),
    ) {
        const VALUES: &str = "1 2 3 8 64 true false auto null no bf16 fp16 16-mixed '32-true' -1 0.5 [4] [1,2] {0:8} ${a.b} \
                              <batch_size> adamw lion x/y";
        let names: Vec<&str> =
            DIALECTS.iter().flat_map(|dialect| &dialect.keys).flat_map(|key| key.names.iter()).collect();
        let values: Vec<&str> = VALUES.split_whitespace().collect();
        let mut text = MODEL.to_owned();
        for (index, (key, value)) in keys.iter().enumerate() {
            let path: Vec<&str> = names[key % names.len()].split('.').filter(|name| !name.is_empty()).collect();
            let inner = path.iter().rev().fold(values[*value].to_owned(), |inner, name| format!("{{'{name}': {inner}}}"));
            text += &format!("t{index}: {inner}\n'{}': {}\n", path.concat() + &index.to_string(), values[*value]);
        }
        text += "batch_size: 64\nlr: 1\ngrad_accum: 2\n";
        let ranks = ranks.to_string();
        let options: Vec<&str> = [vec!["--world-size", ranks.as_str()], options].concat();
        if let Ok((once, step)) = tuned(Format::Yaml, &text, "rtx4090", &options)
            && let Some(changed) = once.text
        {
            let (_, again) = tuned(Format::Yaml, &changed, "rtx4090", &options).expect("the edited text is a config");
            prop_assert_eq!((again.global, again.ranks), (step.global, step.ranks), "{}", text);
        }
    }
}

#[test]
fn line_breaks_that_only_some_readers_know_are_refused() {
    for letter in ['\u{85}', '\u{2028}', '\u{2029}'] {
        let text = format!("{MODEL}batch_size: 12 #{letter}  batch_size: 24\n");
        let message = refused(Format::Yaml, &text);
        assert!(message.contains("readers disagree on whether this character"), "{message}");
    }
}
