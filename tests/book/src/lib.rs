//! Every Rust block of the book and of the README is a test of this crate's documentation; `tests` reads the others.

#![allow(clippy::needless_doctest_main, reason = "a build script is a main function")]
#![allow(clippy::doc_markdown, reason = "pages are prose for users")]

/// A page, whose blocks are compiled and run.
macro_rules! pages {
    ($($name:ident = $file:literal,)*) => {
        $(
            #[doc = include_str!(concat!("../../../docs/", $file))]
            pub mod $name {}
        )*

        /// The pages with Rust in them, from the folder of the book.
        pub const PAGES: &[&str] = &[$($file),*];
    };
}

pages! {
    readme = "../README.md",
    introduction = "introduction.md",
    getting_started = "getting-started.md",
    own_loop = "loop.md",
    planner = "planner.md",
    measuring = "measuring.md",
    falling_back = "falling-back.md",
    watching = "watching.md",
    several_gpus = "several-gpus.md",
    ranks = "ranks.md",
    kernels = "kernels.md",
    pytorch = "pytorch.md",
    upstream = "upstream.md",
}
