//! The README's example, its plan and its size.

use crate::pages::{README, folder, pages};

fn readme() -> String {
    pages().into_iter().find(|(page, _)| page == README).unwrap().1
}

/// Lines of the first block that starts with this text.
fn block(text: &str, start: &str) -> String {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.map(|block| block.split_once('\n').unwrap().1).find(|block| block.starts_with(start)).unwrap().to_owned()
}

#[test]
fn example_and_plan_have_the_same_numbers() {
    let text = readme();
    let (plan, example) = (block(&text, "$ cargo gpu-tuned plan "), block(&text, "// build.rs"));
    let mut rows = Vec::new();
    for gpu in ["rtx4070", "rtx4090", "h200"] {
        let row = plan.lines().find(|line| line.trim_start().starts_with(gpu)).unwrap();
        let numbers: Vec<u64> = row.split_whitespace().skip(1).take(2).map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers[0] * numbers[1], 512, "{row}");
        rows.push(numbers);
    }
    let [small, middle, large] = &rows[..] else { panic!("{rows:?}") };
    let expected = [
        format!("{} with --features rtx4070, {} with rtx4090, {} with h200", small[0], middle[0], large[0]),
        format!("{}, {} or {}: an optimizer step has 512 samples", small[1], middle[1], large[1]),
        "transformer(d_model = 512, vocab = 8192, seq = 256), global_batch = 512".to_owned(),
        "dim = layers, default = 6".to_owned(),
    ];
    for part in expected {
        assert!(example.contains(&part), "{part}");
    }
    for part in ["layers = 6", "d_model = 512", "vocab = 8192", "seq = 256", "--global-batch 512"] {
        assert!(plan.contains(part), "{part}");
    }
}

#[test]
fn readme_is_short() {
    let lines = readme().lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn pages_show_the_configs_that_their_commands_read() {
    for (name, config) in [("optimize", "train.yaml"), ("guides", "patches.yaml"), ("guides", "gpt.yaml")] {
        let page = pages().into_iter().find(|(page, _)| *page == format!("{name}.md")).unwrap().1;
        let file = std::fs::read_to_string(folder().join(format!("{name}.in")).join(config)).unwrap();
        assert_eq!(block(&page, &format!("# {config}")), file);
    }
}
