use proptest::prelude::*;

use super::*;

/// A message with these fields: texts and messages.
fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128, "the length fits one byte");
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn number_field(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn body(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = [bytes_field(1, api_version.as_bytes()), bytes_field(2, kind.as_bytes())].concat();
    [
        PREFIX.to_vec(),
        bytes_field(1, &type_meta),
        bytes_field(2, message),
        bytes_field(3, b""),
    ]
    .concat()
}

/// What kubectl sends for `create configmap cm --from-literal=a=b`.
#[test]
fn config_maps_of_kubectl() {
    let sent = b"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x1c\n\x12\n\x02cm\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x06\n\x01a\x12\x01b\x1a\x00\"\x00";
    let expect = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "b"}});
    assert_eq!(decode(sent), Ok(expect));
}

/// What kubectl sends for `create secret generic x --from-literal=a=b`.
#[test]
fn secrets_of_kubectl() {
    let sent = b"k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\x1d\n\x11\n\x01x\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x06\n\x01a\x12\x01b\x1a\x00\x1a\x00\"\x00";
    let expect = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, "data": {"a": "Yg=="}});
    assert_eq!(decode(sent), Ok(expect));
}

/// What kubectl sends for `auth can-i get pods`.
#[test]
fn access_reviews_of_kubectl() {
    let sent = b"k8s\x00\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12<\n\x10\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x1e\n\x1c\n\x07default\x12\x03get\x1a\x00\"\x00*\x04pods2\x00:\x00\x1a\x08\x08\x00\x12\x00\x1a\x00 \x00\x1a\x00\"\x00";
    let review = decode(sent).unwrap();
    let expect = json!({"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}});
    assert_eq!(review["spec"], expect);
    assert_eq!(review["apiVersion"], "authorization.k8s.io/v1");
}

/// What kubectl sends for `create deployment x --image=y`.
#[test]
fn deployments_of_kubectl() {
    let sent = b"k8s\x00\n\x15\n\x07apps/v1\x12\nDeployment\x12\x9b\x01\n\x1b\n\x01x\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00Z\x08\n\x03app\x12\x01x\x12n\x08\x01\x12\n\n\x08\n\x03app\x12\x01x\x1aV\n\x1a\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00Z\x08\n\x03app\x12\x01x\x128\x12\x1a\n\x01y\x12\x01y*\x00B\x00j\x00r\x00\x80\x01\x00\x88\x01\x00\x90\x01\x00\xa2\x01\x00\x1a\x002\x00B\x00J\x00R\x00X\x00`\x00h\x00\x82\x01\x00\x8a\x01\x00\x9a\x01\x00\xc2\x01\x00\"\x02\n\x00(\x008\x00\x1a\x0c\x08\x00\x10\x00\x18\x00 \x00(\x008\x00\x1a\x00\"\x00";
    let expect = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "labels": {"app": "x"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "strategy": {},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "y", "image": "y", "resources": {}}]},
            },
        },
        "status": {},
    });
    assert_eq!(decode(sent), Ok(expect));
}

#[test]
fn inlined_messages_join_their_holder() {
    let claim = bytes_field(1, b"c");
    let source = bytes_field(10, &claim);
    let volume = [bytes_field(1, b"v"), bytes_field(2, &source)].concat();
    let pod = decode(&body("v1", "Pod", &bytes_field(2, &bytes_field(1, &volume)))).unwrap();
    assert_eq!(
        pod["spec"]["volumes"],
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    );
}

#[test]
fn quantities_and_times_are_texts() {
    let quantity = bytes_field(1, b"1Gi");
    let entry = [bytes_field(1, b"storage"), bytes_field(2, &quantity)].concat();
    let time = number_field(1, 5);
    let metadata = [bytes_field(1, b"pv"), bytes_field(8, &time)].concat();
    let message = [bytes_field(1, &metadata), bytes_field(2, &bytes_field(1, &entry))].concat();
    let volume = decode(&body("v1", "PersistentVolume", &message)).unwrap();
    assert_eq!(volume["spec"]["capacity"], json!({"storage": "1Gi"}));
    assert_eq!(volume["metadata"]["creationTimestamp"], "1970-01-01T00:00:05Z");
}

#[test]
fn zeros_of_pointers_are_kept() {
    let spec = [number_field(1, 0), number_field(5, 0)].concat();
    let deployment = decode(&body("apps/v1", "Deployment", &bytes_field(2, &spec))).unwrap();
    assert_eq!(deployment["spec"], json!({"replicas": 0}));
    let claim = decode(&body(
        "v1",
        "PersistentVolumeClaim",
        &bytes_field(2, &bytes_field(5, b"")),
    ))
    .unwrap();
    assert_eq!(claim["spec"], json!({"storageClassName": ""}));
}

#[test]
fn options_are_of_any_version() {
    let options = decode(&body("policy/v1", "DeleteOptions", &number_field(1, 0))).unwrap();
    assert_eq!(options["gracePeriodSeconds"], 0);
}

#[test]
fn bad_bodies_are_refused() {
    assert_eq!(decode(b"{}"), Err(ProtobufError::Prefix));
    assert_eq!(decode(b"k8s\0\x0a"), Err(ProtobufError::Malformed));
    let error = decode(&body("v9", "Widget", b"")).unwrap_err().to_string();
    assert_eq!(error, "no kind \"Widget\" is registered for version \"v9\"");
}

/// Every message in the table is a type of the schemas, or is inlined into one.
#[test]
fn the_table_names_fields_that_exist() {
    let mut checked = 0;
    for (message, fields) in FIELDS.iter() {
        let prefixes = [
            "io.k8s.api.",
            "io.k8s.apimachinery.pkg.apis.",
            "io.k8s.apiextensions-apiserver.pkg.apis.",
        ];
        let Some(schema) = prefixes
            .iter()
            .find_map(|prefix| builtin_cursor(&format!("{prefix}{message}")))
        else {
            continue;
        };
        for name in fields.values().filter(|name| !name.starts_with('+')) {
            assert!(schema.field(name).is_some(), "{message}.{name}");
            checked += 1;
        }
    }
    assert!(checked > 1000, "{checked}");
}

proptest! {
    #[test]
    fn no_body_panics(message in prop::collection::vec(any::<u8>(), 0..100)) {
        for kind in ["Pod", "Secret", "Event"] {
            let _ = decode(&body("v1", kind, &message));
        }
    }
}

/// A kind without field numbers would be decoded as empty.
#[test]
fn every_kind_has_the_numbers_of_its_fields() {
    let definitions = crate::schema::builtin_definitions();
    let kinds = crate::registry::builtin().iter().chain(crate::registry::reviews());
    let names = kinds.map(|resource| {
        let definition = crate::schema::builtin_definition_name(&resource.group, &resource.version, &resource.kind);
        short_name(definition.unwrap())
    });
    let missing: Vec<_> = names.filter(|name| !FIELDS.contains_key(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (definition, schema) in definitions {
        let Some(numbers) = FIELDS.get(short_name(definition)) else {
            continue;
        };
        for name in numbers.values().filter(|name| !name.starts_with('+')) {
            assert!(schema["properties"][name].is_object(), "{definition}.{name}");
        }
    }
}
