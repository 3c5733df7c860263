use std::time::{Duration, Instant};

use gpu_tuned_core::Bytes;

use super::{Budget, Memory, Tried};

#[test]
fn bytes_in_use_are_reserved() {
    let memory = |reserved: u64, in_use: u64| Memory {
        reserved_bytes: Bytes::from_mib(reserved),
        in_use_bytes: Some(Bytes::from_mib(in_use)),
    };
    let tried = |memory, accumulating| Tried { batch: 8, memory, accumulating, ..Tried::default() };
    let point = tried(Some(memory(100, 110)), Some(memory(90, 0))).measured();
    assert_eq!([point.reserved_bytes, point.reserved_accumulating_bytes], [Some(Bytes::from_mib(110)); 2]);
    let point = tried(Some(memory(100, 80)), Some(memory(90, 0))).measured();
    let found = [point.reserved_bytes, point.reserved_accumulating_bytes, point.in_use_bytes];
    assert_eq!(found, [100, 90, 80].map(|mib| Some(Bytes::from_mib(mib))));
    assert_eq!(tried(None, None).measured().reserved_bytes, None);
    let ran = Tried { ran: Some(Bytes::from_mib(95)), ..tried(Some(memory(100, 80)), Some(memory(90, 0))) };
    assert_eq!(ran.measured().reserved_accumulating_bytes, Some(Bytes::from_mib(95)));
}

#[test]
fn time_counts_from_the_begin() {
    let seconds = Duration::from_secs;
    let budget = Budget::new(seconds(120));
    let now = Instant::now() + seconds(1000);
    assert_eq!((budget.left(now), budget.to_string().as_str()), (seconds(120), "0 s of 120 s"));
    budget.begin(now);
    budget.begin(now + seconds(50));
    assert_eq!(budget.left(now + seconds(100)), seconds(20));
    assert_eq!(budget.left(now + seconds(200)), Duration::ZERO);
}
