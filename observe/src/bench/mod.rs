//! Steps timed over a range of settings: what a program is asked for, and what it writes down.
//!
//! `cargo gpu-tuned bench` runs the program with a [`Request`] in its environment. The program appends a [`Line`] of JSON for
//! everything that it begins and ends to the file of results. What a process that died has begun and not ended is what it
//! died of. Both sides read the results as a [`Record`].

mod figures;
mod frontier;
mod header;
mod record;
mod request;
mod setup;

pub use figures::{Figures, Interval, Outcome, Phases};
pub use frontier::frontier;
pub use header::{Begin, Header, Planned};
pub use record::{Line, Record, Section};
pub use request::{Request, powers_of_two};
pub use setup::{Feed, Setup};

#[cfg(test)]
mod tests;
