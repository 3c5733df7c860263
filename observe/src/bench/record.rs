//! Files of results.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Begin, Header, Outcome, Setup};

/// A line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Header of all lines up to the next header.
    Header(Box<Header>),
    /// A process starts.
    Begin(Begin),
    /// A setup starts.
    Started(Setup),
    /// A setup ended.
    Ended {
        /// The setup.
        #[serde(flatten)]
        setup: Setup,
        /// Its outcome.
        outcome: Box<Outcome>,
    },
}

/// The newest results of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Sections by header, that of the last line last.
    sections: Vec<Section>,
}

/// Results below a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The header.
    pub header: Header,
    /// Start of the last process.
    pub begin: Option<Begin>,
    /// Last outcome of each setup.
    pub outcomes: BTreeMap<Setup, Outcome>,
    /// Setup that started last and has not ended.
    pub open: Option<Setup>,
}

impl Record {
    /// Collects lines. Lines before the first header are ignored.
    pub fn from_lines(lines: impl IntoIterator<Item = Line>) -> Self {
        let mut record = Self::default();
        lines.into_iter().for_each(|line| record.add(line));
        record
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.select(*header),
            line => self.sections.last_mut().into_iter().for_each(|section| section.add(line.clone())),
        }
    }

    fn select(&mut self, header: Header) {
        let known = self.sections.iter().position(|section| section.header == header);
        let section = known.map(|at| self.sections.remove(at));
        let new = || Section { header, begin: None, outcomes: BTreeMap::new(), open: None };
        self.sections.push(section.unwrap_or_else(new));
    }

    /// Returns the section of the last line.
    pub fn last(&self) -> Option<&Section> {
        self.sections.last()
    }

    /// Returns the section below a header.
    pub fn section(&self, header: &Header) -> Option<&Section> {
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
