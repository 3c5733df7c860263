//! Fuzzing: every input expands to Rust, or to the item beside messages.

mod written;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use proptest::prelude::*;
use quote::ToTokens;
use syn::{Attribute, File, Item, LitStr};

use super::{run, table};
use gpu_tuned_attribute::Table;

/// Lexes a text. A group marked `none!{}` becomes a group without delimiters, as in `macro_rules`.
fn tokens(text: &str) -> Option<TokenStream> {
    text.parse().ok().map(undelimited)
}

fn undelimited(tokens: TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let TokenTree::Group(group) = token else {
            out.push(token);
            continue;
        };
        let is_marked = out.len() >= 2 && out[out.len() - 2].to_string() == "none" && ends_in(&out, '!');
        let delimiter = if is_marked { Delimiter::None } else { group.delimiter() };
        if is_marked {
            out.truncate(out.len() - 2);
        }
        out.push(Group::new(delimiter, undelimited(group.stream())).into());
    }
    out.into_iter().collect()
}

fn ends_in(tokens: &[TokenTree], character: char) -> bool {
    matches!(tokens.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Struct(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        _ => return None,
    })
}

/// Returns the messages of `compile_error!`.
fn messages(file: &File) -> Result<Vec<String>, TestCaseError> {
    let calls = file.items.iter().filter_map(|item| if let Item::Macro(call) = item { Some(&call.mac) } else { None });
    let errors = calls.filter(|call| call.path.segments.last().is_some_and(|last| last.ident == "compile_error"));
    let text = |tokens: &TokenStream| Ok(syn::parse2::<LitStr>(tokens.clone())?.value());
    let read: syn::Result<Vec<String>> = errors.map(|call| text(&call.tokens)).collect();
    read.map_err(|error| TestCaseError::fail(error.to_string()))
}

/// Returns true if a `#[tuned]` is left on a named field.
fn has_helper(item: &Item) -> bool {
    let Item::Struct(item) = item else { return false };
    let is_helper = |attribute: &Attribute| attribute.path().is_ident("tuned");
    item.fields.iter().any(|field| field.attrs.iter().any(is_helper))
}

fn holds(attribute: &str, item: &str, table: Table) -> Result<(), TestCaseError> {
    // A text that does not lex does not reach a macro.
    let (Some(attribute), Some(item)) = (tokens(attribute), tokens(item)) else { return Ok(()) };
    let expansion = run(attribute, &item, table);
    let [item] = &syn::parse2::<File>(item).map_or_else(|_| Vec::new(), |file| file.items)[..] else { return Ok(()) };
    let file = match syn::parse2::<File>(expansion.clone()) {
        Ok(file) => file,
        Err(error) => return Err(TestCaseError::fail(format!("{error}: {expansion}"))),
    };
    let messages = messages(&file)?;
    prop_assert!(messages.iter().all(|message| !message.trim().is_empty()), "{messages:?}");
    let expected = name(item);
    let kept = file.items.iter().find(|item| name(item).is_some_and(|name| Some(name) == expected));
    prop_assert!(expected.is_none() || kept.is_some(), "{expansion}");
    prop_assert!(kept.is_none_or(|kept| !has_helper(kept)), "{expansion}");
    let is_implemented = file.items.iter().any(|item| matches!(item, Item::Impl(_)));
    prop_assert!(is_implemented || !messages.is_empty(), "{}", file.to_token_stream());
    Ok(())
}

fn tables() -> impl Strategy<Value = usize> {
    0usize..6
}

fn table_of(which: usize) -> Table {
    match which {
        0 => Table::Absent,
        1 => Table::Broken("the table".to_owned()),
        2 => table(&[]),
        3 => table(&["gtx1080", "h200"]),
        _ => table(&["h200"]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_attribute_gives_rust_and_keeps_the_item(
        attribute in written::attributes(),
        item in written::items(),
        which in tables(),
    ) {
        holds(&attribute, &item, table_of(which))?;
    }
}
