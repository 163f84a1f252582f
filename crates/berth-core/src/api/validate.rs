//! Validates an object before it becomes part of the model.
//!
//! A Kubernetes API server has already made most of these checks, but files are unchecked. An object that passes here
//! never causes an error later.

use super::{
    Affinity, CsiNodeDriver, CsiSource, CsiStorage, CsiStoragePool, DecodeError, LabelSelector, NodeSelector,
    NodeSelectorTerm, Object, PersistentVolumeClaimSpec, Pod, PodAffinity, PodAffinityTerm, Requirement, ResourceList,
    StorageClass, TopologySpreadConstraint,
};

use crate::migration;
use crate::names;
use crate::quantity::Quantity;
use std::collections::BTreeSet;

/// A field's path and what is wrong with it.
type Problem = (String, String);

impl Object {
    /// Checks the fields that decisions read.
    pub(super) fn validate(&self) -> Result<(), DecodeError> {
        let checked = match self {
            Self::Node(node) => resources("status.allocatable", &node.status.allocatable).and_then(|()| {
                each("spec.taints", &node.spec.taints, |path, taint| {
                    one_of(
                        &format!("{path}.effect"),
                        &taint.effect,
                        &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                    )
                })
            }),
            Self::Pod(pod) => validate_pod(pod),
            Self::PersistentVolume(volume) => storage("spec.capacity", &volume.spec.capacity)
                .and_then(|()| {
                    optional(volume.spec.csi.as_ref(), |csi| {
                        driver_name("spec.csi.driver", &csi.driver)
                    })
                })
                .and_then(|()| access_modes("spec.accessModes", &volume.spec.access_modes))
                .and_then(|()| volume_mode("spec.volumeMode", volume.spec.volume_mode.as_deref()))
                .and_then(|()| {
                    let required = volume.spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
                    optional(required, |selector| {
                        node_selector("spec.nodeAffinity.required", selector)
                    })
                }),
            Self::PersistentVolumeClaim(claim) => claim_spec("spec", &claim.spec),
            Self::StorageClass(class) => validate_class(class),
            Self::CsiDriver(driver) => published("status.storage", &driver.status.storage),
            Self::CsiStorageCapacity(capacity) => size("capacity", capacity.capacity)
                .and_then(|()| size("maximumVolumeSize", capacity.maximum_volume_size))
                .and_then(|()| {
                    optional(capacity.node_topology.as_ref(), |selector| {
                        label_selector("nodeTopology", selector)
                    })
                }),
            Self::ReplicaSet(owner) => optional(owner.spec.selector.as_ref(), |selector| {
                label_selector("spec.selector", selector)
            }),
            Self::StatefulSet(owner) => optional(owner.spec.selector.as_ref(), |selector| {
                label_selector("spec.selector", selector)
            }),
            Self::PodDisruptionBudget(budget) => optional(budget.spec.selector.as_ref(), |selector| {
                label_selector("spec.selector", selector)
            }),
            Self::CsiNode(node) => csi_drivers("spec.drivers", &node.spec.drivers),
            Self::VolumeAttachment(_)
            | Self::Namespace(_)
            | Self::PriorityClass(_)
            | Self::Service(_)
            | Self::ReplicationController(_) => Ok(()),
        };
        checked.map_err(|(field, problem)| self.field_error(field, problem))
    }
}

fn each<T>(path: &str, items: &[T], check: impl Fn(&str, &T) -> Result<(), Problem>) -> Result<(), Problem> {
    items
        .iter()
        .enumerate()
        .try_for_each(|(index, item)| check(&format!("{path}[{index}]"), item))
}

fn optional<T>(value: Option<&T>, check: impl FnOnce(&T) -> Result<(), Problem>) -> Result<(), Problem> {
    value.map_or(Ok(()), check)
}

fn one_of(path: &str, value: &str, allowed: &[&str]) -> Result<(), Problem> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err((
        path.to_owned(),
        format!("found {value:?}, expected one of {}", allowed.join(", ")),
    ))
}

/// Checks that names distinguish the items of a list.
fn distinct<'a>(path: &str, field: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for (index, name) in names.enumerate() {
        if !seen.insert(name) {
            let problem = format!("found {name:?} a second time, expected each {field} once");
            return Err((format!("{path}[{index}].{field}"), problem));
        }
    }
    Ok(())
}

