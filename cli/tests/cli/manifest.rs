//! The manifest for Kubernetes in docs/launchers.md, checked against the schema of its kind.

use std::fs;
use std::path::Path;

use boon::{Compiler, Schemas};
use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
use serde_json::{Map, Number, Value};

fn value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Mapping(entries) => {
            let name = |key: &Yaml| key.as_str().expect("a name").to_owned();
            Value::Object(entries.iter().map(|(key, entry)| (name(key), value(entry))).collect::<Map<_, _>>())
        }
        Yaml::Sequence(items) => Value::Array(items.iter().map(value).collect()),
        Yaml::Value(Scalar::Integer(number)) => Value::Number(Number::from(*number)),
        Yaml::Value(Scalar::String(text)) => Value::String(text.to_string()),
        other => panic!("{other:?} is of no kind that the manifest has"),
    }
}

/// The first mistake in a manifest.
fn mistake(manifest: &str) -> Option<String> {
    let documents = Yaml::load_from_str(manifest).expect("YAML");
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas/pytorchjob.json");
    let schema = serde_json::from_str(&fs::read_to_string(file).expect("the schema")).expect("JSON");
    compiler.add_resource("pytorchjob.json", schema).expect("the schema has an address");
    let index = compiler.compile("pytorchjob.json", &mut schemas).expect("a schema");
    schemas.validate(&value(&documents[0]), index).err().map(|error| error.to_string())
}

#[test]
fn the_manifest_has_the_form_that_kubernetes_expects() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/launchers.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, manifest) = page.split_once("```yaml\n").expect("a manifest");
    let (manifest, _) = manifest.split_once("```").expect("its end");
    assert_eq!(mistake(manifest), None);
    for (right, wrong) in [
        ("replicas: 7", "replicas: seven"),
        ("restartPolicy", "restartpolicy"),
        ("pytorchReplicaSpecs", "replicaSpecs"),
        ("secretKeyRef", "secretRef"),
        ("cpu: \"12\"", "cpu: twelve"),
        ("- name: pytorch\n", "- title: pytorch\n"),
    ] {
        assert!(manifest.contains(right), "{right}");
        assert_ne!(mistake(&manifest.replacen(right, wrong, 1)), None, "{wrong}");
    }
}
