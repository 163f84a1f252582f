//! What `deploy/` installs matches the binary: arguments, configurations, ports, versions and kinds.
//!
//! Needs no cluster. The suite on a real API server checks that permissions are sufficient and minimal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use berth::cli::Cli;
use berth::cluster::WORKLOADS;
use berth_core::api::Kind;
use berth_kube::resource::Resource;
use clap::Parser;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The capacity reports of drivers on clusters whose `CSIDriver` has no status.
const REPORTS: (&str, &str) = ("storage.berth.dev", "csidrivercapacities");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All objects of the plain manifests and examples, each with its file.
fn objects() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for directory in ["deploy/manifests", "deploy/examples"] {
        for entry in std::fs::read_dir(root().join(directory)).unwrap() {
            let file = format!("{directory}/{}", entry.unwrap().file_name().to_str().unwrap());
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text(&file)).unwrap();
            found.extend(documents.into_iter().map(|object| (file.clone(), object)));
        }
    }
    assert!(found.len() > 20, "{} objects", found.len());
    found
}

/// The pods that run the image of the Dockerfile, with their containers.
fn pods() -> Vec<(String, Value, Value)> {
    let mut pods = Vec::new();
    for (file, object) in objects() {
        let place = if object["kind"] == "Pod" {
            "/spec"
        } else {
            "/spec/template/spec"
        };
        let Some(pod) = object.pointer(place) else {
            continue;
        };
        // A reserved domain: unedited manifests pull nothing.
        let image = format!("registry.invalid/berth:{}", env!("CARGO_PKG_VERSION"));
        let containers = pod["containers"].as_array().unwrap();
        let ours = containers.iter().find(|container| container["image"] == image.as_str());
        let ours = ours.unwrap_or_else(|| panic!("{file}: no container with the image {image}"));
        pods.push((file, pod.clone(), ours.clone()));
    }
    assert_eq!(
        pods.len(),
        6,
        "scheduler, also as a static pod, controller, the provisioner in two ways, and the page"
    );
    pods
}

fn arguments(container: &Value) -> Vec<String> {
    let arguments = container["args"].as_array().unwrap().iter();
    arguments
        .map(|argument| argument.as_str().unwrap().replace("$(NODE_NAME)", "n1"))
        .collect()
}

#[test]
fn the_command_line_knows_every_argument() {
    for (file, _, container) in pods() {
        let arguments = arguments(&container);
        let parsed = Cli::try_parse_from(std::iter::once("berth".to_owned()).chain(arguments));
        assert!(parsed.is_ok(), "{file}: {}", parsed.unwrap_err());
    }
}

#[test]
fn the_components_take_their_configurations() {
    let directory = tempfile::tempdir().unwrap();
    let maps: Vec<_> = objects()
        .into_iter()
        .filter(|(_, object)| object["kind"] == "ConfigMap")
        .collect();
    assert_eq!(maps.len(), 2, "scheduler and controller");
    for (file, map) in maps {
        let (name, content) = map["data"].as_object().unwrap().iter().next().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, content.as_str().unwrap()).unwrap();
        // A component reads its configuration before it connects to the cluster, which does not exist.
        let output = Command::new(env!("CARGO_BIN_EXE_berth"))
            .arg(name.strip_suffix(".yaml").unwrap())
            .args(["--kubeconfig", "no-such-kubeconfig", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.contains("cannot use the kubeconfig no-such-kubeconfig"),
            "{file}: {told}"
        );
    }
}

