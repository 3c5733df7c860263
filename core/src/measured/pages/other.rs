//! What is in no such pages: other pages, of sizes that were outgrown. It jumps where an allocation is outgrown in turn.

use std::collections::BTreeMap;

use super::Line;
use crate::Bytes;

/// The most micro-batches that are kept of it.
const MOST: usize = 8;
/// A share of all that is held which is not worth one more.
const SLIGHT: f64 = 0.001;

/// What was seen of it with a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    pub batch: u64,
    pub bytes: f64,
    /// What was held in all.
    pub all: f64,
}

/// Those of ascending micro-batches that tell nearly all others, on straight lines between them.
pub(super) fn telling(seen: &[Other]) -> BTreeMap<u64, Bytes> {
    let entry = |other: &Other| (other.batch, Bytes(other.bytes.round() as u64));
    let mut known: BTreeMap<_, _> = seen.first().map(entry).into_iter().collect();
    while known.len() < MOST {
        let missed = |other: &Other| (between(&known, other.batch) - other.bytes).abs() / other.all;
        let Some(worst) = seen.iter().max_by(|a, b| missed(a).total_cmp(&missed(b))) else { break };
        if missed(worst) <= SLIGHT {
            break;
        }
        known.extend([entry(worst)]);
    }
    known
}

/// On the straight line between what is known beside a micro-batch, or else on the one from the first to the last: a curve would go
/// on as steeply as anywhere, which may be a jump.
pub(super) fn between(known: &BTreeMap<u64, Bytes>, batch: u64) -> f64 {
    let (Some(first), Some(last)) = (known.first_key_value(), known.last_key_value()) else { return 0.0 };
    let beside = known.range(..=batch).next_back().zip(known.range(batch..).next());
    let [from, to] = beside.map_or([first, last], |(from, to)| [from, to]).map(|(at, bytes)| (*at, bytes.0 as f64));
    Line::through(from, to).at(batch)
}

#[cfg(test)]
mod tests {
    use super::{Other, between, telling};

    /// MiB that a ResNet-18 holds in outgrown pages, and in all (bf16, replayed from a CPU as `CubeCL` 0.11.3 deals it out).
    const RESNET: [(u64, f64, f64); 9] = [
        (33, 121.1, 435.1),
        (48, 139.1, 512.1),
        (65, 160.1, 663.1),
        (92, 196.1, 899.1),
        (129, 198.1, 1181.1),
        (192, 262.1, 1715.1),
        (257, 332.1, 2275.1),
        (340, 418.1, 2981.1),
        (448, 532.1, 3905.1),
    ];

    fn seen((batch, bytes, all): (u64, f64, f64)) -> Other {
        Other { batch, bytes: bytes * 1_048_576.0, all: all * 1_048_576.0 }
    }

    #[test]
    fn few_micro_batches_tell_of_all() {
        let seen = RESNET.map(seen);
        let known = telling(&seen);
        assert!(known.contains_key(&92) && known.contains_key(&129), "{known:?}");
        for other in seen {
            assert!((between(&known, other.batch) - other.bytes).abs() < 0.002 * other.all, "{known:?} of {other:?}");
        }
        // A line through the first and the last misses the jump by much more.
        let ends = telling(&[seen[0], seen[8]]);
        assert!(between(&ends, 92) < 0.97 * seen[3].bytes && between(&ends, 129) > 1.08 * seen[4].bytes);
    }

    #[test]
    fn beyond_what_is_known_it_grows_as_from_the_first_to_the_last() {
        let known = [(10, 100), (20, 150), (30, 300)].map(|(batch, bytes)| (batch, crate::Bytes(bytes))).into();
        let told = [5, 10, 15, 20, 25, 30, 40].map(|batch| between(&known, batch) as i64);
        assert_eq!(told, [50, 100, 125, 150, 225, 300, 400]);
        assert_eq!([1, 9].map(|batch| between(&[(4, crate::Bytes(7))].into(), batch) as i64), [7, 7]);
        assert!(telling(&[]).is_empty());
    }
}
