//! Limits of prose, which may only be lowered.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// The file of the limits, below the workspace.
pub(crate) const FILE: &str = "xtask/limits.toml";

const HEADER: &str = "\
# Limits of `cargo xtask prose`, lowered by `--tighten`. What has no entry has to meet the goals: of documentation at most
# 5% vague openings, at most 3% of blocks that personify code, at most 5% of sentences over 30 words.
";

/// Limits by name. What has no limit has to meet its goal.
pub(crate) type Table = BTreeMap<String, usize>;

/// Offences and lines that are accepted because they were there before the goals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Blocks of documentation that open with a vague word, by area.
    pub(crate) openers: Option<Table>,
    /// Blocks that personify code or data, by area.
    pub(crate) personify: Option<Table>,
    /// Sentences of more than 30 words, by area.
    pub(crate) long: Option<Table>,
}

impl Limits {
    /// Reads the limits; there are none without the file.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
        toml::from_str(&text).with_context(|| format!("{FILE} is damaged"))
    }

    pub(crate) fn save(&self, root: &Path) -> Result<()> {
        let text = format!("{HEADER}\n{}", toml::to_string(self)?);
        fs::write(root.join(FILE), text).with_context(|| format!("cannot write {FILE}"))
    }
}

/// A figure with its goal.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) present: usize,
    /// The largest figure that needs no limit.
    pub(crate) goal: usize,
}

/// Returns the figures that are above both their goal and their limit, as messages.
pub(crate) fn exceeded(what: &str, figures: &[Figure], limits: Option<&Table>) -> Vec<String> {
    let over = figures.iter().filter_map(|figure| {
        let limit = limits.and_then(|limits| limits.get(&figure.name)).copied().unwrap_or_default().max(figure.goal);
        (figure.present > limit).then(|| format!("{}: {} {what}, at most {limit}", figure.name, figure.present))
    });
    over.collect()
}

/// Lowers the limits of figures that miss their goals to the present figures, and drops the others.
///
/// Without earlier limits every figure is accepted; with them a figure without a limit gets none.
pub(crate) fn tighten(limits: &mut Option<Table>, figures: &[Figure]) {
    let earlier = limits.take();
    let missed = figures.iter().filter(|figure| figure.present > figure.goal);
    let limit = |figure: &Figure| match &earlier {
        None => Some(figure.present),
        Some(earlier) => earlier.get(&figure.name).map(|limit| figure.present.min(*limit)),
    };
    *limits = Some(missed.filter_map(|figure| Some((figure.name.clone(), limit(figure)?))).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(present: &[(&str, usize)]) -> Vec<Figure> {
        let figure = |(name, present): &(&str, usize)| Figure { name: (*name).to_owned(), present: *present, goal: 10 };
        present.iter().map(figure).collect()
    }

    #[expect(clippy::unnecessary_wraps, reason = "a committed table is optional")]
    fn limits(all: &[(&str, usize)]) -> Option<Table> {
        Some(all.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect())
    }

    #[test]
    fn a_figure_fails_above_its_goal_and_its_limit() {
        let found = figures(&[("at goal", 10), ("at limit", 20), ("above limit", 21), ("without limit", 11)]);
        let limits = limits(&[("at limit", 20), ("above limit", 20)]);
        assert_eq!(
            exceeded("lines", &found, limits.as_ref()),
            ["above limit: 21 lines, at most 20", "without limit: 11 lines, at most 10"]
        );
    }

    #[test]
    fn limits_go_down_and_never_up() {
        let found = figures(&[("better", 15), ("worse", 25), ("good", 10), ("new", 30)]);
        let earlier = limits(&[("better", 20), ("worse", 20), ("good", 20), ("gone", 20)]);
        for (mut held, expected) in [
            (earlier, limits(&[("better", 15), ("worse", 20)])),
            (None, limits(&[("better", 15), ("worse", 25), ("new", 30)])),
        ] {
            tighten(&mut held, &found);
            assert_eq!(held, expected);
        }
    }
}