#[test]
fn probes_ask_where_the_component_answers() {
    for (file, pod, container) in pods() {
        let listen = arguments(&container)
            .iter()
            .find_map(|argument| argument.strip_prefix("--listen=").map(str::to_owned));
        let listen: SocketAddr = listen.unwrap().parse().unwrap();
        // On the host network, only the node itself may connect.
        let host = &pod["hostNetwork"] == true;
        assert_eq!(listen.ip().is_loopback(), host, "{file}");
        assert!(host || listen.ip().is_unspecified(), "{file}: probes come from outside");
        let port = &container["ports"][0];
        assert_eq!(port["containerPort"], listen.port(), "{file}");
        // The page has no path of its own for probes, and answers to names of its own machine alone.
        let is_page = container["name"] == "view";
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
            let path = if is_page { "/" } else { path };
            let asked = &container[probe]["httpGet"];
            let named = json!([{"name": "Host", "value": "localhost"}]);
            assert_eq!(
                asked["httpHeaders"],
                if is_page { named } else { Value::Null },
                "{file}"
            );
            assert_eq!(
                (&asked["path"], &asked["port"]),
                (&path.into(), &port["name"]),
                "{file}"
            );
            let from = host.then(|| listen.ip().to_string());
            assert_eq!(asked["host"].as_str(), from.as_deref(), "{file}");
        }
    }
}

/// A component that grows without bound is killed before its node runs out of memory.
#[test]
fn pods_have_a_limit_of_memory() {
    for (file, _, container) in pods() {
        let limits = container["resources"]["limits"].as_object();
        let limited: Vec<_> = limits.into_iter().flat_map(|limits| limits.keys()).collect();
        assert_eq!(
            limited,
            ["memory"],
            "{file}: CPU has none, or probes would fail under load"
        );
    }
}

#[test]
fn leases_are_granted_by_name() {
    let roles = objects().into_iter().filter(|(_, object)| object["kind"] == "Role");
    let mut named = 0;
    for (file, role) in roles {
        for rule in role["rules"].as_array().unwrap() {
            // A new object has no name yet.
            if rule["resources"] == json!(["leases"]) && rule["verbs"] != json!(["create"]) {
                assert_eq!(rule["resourceNames"].as_array().map(Vec::len), Some(1), "{file}");
                named += 1;
            }
        }
    }
    assert!(named >= 4, "{named}");
}

#[test]
fn nobody_reaches_the_pods_unless_somebody_says_so() {
    let policies: Vec<_> = objects()
        .into_iter()
        .filter(|(file, object)| object["kind"] == "NetworkPolicy" && file.contains("/manifests/"))
        .collect();
    let [(file, policy)] = policies.as_slice() else {
        panic!("{policies:?}")
    };
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]), "{file}");
    assert_eq!(policy["spec"]["ingress"], json!([]), "{file}");
    let selected = policy["spec"]["podSelector"]["matchLabels"].as_object().unwrap();
    for (other, object) in objects() {
        let labels = &object["spec"]["template"]["metadata"]["labels"];
        if labels.is_object() {
            assert!(selected.iter().all(|(key, value)| labels[key] == *value), "{other}");
        }
    }
    assert!(text("deploy/kustomization.yaml").contains("06-network-policy.yaml"));
}

#[test]
fn pods_have_no_more_privileges_than_they_need() {
    for (file, pod, container) in pods() {
        let confined = &container["securityContext"];
        assert_eq!(confined["allowPrivilegeEscalation"], false, "{file}");
        assert_eq!(confined["readOnlyRootFilesystem"], true, "{file}");
        assert_eq!(confined["capabilities"], serde_json::json!({"drop": ["ALL"]}), "{file}");
        assert_eq!(confined["seccompProfile"]["type"], "RuntimeDefault", "{file}");
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            // A static pod starts before there is a pod network.
            let needed = field == "hostNetwork" && file.contains("static-pod");
            assert!(needed || pod[field].is_null(), "{file}: {field}");
        }
        // The socket of a driver usually belongs to root.
        if !file.contains("provisioner") {
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{file}");
            assert!(pod["securityContext"]["runAsUser"].as_u64() > Some(0), "{file}");
        }
    }
}

