use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Begin, Header, Outcome, Setup};

/// A line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What all lines that follow are of, up to the next header.
    Header(Box<Header>),
    /// A process has begun.
    Begin(Begin),
    /// A setup is about to be run.
    Started(Setup),
    /// What came of it.
    Ended {
        /// Which.
        #[serde(flatten)]
        setup: Setup,
        /// What came of it.
        outcome: Box<Outcome>,
    },
}

/// A file of results: the newest of what its lines say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// One for each header, that of the last line last.
    sections: Vec<Section>,
}

/// What is known below a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// What it is of.
    pub header: Header,
    /// What the last process set out to do.
    pub begin: Option<Begin>,
    /// What came of each setup, the last time.
    pub outcomes: BTreeMap<Setup, Outcome>,
    /// What was begun last and has not ended.
    pub open: Option<Setup>,
}

impl Record {
    /// What the lines say. Those before the first header are of nothing.
    pub fn of(lines: impl IntoIterator<Item = Line>) -> Self {
        let mut record = Self::default();
        lines.into_iter().for_each(|line| record.add(line));
        record
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.turn_to(*header),
            line => self.sections.last_mut().into_iter().for_each(|section| section.add(line.clone())),
        }
    }

    fn turn_to(&mut self, header: Header) {
        let known = self.sections.iter().position(|section| section.header == header);
        let section = known.map(|at| self.sections.remove(at));
        let new = || Section { header, begin: None, outcomes: BTreeMap::new(), open: None };
        self.sections.push(section.unwrap_or_else(new));
    }

    /// What the last lines are of.
    pub fn last(&self) -> Option<&Section> {
        self.sections.last()
    }

    /// What is known below this header.
    pub fn under(&self, header: &Header) -> Option<&Section> {
        self.sections.iter().find(|section| section.header == *header)
    }
}

impl Section {
    fn add(&mut self, line: Line) {
        match line {
            Line::Header(_) => {}
            Line::Begin(begin) => (self.begin, self.open) = (Some(begin), None),
            Line::Started(setup) => self.open = Some(setup),
            Line::Ended { setup, outcome } => {
                self.open = None;
                self.outcomes.insert(setup, *outcome);
            }
        }
    }
}
