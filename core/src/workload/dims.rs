/// A dimension that users give for a family of models, in an attribute or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// The name.
    pub name: &'static str,
    /// What values it takes.
    pub kind: DimKind,
    /// What it is, its unit, and its default.
    pub meaning: &'static str,
    /// Whether it must be given.
    pub required: bool,
}

/// The values that a dimension takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimKind {
    /// A positive whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// The name of an optimizer.
    Optimizer,
    /// A list of `[channels, blocks]`.
    Stages,
}

impl Dim {
    pub(super) const fn count(name: &'static str, required: bool, meaning: &'static str) -> Self {
        Self { name, kind: DimKind::Count, meaning, required }
    }

    pub(super) const fn flag(name: &'static str, meaning: &'static str) -> Self {
        Self { name, kind: DimKind::Flag, meaning, required: false }
    }

    pub(super) const OPTIMIZER: Self = Self {
        name: "optimizer",
        kind: DimKind::Optimizer,
        meaning: "sgd, momentum, adam or adamw (default)",
        required: false,
    };
}

/// `(name, message)` for each named figure that is zero, or too large for sizes to stay meaningful.
pub(super) fn out_of_range(figures: &[(&'static str, u64)]) -> Vec<(&'static str, String)> {
    const LARGEST: u64 = 1 << 32;
    figures
        .iter()
        .filter(|(_, value)| !(1..=LARGEST).contains(value))
        .map(|(name, value)| (*name, format!("{name} = {value} is out of range, expected 1 to 2^32")))
        .collect()
}
