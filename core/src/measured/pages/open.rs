//! Where counts leave it open how many pages there are.

use super::InPages;
use super::fit::Law;
use crate::Bytes;

impl Law {
    /// The micro-batch of some at which a count tells most of what is needed at others, and by how much of what is held there
    /// it may be another than is said. `None` where all is known.
    pub(in crate::measured) fn undecided(&self, batches: impl Iterator<Item = u64>) -> Option<(f64, u64)> {
        let told = |batch: u64| {
            let largest = Bytes(self.largest.at(batch).max(0.0) as u64);
            let page = InPages::page_for(largest);
            let empty = InPages::rest(page, largest).times(self.needed.unfilled());
            let kinds = [(&self.needed, page, empty), (&self.small, InPages::SMALL_PAGE, Bytes::ZERO)];
            let bands = kinds.map(|(known, page, empty)| {
                let ((least, most), empty) = (known.band(batch), empty.0 as f64);
                (known, page.0 as f64, (least + empty, most + empty))
            });
            let open = bands.map(|(known, page, band)| open(band, page, known.missed()));
            let held = bands.map(|(.., (least, most))| least.midpoint(most));
            let open = open.iter().sum::<f64>();
            (open > 0.0).then(|| (open / held.iter().sum::<f64>(), batch))
        };
        batches.filter_map(told).max_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// How far the end of a page lies from both ends of what may be needed, without what counts disagree by.
fn open((least, most): (f64, f64), page: f64, missed: f64) -> f64 {
    let first = (least / page).floor() + 1.0;
    let ends = (0..64).map(|more| (first + f64::from(more)) * page).take_while(|end| end + 1.0 < most);
    ends.map(|end| (end - least).min(most - end) - missed * page).fold(0.0, f64::max)
}
