//! Documentation, visibility, order of attributes and derives, and `cfg`s.

use gpu_tuned::{Tuned, gpu_tuned};

use super::check;

/// A config.
///
/// With `code`, | pipes | and
/// ```ignore
/// blocks();
/// ```
#[must_use]
#[derive(Clone)]
#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
/// Documentation below the attribute.
#[doc = "A doc attribute."]
#[doc(alias = "training")]
#[non_exhaustive]
#[repr(C)]
#[derive(Debug)]
/// Documentation below the derive.
struct AttributesAround {
    /// The batch.
    #[tuned]
    /// Documentation below the attribute.
    batch_size: usize,
    /** A block comment. */
    #[doc(hidden)]
    hidden: u8,
}

mod visible {
    use super::gpu_tuned;

    #[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
    #[derive(Debug)]
    pub struct Visibilities {
        #[tuned]
        pub batch_size: usize,
        #[tuned]
        pub(crate) num_workers: usize,
        #[tuned]
        pub(super) prefetch_depth: usize,
        #[tuned]
        pub(in super::super) eval_batch_size: usize,
        #[tuned]
        pub(self) gradient_accumulation: usize,
        private: u8,
    }
}

#[cfg(any())]
#[gpu_tuned(nothing(is = checked))]
struct NotThere;

shapes! { attributes_are_kept:
    DocumentedByMacro => {
        #[doc = concat!("A", " macro's text")]
        #[allow(clippy::doc_markdown, reason = "the text is no prose")]
        struct DocumentedByMacro {
            #[doc = include_str!("../../../cases/with_table/gpu-tuned.toml")]
            #[tuned]
            batch_size: usize,
        }
    }
    DerivesInSeveral => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        struct DerivesInSeveral { #[tuned] batch_size: usize, #[tuned] allow_tf32: bool }
    }
    DerivesByPath => {
        #[derive(::core::cmp::PartialEq, std::clone::Clone)]
        struct DerivesByPath { #[tuned] batch_size: usize }
    }
    EmptyDerive => { #[derive()] struct EmptyDerive { #[tuned] batch_size: usize } }
    PlacesOfTuned => {
        struct PlacesOfTuned {
            #[tuned]
            #[allow(dead_code, reason = "below")]
            batch_size: usize,
            #[allow(dead_code, reason = "above")]
            #[tuned]
            num_workers: usize,
            #[cfg(not(any()))]
            #[tuned]
            /// In the middle.
            #[allow(dead_code, reason = "around")]
            prefetch_depth: usize,
        }
    }
    LeftOut => {
        struct LeftOut {
            #[tuned] batch_size: usize,
            #[cfg(any())] #[tuned] num_workers: usize,
            #[cfg(any())] #[tuned(default = no_such_function())] other: u8,
            #[cfg(not(any()))] #[cfg(test)] #[tuned] prefetch_depth: usize,
        }
    }
    ByPlatform => {
        struct ByPlatform {
            #[cfg(unix)] #[tuned(setting = num_workers)] threads: usize,
            #[cfg(not(unix))] #[tuned(setting = num_workers)] threads: u32,
            #[cfg(unix)] #[tuned(default = '/')] separator: char,
            #[cfg(not(unix))] #[tuned(default = '\\')] separator: char,
        }
    }
    AllLeftOut => { struct AllLeftOut { #[cfg(any())] #[tuned] batch_size: usize } }
    LintsOfItem => {
        #[allow(clippy::struct_excessive_bools, reason = "the shape under test")]
        struct LintsOfItem {
            #[tuned] allow_tf32: bool,
            #[tuned] gradient_checkpointing: bool,
            #[tuned] cuda_graphs: bool,
            unread: bool,
        }
    }
}

#[test]
fn derives_are_kept_and_fields_that_are_left_out_are_not_tuned() {
    check::<AttributesAround>();
    check::<visible::Visibilities>();
    let smaller = DerivesInSeveral { batch_size: 0, ..DerivesInSeveral::default() };
    assert!(smaller < DerivesInSeveral::default());
    assert_eq!(AllLeftOut::default().tuned(), gpu_tuned::Pins::default());
}