#[test]
fn replicas_go_to_different_nodes_even_where_there_are_no_zones() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = directory.path().join("nodes.yaml");
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n\
             status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 10}}}}\n"
        )
    };
    std::fs::write(&nodes, ["n1", "n2"].map(node).concat()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_berth"))
        .args(["simulate", "-o", "json", "-f"])
        .arg(&nodes)
        .arg("-f")
        .arg(root().join("deploy/manifests"))
        .output()
        .unwrap();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    for component in ["scheduler", "controller"] {
        let pods = outcome["pods"].as_array().unwrap().iter();
        let ours = pods.filter(|pod| pod["pod"].as_str().unwrap().contains(component));
        let nodes: Vec<&Value> = ours.map(|pod| &pod["node"]).collect();
        assert_eq!(nodes.len(), 2, "{outcome}");
        assert_ne!(nodes[0], nodes[1], "{component}");
    }
}

#[test]
fn roles_are_about_kinds_that_berth_knows() {
    let others = [Resource::EVENTS, Resource::SECRETS, Resource::LEASES];
    // The page shows workloads, and the owner of a provisioner's pod is read whatever its kind.
    let others = others.into_iter().chain(WORKLOADS);
    let mut known: BTreeSet<(&str, &str)> = others.map(|resource| (resource.group, resource.plural)).collect();
    known.insert(REPORTS);
    known.extend(
        Kind::ALL
            .iter()
            .map(|kind| (Resource::of(*kind).group, Resource::of(*kind).plural)),
    );
    for (file, role) in objects() {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let words = |field: &str| -> Vec<&str> {
                let list = rule[field].as_array().unwrap();
                list.iter().map(|word| word.as_str().unwrap()).collect()
            };
            for resource in words("resources") {
                let (plural, subresource) = resource.split_once('/').unwrap_or((resource, "status"));
                let group = words("apiGroups")[0];
                assert!(known.contains(&(group, plural)), "{file}: {group}/{resource}");
                assert!(
                    ["binding", "finalizers", "status"].contains(&subresource),
                    "{file}: {resource}"
                );
            }
            let verbs = words("verbs");
            // A watch starts with a list, and every lister here also watches, but for what an answer of the page needs once.
            let once = ["events", "leases"].contains(&words("resources")[0]) && verbs == ["list"];
            assert!(
                once || verbs.contains(&"list") == verbs.contains(&"watch"),
                "{file}: {rule}"
            );
            assert!(!verbs.contains(&"*"), "{file}: {rule}");
        }
    }
}

/// What an account may do with a verb everywhere.
fn granted(account: &str, verb: &str) -> BTreeSet<String> {
    let role = objects()
        .into_iter()
        .map(|(_, object)| object)
        .find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == account);
    let mut granted = BTreeSet::new();
    for rule in role.unwrap()["rules"].as_array().unwrap() {
        if rule["verbs"].as_array().unwrap().contains(&verb.into()) {
            let resources = rule["resources"].as_array().unwrap().iter();
            granted.extend(resources.map(|resource| resource.as_str().unwrap().to_owned()));
        }
    }
    granted
}

/// What decisions read.
fn read() -> BTreeSet<String> {
    let read = Kind::ALL.iter().map(|kind| Resource::of(*kind).plural);
    read.chain([REPORTS.1]).map(str::to_owned).collect()
}

#[test]
fn the_scheduler_may_watch_all_that_decisions_read() {
    assert_eq!(granted("berth-scheduler", "watch"), read());
}

#[test]
fn the_page_may_watch_what_it_shows_and_nothing_else() {
    let workloads = WORKLOADS.iter().map(|resource| resource.plural.to_owned());
    let watched: BTreeSet<String> = read().into_iter().chain(workloads).collect();
    assert_eq!(granted("berth-view", "watch"), watched);
    let listed = watched.into_iter().chain(["events".to_owned(), "leases".to_owned()]);
    assert_eq!(granted("berth-view", "list"), listed.collect());
    for verb in ["get", "create", "update", "patch", "delete"] {
        assert_eq!(granted("berth-view", verb), BTreeSet::new(), "{verb}");
    }
}

