//! Child processes, and the signals that end them.

mod child;
mod children;
mod group;
mod guard;
mod output;
mod stop;

pub(crate) use child::{Ended, Started, describe};
pub(crate) use children::{Children, POLL};
pub(crate) use group::{Signal, is_running};
pub(crate) use output::{Readers, pass_on};
pub(crate) use stop::{Stop, end_by};
