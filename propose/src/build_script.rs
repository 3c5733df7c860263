//! Build scripts, edited in place.

use std::ops::Range;

use gpu_tuned_attribute::sources::parse_within_limit;
use proc_macro2::TokenStream;
use syn::{AttrStyle, File, Item, ItemFn};

use crate::line_endings::Text;
use crate::sources::{all_tokens, has_ident, indent as indent_of, line_start};

/// Returns the script with the call at the start of `main`; `None` if the script has a call.
///
/// # Errors
///
/// The reason against an edit.
pub fn with_call(name: &str, before: &str, call: &str) -> Result<Option<String>, String> {
    let mut text = Text::parse(name, before).map_err(|mistake| mistake.message.clone())?;
    let file = parsed(&text.lines)?;
    let krate = call.split("::").next().unwrap_or_default();
    let tokens: TokenStream = text.lines.parse().map_err(|error| format!("{error}"))?;
    let tokens = all_tokens(tokens);
    if has_ident(&tokens, krate) {
        return if has_ident(&tokens, "emit") {
            Ok(None)
        } else {
            Err(format!("it names `{krate}`, and calls no `emit`"))
        };
    }
    let main = main(&file)?;
    let Range { end, .. } = main.block.brace_token.span.open().byte_range();
    let added = placed(&text.lines, end, call);
    text.lines.insert_str(added.0, &added.1);
    parsed(&text.lines).map_err(|_| "the edit would not compile".to_owned())?;
    Ok(Some(text.written()))
}

fn parsed(text: &str) -> Result<File, String> {
    // syn removes such a line, and counts from the next.
    if text.starts_with("#!") && !text.starts_with("#![") {
        return Err("it begins with a line for a shell".to_owned());
    }
    parse_within_limit(text).map_err(|error| {
        let start = error.span().start();
        format!("it could not be read ({error}, in line {})", start.line)
    })
}

/// The `main` function, where a line may be inserted.
fn main(file: &File) -> Result<&ItemFn, String> {
    let functions =
        file.items.iter().filter_map(|item| if let Item::Fn(function) = item { Some(function) } else { None });
    let mut mains = functions.filter(|function| function.sig.ident == "main");
    let (Some(main), None) = (mains.next(), mains.next()) else {
        return Err("it has no `main`, or several".to_owned());
    };
    let attribute = main.attrs.iter().find(|attribute| !attribute.path().is_ident("doc"));
    match attribute {
        _ if main.sig.asyncness.is_some() => Err("its `main` is async".to_owned()),
        Some(attribute) if matches!(attribute.style, AttrStyle::Outer) && is_lint(attribute) => Ok(main),
        Some(_) => Err("its `main` has attributes".to_owned()),
        None => Ok(main),
    }
}

fn is_lint(attribute: &syn::Attribute) -> bool {
    ["allow", "expect", "warn", "deny", "forbid"].iter().any(|lint| attribute.path().is_ident(lint))
}

/// Offset and text of the call behind the brace that ends at `end`.
fn placed(text: &str, end: usize, call: &str) -> (usize, String) {
    let indent = indent_of(&text[line_start(text, end)..end]);
    let rest = text[end..].lines().next().unwrap_or_default();
    let said = rest.trim_start();
    if said.starts_with('}') {
        let blank = rest.len() - said.len();
        return (end + blank, format!("\n{indent}    {call}\n{indent}"));
    }
    if said.is_empty() || said.starts_with("//") {
        let next = text[end + rest.len()..].lines().nth(1).unwrap_or_default();
        let deeper = indent_of(next);
        let deeper = if deeper.len() > indent.len() { deeper.to_owned() } else { format!("{indent}    ") };
        return (end + rest.len(), format!("\n{deeper}{call}"));
    }
    (end, format!(" {call}"))
}
