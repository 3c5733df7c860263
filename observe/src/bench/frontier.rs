use gpu_tuned_core::Bytes;

/// Which of the points, of memory and speed, no other is better than: none is as fast with less, or faster with no more.
/// Of equal points, all.
pub fn frontier(points: &[(Bytes, f64)]) -> Vec<bool> {
    let beats = |a: &(Bytes, f64), b: &(Bytes, f64)| a.0 <= b.0 && a.1 >= b.1 && (a.0 < b.0 || a.1 > b.1);
    points.iter().map(|point| !points.iter().any(|other| beats(other, point))).collect()
}
