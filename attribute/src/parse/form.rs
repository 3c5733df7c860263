//! Mistakes in the form of an argument: a missing comma, other brackets, an unknown model.

use gpu_tuned_core::dims::Schema as _;
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{Goal, suggest};
use proc_macro2::{Delimiter, Ident, Spacing, TokenStream, TokenTree};

use crate::mistakes::Mistakes;

/// Reports the mistake in `key` and the tokens after it, which are no argument.
pub(super) fn report(key: &Ident, rest: &[TokenTree], mistakes: &mut Mistakes) {
    let place: TokenStream = rest.iter().cloned().collect();
    let is_model = ModelKind::named(&key.to_string()).is_some();
    match rest {
        [TokenTree::Group(group)] if is_model && group.delimiter() != Delimiter::Parenthesis => {
            mistakes.at(place, format!("`{key}` takes its dimensions in parentheses: `{key}(…)`"));
        }
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Parenthesis && !is_key(key) => {
            report_model(key, mistakes);
        }
        _ => {
            mistakes.at(place, format!("expected `{key} = value`"));
        }
    }
}

/// Returns true for a key that takes a value.
fn is_key(key: &Ident) -> bool {
    let of_models = ModelKind::ALL.iter().flat_map(|kind| kind.dims);
    let mut dims = of_models.chain(Goal::DIMS).chain(Training::DIMS);
    dims.any(|dim| key == dim.name)
        || ["workload", "target", "setting", "dim", "dims", "default"].iter().any(|it| key == it)
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
    let is_equals = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '=' && punct.spacing() == Spacing::Alone);
    let begins_argument = |three: &[TokenTree]| matches!(three, [before, TokenTree::Ident(_), equals] if is_equals(equals) && !matches!(before, TokenTree::Punct(_)));
    let Some(place) = part.windows(3).position(begins_argument) else { return vec![part] };
    let rest = part.split_off(place + 1);
    mistakes.at(&rest[0], format!("a comma is missing before `{}`", rest[0]));
    let mut parts = vec![part];
    parts.extend(split(rest, mistakes));
    parts
}
