//! The mistakes of an annotated item, each with its place.

use core::fmt::{Display, Write};

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The mistakes of one item, so that one compilation shows all of them.
#[derive(Default)]
pub struct Mistakes(Vec<Mistake>);

/// A mistake with its place and its advice.
pub struct Mistake {
    place: TokenStream,
    text: String,
}

impl Mistakes {
    /// Adds a mistake. `place` should be the fewest tokens that are wrong; without tokens it is the whole attribute.
    pub fn at(&mut self, place: impl ToTokens, text: impl Display) -> &mut Mistake {
        self.0.push(Mistake { place: place.into_token_stream(), text: text.to_string() });
        self.0.last_mut().expect("BUG: a mistake was just added")
    }

    /// Returns true without mistakes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the mistakes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The mistakes, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl Mistake {
    /// Adds a line that rustc shows as `= help`.
    pub fn help(&mut self, text: impl Display) -> &mut Self {
        write!(self.text, "\n= help: {text}").expect("BUG: a String takes every text");
        self
    }

    /// The message and its advice, one line each.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place; `None` if the place is the whole attribute.
    pub fn span(&self) -> Option<Span> {
        self.place.clone().into_iter().next().map(|token| token.span())
    }
}

impl ToTokens for Mistakes {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.iter().map(|it| syn::Error::new_spanned(&it.place, &it.text).to_compile_error()));
    }
}
