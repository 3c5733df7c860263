//! `Default` of an annotated struct, which the annotation implements, and its derives.

use gpu_tuned_core::Setting;
use syn::{Attribute, Field};

use super::{Annotation, range};
use crate::candidate::{self, Candidate};
use crate::defaults;

impl Annotation<'_, '_, '_> {
    /// Removes other implementations of `Default`, and keeps their values.
    pub(super) fn defaults(&mut self, candidate: &Candidate<'_>) {
        if candidate.is_burn() {
            return;
        }
        if let Some(derive) = candidate.derive_of("Default") {
            let kept: Vec<_> =
                candidate::derived(derive).into_iter().filter(|path| !path.ends_with("Default")).collect();
            self.patch.note(self.source, range(derive).start, "the annotation implements `Default`");
            let is_other = |it: &&Attribute| it.path().is_ident("derive") && range(it) != range(derive);
            let (range, ours) = match &kept[..] {
                [] if candidate.item.attrs.iter().any(|it| is_other(&it)) => {
                    (defaults::with_space(&self.source.text, range(derive)), String::new())
                }
                [] => (range(derive), self.new_derive(candidate)),
                kept => (range(derive), format!("#[derive({})]", kept.join(", "))),
            };
            return self.patch.replace(self.source, range, ours);
        }
        let Some(own) = self.own.take() else { return };
        let is_open = |name: &String| !self.annotated.contains(name) && Setting::named(name).is_some();
        let open = candidate.fields().map(|(_, name)| name).find(is_open);
        if open.is_some() || !own.is_readable(candidate) {
            let open = open.map(|name| {
                format!(
                    "; `{name}` has the name of a setting and takes no default: write `#[tuned]` above it and give it a type of \
                     the setting, or rename it"
                )
            });
            return self.help.push(format!(
                "{}:{}: remove this `impl Default`, the annotation implements it; values that are not planned become \
                 `#[tuned(default = …)]`{}",
                own.source.name,
                own.line(),
                open.unwrap_or_default()
            ));
        }
        for (field, name) in candidate.fields() {
            if !self.annotated.contains(&name)
                && let Some(value) = own.value(&name)
            {
                self.above(field, &format!("#[tuned(default = {value})]"), &format!("`{name}` keeps its default"));
            }
        }
        own.remove(self.patch);
    }

    /// A derive for a struct without one, of a trait that the program does not implement.
    pub(super) fn new_derive(&self, candidate: &Candidate<'_>) -> String {
        let name = candidate.item.ident.to_string();
        let mut beside = self.given.sources.iter().filter(|source| source.is_beside(self.source));
        let is_clone = beside.any(|source| candidate::implementation("Clone", &name, &source.file.items).is_some());
        format!("#[derive({})]", if is_clone { "Debug" } else { "Clone" })
    }

    /// Removes the defaults of a planned field in attributes of other derives.
    pub(super) fn remove_defaults(&mut self, candidate: &Candidate<'_>, field: &Field, name: &str) {
        let is_default = |it: &Attribute| {
            it.path().is_ident("serde") && it.parse_args::<syn::Path>().is_ok_and(|it| it.is_ident("default"))
        };
        if defaults::remove(self.source, field, self.patch) && !candidate.item.attrs.iter().any(is_default) {
            self.help.push(format!(
                "files without the key `{name}` stop loading; `#[serde(default)]` above the struct gives missing keys their default"
            ));
        }
    }
}
