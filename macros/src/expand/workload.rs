//! The workload as an expression over the config's fields.

use gpu_tuned_core::dims::{Described, Dim, DimValues};
use gpu_tuned_core::workload::Training;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::literal;
use crate::check::{Checked, Role};
use crate::model::{Field, Model};

/// The `WorkloadSpec` with the values that the fields have when it is evaluated.
pub(super) fn workload(model: &Model, checked: &Checked) -> TokenStream {
    let fields = DimFields { model, checked };
    let kind = checked.spec.model.kind();
    let name = format_ident!("{}", kind.type_name);
    let values = checked.spec.model.values();
    let network =
        literal::structure(&quote!(::gpu_tuned::workload::#name), kind.dims, |dim| fields.value(dim, &values));
    let values = checked.spec.training.values();
    if values.is_empty() && !Training::DIMS.iter().any(|dim| fields.field(dim.name).is_some()) {
        return quote!(::gpu_tuned::WorkloadSpec::from(#network));
    }
    let path = quote!(::gpu_tuned::workload::Training);
    let training = literal::structure(&path, Training::DIMS, |dim| fields.value(dim, &values));
    quote! {
        ::gpu_tuned::WorkloadSpec {
            model: ::gpu_tuned::workload::ModelSpec::#name(#network),
            training: #training,
        }
    }
}

/// The fields that hold dimensions.
struct DimFields<'a> {
    model: &'a Model,
    checked: &'a Checked,
}

impl DimFields<'_> {
    fn field(&self, name: &str) -> Option<&Field> {
        let holds = |role: &Role| matches!(role, Role::Dimension { name: held, .. } if *held == name);
        let found = self.checked.roles.iter().position(holds)?;
        self.model.fields.get(found)
    }

    /// The field that holds the dimension, else its value, where it is not the default.
    fn value(&self, dim: &Dim, values: &DimValues) -> Option<TokenStream> {
        match self.field(dim.name) {
            Some(field) => Some(as_said(field)),
            None => Some(literal::dim(&dim.kind, values.get(dim.name)?)),
        }
    }
}

/// The value of a dimension's field.
fn as_said(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("bool") { quote!(self.#ident) } else { as_u64(field) }
}

/// The value of a count's field.
pub(super) fn as_u64(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("u64") { quote!(self.#ident) } else { quote!(self.#ident as u64) }
}
