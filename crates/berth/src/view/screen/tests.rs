#![allow(clippy::unwrap_used)]

use super::draw::{Shown, draw};
use super::state::{Screen, Wish};
use crate::view::answers::About;
use berth_cluster::sample::{self, Shape};
use berth_view::{Model, Overview};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

const REASON: &str = "0/9 nodes are available: 9 node(s) didn't find available persistent volumes to bind.";

fn pod(name: &str, node: &str, message: &str) -> Value {
    let claims = match name {
        "db-0" => json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]),
        _ => json!([]),
    };
    let condition = json!({"type": "PodScheduled", "status": "False", "message": message});
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": node, "volumes": claims,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "24Gi"}}}]},
        "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }, "conditions": [condition]}})
}

/// The cluster of `berth up` with a pod that has a volume, two that wait, a node that is cordoned and one that is not ready.
fn objects(nodes: u32) -> Vec<Value> {
    let mut objects = sample::objects(&Shape {
        nodes,
        ..Shape::default()
    });
    for object in &mut objects {
        match object["metadata"]["name"].as_str() {
            Some("node-a2") => object["spec"]["unschedulable"] = json!(true),
            Some("node-b1") => object["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]),
            Some("node-a1-disk1") => {
                object["spec"]["claimRef"] = json!({"namespace": "shop", "name": "data-db-0"});
            }
            _ => {}
        }
    }
    objects.push(json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "data-db-0", "namespace": "shop"},
        "spec": {"volumeName": "node-a1-disk1", "resources": {"requests": {"storage": "60Gi"}}}, "status": {"phase": "Bound"}}));
    objects.extend([
        pod("db-0", "node-a1", ""),
        pod("big-0", "", REASON),
        pod("new-0", "", ""),
    ]);
    objects
}

fn shown(objects: &[Value]) -> Shown {
    let mut model = Model::default();
    for object in objects {
        model.apply(object, 0);
    }
    Shown {
        server: "https://127.0.0.1:6443".to_owned(),
        overview: Overview::of(model.state()),
        complete: true,
        failing: Vec::new(),
    }
}

/// A screen and the cluster it shows.
struct Seen {
    shown: Shown,
    screen: Screen,
    terminal: Terminal<TestBackend>,
}

impl Seen {
    fn new(width: u16, height: u16, objects: &[Value]) -> Self {
        Self {
            shown: shown(objects),
            screen: Screen::new((width, height), true),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
        }
    }

    fn press(&mut self, code: KeyCode) -> Option<Wish> {
        self.screen
            .press(KeyEvent::new(code, KeyModifiers::NONE), &self.shown.overview)
    }

    fn press_all(&mut self, letters: &str) {
        for letter in letters.chars() {
            assert_eq!(self.press(KeyCode::Char(letter)), None);
        }
    }

    fn lines(&mut self) -> String {
        let now: Timestamp = "2026-01-01T00:03:20Z".parse().unwrap();
        self.terminal
            .draw(|frame| draw(frame, &self.shown, &self.screen, now))
            .unwrap();
        self.terminal.backend().to_string()
    }
}

fn about_big() -> About {
    About {
        kind: "pod".to_owned(),
        namespace: "shop".to_owned(),
        name: "big-0".to_owned(),
    }
}

#[test]
fn a_small_terminal_shows_zones_nodes_and_what_waits() {
    insta::assert_snapshot!(Seen::new(80, 24, &objects(9)).lines());
}

#[test]
fn the_excerpt_in_the_documentation_is_what_is_drawn() {
    let drawn = Seen::new(80, 24, &objects(9)).lines();
    let lines = drawn.lines().take(14).map(|line| line.trim_matches('"').trim_end());
    let excerpt = format!("```text\n{}\n```", lines.collect::<Vec<_>>().join("\n"));
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/view.md");
    let documented = std::fs::read_to_string(page).unwrap();
    assert!(documented.contains(&excerpt), "docs/view.md must contain\n{excerpt}");
}

#[test]
fn a_pod_that_does_not_run_on_its_node_is_reported() {
    let verdict = |phase: &str| {
        let mut placed = pod("db-0", "node-a1", "");
        placed["status"]["phase"] = json!(phase);
        let objects = [sample::objects(&Shape::default()), vec![placed]].concat();
        let lines = Seen::new(80, 24, &objects).lines();
        lines.lines().nth(1).unwrap().to_owned()
    };
    assert!(verdict("Running").contains("No pods pending"));
    assert!(verdict("Succeeded").contains("No pods pending"));
    assert!(verdict("Pending").contains("1 pod does not run on its node"));
    assert!(verdict("Failed").contains("1 pod does not run on its node"));
}

#[test]
fn a_narrow_terminal_shows_percentages() {
    insta::assert_snapshot!(Seen::new(60, 24, &objects(9)).lines());
}

