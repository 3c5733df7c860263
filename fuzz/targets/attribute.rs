//! Tokens of `#[gpu_tuned(…)]` and its struct: planned, or refused with messages. A line `---` separates the two.
#![no_main]

use gpu_tuned_attribute::sources::parse_within_limit;
use gpu_tuned_attribute::{Mistakes, Table, parse, plan_input};
use libfuzzer_sys::fuzz_target;
use proc_macro2::TokenStream;

fuzz_target!(|text: &str| {
    let (arguments, item) = text.split_once("\n---\n").unwrap_or((text, "struct Config { batch: usize }"));
    // A compiler refuses deeper nesting before it calls a macro.
    let lex = |text: &str| parse_within_limit::<TokenStream>(text).ok();
    let (Some(arguments), Some(item)) = (lex(arguments), lex(item)) else { return };
    let mut mistakes = Mistakes::default();
    let Ok(model) = parse(arguments, item, &mut mistakes) else { return };
    let input = plan_input(&model, Table::Absent, &mut mistakes);
    assert_eq!(input.is_some(), mistakes.is_empty());
});
