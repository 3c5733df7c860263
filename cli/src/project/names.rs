//! Names for the workloads of annotated structs.

use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;

use super::structs::Struct;

/// Proposes a name for a struct.
type Choice<'a> = &'a dyn Fn(&Struct) -> Option<String>;

/// Returns a name for each struct: of its workload in the file, of its measurements, of its measurements before a change,
/// or its own. No two names are equal.
pub(super) fn struct_names(structs: &[Struct], file: &ConfigFile, lock: &Lock) -> Vec<String> {
    let mut names: Vec<Option<String>> = vec![None; structs.len()];
    let of_file = |it: &Struct| it.workload.clone();
    let free = |name: &str| (!file.workloads.contains_key(name)).then(|| name.to_owned());
    let measured = |it: &Struct| free(lock.measured_for(None, &it.spec, &[])?.0);
    let before = |it: &Struct| free(lock.measured_before(None, &it.spec)?.name);
    let path = |it: &Struct| Some(it.path.clone());
    let is_shared = |name: &str| structs.iter().filter(|it| it.name == name).count() > 1;
    let unique = |it: &Struct| free(&it.name).filter(|name| !is_shared(name));
    let choices: [Choice<'_>; 5] = [&of_file, &measured, &before, &unique, &path];
    for choice in choices {
        for (index, it) in structs.iter().enumerate() {
            let name = choice(it).filter(|name| !names.iter().flatten().any(|taken| taken == name));
            if names[index].is_none() {
                names[index] = name;
            }
        }
    }
    names.into_iter().zip(structs).map(|(name, it)| name.unwrap_or_else(|| it.path.clone())).collect()
}
