//! Integration tests of the whole crate in one program.

mod contradictions;
mod convnets;
mod devices;
mod profiles;
mod published;
