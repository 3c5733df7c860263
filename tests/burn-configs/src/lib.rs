//! The training configs of Burn's examples as their users would annotate them.
//!
//! Each module has what is in the file of the same name in `before/`, with at most five lines changed.

#[path = "../before/mod.rs"]
pub mod before;
pub mod custom_loop;
pub mod guide;
pub mod mnist;
pub mod networks;
pub mod text_classification;
