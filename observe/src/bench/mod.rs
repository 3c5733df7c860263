//! Requests and results of a bench run, which times steps over a range of settings.
//!
//! `cargo gpu-tuned bench` runs the program with a [`Request`] in its environment. The program appends a [`Line`] of JSON to
//! the file of results when a setup starts and when it ends. A setup that started and did not end is where the process died.
//! Both sides read the results as a [`Record`].

mod comparison;
mod figures;
mod record;
mod request;

pub use comparison::{Comparison, Row};
pub use figures::{Figures, Interval, Outcome, Phases, frontier};
pub use record::{Begin, Header, Line, Planned, Record, Section};
pub use request::{Feed, Request, Setup, powers_of_two};
