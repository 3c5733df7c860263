//! The workload as an expression over the config's fields.

use gpu_tuned_core::workload::{Convnet, Declared, Product, Transformer, WorkloadSpec};
use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};

use super::literal::{count, family, number, optimizer, optional};
use crate::check::{Checked, Role};
use crate::model::{Field, Model};

/// The `WorkloadSpec` with the values that the fields have when it is evaluated.
pub(super) fn workload(model: &Model, checked: &Checked) -> TokenStream {
    let dims = DimFields { model, checked };
    match &checked.spec {
        WorkloadSpec::Declared(spec) => declared(spec),
        WorkloadSpec::Transformer(spec) => transformer(spec, &dims),
        WorkloadSpec::Convnet(spec) => convnet(spec, &dims),
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

    fn count(&self, name: &str, literal: u64) -> TokenStream {
        self.field(name).map_or_else(|| count(literal).into_token_stream(), as_u64)
    }

    fn optional(&self, name: &str, literal: Option<u64>) -> TokenStream {
        match self.field(name).map(as_u64) {
            Some(value) => quote!(::core::option::Option::Some(#value)),
            None => optional(literal),
        }
    }

    fn flag(&self, name: &str, literal: bool) -> TokenStream {
        match self.field(name) {
            Some(Field { ident, .. }) => quote!(self.#ident),
            None => literal.into_token_stream(),
        }
    }
}

/// The value of a count's field.
pub(super) fn as_u64(field: &Field) -> TokenStream {
    let ident = &field.ident;
    if field.type_name().as_deref() == Some("u64") { quote!(self.#ident) } else { quote!(self.#ident as u64) }
}

fn transformer(spec: &Transformer, dims: &DimFields<'_>) -> TokenStream {
    let layers = dims.count("layers", spec.layers);
    let d_model = dims.count("d_model", spec.d_model);
    let vocab = dims.count("vocab", spec.vocab);
    let seq = dims.count("seq", spec.seq);
    let heads = dims.optional("heads", spec.heads);
    let d_ff = dims.optional("d_ff", spec.d_ff);
    let tied_head = dims.flag("tied_head", spec.tied_head);
    let optimizer = optimizer(spec.optimizer);
    quote! {
        ::gpu_tuned::WorkloadSpec::Transformer(::gpu_tuned::Transformer {
            layers: #layers,
            d_model: #d_model,
            vocab: #vocab,
            seq: #seq,
            heads: #heads,
            d_ff: #d_ff,
            tied_head: #tied_head,
            optimizer: #optimizer,
        })
    }
}

fn convnet(spec: &Convnet, dims: &DimFields<'_>) -> TokenStream {
    let image = dims.count("image", spec.image);
    let classes = dims.count("classes", spec.classes);
    let stages = spec.stages.iter().map(|stage| {
        let (channels, blocks) = (count(stage.channels), count(stage.blocks));
        quote!(::gpu_tuned::Stage { channels: #channels, blocks: #blocks })
    });
    let channels = dims.count("channels", spec.channels);
    let stem_kernel = dims.count("stem_kernel", spec.stem_kernel);
    let stem_stride = dims.count("stem_stride", spec.stem_stride);
    let residual = dims.flag("residual", spec.residual);
    let batch_statistics = dims.flag("batch_statistics", spec.batch_statistics);
    let optimizer = optimizer(spec.optimizer);
    quote! {
        ::gpu_tuned::WorkloadSpec::Convnet(::gpu_tuned::Convnet {
            image: #image,
            classes: #classes,
            stages: ::std::vec![#(#stages),*],
            channels: #channels,
            stem_kernel: #stem_kernel,
            stem_stride: #stem_stride,
            residual: #residual,
            batch_statistics: #batch_statistics,
            optimizer: #optimizer,
        })
    }
}

fn declared(spec: &Declared) -> TokenStream {
    let [parameters, activations, kernels]: [Literal; 3] =
        [spec.parameters, spec.activation_bytes_per_sample, spec.kernels_per_step].map(count);
    let [checkpointed, largest, input] = [
        spec.checkpointed_activation_bytes_per_sample,
        spec.largest_tensor_bytes_per_sample,
        spec.input_bytes_per_sample,
    ]
    .map(optional);
    let (optimizer, flops, family) = (optimizer(spec.optimizer), number(spec.flops_per_sample), family(spec.family));
    let batch_statistics = spec.batch_statistics;
    let dominant_product = product(spec.dominant_product);
    quote! {
        ::gpu_tuned::WorkloadSpec::Declared(::gpu_tuned::Declared {
            parameters: #parameters,
            optimizer: #optimizer,
            activation_bytes_per_sample: #activations,
            checkpointed_activation_bytes_per_sample: #checkpointed,
            largest_tensor_bytes_per_sample: #largest,
            input_bytes_per_sample: #input,
            flops_per_sample: #flops,
            kernels_per_step: #kernels,
            family: #family,
            batch_statistics: #batch_statistics,
            dominant_product: #dominant_product,
        })
    }
}

fn product(product: Option<Product>) -> TokenStream {
    let Some(product) = product else { return quote!(::core::option::Option::None) };
    let [rows, inner, columns] = [product.rows_per_sample, product.inner, product.columns].map(count);
    quote! {
        ::core::option::Option::Some(::gpu_tuned::__private::Product {
            rows_per_sample: #rows,
            inner: #inner,
            columns: #columns,
        })
    }
}
