use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataset::{Dataset, DatasetError};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::{CacheError, CachedDataset};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Item {
    name: String,
    values: Vec<f32>,
}

/// Counts how often an item is prepared, and fails for one of them.
#[derive(Debug)]
struct Slow {
    items: usize,
    prepared: Arc<AtomicUsize>,
    fails_at: Option<usize>,
}

impl Dataset<Item> for Slow {
    fn get(&self, index: usize) -> Result<Item, DatasetError> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        if self.fails_at == Some(index) {
            return Err(DatasetError::new(std::io::Error::other("no such item")));
        }
        Ok(item(index))
    }

    fn len(&self) -> usize {
        self.items
    }
}

fn item(index: usize) -> Item {
    Item { name: format!("item {index}"), values: (0..index % 5).map(|value| value as f32 / 3.0).collect() }
}

/// Path of a cache in a folder of its own.
fn cache() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("items");
    (folder, path)
}

/// Opens the cache, and returns the number of items that were prepared.
fn open(items: usize, path: &Path, fingerprint: &str) -> (CachedDataset<Slow, Item>, usize) {
    let prepared = Arc::new(AtomicUsize::new(0));
    let source = Slow { items, prepared: prepared.clone(), fails_at: None };
    let dataset = CachedDataset::open(source, path, fingerprint).unwrap();
    (dataset, prepared.load(Ordering::Relaxed))
}

fn holds(dataset: &CachedDataset<Slow, Item>, items: usize) -> bool {
    dataset.iter().map(Result::unwrap).eq((0..items).map(item)) && dataset.len() == items
}

#[test]
fn items_are_prepared_once() {
    let (_folder, path) = cache();
    // More than one chunk, and a ragged one.
    for (expected, fingerprint) in [(600, "a"), (0, "a"), (600, "b"), (0, "b")] {
        let (dataset, prepared) = open(600, &path, fingerprint);
        assert_eq!(prepared, expected);
        assert!(holds(&dataset, 600));
    }
    let (dataset, prepared) = open(599, &path, "b");
    assert_eq!(prepared, 599);
    assert!(holds(&dataset, 599));
}

#[test]
fn a_cache_of_no_items_is_one() {
    let (_folder, path) = cache();
    assert!(holds(&open(0, &path, "a").0, 0));
    assert!(holds(&open(0, &path, "a").0, 0));
}

#[test]
fn whatever_happens_to_the_file_the_items_stay_what_they_are() {
    let (folder, path) = cache();
    open(3, &path, "a");
    let whole = fs::read(&path).unwrap();
    for damage in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[damage] ^= 0x01;
        for broken in [&flipped[..], &whole[..damage]] {
            // Renamed into place: the file may still be mapped.
            let draft = folder.path().join("draft");
            fs::write(&draft, broken).unwrap();
            fs::rename(&draft, &path).unwrap();
            assert!(holds(&open(3, &path, "a").0, 3), "byte {damage}");
        }
    }
}

#[test]
fn a_damaged_item_alone_is_prepared_again() {
    let (_folder, path) = cache();
    open(3, &path, "a");
    let mut bytes = fs::read(&path).unwrap();
    // A letter of the first item's name.
    bytes[10] ^= 0x01;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let (dataset, prepared) = open(3, &path, "a");
    assert_eq!(prepared, 0);
    assert!(holds(&dataset, 3));
    assert_eq!(dataset.source().prepared.load(Ordering::Relaxed), 1);
}

#[test]
fn an_item_that_cannot_be_prepared_leaves_the_old_cache() {
    let (folder, path) = cache();
    open(3, &path, "a");
    let source = Slow { items: 300, prepared: Arc::default(), fails_at: Some(299) };
    let error = CachedDataset::<_, Item>::open(source, &path, "b").unwrap_err();
    assert!(matches!(error, CacheError::Prepare { item: 299, .. }));
    assert_eq!(open(3, &path, "a").1, 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