#[test]
fn accounts_and_roles_that_are_named_are_there() {
    let objects = objects();
    for (file, object) in &objects {
        let name = |object: &Value| object["metadata"]["name"].clone();
        let has = |kind: &Value, wanted: &Value| {
            let mut own = objects.iter().filter(|(other, _)| other == file);
            own.any(|(_, other)| other["kind"] == *kind && name(other) == *wanted)
        };
        if !object["roleRef"].is_null() {
            let role = &object["roleRef"];
            assert!(has(&role["kind"], &role["name"]), "{file}: {role}");
            for subject in object["subjects"].as_array().unwrap() {
                assert!(has(&subject["kind"], &subject["name"]), "{file}: {subject}");
            }
        }
        let account = object.pointer("/spec/template/spec/serviceAccountName");
        if let Some(account) = account {
            assert!(has(&"ServiceAccount".into(), account), "{file}: {account}");
        }
    }
}

#[test]
fn the_provisioner_of_nodes_reaches_every_node() {
    let objects = objects();
    let (_, set) = objects
        .iter()
        .find(|(_, object)| object["kind"] == "DaemonSet")
        .unwrap();
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["tolerations"], serde_json::json!([{"operator": "Exists"}]));
    assert_eq!(pod["priorityClassName"], "system-node-critical");
}

/// The metrics in `docs/metrics.md`, each with its labels. Another test compares that page with the code.
fn listed_metrics() -> BTreeMap<String, BTreeSet<String>> {
    let page = text("docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.split('|');
        let name = cells.next().unwrap().trim().trim_end_matches('`').to_owned();
        let histogram = cells.next().unwrap().trim() == "histogram";
        let labels = cells.next().unwrap().split('`').skip(1).step_by(2).map(str::to_owned);
        (name, labels.chain(histogram.then(|| "le".to_owned())).collect())
    })
    .collect()
}

/// The words of a PromQL query, without quoted texts.
fn words(query: &str) -> Vec<&str> {
    let outside = query.split('"').step_by(2);
    outside
        .flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn alerts_and_dashboard_read_metrics_that_there_are() {
    let metrics = listed_metrics();
    let dashboard: Value = serde_json::from_str(&text("deploy/dashboard.json")).unwrap();
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let mut queries: Vec<Value> = list(&dashboard, "panels")
        .iter()
        .flat_map(|panel| list(panel, "targets"))
        .collect();
    for (_, object) in objects() {
        let groups = list(&object["spec"], "groups");
        queries.extend(groups.iter().flat_map(|group| list(group, "rules")));
    }
    assert!(queries.len() > 30, "{}", queries.len());
    // Labels that Prometheus adds for a pod, and further labels that a query may use.
    let of_pods = ["namespace", "container"];
    for query in queries {
        let query = query["expr"].as_str().unwrap();
        let mut labels: BTreeSet<&str> = of_pods.into();
        let words = words(query);
        let named = words
            .iter()
            .filter(|word| word.starts_with("berth_") || word.starts_with("scheduler_"));
        let mut count = 0;
        for name in named {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let known = metrics.get(*name).or_else(|| metrics.get(base?));
            labels.extend(
                known
                    .unwrap_or_else(|| panic!("no metric {name}: {query}"))
                    .iter()
                    .map(String::as_str),
            );
            count += 1;
        }
        assert!(count > 0, "{query}");
        // Braces and `by` contain label names.
        let lists = query
            .split(['{', '('])
            .skip(1)
            .zip(query.split(['{', '(']))
            .filter_map(|(list, before)| {
                let braces = query.contains(&format!("{{{list}")) || before.trim_end().ends_with("by");
                braces.then(|| list.split(['}', ')']).next().unwrap_or_default())
            });
        for list in lists {
            for pair in list.split(',') {
                let label = pair.split(['=', '!']).next().unwrap().trim();
                assert!(labels.contains(label), "no label {label:?}: {query}");
            }
        }
    }
}

#[test]
fn commands_set_values_that_the_chart_has() {
    let schema: Value = serde_json::from_str(&text("deploy/chart/values.schema.json")).unwrap();
    let mut seen = 0;
    for page in ["README.md", "deploy/README.md", "deploy/chart/templates/NOTES.txt"] {
        for setting in text(page).split("--set ").skip(1) {
            let key = setting
                .trim_start_matches('\'')
                .split('=')
                .next()
                .unwrap()
                .replace("[0]", "");
            let mut at = &schema;
            for part in key.split('.') {
                // An object without a schema accepts anything.
                if at["type"] == "array" || at.get("properties").is_none() {
                    break;
                }
                at = &at["properties"][part];
                if let Some(name) = at["$ref"].as_str() {
                    at = &schema["$defs"][name.trim_start_matches("#/$defs/")];
                }
                assert!(!at.is_null(), "{page}: no value {key}");
            }
            seen += 1;
        }
        assert!(
            !text(page).contains("--reuse-values "),
            "{page}: it ignores defaults of a new chart"
        );
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let chart: Value = serde_saphyr::from_str(&text("deploy/chart/Chart.yaml")).unwrap();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&version.into(), &version.into())
    );
    assert!(text("deploy/kustomization.yaml").contains(&format!("newTag: {version}\n")));
    let changes = text("CHANGELOG.md");
    assert!(
        changes.contains(&format!("\n## {version}")),
        "CHANGELOG.md has no section {version}"
    );
    let dockerfile = text("Dockerfile");
    assert!(dockerfile.contains(&format!("org.opencontainers.image.version=\"{version}\"")));
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.unwrap().trim_matches('"');
    assert!(dockerfile.contains(&format!("FROM rust:{channel}-")), "{channel}");
}

