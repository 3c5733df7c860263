//! The Pareto frontier of memory and speed.

use gpu_tuned_core::Bytes;

/// Marks the points on the Pareto frontier of memory and speed: no other point is as fast with less memory, or faster with
/// no more. Equal points are all marked.
pub fn frontier(points: &[(Bytes, f64)]) -> Vec<bool> {
    let beats = |a: &(Bytes, f64), b: &(Bytes, f64)| a.0 <= b.0 && a.1 >= b.1 && (a.0 < b.0 || a.1 > b.1);
    points.iter().map(|point| !points.iter().any(|other| beats(other, point))).collect()
}
