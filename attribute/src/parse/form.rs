//! Mistakes in the form of an argument: a missing comma, other brackets, an unknown model.

use gpu_tuned_core::suggest;
use gpu_tuned_core::workload::ModelKind;
use proc_macro2::{Delimiter, Ident, Spacing, TokenStream, TokenTree};

use crate::keys;
use crate::mistakes::Mistakes;

/// Reports the mistake in `key` and the tokens after it, which are no argument.
pub(super) fn report(key: &Ident, rest: &[TokenTree], mistakes: &mut Mistakes) {
    let place: TokenStream = rest.iter().cloned().collect();
    let is_model = ModelKind::named(&key.to_string()).is_some();
    match rest {
        [TokenTree::Group(group)] if is_model && group.delimiter() != Delimiter::Parenthesis => {
            mistakes.at(place, format!("`{key}` takes its dimensions in parentheses: `{key}(…)`"));
        }
        [TokenTree::Group(group)]
            if group.delimiter() == Delimiter::Parenthesis && !keys::is_known(&key.to_string()) =>
        {
            report_model(key, mistakes);
        }
        _ => {
            mistakes.at(place, format!("expected `{key} = value`"));
        }
    }
}

fn report_model(key: &Ident, mistakes: &mut Mistakes) {
    let name = key.to_string();
    let near = suggest(&name, ModelKind::ALL.iter().map(|kind| kind.name));
    let mistake = mistakes.at(key, format!("there is no model `{name}`{near}"));
    if let Some(description) = ModelKind::description_of(&name).filter(|_| near.is_empty()) {
        mistake.help(format!("describe it as `{description}`"));
    }
    mistake.help(format!("there are {}", ModelKind::list()));
}

/// Splits an argument where a second `key =` follows a value, and reports the missing commas.
pub(super) fn split(mut part: Vec<TokenTree>, mistakes: &mut Mistakes) -> Vec<Vec<TokenTree>> {
    let Some(place) = part.windows(3).position(begins_argument) else { return vec![part] };
    let rest = part.split_off(place + 1);
    mistakes.at(&rest[0], format!("a comma is missing before `{}`", rest[0]));
    let mut parts = vec![part];
    parts.extend(split(rest, mistakes));
    parts
}

/// Returns true for a value followed by `key =`. After `let`, `mut` and `ref`, a name is a pattern.
fn begins_argument(three: &[TokenTree]) -> bool {
    let [before, TokenTree::Ident(_), TokenTree::Punct(equals)] = three else { return false };
    let is_value = match before {
        TokenTree::Ident(before) => !["let", "mut", "ref"].iter().any(|keyword| before == keyword),
        TokenTree::Group(_) | TokenTree::Literal(_) => true,
        TokenTree::Punct(_) => false,
    };
    is_value && equals.as_char() == '=' && equals.spacing() == Spacing::Alone
}
