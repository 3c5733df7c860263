//! The GPUs that a command plans for, and `cargo gpu-tuned targets`, which shows them.

mod catalogue;
mod details;
mod here;
mod limits;
mod list;
mod search;
mod target;

use serde::Serialize;

use crate::args::{Common, TargetsArgs};
use crate::error::Error;
use crate::{Answer, Code};
use catalogue::Catalogue;
use search::{Found, Search};
pub(crate) use target::Target;

/// Shows the profiles that are looked for, or the GPUs of this machine.
pub(crate) fn run(common: &Common, args: &TargetsArgs) -> Result<Answer, Error> {
    let (catalogue, mut notes) = Catalogue::read(common, args.filter.project)?;
    if args.here {
        return Ok(here::answer(common, &catalogue, notes));
    }
    let entries = catalogue.entries();
    let search = Search::new(args);
    let Found { entries: found, exact } = search.among(&entries);
    if found.is_empty() {
        notes.push(search.in_vain(&catalogue, &entries));
    } else if exact {
        notes.extend(search.others(&entries, &found));
    }
    let text = if common.json {
        json(&found)
    } else if exact || args.details {
        found.iter().map(|entry| details::text(entry)).collect::<Vec<_>>().join("\n")
    } else {
        list::text(&found)
    };
    let code = if found.is_empty() { Code::No } else { Code::Fine };
    Ok(Answer { text, notes, code })
}

fn json(answer: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(answer).expect("BUG: profiles and readings are always JSON"))
}
