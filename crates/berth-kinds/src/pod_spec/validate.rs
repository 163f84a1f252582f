//! Validates the spec of a pod, in a pod or in the template of a workload.

use berth_core::names;
use serde_json::Value;

use crate::error::FieldError;
use crate::fields;
use crate::meta;
use crate::selector::check;

/// Container resources without a group prefix.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The sources of a pod's volume in the order in which Kubernetes checks them; others follow by name.
const SOURCE_ORDER: [&str; 8] = [
    "emptyDir",
    "hostPath",
    "secret",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "csi",
    "ephemeral",
];

/// Validates a pod's spec.
pub(crate) fn validate(spec: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = validate_volumes(spec, field, &mut errors);
    let containers = meta::items(spec, &["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{field}.containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in meta::items(spec, &[list]).iter().enumerate() {
            let path = format!("{field}.{list}[{index}]");
            validate_container(container, &path, &volumes, &mut errors);
            let name = meta::text(container, &["name"]);
            if names.contains(&name) && !name.is_empty() {
                errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
            }
            names.push(name);
        }
    }
    // A missing spec has no defaults either, and is already reported.
    let policies = ["Always", "OnFailure", "Never"];
    check_choice(spec, "restartPolicy", field, &policies, &mut errors);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    check_choice(spec, "dnsPolicy", field, &policies, &mut errors);
    fields::check_labels(&spec["nodeSelector"], &format!("{field}.nodeSelector"), &mut errors);
    validate_node_affinity(
        &spec["affinity"]["nodeAffinity"],
        &format!("{field}.affinity.nodeAffinity"),
        &mut errors,
    );
    validate_tolerations(spec, field, &mut errors);
    validate_spread(spec, field, &mut errors);
    errors
}

fn check_choice(object: &Value, name: &str, field: &str, allowed: &[&str], errors: &mut Vec<FieldError>) {
    let value = &object[name];
    if !value.is_null() && !allowed.contains(&value.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(format!("{field}.{name}"), value, allowed));
    }
}

fn validate_volumes<'s>(spec: &'s Value, field: &str, errors: &mut Vec<FieldError>) -> Vec<&'s str> {
    let mut names = Vec::new();
    for (index, volume) in meta::items(spec, &["volumes"]).iter().enumerate() {
        let path = format!("{field}.volumes[{index}]");
        let before = errors.len();
        validate_volume_source(volume, &path, errors);
        match meta::text(volume, &["name"]) {
            "" => errors.push(FieldError::required(format!("{path}.name"), "")),
            name => {
                fields::check_dns_label(name, &format!("{path}.name"), errors);
                if errors.len() == before && names.contains(&name) {
                    errors.push(FieldError::duplicate(format!("{path}.name"), &name.into()));
                }
                names.push(name);
            }
        }
    }
    names
}

fn validate_volume_source(volume: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names: Vec<&str> = volume
        .as_object()
        .into_iter()
        .flat_map(|v| v.keys())
        .map(String::as_str)
        .collect();
    names.retain(|name| *name != "name");
    let place = |name: &str| SOURCE_ORDER.iter().position(|known| *known == name);
    names.sort_by_key(|name| place(name).unwrap_or(SOURCE_ORDER.len()));
    for name in names.iter().skip(1) {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
    }
    let Some(name) = names.first() else {
        return;
    };
    let source = &volume[*name];
    let required = match *name {
        "persistentVolumeClaim" => Some("claimName"),
        "csi" => Some("driver"),
        "hostPath" => Some("path"),
        _ => None,
    };
    if let Some(required) = required.filter(|required| meta::text(source, &[required]).is_empty()) {
        errors.push(FieldError::required(format!("{path}.{name}.{required}"), ""));
    }
    match *name {
        "ephemeral" if source["volumeClaimTemplate"].is_null() => {
            errors.push(FieldError::required(
                format!("{path}.ephemeral.volumeClaimTemplate"),
                "",
            ));
        }
        "emptyDir" if fields::parse_quantity(&source["sizeLimit"]).is_some_and(|limit| limit.is_negative()) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.push(FieldError::forbidden(format!("{path}.emptyDir.sizeLimit"), detail));
        }
        "csi" if !source["fsSize"].is_null() => {
            fields::check_quantity(&source["fsSize"], &format!("{path}.csi.fsSize"), errors);
            if !source["volumeAttributes"][names::INLINE_SIZE].is_null() {
                let field = format!("{path}.csi.volumeAttributes[{}]", names::INLINE_SIZE);
                errors.push(FieldError::forbidden(field, "may not be set together with fsSize"));
            }
        }
        _ => {}
    }
}

