//! Checks of the book and of the README, apart from their Rust.

mod blocks;
mod links;
mod packages;
mod pages;
mod readme;
