//! Integration tests of the whole crate in one program.

mod devices;
mod profiles;
