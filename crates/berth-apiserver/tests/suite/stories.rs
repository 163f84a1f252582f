//! Compares complete responses with those of Kubernetes.
//!
//! A story is a list of requests (`stories/NAME.yaml`); the responses of Kubernetes are recorded next to it
//! (`stories/NAME.json`). Every server must give the same responses, down to the last field and word. Values that differ
//! between runs (UIDs, versions, times, generated names) are first replaced by a word in capitals.
//!
//! To record again: set `BERTH_SUITE_RECORD` along with `BERTH_SUITE_KUBECONFIG`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{namespace, unique};

/// One request of a story.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// A description of the request. Later steps may refer to it.
    what: String,
    /// Method and path. `NS` is replaced by the namespace of the story, `ME` by a unique name, and `${what|/pointer}` by
    /// a part of an earlier response.
    ask: String,
    #[serde(default)]
    body: Value,
    /// A body that is not valid JSON.
    #[serde(default)]
    raw: String,
    /// The media type of the body.
    #[serde(default)]
    media: String,
    #[serde(default)]
    accept: String,
    /// For a watch: how many lines to wait for.
    #[serde(default)]
    lines: usize,
    /// Parts of the body that must have these values: the request is repeated until they do.
    #[serde(default)]
    until: BTreeMap<String, Value>,
    /// Parts of the response in which a server may differ, each with the reason.
    #[serde(default)]
    except: BTreeMap<String, String>,
}

/// The response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Answer {
    what: String,
    code: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    body: Value,
}