/// What a script prints.
fn printed(directory: &Path, command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command)
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_image_has_a_digest() {
    let dockerfile = text("Dockerfile");
    let mut stages = BTreeSet::from(["scratch"]);
    for line in dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let digest = words[0].split_once("@sha256:").map(|(_, digest)| digest);
        let is_digest =
            digest.is_some_and(|digest| digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(is_digest || stages.contains(words[0]), "{line}");
        stages.extend(words.get(2));
    }
    assert!(!dockerfile.contains("# syntax="), "its image would be fetched by a tag");
}

#[test]
fn the_bill_of_materials_names_what_is_linked() {
    let sbom = root().join("deploy/sbom");
    let first = printed(&root(), sbom.to_str().unwrap(), &[]);
    assert_eq!(
        first,
        printed(&root(), sbom.to_str().unwrap(), &[]),
        "the same bytes each time"
    );
    let bill: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        (&bill["bomFormat"], &bill["specVersion"]),
        (&json!("CycloneDX"), &json!("1.6"))
    );
    let lock: toml_lock::Lock = toml_lock::read(&text("Cargo.lock"));
    let components = bill["components"].as_array().unwrap();
    for component in components {
        let of = |key: &str| component[key].as_str().unwrap().to_owned();
        let sum = component["hashes"][0]["content"].as_str().unwrap();
        assert_eq!(
            lock.get(&(of("name"), of("version"))).map(String::as_str),
            Some(sum),
            "{component}"
        );
        assert_eq!(of("purl"), format!("pkg:cargo/{}@{}", of("name"), of("version")));
        assert!(
            !component["licenses"][0]["expression"].as_str().unwrap().is_empty(),
            "{component}"
        );
    }
    let names: BTreeSet<&str> = components.iter().filter_map(|one| one["name"].as_str()).collect();
    for (name, is_linked) in [
        ("tokio", true),
        ("redb", true),
        ("kube-client", true),
        ("proptest", false),
        ("insta", false),
    ] {
        assert_eq!(names.contains(name), is_linked, "{name}");
    }
}

/// The checksums of `Cargo.lock`.
mod toml_lock {
    use std::collections::BTreeMap;

    pub(crate) type Lock = BTreeMap<(String, String), String>;

