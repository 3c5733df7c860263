//! Tests of the example in one program.

mod data;
mod equality;
