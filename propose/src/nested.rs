//! Dimensions in nested configs, of Burn and of the program.

use std::collections::BTreeMap;

use syn::{Field, Type, Visibility};

use crate::annotation::{Given, dimension};
use crate::burn::BurnNames;
use crate::code;

const MAX_DEPTH: usize = 3;

pub(super) struct NestedDim {
    pub dim: &'static str,
    path: Vec<String>,
    pub value: u64,
}

impl NestedDim {
    /// The entry of `#[tuned(dims(…))]`.
    pub(super) fn to_attribute(&self) -> String {
        match &self.path[..] {
            [field] if field == self.dim => format!("{field} = {}", self.value),
            path => format!("{}: {} = {}", self.dim, path.join("."), self.value),
        }
    }
}

/// Dimensions with a known value in a config of this type, for a struct in this file. Classes alone are ignored: they have
/// little effect on costs.
pub(super) fn dims(ty: &Type, file: &str, given: &Given<'_, '_>) -> Vec<NestedDim> {
    let mut found = Vec::new();
    Inside { file, given, found: &mut found, looked: BTreeMap::new() }.look(ty, &[]);
    if found.iter().all(|held| held.dim == "classes") { Vec::new() } else { found }
}

struct Inside<'i> {
    file: &'i str,
    given: &'i Given<'i, 'i>,
    found: &'i mut Vec<NestedDim>,
    /// Depths of the shortest paths to the types that were looked at.
    looked: BTreeMap<String, usize>,
}

impl Inside<'_> {
    fn look(&mut self, ty: &Type, path: &[String]) {
        let Some(name) = code::last(ty) else { return };
        // Another path to a type gives no other dimensions, unless the path is shorter.
        if self.looked.get(&name).is_some_and(|depth| *depth <= path.len()) {
            return;
        }
        self.looked.insert(name.clone(), path.len());
        if let Some(fields) = BurnNames::get().config(&name) {
            for (field, dim) in fields {
                let known = self.given.family.kind.dims.iter().find(|known| known.name == dim);
                self.take(known.map(|known| known.name), path, (&name, field), None);
            }
            return;
        }
        let given = self.given;
        let Some(own) = given.code.own.iter().find(|own| own.name == name).filter(|_| path.len() < MAX_DEPTH) else {
            return;
        };
        // The module of the annotated struct must be able to read the field.
        let is_near = own.file == self.file;
        let is_seen = |field: &&Field| is_near || !matches!(field.vis, Visibility::Inherited);
        for field in own.item.fields.iter().filter(is_seen) {
            let Some(ident) = field.ident.as_ref().map(ToString::to_string) else { continue };
            match dimension(&ident, &field.ty, given.family) {
                Some(dim) => {
                    let default =
                        field.attrs.iter().filter_map(code::default).find_map(|value| given.code.number(&value));
                    self.take(Some(dim), path, (&name, &ident), default);
                }
                None => self.look(&field.ty, &[path, &[ident]].concat()),
            }
        }
    }

    /// Adds a dimension whose value is in the code; the program that trains has precedence.
    fn take(&mut self, dim: Option<&'static str>, path: &[String], (ty, field): (&str, &str), default: Option<u64>) {
        let Given { code, chosen, .. } = self.given;
        let values = if chosen.fields.keys().any(|(of, _)| of == ty) { chosen } else { code };
        let value = values.fields.get(&(ty.to_owned(), field.to_owned())).copied().or(default);
        let (Some(dim), Some(value)) = (dim, value) else { return };
        if self.found.iter().all(|held| held.dim != dim) {
            self.found.push(NestedDim { dim, path: [path, &[field.to_owned()]].concat(), value });
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::workload::ModelKind;

    use super::*;
    use crate::code::{Code, Own};
    use crate::losses::Losses;
    use crate::numbers::Family;

    /// Attributes of the dimensions in a config of type `S0`.
    fn attributes(structs: &str) -> Vec<String> {
        let own = |item| match item {
            syn::Item::Struct(item) => Own { name: item.ident.to_string(), file: "a.rs".to_owned(), item },
            _ => panic!("no struct"),
        };
        let items = syn::parse_file(structs).expect("Rust").items;
        let mut code = Code::default();
        code.own.extend(items.into_iter().map(own));
        let family = Family { kind: ModelKind::named("transformer").expect("a kind"), hint: None, doubt: None };
        let given = Given {
            sources: &[],
            reached: &[],
            family: &family,
            code: &code,
            chosen: &Code::default(),
            losses: &Losses::default(),
            krate: "gpu-tuned",
            holds_step: false,
            accumulation: None,
        };
        dims(&syn::parse_str("S0").expect("a type"), "a.rs", &given).iter().map(NestedDim::to_attribute).collect()
    }

    #[test]
    fn every_struct_is_looked_at_once() {
        let of = |name: &str, of: &str| {
            let fields: String = (0..3_000).map(|field| format!("f{field}: {of}, ")).collect();
            format!("struct {name} {{ {fields} }}")
        };
        let last = "struct S3 { #[config(default = 8)] n_layers: usize }";
        let text = [of("S0", "S1"), of("S1", "S2"), of("S2", "u8"), last.to_owned()].concat();
        assert!(attributes(&text).is_empty());
        let text = text.replace("u8", "S1").replace("f2999: S1", "n: S3");
        assert_eq!(attributes(&text), ["layers: n.n_layers = 8"]);
    }

    #[test]
    fn a_shorter_path_reaches_deeper_structs() {
        let text = "struct S0 { a: A, d: D } struct A { b: B } struct B { d: D }
            struct D { e: E } struct E { #[config(default = 8)] n_layers: usize }";
        assert_eq!(attributes(text), ["layers: d.e.n_layers = 8"]);
    }
}
