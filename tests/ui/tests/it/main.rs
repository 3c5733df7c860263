//! Generated code, and the messages of the macros.

#![allow(missing_docs, unreachable_pub, reason = "generated code keeps the visibility of its struct")]

mod generated;
mod messages;
#[allow(dead_code, reason = "fields without a reader")]
mod shapes;
