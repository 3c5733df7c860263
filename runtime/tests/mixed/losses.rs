pub(crate) fn task() -> String {
    String::new()
}
