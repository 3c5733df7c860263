//! Tables of a recording.

use gpu_tuned_observe::export::{Table, csv};

use crate::recorded;

#[test]
fn each_table_has_the_rows_of_its_kind() {
    let tables = [Table::Steps, Table::Gpus, Table::Host, Table::Values].map(|table| csv(&recorded(), table));
    insta::assert_snapshot!(tables.join("\n"));
}
