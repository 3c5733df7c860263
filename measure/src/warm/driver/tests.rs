use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use cubecl::bundle::Bundle;
use cubecl_environment::bytes::Bytes;

use super::{folder, lay_out, walk};

#[derive(Debug)]
struct Files(BTreeMap<&'static str, &'static str>);

impl Bundle for Files {
    fn get(&self, _: &str, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn scan(&self, _: &str, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.0.iter().for_each(|(key, value)| visit(key.as_bytes(), value.as_bytes()));
    }

    fn namespaces(&self) -> Vec<String> {
        Vec::new()
    }

    fn describe(&self) -> String {
        String::new()
    }
}

#[test]
fn a_cache_is_where_the_driver_would_look() {
    let of = |set: &[(&str, &str)]| {
        folder(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    };
    let usual = cfg!(target_os = "linux").then(|| PathBuf::from("/home/me/.nv/ComputeCache"));
    assert_eq!(of(&[("HOME", "/home/me"), ("CUDA_CACHE_PATH", ""), ("CUDA_CACHE_DISABLE", "0")]), usual);
    assert_eq!(of(&[("HOME", "/home/me"), ("CUDA_CACHE_PATH", "/c")]), Some(PathBuf::from("/c")));
    assert_eq!(of(&[("HOME", "/home/me"), ("CUDA_CACHE_DISABLE", "1")]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn what_was_collected_is_laid_out_where_nothing_is_and_only_there() {
    let home = tempfile::tempdir().expect("a folder");
    let cache = home.path().join(".nv/ComputeCache");
    let files = Files([("index", "two"), ("0/a/f00", "first"), ("b/3/f11", "second")].into());
    assert_eq!(lay_out(&files, &cache).expect("it is written"), 3);
    let mut found = Vec::new();
    walk(&cache, &mut Vec::new(), &mut found).expect("it is read");
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    let mut found: Vec<_> = found.iter().map(|(key, value)| (text(key), text(value))).collect();
    found.sort();
    let expected = files.0.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert_eq!(fs::read_dir(home.path().join(".nv")).expect("a folder").count(), 1, "drafts are removed");

    let others = Files([("index", "another")].into());
    assert_eq!(lay_out(&others, &cache).expect("it is left alone"), 0);
    assert_eq!(fs::read_to_string(cache.join("index")).expect("a file"), "two");
    // An empty folder is as none.
    let empty = home.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    assert_eq!(lay_out(&others, &empty).expect("it is written"), 1);
}

#[test]
fn names_that_lead_out_of_the_cache_are_refused() {
    let home = tempfile::tempdir().expect("a folder");
    for name in ["../evil", "/tmp/evil", "a/../../evil", "", "."] {
        let cache = home.path().join("cache");
        assert!(lay_out(&Files([(name, "x")].into()), &cache).is_err(), "{name}");
        assert!(!cache.exists() && !home.path().join("evil").exists());
    }
}
