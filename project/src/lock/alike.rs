//! Workloads measured twice, under different names.

use core::fmt;
use gpu_tuned_core::workload::WorkloadSpec;
use std::collections::BTreeMap;

use super::Lock;

/// Workloads with the same description. A config that names no workload could use any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SameDescription<'a> {
    /// Names of the workloads, at least two.
    pub names: Vec<&'a str>,
}

/// Formats one sentence, with the remedy.
impl fmt::Display for SameDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let (last, others) = names.split_last().expect("BUG: there are two");
        let all = if others.len() > 1 { "all but " } else { "" };
        write!(f, "{}: {} and {last} have the same description: delete {all}one", Lock::NAME, others.join(", "))
    }
}

impl Lock {
    /// Returns groups of workloads with the same description. Leaves out groups whose workloads are all `described` in a file,
    /// because configs name one of them.
    pub fn alike(&self, described: &BTreeMap<String, WorkloadSpec>) -> Vec<SameDescription<'_>> {
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
        groups.into_iter().map(|(_, names)| SameDescription { names }).collect()
    }
}
