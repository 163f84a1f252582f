//! What survives losses, and what can be removed, as the command prints it.

use crate::{berth, deployment, json_of, node, write};
use serde_json::{Value, json};
use tempfile::TempDir;

/// One of the nodes can go: with a price list, the one that costs the most.
#[test]
fn prices_decide_which_node_is_removed() {
    let directory = TempDir::new().unwrap();
    let objects = [
        node("small", "zone-a", 2),
        node("large", "zone-a", 4),
        deployment("web", 2, "1"),
    ];
    let cluster = write(&directory, "cluster.json", &objects);
    let removed = |answer: &Value| answer["removed"][0]["node"].clone();
    let answer = json_of(&["plan", "--shrink", "-f", &cluster, "-o", "json"]);
    assert_eq!(removed(&answer), "large", "{answer}");
    let prices = directory.path().join("prices.yaml");
    let text = "apiVersion: berth.dev/v1alpha1\nkind: Candidates\nnodes:\n- {like: small, cost: 9}\n\
                - {name: big, cost: 2, allocatable: {cpu: '4', memory: 8Gi, pods: '20'}}\n";
    std::fs::write(&prices, text).unwrap();
    let prices = prices.display().to_string();
    let asked = [
        "plan",
        "--shrink",
        "-f",
        &cluster,
        "--candidates",
        &prices,
        "-o",
        "json",
    ];
    let answer = json_of(&asked);
    assert_eq!(removed(&answer), "small", "{answer}");
    assert_eq!(
        (&answer["saved"], &answer["cost"]),
        (&json!(9.0), &json!(11.0)),
        "{answer}"
    );
    let moved = answer["changes"]["pods"]["moved"].as_array().unwrap();
    assert!(moved.iter().all(|pod| pod["to"] == "large"), "{answer}");
}

#[test]
fn any_two_nodes_can_be_lost_with_the_addition() {
    let example = "examples/plan/survive.yaml";
    let asked = ["plan", "--survive", "nodes=2", "-f", example];
    let answer = json_of(&[asked.as_slice(), &["-o", "json"]].concat());
    assert_eq!((&answer["losses"], &answer["tried"]), (&json!(3), &json!(3)));
    assert_eq!(answer["bad"][0]["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(answer["bad"][0]["lacking"], 2);
    assert_eq!(
        answer["changes"]["pods"]["pending"].as_array().unwrap().len(),
        2,
        "{answer}"
    );
    let items = answer["addition"]["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{answer}");
    // The page shows the worst loss with the spare nodes, and what they change about it.
    let page = berth(&[asked.as_slice(), &["-o", "html"]].concat());
    let page = String::from_utf8(page.stdout).unwrap();
    for item in items {
        assert!(page.contains(item["name"].as_str().unwrap()), "{item}");
    }
    assert!(page.contains("pods that start running"), "what the spare nodes change");
}
