//! Goals in tokens.

use crate::dims::{Dim, DimValue, Presence};
use crate::plan::problem::NO_TOKENS;
use crate::workload::{ModelKind, ModelSpec, WorkloadSpec};

#[test]
fn the_message_lists_every_kind_with_tokens() {
    for kind in ModelKind::ALL.iter().filter(|kind| kind.name != "declared") {
        let model = ModelSpec::from_values(kind, &kind.dims.iter().filter_map(placeholder).collect());
        let has_tokens = WorkloadSpec::from(model).workload().sample.tokens.is_some();
        assert_eq!(NO_TOKENS.contains(kind.name), has_tokens, "{}", kind.name);
    }
}

fn placeholder(dim: &Dim) -> Option<(&'static str, DimValue)> {
    (dim.presence == Presence::Required).then(|| (dim.name, dim.kind.placeholder()))
}
