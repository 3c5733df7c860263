//! Shapes of batches.

use core::marker::PhantomData;
use std::sync::Arc;

use gpu_tuned_macros::MicroBatch;
use ui_micro_batch::{__private::Device, MicroBatch, Tensor, UnequalParts};

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct Named {
    images: Tensor,
    labels: Tensor,
}

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = "ui_micro_batch")]
struct Tuple(Tensor, pub Tensor);

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ::ui_micro_batch)]
struct Newtype(Tensor);

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct Shared {
    #[micro_batch(shared)]
    words: Arc<Vec<String>>,
    tokens: Tensor,
}

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct Generic<T, S: Clone, const N: usize>
where
    T: Clone,
{
    values: T,
    #[micro_batch(shared)]
    shared: [Option<S>; N],
}

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct Marked<T>(Tensor, #[micro_batch(shared)] PhantomData<T>);

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct r#Raw {
    r#type: Tensor,
    samples: Tensor,
    device: Tensor,
    kept: Tensor,
}

#[allow(dead_code, non_camel_case_types, non_upper_case_globals, reason = "the shape under test")]
mod hiding {
    use super::{MicroBatch, Tensor};

    static samples: u8 = 0;
    static device: u8 = 0;
    struct kept;

    #[derive(Clone, MicroBatch)]
    #[micro_batch(crate = ui_micro_batch)]
    struct Hiding(Tensor, Tensor);
}

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct Nested {
    inner: Named,
    outer: Tuple,
}

macro_rules! made {
    ($name:ident { $($field:ident: $ty:ty),* }) => {
        #[derive(Clone, MicroBatch)]
        #[micro_batch(crate = ui_micro_batch)]
        struct $name { $($field: $ty),* }
    };
}

made!(Made { images: Tensor, labels: Newtype });

#[derive(Clone, MicroBatch)]
#[micro_batch(crate = ui_micro_batch)]
struct Conditional {
    tokens: Tensor,
    #[cfg(any())]
    missing: NoSuchType,
    #[cfg_attr(all(), micro_batch(shared))]
    shared: u8,
}

#[deny(warnings, clippy::pedantic, missing_docs)]
mod strict {
    use super::{MicroBatch, Tensor};

    /// A batch with a deprecated field.
    #[derive(MicroBatch)]
    #[micro_batch(crate = ui_micro_batch)]
    pub(super) struct Deprecated {
        /// Tokens.
        #[deprecated]
        pub(super) tokens: Tensor,
        #[deprecated]
        #[micro_batch(shared)]
        pub(super) shared: u8,
    }

    #[allow(deprecated, reason = "the shape under test")]
    impl Clone for Deprecated {
        fn clone(&self) -> Self {
            Self { tokens: self.tokens.clone(), shared: self.shared }
        }
    }
}

#[no_implicit_prelude]
mod without_prelude {
    use ::core::clone::Clone;
    use ::core::prelude::v1::derive;
    use ::gpu_tuned_macros::MicroBatch;
    use ::ui_micro_batch::Tensor;

    #[derive(Clone, MicroBatch)]
    #[micro_batch(crate = ::ui_micro_batch)]
    pub(super) struct Bare {
        pub(super) tokens: Tensor,
        pub(super) labels: Tensor,
        #[micro_batch(shared)]
        pub(super) shared: u8,
    }
}

/// Part with another length, and the part that it is compared with.
fn unequal(batch: &impl MicroBatch) -> Option<[(String, usize); 2]> {
    let UnequalParts { field, samples, first, expected, .. } = batch.check().err()?;
    Some([(field, samples), (first, expected)])
}

