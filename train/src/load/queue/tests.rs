use super::{Budget, Limit};

#[test]
fn a_budget_of_samples_is_that_of_the_first_batch_with_any() {
    let mut limit = Limit::new(Budget::Samples(6));
    assert_eq!(limit.given(0, 0), u64::MAX);
    assert_eq!(limit.given(40, 4), 60);
    assert_eq!(limit.given(1000, 4), 60);
}
