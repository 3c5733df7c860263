//! Links of the book and of the README lead to files and headings of this repository, or to other sites.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pages::{README, folder, pages};

/// Address of a file of this repository, for pages that are read elsewhere.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/");

/// Text without code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code {
            lines.push(line);
        }
    }
    lines.join("\n")
}

/// Targets of links, definitions of links and pictures.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let rest = |marker: &str, end: char| {
        let found = text.split(marker).skip(1).filter_map(|rest| rest.split(end).next());
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    [rest("](", ')'), rest("]: ", '\n'), rest("srcset=\"", '"'), rest("src=\"", '"')].concat()
}

/// Anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
    heading.trim().to_lowercase().chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn has_anchor(path: &Path, wanted: &str) -> bool {
    let text = prose(&fs::read_to_string(path).unwrap());
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|line| anchor(line.trim_start_matches('#')));
    // A repeated heading has a number.
    let mut seen = HashMap::new();
    anchors.into_iter().any(|anchor| {
        let count = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
        wanted == if *count == 0 { anchor } else { format!("{anchor}-{count}") }
    })
}

/// Returns the reason why a link of a page leads nowhere.
fn mistake(page: &str, link: &str) -> Option<String> {
    let (target, anchor) = link.split_once('#').map_or((link, None), |(target, anchor)| (target, Some(anchor)));
    let here: PathBuf = folder().join(page);
    let path = match target.strip_prefix(REPOSITORY) {
        Some(file) => folder().join("..").join(file),
        None if target.contains("://") => return None,
        None if target.is_empty() => here,
        None if page != README && target.contains("..") => return Some("is not in the book".to_owned()),
        None => here.with_file_name(target),
    };
    if !path.exists() {
        return Some("there is no such file".to_owned());
    }
    let is_missing = anchor.is_some_and(|anchor| !has_anchor(&path, anchor));
    is_missing.then(|| "there is no such heading".to_owned())
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let all: Vec<_> =
        pages.iter().flat_map(|(page, text)| links(text).into_iter().map(move |link| (page, link))).collect();
    assert!(all.len() > 100, "{} links", all.len());
    let wrong = all.iter().filter_map(|(page, link)| Some(format!("{page}: {link}: {}", mistake(page, link)?)));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_summary() {
    let pages = pages();
    let listed = links(&pages.iter().find(|(page, _)| page == "SUMMARY.md").unwrap().1);
    for (page, _) in &pages {
        assert!(
            [README, "SUMMARY.md"].contains(&page.as_str()) || listed.contains(page),
            "{page} is not in SUMMARY.md"
        );
    }
}

#[test]
fn dead_links_are_found() {
    let dead = ["missing.md", "faq.md#missing", "#missing", "../README.md", &format!("{REPOSITORY}missing.rs")];
    for link in dead {
        assert!(mistake("faq.md", link).is_some(), "{link}");
    }
    assert_eq!(mistake("faq.md", "#questions"), None);
}

#[test]
fn paths_in_the_guide_for_contributors_exist() {
    let root = folder().join("..");
    let text = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let is_path = |word: &&str| word.contains('/') && !word.contains(' ') && !word.starts_with("target/");
    let paths: Vec<_> = text.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(paths.len() > 60, "{paths:?}");
    let missing: Vec<_> =
        paths.into_iter().filter(|path| !path.starts_with('~') && !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