#[test]
fn fields_of_unequal_length_are_named_by_their_paths() {
    let tensor = |samples| Tensor(0..samples);
    let named = |part: (&str, usize), first: (&str, usize)| Some([part, first].map(|(name, n)| (name.to_owned(), n)));
    let pair = |images, labels| Named { images: tensor(images), labels: tensor(labels) };
    assert_eq!(unequal(&pair(4, 10)), named(("labels", 10), ("images", 4)));
    assert_eq!(unequal(&Tuple(tensor(4), tensor(3))), named(("1", 3), ("0", 4)));
    assert_eq!(unequal(&pair(4, 4)), None);
    let nested = |inner, outer| Nested { inner, outer };
    assert_eq!(
        unequal(&nested(pair(4, 8), Tuple(tensor(4), tensor(4)))),
        named(("inner.labels", 8), ("inner.images", 4))
    );
    assert_eq!(unequal(&nested(pair(4, 4), Tuple(tensor(4), tensor(2)))), named(("outer.1", 2), ("outer.0", 4)));
    assert_eq!(unequal(&nested(pair(4, 4), Tuple(tensor(2), tensor(2)))), named(("outer", 2), ("inner", 4)));
    let deep = Generic { values: nested(pair(4, 1), Tuple(tensor(4), tensor(4))), shared: [Some(1); 2] };
    assert_eq!(unequal(&deep), named(("values.inner.labels", 1), ("values.inner.images", 4)));
    let raw = r#Raw { r#type: tensor(2), samples: tensor(2), device: tensor(2), kept: tensor(3) };
    assert_eq!(unequal(&raw), named(("kept", 3), ("type", 2)));
    // A shared field does not count, at any place.
    assert_eq!(unequal(&Shared { words: Arc::new(Vec::new()), tokens: tensor(3) }), None);
    let bare = |labels| without_prelude::Bare { tokens: tensor(2), labels: tensor(labels), shared: 9 };
    assert_eq!((unequal(&bare(2)), unequal(&bare(1))), (None, named(("labels", 1), ("tokens", 2))));
}

/// Cuts two of three samples, moves them, and stores them: first in new memory, then in the memory of the first. Returns the
/// part, whose shared fields are those of the batch. Batches with shared fields are stored in new memory only.
fn check<B: MicroBatch>(batch: B, tensors: usize, has_shared: bool) -> B {
    assert_eq!((batch.len(), batch.has_arrived(), batch.bytes(&Device)), (3, true, 3 * tensors));
    let part = batch.clone().narrow(1..3).on_device(&Device);
    assert_eq!((part.len(), part.bytes(&Device)), (2, 2 * tensors));
    let kept = part.clone().store(None);
    assert_eq!(kept.as_ref().map(B::len), (!has_shared).then_some(2));
    if let Some(kept) = kept {
        assert!(batch.store(Some(kept.clone())).is_none(), "three samples do not fit the memory of two");
        let stored = part.clone().store(Some(kept)).map(|stored| (stored.len(), stored.bytes(&Device)));
        assert_eq!(stored, Some((2, 2 * tensors)));
    }
    part
}

#[test]
#[allow(deprecated, reason = "a shape under test")]
fn batches_of_each_shape_are_cut() {
    let (tensor, part) = (|| Tensor(10..13), Tensor(11..13));
    let named = || Named { images: tensor(), labels: Tensor(0..3) };
    let Named { images, labels } = check(named(), 2, false);
    assert_eq!((&images, labels), (&part, Tensor(1..3)));
    let Tuple(first, second) = check(Tuple(tensor(), Tensor(0..3)), 2, false);
    assert_eq!((&first, second), (&part, Tensor(1..3)));
    assert_eq!(check(Newtype(tensor()), 1, false).0, part);
    let words = Arc::new(vec!["a".to_owned()]);
    let shared = check(Shared { words: Arc::clone(&words), tokens: tensor() }, 1, true);
    assert!(Arc::ptr_eq(&shared.words, &words) && shared.tokens == part);
    let generic = check(Generic { values: tensor(), shared: [Some(1); 2] }, 1, true);
    assert_eq!((&generic.values, generic.shared), (&part, [Some(1); 2]));
    assert_eq!(check(Marked::<u8>(tensor(), PhantomData), 1, true).0, part);
    let raw = check(r#Raw { r#type: tensor(), samples: Tensor(0..3), device: tensor(), kept: Tensor(5..8) }, 4, false);
    assert_eq!(
        [raw.r#type, raw.samples, raw.device, raw.kept],
        [part.clone(), Tensor(1..3), part.clone(), Tensor(6..8)]
    );
    let nested = check(Nested { inner: named(), outer: Tuple(tensor(), Tensor(5..8)) }, 4, false);
    assert_eq!((&nested.inner.images, nested.outer.1), (&part, Tensor(6..8)));
    let made = check(Made { images: tensor(), labels: Newtype(Tensor(0..3)) }, 2, false);
    assert_eq!((&made.images, made.labels.0), (&part, Tensor(1..3)));
    let conditional = check(Conditional { tokens: tensor(), shared: 3 }, 1, true);
    assert_eq!((&conditional.tokens, conditional.shared), (&part, 3));
    let deprecated = check(strict::Deprecated { tokens: tensor(), shared: 3 }, 1, true);
    assert_eq!((&deprecated.tokens, deprecated.shared), (&part, 3));
    let bare = check(without_prelude::Bare { tokens: tensor(), labels: Tensor(0..3), shared: 3 }, 2, true);
    assert_eq!((&bare.tokens, bare.labels, bare.shared), (&part, Tensor(1..3), 3));
}
