//! A limit for the depth of sources. The parser calls itself for nested code, and would overflow the stack.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::parse::Parse;

/// Largest depth of code that is parsed. A thread with [`STACK`] bytes parses it in a build without optimisation.
const DEEPEST: usize = 4096;

/// Stack of a thread that parses sources, in bytes.
pub const STACK: usize = 256 << 20;

/// Parses Rust, unless it is nested too deeply.
///
/// # Errors
///
/// The parser's errors, and one at the place that is too deep.
pub fn parse_within_limit<T: Parse>(text: &str) -> syn::Result<T> {
    let tokens: TokenStream = text.parse().map_err(syn::Error::from)?;
    if let Some(place) = beyond_limit(&tokens) {
        let message = format!("code is nested or chained more than {DEEPEST} times, and is not read");
        return Err(syn::Error::new(place, message));
    }
    syn::parse2(tokens)
}

/// The place where the depth exceeds the limit.
///
/// Groups nest; so do operators, calls and generic arguments, at most once a token, until a comma, a semicolon or a block ends
/// them.
fn beyond_limit(tokens: &TokenStream) -> Option<Span> {
    let mut open = vec![(tokens.clone().into_iter().peekable(), 0, 0)];
    while let Some((tokens, depth, run)) = open.last_mut() {
        let Some(token) = tokens.next() else {
            open.pop();
            continue;
        };
        *run = if is_separator(&token) { 0 } else { *run + 1 };
        let depth = *depth + *run;
        if depth > DEEPEST {
            return Some(token.span());
        }
        if let TokenTree::Group(group) = token {
            let is_block = group.delimiter() == Delimiter::Brace;
            if is_block && !tokens.peek().is_some_and(continues_expression) {
                *run = 0;
            }
            open.push((group.stream().into_iter().peekable(), depth + 1, 0));
        }
    }
    None
}

fn is_separator(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if matches!(punct.as_char(), ',' | ';'))
}

/// Returns true if this token after a block belongs to what is before: `else`, a method, an operator.
fn continues_expression(token: &TokenTree) -> bool {
    match token {
        TokenTree::Ident(word) => word == "else" || word == "as",
        TokenTree::Punct(punct) => punct.as_char() != '#',
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{DEEPEST, STACK, beyond_limit, parse_within_limit};

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
            assert_eq!(refused, "code is nested or chained more than 4096 times, and is not read");
        }
    }

    #[test]
    fn code_at_the_limit_does_not_overflow_the_stack() {
        for shape in SHAPES {
            let is_read = |count: usize| beyond_limit(&nested(count, shape).parse().expect("tokens")).is_none();
            let counts: Vec<usize> = (1..=DEEPEST).collect();
            let largest = counts.partition_point(|count| is_read(*count));
            assert!(largest > DEEPEST / 8, "{shape:?}");
            assert_eq!(parsed(nested(largest, shape)), Ok(()), "{shape:?}");
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
}
