//! Advice that is followed leads to a placement.

use super::*;
use berth_core::api::{self, Object};
use berth_core::quantity::Quantity;
use berth_scheduler::profile::Profile;

/// Follows a step of advice as a person would, by its wording. Returns `false` for an unknown wording.
fn follow(step: &str, on: &str, world: &mut Vec<Object>, pod: &mut api::Pod) -> bool {
    let of_node = |world: &mut Vec<Object>, change: &dyn Fn(&mut api::Node)| {
        for object in world.iter_mut() {
            if let Object::Node(node) = object
                && node.metadata.name == on
            {
                change(node);
            }
        }
    };
    if step.starts_with("uncordon it") {
        of_node(world, &|node| {
            node.spec.unschedulable = false;
            node.spec
                .taints
                .retain(|taint| taint.key != "node.kubernetes.io/unschedulable");
        });
    } else if step.starts_with("bring it back") || step.starts_with("wait until it recovers") {
        of_node(world, &|node| {
            node.spec.taints.retain(|taint| !step.contains(&taint.key));
        });
    } else if let Some((_, rest)) = step
        .split_once("toleration for ")
        .or_else(|| step.split_once("tolerations for "))
    {
        let taints = rest.split(" to the pod, or remove").next().unwrap();
        for taint in taints.split(", ") {
            let (key, effect) = taint.rsplit_once(':').unwrap();
            pod.spec.tolerations.push(api::Toleration {
                key: key.split('=').next().unwrap().to_owned(),
                operator: "Exists".to_owned(),
                effect: effect.to_owned(),
                ..api::Toleration::default()
            });
        }
    } else if step.starts_with("label it as the pod asks") {
        let (_, command) = step.split_once("kubectl label node ").unwrap();
        let labels = command.split(" --overwrite").next().unwrap().split(' ').skip(1);
        let labels: Vec<(&str, &str)> = labels.map(|label| label.split_once('=').unwrap()).collect();
        of_node(world, &|node| {
            for (key, value) in &labels {
                node.metadata.labels.insert((*key).to_owned(), (*value).to_owned());
            }
        });
    } else if let Some(rest) = step.strip_prefix("remove `spec.claimRef` from volume ") {
        let freed = rest.split(' ').next().unwrap();
        for object in world.iter_mut() {
            if let Object::PersistentVolume(volume) = object
                && volume.metadata.name == freed
            {
                volume.spec.claim_ref = None;
                volume.status.phase = "Available".to_owned();
            }
        }
    } else if step.starts_with("free cpu") {
        for container in &mut pod.spec.containers {
            container
                .resources
                .requests
                .insert("cpu".to_owned(), Quantity::from_milli(1));
        }
    } else if let Some(rest) = step.strip_prefix("provide storage for claim ") {
        let size = rest
            .split(": ")
            .nth(1)
            .unwrap()
            .split("Gi")
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let text = volume(&format!("more-{on}-{}", world.len()), on, size, "Available", "");
        input::read_text("v", &text, &mut |object| world.push(object)).unwrap();
    } else {
        return false;
    }
    true
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(150))]

    /// Following a way gets the pod running on the named node.
    #[test]
    fn advice_that_is_followed_leads_to_a_placement(
        obstacles in proptest::collection::vec((0..128_u8, 0..3_u32), 1..5),
        wants in 1..3_u32,
    ) {
        let gold = "  nodeSelector: {tier: gold}";
        let mut yaml = class("local", LOCAL) + &claim("data", "local", 10, "", "") + &target(&["data"], "", gold, "");
        yaml = yaml.replace("cpu: 1", &format!("cpu: {wants}"));
        for (index, (bits, disks)) in obstacles.iter().enumerate() {
            let name = format!("n{index}");
            let mut taints = Vec::new();
            if bits & 1 > 0 {
                taints.push("{key: gpu, value: a, effect: NoSchedule}");
            }
            if bits & 2 > 0 {
                taints.push("{key: node.kubernetes.io/not-ready, effect: NoExecute}");
            }
            if bits & 4 > 0 {
                taints.push("{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}");
            }
            let more = format!("spec: {{unschedulable: {}, taints: [{}]}}", bits & 8 > 0, taints.join(", "));
            let tier = if bits & 32 > 0 { "silver" } else { "gold" };
            yaml += &node(&name, &more).replace("labels: {", &format!("labels: {{tier: {tier}, "));
            if bits & 64 > 0 {
                let old = "  claimRef: {namespace: default, name: old, uid: u9}";
                yaml += &volume(&format!("released-{index}"), &name, 10, "Released", old);
            }
            if bits & 16 > 0 {
                yaml += &format!("---\n{{apiVersion: v1, kind: Pod, metadata: {{name: busy-{index}}}, spec: {{nodeName: {name}, \
                                  containers: [{{name: c, resources: {{requests: {{cpu: 3500m}}}}}}]}}}}\n");
            }
            for disk in 0..*disks {
                yaml += &volume(&format!("v{index}-{disk}"), &name, 5, "Available", "");
            }
        }
        let report = asked(&yaml);
        let mut objects = Vec::new();
        input::read_text("cluster.yaml", &yaml, &mut |object| objects.push(object)).unwrap();
        let at = objects.iter().position(|object| matches!(object, Object::Pod(pod) if pod.metadata.name == "target")).unwrap();
        let Object::Pod(pod) = objects.remove(at) else { panic!() };
        proptest::prop_assert!(report.schedulable || !report.advice.is_empty());
        for way in report.advice.iter().filter(|way| way.starts_with("on ")) {
            let (on, steps) = way.split_once(": ").unwrap();
            let steps: Vec<&str> = match on.strip_suffix(", all of") {
                Some(_) => steps.split("; ").collect(),
                None => vec![steps],
            };
            let on = on.trim_end_matches(", all of").trim_start_matches("on one of ").trim_start_matches("on ");
            for name in on.split(", ") {
                let name = name.split(" and ").next().unwrap();
                let (mut objects, mut pod) = (objects.clone(), pod.clone());
                for step in &steps {
                    proptest::prop_assert!(follow(step, name, &mut objects, &mut pod), "{}", step);
                }
                let mut world = World::default();
                objects.into_iter().for_each(|object| world.upsert(object));
                let after = explain_pod(&mut world, &pod, &Profile::default());
                let fits = after.nodes.iter().any(|node| node.name == name && node.fits);
                proptest::prop_assert!(fits, "{way}\n{}", table(&after));
            }
        }
    }
}
