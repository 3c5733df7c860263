//! Child processes, and the signals that end them.

mod child;
mod group;
mod stop;

pub(crate) use child::{Ended, Started, pass_on};
pub(crate) use stop::{Stop, end_by};
