//! What a package without a build script is told.

#[test]
fn mistakes_are_reported_where_they_are() {
    trybuild::TestCases::new().compile_fail("cases/without_table/*.rs");
}
