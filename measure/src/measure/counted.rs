//! Pages of a thread's memory pools.

use burn::tensor::SlicedPoolReport;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::InPages;

/// Pages of this thread: pages of small allocations, then current pages of all others, then pages of outgrown sizes.
/// Before its first step (`before`), the thread had the first two pools, without a page.
pub(super) fn pages(before: &[SlicedPoolReport], pools: &[SlicedPoolReport]) -> Option<InPages> {
    let others = before.len().checked_sub(2)?;
    let [small, current, ..] = pools.get(others..)? else { return None };
    if before[others..].iter().any(|pool| pool.pages > 0) {
        return None;
    }
    Some(InPages {
        small_pages: small.pages,
        pages: current.pages,
        page_bytes: Bytes(current.page_size),
        largest_bytes: Bytes(current.largest_alloc),
    })
    .filter(|pages| pages.small_bytes() == Bytes(small.page_size * small.pages))
}

#[cfg(test)]
mod tests {
    use burn::tensor::SlicedPoolReport;

    use super::pages;

    const MIB: u64 = 1 << 20;

    fn pool(page_mib: u64, pages: u64, largest_alloc: u64) -> SlicedPoolReport {
        SlicedPoolReport { page_size: page_mib * MIB, pages, pages_peak: pages, largest_alloc }
    }

    /// Report of an H200 for an LSTM at 80 samples in bf16, after dry runs at 24 and 40 in separate threads.
    #[test]
    fn pages_are_those_of_the_last_thread() {
        let others = [pool(8, 0, 512), pool(2, 0, 0), pool(8, 0, 32_768), pool(2, 0, 737_280)];
        let own = [pool(8, 0, 0), pool(2, 0, 0)];
        let before = [&others[..], &own].concat();
        let after = [&others[..], &[pool(8, 11, 65_536), pool(4, 8, 2_457_600), pool(2, 1, 1_900_000)]].concat();
        let found = pages(&before, &after).expect("the thread had none before");
        assert_eq!((found.small_pages, found.pages, found.page_bytes.0), (11, 8, 4 * MIB));
        assert_eq!(found.largest_bytes.0, 2_457_600);
    }

    #[test]
    fn pages_that_were_there_before_are_not_told_from_others() {
        let after = [pool(8, 2, 512), pool(2, 5, 1_000_000)];
        assert!(pages(&[pool(8, 0, 0), pool(2, 0, 0)], &after).is_some());
        assert!(pages(&[pool(8, 1, 512), pool(2, 0, 0)], &after).is_none());
        // Pools of another memory manager: fewer, or small ones of other pages.
        assert!(pages(&[], &[pool(8, 2, 512)]).is_none() && pages(&[pool(8, 0, 0)], &after).is_none());
        assert!(pages(&[pool(8, 0, 0), pool(2, 0, 0)], &[pool(4, 2, 512), pool(2, 5, 1_000_000)]).is_none());
    }
}
