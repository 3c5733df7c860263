//! `cargo gpu-tuned targets`.

mod args;
mod catalogue;
mod details;
mod here;
mod list;
mod search;

pub(crate) use args::TargetsArgs;

use crate::args::Common;
use crate::error::Error;
use crate::output::{Answer, Code, pretty};
use catalogue::Catalogue;
use search::{Found, Search};

pub(crate) fn run(common: &Common, args: &TargetsArgs) -> Result<Answer, Error> {
    let (catalogue, mut notes) = Catalogue::read(common, args.filter.project)?;
    if args.here {
        return Ok(here::answer(common, &catalogue, notes));
    }
    let entries = catalogue.entries();
    let search = Search::new(args);
    let Found { entries: found, exact } = search.among(&entries);
    if found.is_empty() {
        notes.push(search.no_match(&catalogue, &entries));
    } else if exact {
        notes.extend(search.others(&entries, &found));
    }
    let text = if common.json {
        pretty(&found)
    } else if exact || args.details {
        found.iter().map(|entry| details::text(entry)).collect::<Vec<_>>().join("\n")
    } else {
        list::text(&found)
    };
    let code = if found.is_empty() { Code::No } else { Code::Ok };
    Ok(Answer { text, notes, code })
}
