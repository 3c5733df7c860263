//! What `#[derive(MicroBatch)]` says.

#[test]
fn mistakes_are_reported_where_they_are() {
    trybuild::TestCases::new().compile_fail("cases/micro_batch/*.rs");
}