    pub(crate) fn read(text: &str) -> Lock {
        let packages = text.split("[[package]]").skip(1);
        packages
            .filter_map(|package| {
                let field = |key: &str| {
                    let line = package
                        .lines()
                        .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
                    Some(line.trim_matches('"').to_owned())
                };
                Some(((field("name")?, field("version")?), field("checksum")?))
            })
            .collect()
    }
}

/// The steps of docs/releases.md that need no registry.
#[test]
fn a_release_is_described_signed_and_checked() {
    let directory = tempfile::tempdir().unwrap();
    let work = directory.path();
    // The script wants a tree without changes, which this one need not be.
    for arguments in [
        &["init", "-q"][..],
        &["add", "-A"],
        &[
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
            "commit",
            "-q",
            "-m",
            "x",
        ],
    ] {
        if arguments[0] == "add" {
            std::fs::create_dir(work.join("deploy")).unwrap();
            for file in ["Dockerfile", "Cargo.lock", "rust-toolchain.toml", "deploy/provenance"] {
                std::fs::copy(root().join(file), work.join(file)).unwrap();
            }
        }
        printed(work, "git", arguments);
    }
    std::fs::write(work.join("berth"), "a binary").unwrap();
    std::fs::write(work.join("berth \"x\".tgz"), "a chart").unwrap();
    let statement = printed(
        work,
        "deploy/provenance",
        &["https://ci.example.com", "berth", "berth \"x\".tgz"],
    );
    let parsed: Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(parsed["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(parsed["subject"][1]["name"], "berth \"x\".tgz");
    let sum = printed(work, "sha256sum", &["berth"]);
    assert!(
        sum.starts_with(parsed["subject"][0]["digest"]["sha256"].as_str().unwrap()),
        "{sum}"
    );
    let commit = printed(work, "git", &["rev-parse", "HEAD"]);
    let made_from = &parsed["predicate"]["buildDefinition"]["resolvedDependencies"];
    assert_eq!(made_from[0]["digest"]["gitCommit"], commit.trim());
    assert!(text("Dockerfile").contains(made_from[2]["digest"]["sha256"].as_str().unwrap()));
    // Changes that are not committed are of no revision.
    std::fs::write(work.join("Cargo.lock"), "changed").unwrap();
    let refused = Command::new("deploy/provenance")
        .args(["x", "berth"])
        .current_dir(work)
        .output()
        .unwrap();
    assert!(!refused.status.success());

    std::fs::write(work.join("SHA256SUMS"), sum).unwrap();
    for command in [
        "genpkey -algorithm ed25519 -out berth.key",
        "pkey -in berth.key -pubout -out berth.pub",
        "pkeyutl -sign -rawin -inkey berth.key -in SHA256SUMS -out SHA256SUMS.sig",
        "pkeyutl -verify -rawin -pubin -inkey berth.pub -in SHA256SUMS -sigfile SHA256SUMS.sig",
    ] {
        printed(work, "openssl", &command.split(' ').collect::<Vec<_>>());
    }
    printed(work, "sha256sum", &["--check", "SHA256SUMS"]);
    std::fs::write(work.join("SHA256SUMS"), "other").unwrap();
    let arguments = "pkeyutl -verify -rawin -pubin -inkey berth.pub -in SHA256SUMS -sigfile SHA256SUMS.sig";
    let forged = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(work)
        .output()
        .unwrap();
    assert!(!forged.status.success(), "another text with the same signature");
}

#[test]
fn the_chart_has_the_custom_resources() {
    for entry in std::fs::read_dir(root().join("deploy/crds")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let of_chart = text(&format!("deploy/chart/crds/{name}"));
        assert_eq!(
            of_chart,
            text(&format!("deploy/crds/{name}")),
            "{name}: run deploy/render"
        );
        let of_manifests = text("deploy/manifests/05-custom-resources.yaml");
        assert!(
            of_manifests.contains(&text(&format!("deploy/crds/{name}"))),
            "{name}: run deploy/render"
        );
    }
}