fn size(path: &str, size: Option<Quantity>) -> Result<(), Problem> {
    match size.filter(|size| size.is_negative()) {
        Some(_) => Err((
            path.to_owned(),
            "found a negative quantity, expected zero or more".to_owned(),
        )),
        None => Ok(()),
    }
}

/// Checks what a driver publishes in its status.
fn published(path: &str, storage: &[CsiStorage]) -> Result<(), Problem> {
    let classes = storage.iter().map(|storage| storage.storage_class_name.as_str());
    distinct(path, "storageClassName", classes)?;
    each(path, storage, |path, storage| {
        let path = format!("{path}.pools");
        distinct(&path, "name", storage.pools.iter().map(|pool| pool.name.as_str()))?;
        each(&path, &storage.pools, storage_pool)
    })
}

fn storage_pool(path: &str, pool: &CsiStoragePool) -> Result<(), Problem> {
    if pool.node_topology.is_some() && !pool.node_list.is_empty() {
        return Err((
            format!("{path}.nodeList"),
            "found together with nodeTopology, expected one or the other".to_owned(),
        ));
    }
    size(&format!("{path}.capacity"), pool.capacity)?;
    optional(pool.expiry_time.as_ref(), |time| {
        match time.parse::<jiff::Timestamp>() {
            Ok(_) => Ok(()),
            Err(_) => Err((
                format!("{path}.expiryTime"),
                format!("found {time:?}, expected a time such as 2026-01-31T12:00:00Z"),
            )),
        }
    })?;
    optional(pool.node_topology.as_ref(), |selector| {
        node_selector(&format!("{path}.nodeTopology"), selector)
    })
}

fn resources(path: &str, amounts: &ResourceList) -> Result<(), Problem> {
    match amounts.iter().find(|(_, amount)| amount.is_negative()) {
        Some((name, _)) => Err((
            format!("{path}.{name}"),
            "found a negative quantity, expected zero or more".to_owned(),
        )),
        None => Ok(()),
    }
}

/// Checks the size of a volume or claim. It may be missing: short examples leave it out.
fn storage(path: &str, amounts: &ResourceList) -> Result<(), Problem> {
    resources(path, amounts)?;
    match amounts.get("storage").filter(|size| size.value() == 0) {
        Some(_) => Err((
            format!("{path}.storage"),
            "found 0, expected more: no volume is that small".to_owned(),
        )),
        None => Ok(()),
    }
}

/// Checks the drivers on a node.
fn csi_drivers(path: &str, drivers: &[CsiNodeDriver]) -> Result<(), Problem> {
    distinct(path, "name", drivers.iter().map(|driver| driver.name.as_str()))?;
    each(path, drivers, |path, driver| {
        driver_name(&format!("{path}.name"), &driver.name)?;
        let count = driver.allocatable.as_ref().and_then(|limits| limits.count);
        match count.filter(|count| *count < 0) {
            Some(count) => Err((
                format!("{path}.allocatable.count"),
                format!("found {count}, expected zero or more"),
            )),
            None => Ok(()),
        }
    })
}

fn driver_name(path: &str, name: &str) -> Result<(), Problem> {
    if name.is_empty() {
        return Err((path.to_owned(), "expected the name of a CSI driver".to_owned()));
    }
    Ok(())
}

fn access_modes(path: &str, modes: &[String]) -> Result<(), Problem> {
    each(path, modes, |path, mode| {
        one_of(
            path,
            mode,
            &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"],
        )
    })
}

fn volume_mode(path: &str, mode: Option<&str>) -> Result<(), Problem> {
    one_of(path, mode.unwrap_or("Filesystem"), &["Filesystem", "Block"])
}

fn claim_spec(path: &str, spec: &PersistentVolumeClaimSpec) -> Result<(), Problem> {
    access_modes(&format!("{path}.accessModes"), &spec.access_modes)?;
    volume_mode(&format!("{path}.volumeMode"), spec.volume_mode.as_deref())?;
    storage(&format!("{path}.resources.requests"), &spec.resources.requests)?;
    optional(spec.selector.as_ref(), |selector| {
        label_selector(&format!("{path}.selector"), selector)
    })
}

