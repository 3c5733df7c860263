//! Integration tests of the whole crate in one program.

mod contradictions;
mod devices;
mod library;
mod profiles;
mod published;
