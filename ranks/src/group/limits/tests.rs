use super::{DESTRUCTORS, *};
use crate::group::hub::FAREWELL;
use crate::group::hub::members::INTERVAL;
use crate::group::member::LATE_ANSWER;

#[test]
fn a_stopped_rank_ends_all_within_30_s() {
    let limits = Limits::default();
    let exit = limits.grace + DESTRUCTORS;
    // The interval is doubled on many ranks.
    let stopped_root = 2 * limits.heartbeat + limits.silence + LATE_ANSWER + exit;
    let stopped_member = limits.silence + INTERVAL + FAREWELL + exit;
    assert!(stopped_root.max(stopped_member) < Duration::from_secs(30));
}