fn validate_class(class: &StorageClass) -> Result<(), Problem> {
    let mode = class.volume_binding_mode.as_deref().unwrap_or("Immediate");
    one_of("volumeBindingMode", mode, &["Immediate", "WaitForFirstConsumer"])?;
    if class.provisioner.is_empty() {
        return Err((
            "provisioner".to_owned(),
            "expected the name of a provisioner, or kubernetes.io/no-provisioner".to_owned(),
        ));
    }
    class.weight().map_err(|found| {
        (
            format!("metadata.annotations.{}", names::CLASS_WEIGHT),
            format!("found {found:?}, expected a whole number, zero or more"),
        )
    })?;
    migration::allowed_topologies(class).map_err(|error| ("parameters".to_owned(), error.to_string()))?;
    each("allowedTopologies", &class.allowed_topologies, |path, term| {
        each(
            &format!("{path}.matchLabelExpressions"),
            &term.match_label_expressions,
            |path, requirement| {
                if requirement.values.is_empty() {
                    return Err((format!("{path}.values"), "expected at least one value".to_owned()));
                }
                named(&format!("{path}.key"), &requirement.key)
            },
        )
    })
}

fn named(path: &str, key: &str) -> Result<(), Problem> {
    if key.is_empty() {
        return Err((path.to_owned(), "expected a label's key".to_owned()));
    }
    Ok(())
}

fn requirement(path: &str, requirement: &Requirement, operators: &[&str]) -> Result<(), Problem> {
    named(&format!("{path}.key"), &requirement.key)?;
    one_of(&format!("{path}.operator"), &requirement.operator, operators)?;
    let values = format!("{path}.values");
    match (requirement.operator.as_str(), requirement.values.as_slice()) {
        ("In" | "NotIn", []) => Err((
            values,
            format!("expected at least one value for {}", requirement.operator),
        )),
        ("Exists" | "DoesNotExist", [_, ..]) => {
            Err((values, format!("expected no values for {}", requirement.operator)))
        }
        ("Gt" | "Lt", found) => match found {
            [number] if number.parse::<i64>().is_ok() => Ok(()),
            _ => Err((
                values,
                format!("found {found:?}, expected one integer for {}", requirement.operator),
            )),
        },
        _ => Ok(()),
    }
}

fn label_selector(path: &str, selector: &LabelSelector) -> Result<(), Problem> {
    each(
        &format!("{path}.matchExpressions"),
        &selector.match_expressions,
        |path, found| requirement(path, found, &["In", "NotIn", "Exists", "DoesNotExist"]),
    )
}

fn node_selector(path: &str, selector: &NodeSelector) -> Result<(), Problem> {
    each(
        &format!("{path}.nodeSelectorTerms"),
        &selector.node_selector_terms,
        node_selector_term,
    )
}