fn file(name: &str, ending: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/stories");
    folder.join(format!("{name}.{ending}"))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap();
    if path.extension().is_some_and(|ending| ending == "json") {
        return serde_json::from_str(&text).unwrap();
    }
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Plays a story and compares the responses with the recorded ones.
pub(crate) async fn play(client: Client, name: &str) {
    let steps: Vec<Step> = read(&file(name, "yaml"));
    let mut teller = Teller {
        namespace: namespace(&client).await,
        me: unique("story"),
        client,
        answers: BTreeMap::new(),
    };
    let mut answers = Vec::new();
    for step in &steps {
        answers.push(teller.tell_until(step).await);
    }
    if std::env::var_os("BERTH_SUITE_RECORD").is_some() {
        assert!(
            std::env::var_os("BERTH_SUITE_KUBECONFIG").is_some(),
            "only Kubernetes is recorded"
        );
        let text = serde_json::to_string_pretty(&answers).unwrap();
        return std::fs::write(file(name, "json"), text + "\n").unwrap();
    }
    let expected: Vec<Answer> = read(&file(name, "json"));
    let expected: BTreeMap<&str, &Answer> = expected.iter().map(|answer| (answer.what.as_str(), answer)).collect();
    let mut report = String::new();
    for (step, answer) in steps.iter().zip(&answers) {
        let Some(expected) = expected.get(step.what.as_str()) else {
            writeln!(report, "{}: not recorded", step.what).unwrap();
            continue;
        };
        let mut differences = Vec::new();
        compare("", &json!(expected), &json!(answer), &mut differences);
        differences.retain(|(place, _)| !step.except.keys().any(|except| place.starts_with(except)));
        for (place, difference) in differences {
            writeln!(report, "{} {place}\n{difference}", step.what).unwrap();
        }
    }
    assert!(report.is_empty(), "{name} differs from Kubernetes:\n{report}");
}

struct Teller {
    client: Client,
    namespace: String,
    me: String,
    /// Unmodified responses, by request.
    answers: BTreeMap<String, Value>,
}

impl Teller {
    async fn tell_until(&mut self, step: &Step) -> Answer {
        let start = Instant::now();
        loop {
            let answer = self.tell(step).await;
            let body = &self.answers[&step.what];
            if step
                .until
                .iter()
                .all(|(place, value)| body.pointer(place) == Some(value))
            {
                return answer;
            }
            assert!(start.elapsed() < super::DEADLINE, "{}: still {body}", step.what);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn request(&self, step: &Step) -> Request<Body> {
        let (method, path) = step.ask.split_once(' ').unwrap();
        let body = match (step.body.is_null(), step.raw.as_str()) {
            (true, raw) => self.fill(raw),
            (false, _) => self.fill(&step.body.to_string()),
        };
        let request = Request::builder()
            .method(method)
            .uri(self.fill(path))
            .header("user-agent", "suite/1")
            .header("accept", accept(&step.accept));
        let request = match body.is_empty() {
            true => request,
            false => request.header("content-type", media_type(&step.media)),
        };
        request.body(Body::from(body.into_bytes())).unwrap()
    }

    async fn tell(&mut self, step: &Step) -> Answer {
        let response = self.client.send(self.request(step)).await.unwrap();
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|value| self.plain(value.to_str().unwrap())).collect();
        let body = if step.lines > 0 {
            lines(response.into_body(), step.lines).await
        } else {
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into())
        };
        self.answers.insert(step.what.clone(), body.clone());
        Answer {
            what: step.what.clone(),
            code,
            warnings,
            body: self.normal("", body),
        }
    }

    /// Substitutes names and parts of earlier responses.
    fn fill(&self, text: &str) -> String {
        static WORDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bNS\b|\bME\b|\$\{([^|}]+)\|([^}]+)\}").unwrap());
        let fill = |found: &regex::Captures<'_>| match &found[0] {
            "NS" => self.namespace.clone(),
            "ME" => self.me.clone(),
            _ => match self.answers[&found[1]].pointer(&found[2]) {
                Some(Value::String(text)) => text.clone(),
                other => panic!("{}: {other:?}", &found[0]),
            },
        };
        WORDS.replace_all(text, fill).into_owned()
    }

    /// A text without what differs between runs.
    fn plain(&self, text: &str) -> String {
        static UID: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").unwrap());
        static TIME: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());
        static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^10\.\d+\.\d+\.\d+$").unwrap());
        static VERSION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"in record \(\d+\)").unwrap());
        let text = text.replace(&self.namespace, "NS").replace(&self.me, "ME");
        let text = VERSION.replace_all(&text, "in record (VERSION)");
        let text = UID.replace_all(&text, "UID");
        let text = TIME.replace_all(&text, "TIME");
        ADDRESS.replace_all(&text, "ADDRESS").into_owned()
    }

    /// A value without what differs between runs.
    fn normal(&self, key: &str, value: Value) -> Value {
        static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\d+s$").unwrap());
        match value {
            Value::String(text) if matches!(key, "resourceVersion" | "continue") && !text.is_empty() => {
                "VERSION".into()
            }
            Value::String(text) if key == "cells" && AGE.is_match(&text) => "AGE".into(),
            Value::String(text) => self.plain(&text).into(),
            Value::Array(mut items) if key == "managedFields" => {
                // They are ordered by time, and whether two writes fall into the same second is random.
                items.sort_by_key(|entry| {
                    [&entry["manager"], &entry["operation"], &entry["subresource"]]
                        .map(|part| part.as_str().unwrap_or_default().to_owned())
                });
                items.into_iter().map(|item| self.normal("", item)).collect()
            }
            Value::Array(items) => items.into_iter().map(|item| self.normal(key, item)).collect(),
            Value::Object(fields) => {
                let base = fields.get("generateName").and_then(Value::as_str).map(str::to_owned);
                // Columns have descriptions from the documentation, which no client reads.
                let kept = fields
                    .into_iter()
                    .filter(|(field, _)| key != "columnDefinitions" || field != "description");
                let fields = kept.map(|(field, value)| {
                    let made_up = field == "name" && base.is_some();
                    let value = if made_up {
                        "GENERATED".into()
                    } else {
                        self.normal(&field, value)
                    };
                    (self.plain(&field), value)
                });
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other => other,
        }
    }
}

fn media_type(name: &str) -> &str {
    match name {
        "" => "application/json",
        "apply" => "application/apply-patch+yaml",
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        other => other,
    }
}

fn accept(form: &str) -> &str {
    match form {
        "" => "application/json",
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "metadata" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "metadata-list" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        other => other,
    }
}

/// The first lines of a watch.
async fn lines(mut body: Body, count: usize) -> Value {
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < count {
        let frame = tokio::time::timeout(super::DEADLINE, body.frame()).await;
        match frame.unwrap_or_else(|_| panic!("only {}", String::from_utf8_lossy(&text))) {
            Some(frame) => text.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default()),
            None => break,
        }
    }
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .take(count);
    lines
        .map(|line| serde_json::from_slice::<Value>(line).unwrap())
        .collect()
}

/// Each path at which two values differ, and how.
fn compare(place: &str, expected: &Value, found: &Value, differences: &mut Vec<(String, String)>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let place = format!("{place}/{key}");
                compare(
                    &place,
                    one.get(key).unwrap_or(&Value::Null),
                    other.get(key).unwrap_or(&Value::Null),
                    differences,
                );
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{place}/{index}"), one, other, differences);
            }
        }
        _ if expected == found => {}
        _ => differences.push((place.to_owned(), format!("  expected {expected}\n  found    {found}"))),
    }
}
