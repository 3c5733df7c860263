//! Depth of code.

use std::thread;

use super::{DEEPEST_IN_MACROS, beyond, check_depth};
use crate::sources::{DEEPEST, STACK, parse_within_limit};

/// Stack of the compiler's threads, less what they use before a macro is called.
const STACK_IN_MACROS: usize = 6 << 20;

fn parsed(text: String) -> Result<(), String> {
    let parse = move || parse_within_limit::<syn::File>(&text).map(drop).map_err(|error| error.to_string());
    thread::Builder::new().stack_size(STACK).spawn(parse).expect("a thread").join().expect("no overflow")
}

fn nested(count: usize, [begin, repeated, inner, closing, end]: [&str; 5]) -> String {
    format!("{begin}{}{inner}{}{end}", repeated.repeat(count), closing.repeat(count))
}

const SHAPES: [[&str; 5]; 11] = [
    ["fn f() { ", "(", "1", ")", "; }"],
    ["fn f() { ", "{", "", "}", "}"],
    ["", "mod m {", "", "}", ""],
    ["fn f(x: ", "&", "u8", "", ") {}"],
    ["fn f() { ", "-", "1", "", "; }"],
    ["fn f(x: ", "Vec<", "u8", ">", ") {}"],
    ["fn f() { a", ".b()", "", "", "; }"],
    ["fn f() { ", "if a { } else ", "{ }", "", " }"],
    ["fn f() { a", " + 1", "", "", "; }"],
    ["fn f() { ", "|| ", "1", "", "; }"],
    ["fn f() { let ", "&", "x", "", " = y; }"],
];

#[test]
fn deep_code_is_refused_before_it_overflows_the_stack() {
    for shape in SHAPES {
        assert_eq!(parsed(nested(50, shape)), Ok(()), "{shape:?}");
        let refused = parsed(nested(100_000, shape)).expect_err(shape[1]);
        assert_eq!(refused, "code is nested or chained too deeply, and is not read");
    }
}

#[test]
fn code_at_the_limit_does_not_overflow_the_stack() {
    for (deepest, stack) in [(DEEPEST, STACK), (DEEPEST_IN_MACROS, STACK_IN_MACROS)] {
        for shape in SHAPES {
            let tokens = move |count: usize| nested(count, shape).parse().expect("tokens");
            let counts: Vec<usize> = (1..=deepest).collect();
            let largest = counts.partition_point(|count| beyond(&tokens(*count), deepest).is_none());
            assert!(largest > deepest / 32, "{shape:?}");
            let parse = move || {
                let tokens = tokens(largest);
                check_depth(&tokens, deepest).expect("it is not too deep");
                syn::parse2::<syn::File>(tokens).map(drop).map_err(|error| error.to_string())
            };
            let thread = thread::Builder::new().stack_size(stack).spawn(parse).expect("a thread");
            assert_eq!(thread.join().expect("no overflow"), Ok(()), "{shape:?}");
        }
    }
}

#[test]
fn long_code_is_not_deep() {
    let statements = "f(1); if a { b } let c = [1, 2, 3]; match d { 1 => 2, _ => 3 }\n".repeat(10_000);
    assert_eq!(parsed(format!("fn f() {{ {statements} }}")), Ok(()));
    let items = "#[a] struct S { a: u8, b: Vec<u8> }\nimpl S { fn f(&self) -> u8 { 1 } }\n".repeat(5_000);
    assert_eq!(parsed(items), Ok(()));
    assert_eq!(parsed(format!("const A: [u8; 100_000] = [{}];", "1, ".repeat(100_000))), Ok(()));
}