fn validate_container(container: &Value, path: &str, volumes: &[&str], errors: &mut Vec<FieldError>) {
    match meta::text(container, &["name"]) {
        "" => errors.push(FieldError::required(format!("{path}.name"), "")),
        name => fields::check_dns_label(name, &format!("{path}.name"), errors),
    }
    if meta::text(container, &["image"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    validate_ports(container, path, errors);
    validate_variables(container, path, errors);
    validate_mounts(container, path, volumes, errors);
    let policies = ["Always", "IfNotPresent", "Never"];
    check_choice(container, "imagePullPolicy", path, &policies, errors);
    validate_resources(&container["resources"], &format!("{path}.resources"), errors);
}

fn validate_ports(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names = Vec::new();
    for (index, port) in meta::items(container, &["ports"]).iter().enumerate() {
        let field = |name: &str| format!("{path}.ports[{index}].{name}");
        let name = meta::text(port, &["name"]);
        let problems = port_name_problems(name);
        for detail in &problems {
            errors.push(FieldError::invalid(field("name"), &name.into(), detail));
        }
        if problems.is_empty() && !name.is_empty() {
            if names.contains(&name) {
                errors.push(FieldError::duplicate(field("name"), &name.into()));
            }
            names.push(name);
        }
        if port["containerPort"].as_i64().unwrap_or(0) == 0 {
            errors.push(FieldError::required(field("containerPort"), ""));
        }
        for number in ["containerPort", "hostPort"] {
            let found = port[number].as_i64().unwrap_or(0);
            if found != 0 && !(1..=65535).contains(&found) {
                let detail = "must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(field(number), &port[number], detail));
            }
        }
        let path = format!("{path}.ports[{index}]");
        check_choice(port, "protocol", &path, &["SCTP", "TCP", "UDP"], errors);
    }
}

/// Checks the name of a port, which follows the rules for services.
fn port_name_problems(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return Vec::new();
    }
    let is_allowed = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    let rules = [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            !name.bytes().all(is_allowed),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !name.bytes().any(|letter| letter.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (
            name.starts_with('-') || name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
    broken.map(|(_, detail)| detail).collect()
}

fn validate_variables(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in meta::items(container, &["env"]).iter().enumerate() {
        let field = format!("{path}.env[{index}].name");
        let name = meta::text(variable, &["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if !name
            .bytes()
            .all(|letter| (b' '..=b'~').contains(&letter) && letter != b'=')
        {
            let detail =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            errors.push(FieldError::invalid(field, &name.into(), detail));
        }
    }
}

fn validate_mounts(container: &Value, path: &str, volumes: &[&str], errors: &mut Vec<FieldError>) {
    let mut places = Vec::new();
    for (index, mount) in meta::items(container, &["volumeMounts"]).iter().enumerate() {
        let field = |name: &str| format!("{path}.volumeMounts[{index}].{name}");
        match meta::text(mount, &["name"]) {
            "" => errors.push(FieldError::required(field("name"), "")),
            name if !volumes.contains(&name) => errors.push(FieldError::not_found(field("name"), &name.into())),
            _ => {}
        }
        match meta::text(mount, &["mountPath"]) {
            "" => errors.push(FieldError::required(field("mountPath"), "")),
            place if places.contains(&place) => {
                errors.push(FieldError::invalid(field("mountPath"), &place.into(), "must be unique"));
            }
            place => places.push(place),
        }
    }
}

fn validate_resources(resources: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let field = format!("{field}.{list}[{name}]");
            if !name.contains('/') && !STANDARD_RESOURCES.contains(&name.as_str()) && !name.starts_with("hugepages-") {
                for detail in [
                    "must be a standard resource type or fully qualified",
                    "must be a standard resource for containers",
                ] {
                    errors.push(FieldError::invalid(&field, &name.as_str().into(), detail));
                }
            }
            fields::check_quantity(value, &field, errors);
        }
    }
    for (name, limit) in resources["limits"].as_object().into_iter().flatten() {
        let request = meta::at(resources, &["requests", name]);
        let (asked, most) = (fields::parse_quantity(request), fields::parse_quantity(limit));
        if asked.zip(most).is_some_and(|(asked, most)| asked > most) {
            let most = limit.as_str().unwrap_or_default();
            let detail = format!("must be less than or equal to {name} limit of {most}");
            errors.push(FieldError::invalid(format!("{field}.requests"), request, &detail));
        }
    }
}

fn validate_node_affinity(affinity: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    if !affinity[required].is_null() {
        check::node_selector(&affinity[required], &format!("{field}.{required}"), errors);
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in meta::items(affinity, &[preferred]).iter().enumerate() {
        let field = format!("{field}.{preferred}[{index}]");
        if !term["weight"]
            .as_i64()
            .is_some_and(|weight| (1..=100).contains(&weight))
        {
            let detail = "must be in the range 1-100";
            errors.push(FieldError::invalid(format!("{field}.weight"), &term["weight"], detail));
        }
        check::node_selector_term(&term["preference"], &format!("{field}.preference"), errors);
    }
}

fn validate_tolerations(spec: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in meta::items(spec, &["tolerations"]).iter().enumerate() {
        let field = format!("{field}.tolerations[{index}].operator");
        let text = |name: &str| meta::text(toleration, &[name]);
        if text("key").is_empty() && text("operator") != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(&field, &text("operator").into(), detail));
        }
        match text("operator") {
            "" | "Equal" => {}
            "Exists" => {
                if !text("value").is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(field, &text("value").into(), detail));
                }
            }
            other => errors.push(FieldError::not_supported(field, &other.into(), &["Equal", "Exists"])),
        }
    }
}

fn validate_spread(spec: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (index, constraint) in meta::items(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        let field = format!("{field}.topologySpreadConstraints[{index}]");
        if constraint["maxSkew"].as_i64().unwrap_or(0) <= 0 {
            let value = &constraint["maxSkew"];
            errors.push(FieldError::invalid(
                format!("{field}.maxSkew"),
                value,
                "must be greater than zero",
            ));
        }
        if meta::text(constraint, &["topologyKey"]).is_empty() {
            errors.push(FieldError::required(format!("{field}.topologyKey"), "can not be empty"));
        }
        let choices = ["DoNotSchedule", "ScheduleAnyway"];
        check_choice(constraint, "whenUnsatisfiable", &field, &choices, errors);
    }
}
