//! The workload as an expression over the config's fields.

use gpu_tuned_core::dims::{Dim, DimValues, Schema};
use gpu_tuned_core::workload::Training;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Member;
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::literal;
use gpu_tuned_attribute::{Checked, Field, Model, NestedDim, Role};

/// Returns a `WorkloadSpec` expression that reads the fields.
pub(super) fn workload(model: &Model, checked: &Checked) -> TokenStream {
    let fields = DimFields { model, checked };
    let root = &model.root;
    let kind = checked.input.spec.model.kind();
    let name = format_ident!("{}", kind.type_name);
    let values = checked.input.spec.model.values();
    let network = literal::structure(&quote!(#root::workload::#name), kind.dims, |dim| fields.value(dim, &values));
    let values = checked.input.spec.training.values();
    if values.is_empty() && !Training::DIMS.iter().any(|dim| fields.field_value(dim).is_some()) {
        return quote!(::core::convert::From::from(#network));
    }
    let path = quote!(#root::workload::Training);
    let training = literal::structure(&path, Training::DIMS, |dim| fields.value(dim, &values));
    quote! {
        #root::WorkloadSpec {
            model: #root::workload::ModelSpec::#name(#network),
            training: #training,
        }
    }
}

/// The fields with dimensions.
struct DimFields<'a> {
    model: &'a Model,
    checked: &'a Checked,
}

impl DimFields<'_> {
    /// Returns the dimension's field, of the config or of a struct in it.
    fn field_value(&self, dim: &Dim) -> Option<TokenStream> {
        self.model.fields.iter().zip(&self.checked.input.roles).find_map(|(field, role)| match role {
            Role::Dimension { name, default } if *name == dim.name => {
                Some(if_tuned(field, &as_dimension(field), default))
            }
            Role::Nested { dims, .. } => {
                let nested = dims.iter().find(|nested| nested.name == dim.name)?;
                Some(if_tuned(field, &as_nested(field, nested), &nested.default))
            }
            _ => None,
        })
    }

    /// Returns the dimension's field, else its value; `None` for the default.
    fn value(&self, dim: &Dim, values: &DimValues) -> Option<TokenStream> {
        self.field_value(dim).or_else(|| Some(literal::dim(&self.model.root, &dim.kind, values.get(dim.name)?)))
    }
}

/// Returns the field's value, or the planned one where a `cfg_attr` leaves out the field's `#[tuned]`.
fn if_tuned(field: &Field, value: &TokenStream, planned: &TokenStream) -> TokenStream {
    let Some(condition) = field.condition() else { return value.clone() };
    quote!({
        #[cfg(#condition)]
        let value = #value;
        #[cfg(not(#condition))]
        let value = #planned;
        value
    })
}

/// Returns the value of a dimension's field.
fn as_dimension(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("bool") { quote!(self.#ident) } else { as_u64(field) }
}

/// Returns the value of a dimension in a nested struct of unknown types. The spans let the compiler point at a wrong path,
/// and keep lints from reporting the cast.
fn as_nested(field: &Field, NestedDim { path, is_flag, .. }: &NestedDim) -> TokenStream {
    let (ident, place) = (&field.ident, place(path));
    let value = quote_spanned!(place=> self.#ident.#(#path).*);
    if *is_flag { value } else { quote_spanned!(place=> #value as u64) }
}

/// Returns the part of `Tuned::negative` about a dimension in a nested struct. The type is unknown, but a negative count
/// is beyond `i64` as a `u64`. The compiler reports a wrong type once, because both casts are the same.
pub(super) fn negative_nested(field: &Field, nested: &NestedDim) -> Option<TokenStream> {
    let count = (!nested.is_flag).then(|| as_nested(field, nested))?;
    let path = nested.path.iter().map(|member| match member {
        Member::Named(name) => name.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    });
    let name = core::iter::once(field.name()).chain(path).collect::<Vec<_>>().join(".");
    Some(quote_spanned! {place(&nested.path)=>
        let count = (#count) as i64;
        if count < 0 {
            return ::core::option::Option::Some((#name, count));
        }
    })
}

/// Returns the span of generated code about the last field of a path.
fn place(path: &[Member]) -> Span {
    let generated = Span::call_site();
    path.last().map_or(generated, |last| generated.located_at(last.span()))
}

/// Returns the value of a count's field.
pub(super) fn as_u64(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("u64") { quote!(self.#ident) } else { quote!(self.#ident as u64) }
}
