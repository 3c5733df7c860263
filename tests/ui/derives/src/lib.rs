//! A stand-in for Burn's derive, so that the cases need no Burn.

use proc_macro::TokenStream;

/// Accepts what Burn's `Config` accepts, and generates nothing.
#[proc_macro_derive(Config, attributes(config))]
pub fn config(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Accepts what the `Builder`s of bon, typed-builder and `derive_builder` accept, and generates nothing.
#[proc_macro_derive(Builder, attributes(builder))]
pub fn builder(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Accepts the attributes of further derives with defaults of fields, and generates nothing.
#[proc_macro_derive(Others, attributes(educe, derivative, argh, options, new, facet, structopt))]
pub fn others(_: TokenStream) -> TokenStream {
    TokenStream::new()
}
