use super::Figure;
use crate::profile::ProfileTable;

#[test]
fn the_examples_are_figures_of_a_shipped_profile() {
    let profile = ProfileTable::builtin_profile("rtx4090").expect("shipped");
    let table = toml::Table::try_from(profile).expect("a profile is TOML");
    for key in Figure::all().filter(|figure| !figure.example.is_empty()) {
        let whole = toml::Value::Table(table.clone());
        let value = key.key.split('.').try_fold(&whole, |value, name| value.get(name)).cloned();
        let example: toml::Table = format!("it = {}", key.example).parse().expect("TOML");
        let (value, example) = (value.expect(key.key), &example["it"]);
        let peak = |value: &toml::Value| value.get("tflops").cloned();
        assert!(value == *example || (peak(&value).is_some() && peak(&value) == peak(example)), "{}", key.key);
    }
}