#[test]
fn a_large_cluster_is_summed_up_by_zone_and_opened_on_demand() {
    let mut seen = Seen::new(80, 24, &objects(5000));
    insta::assert_snapshot!("five_thousand_nodes", seen.lines());
    seen.press(KeyCode::Tab);
    seen.press(KeyCode::Enter);
    seen.press(KeyCode::Down);
    seen.press(KeyCode::Enter);
    insta::assert_snapshot!("five_thousand_nodes_with_a_zone_open", seen.lines());
}

#[test]
fn why_a_pod_waits_is_asked_shown_scrolled_and_closed() {
    let mut seen = Seen::new(80, 24, &objects(9));
    let before = seen.lines();
    assert_eq!(seen.press(KeyCode::Enter), Some(Wish::Explain(about_big())));
    assert!(seen.lines().contains("Working it out"));
    let other = About {
        name: "other".to_owned(),
        ..about_big()
    };
    seen.screen.answered(&other, Err("not about this one".to_owned()));
    assert!(seen.lines().contains("Working it out"));
    let text = |width: usize| {
        format!(
            "\x1b[1mPod shop/big-0\x1b[0m fits nowhere, in {width} columns\n{}",
            "line\n".repeat(30) + "the end"
        )
    };
    seen.screen.answered(&about_big(), Ok(Box::new(text)));
    insta::assert_snapshot!("why", seen.lines());
    seen.press(KeyCode::End);
    assert!(seen.lines().contains("the end"));
    seen.press(KeyCode::Up);
    assert!(!seen.lines().contains("the end"), "one line up is one line up");
    seen.screen.resize((60, 24));
    seen.press(KeyCode::Home);
    assert!(seen.lines().contains("in 58 columns"));
    assert_eq!(seen.press(KeyCode::Char('r')), Some(Wish::Explain(about_big())));
    seen.screen.resize((80, 24));
    seen.press(KeyCode::Esc);
    assert_eq!(seen.lines(), before);
}

#[test]
fn a_filter_leaves_what_matches() {
    let mut seen = Seen::new(80, 24, &objects(5000));
    seen.press_all("/NODE-C17");
    assert!(seen.lines().contains("/NODE-C17"));
    seen.press(KeyCode::Enter);
    let lines = seen.lines();
    assert!(
        lines.contains("node-c17 ") && lines.contains("node-c170") && !lines.contains("node-c18 "),
        "{lines}"
    );
    assert!(!lines.contains("big-0"), "{lines}");
    seen.press(KeyCode::Esc);
    assert!(seen.lines().contains("big-0"));
}

#[test]
fn the_selection_stays_on_what_it_is_on() {
    let mut seen = Seen::new(80, 24, &objects(9));
    seen.press_all("j");
    let mut more = objects(9);
    more.push(pod("alpha", "", ""));
    seen.shown = shown(&more);
    let (pods, at) = seen.screen.waiting(&seen.shown.overview);
    assert_eq!(pods[at].name, "shop/new-0");
    seen.press_all("kkkk");
    seen.shown = shown(&objects(9)[..20]);
    seen.press(KeyCode::Tab);
    for _ in 0..100 {
        seen.press(KeyCode::Down);
        seen.press(KeyCode::Left);
        seen.lines();
    }
    assert_eq!(seen.press(KeyCode::Char('q')), Some(Wish::Quit));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(seen.screen.press(control_c, &seen.shown.overview), Some(Wish::Quit));
}

#[test]
fn colours_are_left_out_where_they_are_not_wanted() {
    let colors = |colored| {
        let mut seen = Seen::new(80, 24, &objects(9));
        seen.screen.colored = colored;
        seen.lines();
        let cells = seen.terminal.backend().buffer().content().iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert!(colors(true) > 0);
    assert_eq!(colors(false), 0);
}

#[test]
fn names_are_shown_and_not_obeyed() {
    let hostile = "a\x1b[2J\u{9b}2J\r\u{202e}b";
    let mut objects = objects(9);
    objects.push(pod(hostile, "", hostile));
    objects.push(json!({"kind": "Node", "metadata": {"name": hostile}}));
    let mut seen = Seen::new(120, 40, &objects);
    seen.shown.server = hostile.to_owned();
    let lines = seen.lines();
    assert!(!lines.contains(|letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}')));
    assert!(lines.contains("a\\u{1b}[2J"), "{lines}");
}

#[test]
fn what_cannot_be_read_is_told() {
    let mut seen = Seen::new(80, 24, &objects(9));
    seen.shown.complete = false;
    assert!(seen.lines().contains("Reading the cluster..."));
    seen.shown.failing = vec![crate::view::watching::Failing {
        kind: "pods",
        problem: "connection refused".to_owned(),
        denied: false,
        seconds: 3,
    }];
    assert!(seen.lines().contains("Cannot read pods: connection refused"));
}

#[test]
fn any_size_can_be_drawn() {
    for width in [1, 2, 3, 8, 13, 30, 41, 75, 77, 200] {
        for height in [1, 2, 3, 4, 5, 9] {
            let mut seen = Seen::new(width, height, &objects(9));
            seen.lines();
            seen.press(KeyCode::Enter);
            seen.lines();
        }
    }
}
