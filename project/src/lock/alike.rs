//! Workloads that were measured twice, under different names.

use core::fmt;
use gpu_tuned_core::workload::WorkloadSpec;
use std::collections::BTreeMap;

use super::Lock;

/// Workloads with the same description: which of them is meant is a guess where a config does not name its workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alike<'a> {
    /// Their names, at least two.
    pub names: Vec<&'a str>,
}

/// One sentence, with what to do.
impl fmt::Display for Alike<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let (last, others) = names.split_last().expect("BUG: there are two");
        let all = if others.len() > 1 { "all but " } else { "" };
        write!(f, "{}: {} and {last} have the same description: delete {all}one", Lock::NAME, others.join(", "))
    }
}

impl Lock {
    /// Workloads with the same description, but for those that are all `described` in a file: configs name one of them.
    pub fn alike(&self, described: &BTreeMap<String, WorkloadSpec>) -> Vec<Alike<'_>> {
        let mut groups: Vec<(&WorkloadSpec, Vec<&str>)> = Vec::new();
        for (name, entry) in &self.workload {
            let Some(measured) = &entry.described else { continue };
            match groups.iter_mut().find(|(spec, _)| *spec == measured) {
                Some((_, names)) => names.push(name),
                None => groups.push((measured, vec![name])),
            }
        }
        let is_meant = |spec: &WorkloadSpec, name: &str| described.get(name) == Some(spec);
        groups.retain(|(spec, names)| names.len() > 1 && !names.iter().all(|name| is_meant(spec, name)));
        groups.into_iter().map(|(_, names)| Alike { names }).collect()
    }
}
