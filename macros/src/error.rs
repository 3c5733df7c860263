//! Everything that is wrong with one annotated item, each mistake with its place.

use core::fmt::{Display, Write};

use proc_macro2::TokenStream;
use quote::ToTokens;

/// Collects mistakes, so that one compilation shows all of them.
#[derive(Default)]
pub(crate) struct Mistakes(Vec<Mistake>);

/// What is wrong, where, and what to do about it.
pub(crate) struct Mistake {
    place: TokenStream,
    text: String,
}

impl Mistakes {
    /// Adds a mistake at `place`, which should be the fewest tokens that are wrong; without any it is the attribute.
    pub(crate) fn at(&mut self, place: impl ToTokens, text: impl Display) -> &mut Mistake {
        self.0.push(Mistake { place: place.into_token_stream(), text: text.to_string() });
        self.0.last_mut().expect("BUG: a mistake was just added")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Mistake {
    /// Adds a line that rustc shows as `= help`.
    pub(crate) fn help(&mut self, text: impl Display) -> &mut Self {
        write!(self.text, "\n= help: {text}").expect("BUG: a String takes every text");
        self
    }
}

impl ToTokens for Mistakes {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(self.0.iter().map(|it| syn::Error::new_spanned(&it.place, &it.text).to_compile_error()));
    }
}
