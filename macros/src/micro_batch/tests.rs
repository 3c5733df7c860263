use proc_macro2::TokenStream;

use super::run;

fn formatted(item: TokenStream) -> String {
    prettyplease::unparse(&syn::parse2(run(item)).expect("the expansion is Rust"))
}

#[test]
fn a_struct_is_narrowed_field_by_field() {
    insta::assert_snapshot!(formatted(quote! {
        #[derive(Clone, MicroBatch)]
        pub struct Pairs {
            pub left: Tensor<2>,
            pub right: Vec<String>,
            #[micro_batch(shared)]
            pub mask: Tensor<2>,
        }
    }));
}

#[test]
fn bounds_follow_from_the_types_of_generic_fields() {
    insta::assert_snapshot!(formatted(quote! {
        struct Weighted<'a, T: Copy, S, const D: usize>(T, #[micro_batch(shared)] PhantomData<&'a S>, Tensor<D>)
        where
            S: Sync;
    }));
}

#[test]
fn a_struct_without_shared_fields_is_stored_field_by_field() {
    insta::assert_snapshot!(formatted(quote! {
        struct Windows(Tensor<2, Int>, Tensor<2, Int>);
    }));
}