fn node_selector_term(path: &str, term: &NodeSelectorTerm) -> Result<(), Problem> {
    each(
        &format!("{path}.matchExpressions"),
        &term.match_expressions,
        |path, found| requirement(path, found, &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    )?;
    each(&format!("{path}.matchFields"), &term.match_fields, |path, found| {
        one_of(&format!("{path}.key"), &found.key, &["metadata.name"])?;
        requirement(path, found, &["In", "NotIn"])
    })
}

fn validate_pod(pod: &Pod) -> Result<(), Problem> {
    resources("spec.overhead", &pod.spec.overhead)?;
    for (path, containers) in [
        ("spec.containers", &pod.spec.containers),
        ("spec.initContainers", &pod.spec.init_containers),
    ] {
        each(path, containers, |path, container| {
            resources(&format!("{path}.resources.requests"), &container.resources.requests)
        })?;
    }
    optional(pod.spec.resources.as_ref(), |found| {
        resources("spec.resources.requests", &found.requests)
    })?;
    each("spec.volumes", &pod.spec.volumes, |path, volume| {
        let template = volume.ephemeral.as_ref().and_then(|e| e.volume_claim_template.as_ref());
        optional(template, |template| {
            claim_spec(&format!("{path}.ephemeral.volumeClaimTemplate.spec"), &template.spec)
        })?;
        optional(volume.csi.as_ref(), |csi| inline_volume(&format!("{path}.csi"), csi))
    })?;
    each("spec.tolerations", &pod.spec.tolerations, |path, toleration| {
        one_of(
            &format!("{path}.operator"),
            &toleration.operator,
            &["", "Equal", "Exists", "Gt", "Lt"],
        )?;
        one_of(
            &format!("{path}.effect"),
            &toleration.effect,
            &["", "NoSchedule", "PreferNoSchedule", "NoExecute"],
        )
    })?;
    each(
        "spec.topologySpreadConstraints",
        &pod.spec.topology_spread_constraints,
        spread_constraint,
    )?;
    optional(pod.spec.affinity.as_ref(), |found| affinity("spec.affinity", found))
}

/// Checks an inline volume. Its size is set once: by its field, or by the older driver attribute.
fn inline_volume(path: &str, csi: &CsiSource) -> Result<(), Problem> {
    driver_name(&format!("{path}.driver"), &csi.driver)?;
    size(&format!("{path}.fsSize"), csi.fs_size)?;
    match (csi.fs_size, csi.volume_attributes.get(names::INLINE_SIZE)) {
        (Some(_), Some(_)) => Err((
            format!("{path}.fsSize"),
            format!(
                "volumeAttributes[{:?}] gives a size too: keep one of them",
                names::INLINE_SIZE
            ),
        )),
        _ => Ok(()),
    }
}

fn spread_constraint(path: &str, constraint: &TopologySpreadConstraint) -> Result<(), Problem> {
    one_of(
        &format!("{path}.whenUnsatisfiable"),
        &constraint.when_unsatisfiable,
        &["DoNotSchedule", "ScheduleAnyway"],
    )?;
    named(&format!("{path}.topologyKey"), &constraint.topology_key)?;
    for (field, policy) in [
        ("nodeAffinityPolicy", &constraint.node_affinity_policy),
        ("nodeTaintsPolicy", &constraint.node_taints_policy),
    ] {
        one_of(
            &format!("{path}.{field}"),
            policy.as_deref().unwrap_or("Honor"),
            &["Honor", "Ignore"],
        )?;
    }
    if constraint.max_skew < 1 {
        return Err((
            format!("{path}.maxSkew"),
            format!("found {}, expected 1 or more", constraint.max_skew),
        ));
    }
    optional(constraint.label_selector.as_ref(), |selector| {
        label_selector(&format!("{path}.labelSelector"), selector)
    })
}

fn affinity(path: &str, affinity: &Affinity) -> Result<(), Problem> {
    optional(affinity.node_affinity.as_ref(), |found| {
        optional(found.required.as_ref(), |selector| {
            node_selector(
                &format!("{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"),
                selector,
            )
        })?;
        each(
            &format!("{path}.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"),
            found.preferred.as_deref().unwrap_or_default(),
            |path, preferred| node_selector_term(&format!("{path}.preference"), &preferred.preference),
        )
    })?;
    for (field, found) in [
        ("podAffinity", &affinity.pod_affinity),
        ("podAntiAffinity", &affinity.pod_anti_affinity),
    ] {
        optional(found.as_ref(), |found| pod_affinity(&format!("{path}.{field}"), found))?;
    }
    Ok(())
}

fn pod_affinity(path: &str, affinity: &PodAffinity) -> Result<(), Problem> {
    each(
        &format!("{path}.requiredDuringSchedulingIgnoredDuringExecution"),
        &affinity.required,
        pod_affinity_term,
    )?;
    each(
        &format!("{path}.preferredDuringSchedulingIgnoredDuringExecution"),
        &affinity.preferred,
        |path, weighted| pod_affinity_term(&format!("{path}.podAffinityTerm"), &weighted.pod_affinity_term),
    )
}

fn pod_affinity_term(path: &str, term: &PodAffinityTerm) -> Result<(), Problem> {
    named(&format!("{path}.topologyKey"), &term.topology_key)?;
    optional(term.label_selector.as_ref(), |selector| {
        label_selector(&format!("{path}.labelSelector"), selector)
    })?;
    optional(term.namespace_selector.as_ref(), |selector| {
        label_selector(&format!("{path}.namespaceSelector"), selector)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn problem(object: Value) -> String {
        Object::decode(&object).map_or_else(|error| error.to_string(), |_| String::new())
    }

    fn driver(storage: &Value) -> Value {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d"},
               "status": {"storage": storage}})
    }

    #[test]
    fn what_drivers_publish_is_checked() {
        let pools = |pools: Value| driver(&json!([{"storageClassName": "fast", "pools": pools}]));
        let topology = |operator: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": operator, "values": ["a"]}]}]});
        let sound = json!([{"name": "a", "capacity": "1Gi", "expiryTime": "2026-01-31T12:00:00Z", "nodeList": ["n1"]},
                           {"name": "b", "capacity": "0", "nodeTopology": topology("In")}]);
        assert_eq!(problem(pools(sound)), "");
        for (broken, field, found) in [
            (json!([{"name": "a"}, {"name": "a"}]), "[1].name", "\"a\" a second time"),
            (json!([{"capacity": "-1Gi"}]), "[0].capacity", "a negative quantity"),
            (json!([{"expiryTime": "soon"}]), "[0].expiryTime", "\"soon\""),
            (
                json!([{"nodeTopology": topology("In"), "nodeList": ["n1"]}]),
                "[0].nodeList",
                "together with nodeTopology",
            ),
            (
                json!([{"nodeTopology": topology("Near")}]),
                "[0].nodeTopology.nodeSelectorTerms[0].matchExpressions[0].operator",
                "\"Near\"",
            ),
        ] {
            let expected = format!("CSIDriver \"d\": status.storage[0].pools{field}: found {found}");
            let problem = problem(pools(broken));
            assert!(problem.starts_with(&expected), "{problem}");
        }
        let twice = driver(&json!([{"storageClassName": "fast"}, {"storageClassName": "fast"}]));
        assert!(problem(twice).contains("status.storage[1].storageClassName: found \"fast\" a second time"));
    }

    #[test]
    fn drivers_have_names_and_limits_are_counts() {
        let node = |drivers: Value| json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": drivers}});
        assert_eq!(
            problem(node(json!([{"name": "d", "allocatable": {"count": 0}}, {"name": "e"}]))),
            ""
        );
        for (broken, field) in [
            (
                json!([{"name": "d", "allocatable": {"count": -1}}]),
                "[0].allocatable.count: found -1",
            ),
            (json!([{"name": ""}]), "[0].name: expected the name of a CSI driver"),
            (
                json!([{"name": "d"}, {"name": "d"}]),
                "[1].name: found \"d\" a second time",
            ),
        ] {
            let problem = problem(node(broken));
            assert!(
                problem.starts_with(&format!("CSINode \"n\": spec.drivers{field}")),
                "{problem}"
            );
        }
        let pod = |csi: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"volumes": [{"name": "v", "csi": csi}]}});
        assert_eq!(problem(pod(json!({"driver": "d", "fsSize": "20Gi"}))), "");
        let negative = problem(pod(json!({"driver": "d", "fsSize": "-20Gi"})));
        assert!(
            negative.contains("spec.volumes[0].csi.fsSize: found a negative quantity"),
            "{negative}"
        );
        assert!(problem(pod(json!({"driver": ""}))).contains("spec.volumes[0].csi.driver"));
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"csi": {"driver": ""}}});
        assert!(problem(volume).contains("spec.csi.driver"));
    }

    #[test]
    fn no_claim_and_no_volume_has_the_size_zero() {
        let claim = |size: &str| {
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"resources": {"requests": {"storage": size}}}})
        };
        assert_eq!(problem(claim("1")), "");
        for size in ["0", "0Gi", "-1"] {
            let problem = problem(claim(size));
            assert!(problem.contains("spec.resources.requests.storage: found"), "{problem}");
        }
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"capacity": {"storage": "0"}}});
        assert!(problem(volume).contains("spec.capacity.storage: found 0"));
    }

    #[test]
    fn sizes_and_weights_are_not_negative() {
        let capacity = |field: &str| {
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": {"name": "c"},
                   "storageClassName": "fast", field: "-1"})
        };
        for field in ["capacity", "maximumVolumeSize"] {
            let expected = format!("CSIStorageCapacity \"default/c\": {field}: found a negative quantity");
            assert!(problem(capacity(field)).starts_with(&expected));
        }
        let class = |weight: &str| {
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p",
                   "metadata": {"name": "ssd", "annotations": {(names::CLASS_WEIGHT): weight}}})
        };
        assert_eq!(problem(class("0")), "");
        for weight in ["heavy", "-4", "1.5", ""] {
            let expected = format!("metadata.annotations.{}: found {weight:?}", names::CLASS_WEIGHT);
            assert!(problem(class(weight)).contains(&expected));
        }
    }
}
