//! Dimensions in configs that a config holds: Burn's, and the program's own.

use syn::{Field, Type, Visibility};

use super::annotation::{Given, dimension};
use super::code;

/// Configs of Burn, with the dimensions that their fields are.
const BURNS: &[(&str, &[(&str, &str)])] = &[
    ("TransformerEncoderConfig", TRANSFORMER),
    ("TransformerDecoderConfig", TRANSFORMER),
    ("LstmConfig", RECURRENT),
    ("BiLstmConfig", RECURRENT),
    ("GruConfig", RECURRENT),
    ("BiGruConfig", RECURRENT),
];
const TRANSFORMER: &[(&str, &str)] =
    &[("layers", "n_layers"), ("heads", "n_heads"), ("d_model", "d_model"), ("d_ff", "d_ff")];
const RECURRENT: &[(&str, &str)] = &[("inputs", "d_input"), ("hidden", "d_hidden")];
/// How deep configs are looked into.
const DEPTH: usize = 3;

/// A dimension that a field in there holds.
pub(super) struct Held {
    pub dim: &'static str,
    /// The fields on the way to it.
    path: Vec<String>,
    /// The value that the code gives it.
    value: u64,
}

impl Held {
    /// As `#[tuned(dims(…))]` takes it.
    pub(super) fn in_words(&self) -> String {
        match &self.path[..] {
            [field] if field == self.dim => format!("{field} = {}", self.value),
            path => format!("{}: {} = {}", self.dim, path.join("."), self.value),
        }
    }
}

/// What the code says with numbers of the dimensions in a config of this type, which the file of this name holds. Classes
/// alone are none: they decide little of what a model costs.
pub(super) fn dims(ty: &Type, file: &str, given: &Given<'_>) -> Vec<Held> {
    let mut found = Vec::new();
    Inside { file, given, found: &mut found }.look(ty, &[]);
    if found.iter().all(|held| held.dim == "classes") { Vec::new() } else { found }
}

struct Inside<'i> {
    file: &'i str,
    given: &'i Given<'i>,
    found: &'i mut Vec<Held>,
}

impl Inside<'_> {
    fn look(&mut self, ty: &Type, path: &[String]) {
        let Some(name) = code::last(ty) else { return };
        if let Some((_, fields)) = BURNS.iter().find(|(known, _)| *known == name) {
            for (dim, field) in *fields {
                let known = self.given.family.kind.dims.iter().find(|known| known.name == *dim);
                self.take(known.map(|known| known.name), path, (&name, field), None);
            }
            return;
        }
        let given = self.given;
        let Some(own) = given.code.own.iter().find(|own| own.name == name).filter(|_| path.len() < DEPTH) else {
            return;
        };
        // The module of the annotated struct has to read them.
        let is_near = own.file == self.file;
        let is_seen = |field: &&Field| is_near || !matches!(field.vis, Visibility::Inherited);
        for field in own.item.fields.iter().filter(is_seen) {
            let Some(ident) = field.ident.as_ref().map(ToString::to_string) else { continue };
            match dimension(&ident, &field.ty, given.family) {
                Some(dim) => {
                    let default = field.attrs.iter().filter_map(code::default).find_map(|value| code::number(&value));
                    self.take(Some(dim), path, (&name, &ident), default);
                }
                None => self.look(&field.ty, &[path, &[ident]].concat()),
            }
        }
    }

    /// Takes a dimension whose value the code says: that of the program that trains before that of others.
    fn take(&mut self, dim: Option<&'static str>, path: &[String], (ty, field): (&str, &str), default: Option<u64>) {
        let Given { code, chosen, .. } = self.given;
        let values = if chosen.fields.keys().any(|(of, _)| of == ty) { chosen } else { code };
        let said = values.fields.get(&(ty.to_owned(), field.to_owned())).copied().or(default);
        let (Some(dim), Some(value)) = (dim, said) else { return };
        if self.found.iter().all(|held| held.dim != dim) {
            self.found.push(Held { dim, path: [path, &[field.to_owned()]].concat(), value });
        }
    }
}
