//! Mistakes in a lock, and their messages.

use super::super::merged;
use super::{WHOLE, parse, source, whole};

/// Paths in messages, by their short forms in [`SLIPS`].
const PATHS: [(&str, &str); 3] = [("BATCH", "MODE.batch"), ("MODE", "LM.on.h200.mode.f32"), ("LM", "workload.char-lm")];

const MILLISECONDS: &str = "37:50: BATCH.64.micro_step_ms: expected milliseconds from 1e-6 to 1e9";

/// A text of the lock, its replacement, and the beginning of the first message.
const SLIPS: [(&str, &str, &str); 23] = [
    ("method = \"dry-run\"", "method = \"dry\"", "34:10: MODE.method: expected one of executed, dry-run, simulated"),
    ("method =", "mehtod =", "33:32: MODE needs method"),
    ("12.31", "-12.31", MILLISECONDS),
    ("12.31", "0", MILLISECONDS),
    ("12.31", "\"12\"", MILLISECONDS),
    ("818_256", "1e3", "7:14: LM.parameters: expected a whole number from 0 to 2^50"),
    ("818_256", "1_125_899_906_842_625", "7:14: LM.parameters: expected a whole number from 0 to 2^50"),
    ("\"5e1f\"", "5", "8:9: LM.shape: expected a text in quotes"),
    ("\n64 = {", "\n0 = {", "37:1: BATCH.0: expected samples, from 1 to 2^30"),
    ("\n64 = {", "\n064 = {", "37:1: BATCH.064: expected samples, from 1 to 2^30"),
    ("d_model =", "d_modell =", "13:29: LM.described needs d_model"),
    ("d_model = 128", "d_model = 0", "14:11: d_model = 0 is out of range, expected 1 to 2^24"),
    ("optimizer = \"muon\"", "optimizer = \"moun\"", "11:13: optimizer: expected one of sgd"),
    ("global_batch = 512", "global_batch = []", "20:16: global_batch: expected a whole number"),
    ("kind = \"gpu\"", "kind = \"npu\"", "29:8: LM.on.h200.kind: expected one of gpu, cpu"),
    ("reserved_bytes = 24_779_960_320", "reserved = 24_779_960_320", "38:1: BATCH.1024 needs reserved_bytes"),
    (
        "reserved_bytes = 1_548_747_520",
        "reserved_bytes = 5",
        "37:141: BATCH.64.reserved_bytes: expected a whole number from 1000000, the in_use_bytes, to 2^50",
    ),
    (
        "in_use_bytes = 1_000_000",
        "in_use_bytes = 1_550_000_000",
        "37:145: BATCH.64.reserved_bytes: expected a whole number from 1550000000, the in_use_bytes, to 2^50",
    ),
    (
        "reserved_accumulating_bytes = 1_560_000_000",
        "reserved_accumulating_bytes = 0",
        "37:109: BATCH.64.reserved_accumulating_bytes: expected a whole number from 1000000",
    ),
    ("sm_count = 132", "sm_count = 132\nsm_count = 132", "32:1: duplicate key"),
    ("format = 2\n", "", "1:1: `format = 2` is missing"),
    ("format = 2", "format = \"2\"", "3:10: format: expected 2"),
    ("[workload.char-lm.goal]\nglobal_batch", "[workload.char-lm]\ngoal", "19:11: duplicate key"),
];

#[test]
fn mistakes_have_their_places() {
    for (right, wrong, expected) in SLIPS {
        let text = WHOLE.replace(right, wrong);
        let mistakes = parse(&text).expect_err(wrong);
        let found = mistakes[0].to_string();
        let expected = PATHS.iter().fold(expected.to_owned(), |text, (short, path)| text.replace(short, path));
        assert!(found.starts_with(&format!("gpu-tuned.lock:{expected}")), "{wrong}: {found}");
        let last = mistakes.last().expect("there is one").to_string();
        assert!(last.ends_with("or delete it and run `cargo gpu-tuned measure`"), "{last}");
        assert_eq!(merged(Some(source(&text)), "char-lm", &whole()), Err(mistakes));
    }
}

#[test]
fn the_micro_batches_of_a_mode_are_bounded() {
    let line = |samples: usize| format!("{samples} = {{ reserved_bytes = 1 }}\n");
    let with = |count: usize| {
        let (head, rest) = WHOLE.split_once("64 = ").expect("the first batch");
        let (_, end) = rest.rsplit_once("\n\n").expect("the last line");
        parse(&format!("{head}{}\n{end}", (1..=count).map(line).collect::<String>()))
    };
    assert_eq!(with(1_000).err(), None);
    let mistakes = with(1_001).expect_err("too many");
    assert!(mistakes[0].message.contains("has more than 1000 micro-batches, the most that is read"), "{}", mistakes[0]);
}

#[test]
fn only_steps_that_a_cpu_ran_may_lack_their_memory() {
    let without = WHOLE.replace("reserved_bytes = 24_779_960_320", "micro_step_ms = 200.0");
    for (kind, method, is_right) in [
        ("gpu", "dry-run", false),
        ("gpu", "simulated", false),
        ("gpu", "executed", false),
        ("cpu", "simulated", false),
        ("cpu", "executed", true),
    ] {
        let text = without
            .replace("kind = \"gpu\"", &format!("kind = \"{kind}\""))
            .replace("\"dry-run\"", &format!("\"{method}\""));
        assert_eq!(parse(&text).is_ok(), is_right, "{kind} {method}");
    }
}

#[test]
fn a_file_that_was_cut_short_is_refused_wherever_it_ends() {
    for end in 0..WHOLE.len() - 1 {
        let mistakes = parse(&WHOLE[..end]).expect_err("it was cut short");
        let last = mistakes.last().expect("there is one");
        if end > 0 {
            let missing =
                "`# end of gpu-tuned.lock` is missing, the last line: the file was cut short; mend that, put back";
            assert!(last.message.starts_with(missing), "{last}");
        }
    }
    // A text that is cut within a line is no TOML; without whole lines nothing else is wrong.
    let (cut, _) = WHOLE.split_once("reserved_accumulating").expect("the second figure of the last mode");
    let (whole, _) = WHOLE.split_once("1024 =").expect("the last batch");
    for (text, number) in [(cut, 2), (whole, 1)] {
        assert_eq!(parse(text).expect_err("cut short").len(), number, "{text}");
    }
}

#[test]
fn what_ends_as_it_should_is_whole_whatever_its_line_ends_are() {
    let whole = parse(WHOLE);
    assert!(whole.is_ok());
    for text in [WHOLE.trim_end().to_owned(), format!("{WHOLE}\n \n"), WHOLE.replace('\n', "\r\n")] {
        assert_eq!(parse(&text), whole, "{text:?}");
    }
    let behind = format!("{WHOLE}\n[workload.other]\nparameters = 1\nshape = \"\"\n");
    let found = parse(&behind).expect_err("something stands behind the end")[0].to_string();
    assert!(
        found.starts_with("gpu-tuned.lock:44:11: this stands behind `# end of gpu-tuned.lock`, the last line; mend"),
        "{found}"
    );
}
