//! Shapes of batches.

use core::marker::PhantomData;
use std::sync::Arc;

use gpu_tuned_macros::MicroBatch;
use ui_micro_batch::{__private::Device, MicroBatch, Tensor};

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

/// Narrows, moves and stores a batch with one sample.
fn check<B: MicroBatch>(batch: B) -> B {
    assert_eq!((batch.len(), batch.has_arrived(), batch.bytes(&Device)), (1, true, 0));
    let narrowed = batch.clone().narrow(0..1).on_device(&Device);
    let stored = narrowed.clone().store(None).and_then(|kept| narrowed.store(Some(kept)));
    stored.unwrap_or(batch)
}

#[test]
#[allow(deprecated, reason = "a shape under test")]
fn batches_of_each_shape_are_cut() {
    let named = || Named { images: Tensor, labels: Tensor };
    check(named());
    check(Tuple(Tensor, Tensor));
    check(Newtype(Tensor));
    assert_eq!(check(Shared { words: Arc::new(vec!["a".to_owned()]), tokens: Tensor }).words.len(), 1);
    assert_eq!(check(Generic { values: Tensor, shared: [Some(1); 2] }).shared, [Some(1); 2]);
    check(Marked::<u8>(Tensor, PhantomData));
    check(r#Raw { r#type: Tensor, samples: Tensor, device: Tensor, kept: Tensor });
    check(Nested { inner: named(), outer: Tuple(Tensor, Tensor) });
    check(Made { images: Tensor, labels: Newtype(Tensor) });
    assert_eq!(check(Conditional { tokens: Tensor, shared: 3 }).shared, 3);
    assert_eq!(check(strict::Deprecated { tokens: Tensor, shared: 3 }).shared, 3);
    assert_eq!(check(without_prelude::Bare { tokens: Tensor, labels: Tensor, shared: 3 }).shared, 3);
}
