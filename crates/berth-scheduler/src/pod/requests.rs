//! The requests of a pod, summed over its containers.
//!
//! Sums are exact and rounded once, at the end: two containers with half a millicore each request one.

use berth_core::api;
use berth_core::quantity::Quantity;
use berth_core::symbols::{Symbol, Symbols};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// CPU that scoring assumes for a container without a request, in millicores.
pub const DEFAULT_CPU_MILLI: i64 = 100;
/// Memory that scoring assumes for a container without a request.
pub const DEFAULT_MEMORY_BYTES: i64 = 200 << 20;

/// The requests of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    /// CPU in millicores.
    pub cpu_milli: i64,
    /// Memory.
    pub memory_bytes: i64,
    /// Local disk.
    pub ephemeral_bytes: i64,
    /// All other counted resources, by name.
    pub scalars: SmallVec<[(Symbol, i64); 1]>,
}

berth_core::trace!(Requests { scalars; cpu_milli, memory_bytes, ephemeral_bytes });

impl Requests {
    /// Whether nothing is requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cpu_milli == 0 && self.memory_bytes == 0 && self.ephemeral_bytes == 0 && self.scalars.is_empty()
    }

    fn of(symbols: &mut Symbols, amounts: &Amounts<'_>) -> Self {
        let mut requests = Self::default();
        for (name, amount) in amounts {
            match *name {
                "cpu" => requests.cpu_milli = amount.milli_value(),
                "memory" => requests.memory_bytes = amount.value(),
                "ephemeral-storage" => requests.ephemeral_bytes = amount.value(),
                name if is_scalar(name) => requests.scalars.push((symbols.intern(name), amount.value())),
                _ => {}
            }
        }
        requests
    }
}

/// What scoring assumes a pod to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScoringRequests {
    /// CPU in millicores.
    pub cpu_milli: i64,
    /// Memory.
    pub memory_bytes: i64,
}

impl ScoringRequests {
    fn of(amounts: &Amounts<'_>) -> Self {
        Self {
            cpu_milli: amounts.get("cpu").map_or(0, |amount| amount.milli_value()),
            memory_bytes: amounts.get("memory").map_or(0, |amount| amount.value()),
        }
    }
}

/// The three sums of a pod that decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// What must be free on its node.
    pub requests: Requests,
    /// What scoring assumes it to request while it is being scheduled. Pod-level resources do not count.
    pub incoming: ScoringRequests,
    /// What scoring assumes it to request once it runs.
    pub running: ScoringRequests,
}

impl PodRequests {
    /// Sums the requests of a pod.
    #[must_use]
    pub fn new(symbols: &mut Symbols, pod: &api::Pod) -> Self {
        let defaults: &[_] = &[
            ("cpu", Quantity::from_milli(DEFAULT_CPU_MILLI)),
            ("memory", Quantity::from_units(DEFAULT_MEMORY_BYTES)),
        ];
        let real = sum(pod, &[], true);
        let incoming = sum(pod, defaults, false);
        let running = if pod_level(pod).next().is_some() {
            let missing: Vec<_> = defaults
                .iter()
                .copied()
                .filter(|(name, _)| !real.contains_key(name))
                .collect();
            sum(pod, &missing, true)
        } else {
            incoming.clone()
        };
        Self {
            requests: Requests::of(symbols, &real),
            incoming: ScoringRequests::of(&incoming),
            running: ScoringRequests::of(&running),
        }
    }
}

type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Whether a resource other than CPU, memory and local disk is counted on nodes.
#[must_use]
pub fn is_scalar(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    let extended = !native && !name.starts_with("requests.");
    extended
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// The supported pod-level requests.
fn pod_level(pod: &api::Pod) -> impl Iterator<Item = (&str, Quantity)> {
    let requests = pod.spec.resources.iter().flat_map(|resources| &resources.requests);
    requests
        .map(|(name, amount)| (name.as_str(), *amount))
        .filter(|(name, _)| is_pod_level(name))
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Who says what a pod requests. While it is resized in place, they differ, and the largest sum counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Its author.
    Spec,
    /// The kubelet: what it has reserved.
    Allocated,
    /// The container runtime: what it has set.
    Actuated,
}

fn sum<'a>(pod: &'a api::Pod, defaults: &[(&'a str, Quantity)], with_pod_level: bool) -> Amounts<'a> {
    let mut total = held_by_containers(pod, defaults);
    if with_pod_level && pod_level(pod).next().is_some() {
        total.extend(held_by_pod(pod));
    }
    for (name, amount) in &pod.spec.overhead {
        let entry = total.entry(name).or_default();
        *entry = *entry + *amount;
    }
    total
}

/// What the containers hold together.
fn held_by_containers<'a>(pod: &'a api::Pod, defaults: &[(&'a str, Quantity)]) -> Amounts<'a> {
    if !has_reports(pod) {
        return of_containers(pod, defaults, Source::Spec);
    }
    let mut total = match pod.has_infeasible_resize() {
        true => Amounts::new(),
        false => of_containers(pod, defaults, Source::Spec),
    };
    let status = &pod.status;
    let actuated = status.resources.as_ref().map(|resources| &resources.requests);
    // The kubelet reports sums for the pod since 1.36; before, only its containers.
    match actuated.filter(|actuated| !actuated.is_empty() && !status.allocated_resources.is_empty()) {
        Some(actuated) => {
            raise(&mut total, &listed(actuated).collect());
            raise(&mut total, &listed(&status.allocated_resources).collect());
        }
        None => {
            raise(&mut total, &of_containers(pod, defaults, Source::Allocated));
            raise(&mut total, &of_containers(pod, defaults, Source::Actuated));
        }
    }
    total
}

/// What the pod as a whole holds: pod-level requests, and what its status says.
fn held_by_pod(pod: &api::Pod) -> Amounts<'_> {
    let Some(actuated) = &pod.status.resources else {
        return pod_level(pod).collect();
    };
    let mut held = match pod.has_infeasible_resize() {
        true => Amounts::new(),
        false => pod_level(pod).collect(),
    };
    for list in [&actuated.requests, &pod.status.allocated_resources] {
        raise(
            &mut held,
            &listed(list).filter(|(name, _)| is_pod_level(name)).collect(),
        );
    }
    held
}

/// Whether its node has reported resources. Most pods that wait have none.
fn has_reports(pod: &api::Pod) -> bool {
    let status = &pod.status;
    let mut containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    status.resources.is_some() || containers.any(|one| one.resources.is_some() || !one.allocated_resources.is_empty())
}

/// The requests of all containers, according to one source: those of init containers peak, and sidecars stay.
fn of_containers<'a>(pod: &'a api::Pod, defaults: &[(&'a str, Quantity)], source: Source) -> Amounts<'a> {
    let infeasible = source != Source::Spec && pod.has_infeasible_resize();
    let requests_of = |container: &'a api::Container| {
        let requests = match (reported(pod, container, source), infeasible) {
            (Some(reported), _) => listed(reported).collect(),
            (None, true) => Amounts::new(),
            (None, false) => listed(&container.resources.requests).collect(),
        };
        with_defaults(requests, defaults)
    };
    let mut total = Amounts::new();
    for container in &pod.spec.containers {
        add(&mut total, &requests_of(container));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in &pod.spec.init_containers {
        let mut requests = requests_of(container);
        if container.is_sidecar() {
            add(&mut total, &requests);
            add(&mut sidecars, &requests);
            requests.clone_from(&sidecars);
        } else {
            add(&mut requests, &sidecars);
        }
        raise(&mut peak, &requests);
    }
    raise(&mut total, &peak);
    total
}

/// What a source other than the author reports about a container.
fn reported<'a>(pod: &'a api::Pod, container: &api::Container, source: Source) -> Option<&'a api::ResourceList> {
    let status = &pod.status;
    let mut statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
    let status = statuses.find(|status| status.name == container.name)?;
    let allocated = Some(&status.allocated_resources);
    let found = match source {
        Source::Spec => None,
        Source::Allocated => allocated,
        Source::Actuated => {
            let actuated = status.resources.as_ref().map(|resources| &resources.requests);
            actuated.filter(|requests| !requests.is_empty()).or(allocated)
        }
    };
    found.filter(|requests| !requests.is_empty())
}

fn listed(list: &api::ResourceList) -> impl Iterator<Item = (&str, Quantity)> {
    list.iter().map(|(name, amount)| (name.as_str(), *amount))
}

fn with_defaults<'a>(mut requests: Amounts<'a>, defaults: &[(&'a str, Quantity)]) -> Amounts<'a> {
    for (name, amount) in defaults {
        requests.entry(name).or_insert(*amount);
    }
    requests
}

fn add<'a>(total: &mut Amounts<'a>, more: &Amounts<'a>) {
    for (name, amount) in more {
        let entry = total.entry(name).or_default();
        *entry = *entry + *amount;
    }
}

fn raise<'a>(total: &mut Amounts<'a>, other: &Amounts<'a>) {
    for (name, amount) in other {
        let entry = total.entry(name).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &str, cpu: i64, incoming: i64, running: i64) {
        let pod: api::Pod = serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
        let requests = PodRequests::new(&mut Symbols::default(), &pod);
        let found = (
            requests.requests.cpu_milli,
            requests.incoming.cpu_milli,
            requests.running.cpu_milli,
        );
        assert_eq!(found, (cpu, incoming, running), "{spec}");
    }

    fn container(cpu: &str) -> String {
        format!(r#"{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}"#)
    }

    #[test]
    fn containers_add_up_exactly() {
        let half = container("0.5m");
        check(&format!(r#"{{"containers":[{half},{half}]}}"#), 1, 1, 1);
        check(r#"{"containers":[{},{}]}"#, 0, 200, 200);
        check(&format!(r#"{{"containers":[{},{{}}]}}"#, container("0")), 0, 100, 100);
    }

    #[test]
    fn init_containers_peak_and_sidecars_stay() {
        let sidecar = r#"{"restartPolicy":"Always","resources":{"requests":{"cpu":"300m"}}}"#;
        let (init, main) = (container("1"), container("500m"));
        check(
            &format!(r#"{{"containers":[{main}],"initContainers":[{init}]}}"#),
            1000,
            1000,
            1000,
        );
        check(
            &format!(r#"{{"containers":[{main}],"initContainers":[{sidecar},{init}]}}"#),
            1300,
            1300,
            1300,
        );
        check(
            &format!(r#"{{"containers":[{main}],"initContainers":[{init},{sidecar}]}}"#),
            1000,
            1000,
            1000,
        );
    }

    #[test]
    fn the_pod_as_a_whole_replaces_its_containers_and_overhead_comes_on_top() {
        let spec = r#"{"containers":[{"resources":{"requests":{"cpu":"1"}}}],"resources":{"requests":{"cpu":"3"}},"overhead":{"cpu":"250m"}}"#;
        check(spec, 3250, 1250, 3250);
    }

    #[test]
    fn a_running_container_counts_with_what_it_holds() {
        let pod = r#"{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"1"}}}]},
                      "status":{"containerStatuses":[{"name":"main","resources":{"requests":{"cpu":"2"}},
                                                      "allocatedResources":{"cpu":"3"}}]}}"#;
        let pod: api::Pod = serde_json::from_str(pod).unwrap();
        let requests = PodRequests::new(&mut Symbols::default(), &pod);
        assert_eq!(requests.requests.cpu_milli, 3000);
    }

    /// CPU that a pod with this spec and status requests.
    fn held(spec: &str, status: &str) -> i64 {
        let pod: api::Pod = serde_json::from_str(&format!(r#"{{"spec":{spec},"status":{status}}}"#)).unwrap();
        PodRequests::new(&mut Symbols::default(), &pod).requests.cpu_milli
    }

    const INFEASIBLE: &str = r#""conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}]"#;

    #[test]
    fn the_largest_of_the_sums_counts_while_containers_are_resized() {
        let spec = r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}},
                                     {"name":"b","resources":{"requests":{"cpu":"4"}}}]}"#;
        let statuses = r#""containerStatuses":[{"name":"a","allocatedResources":{"cpu":"3"},"resources":{"requests":{"cpu":"3"}}},
                                               {"name":"b","allocatedResources":{"cpu":"1"},"resources":{"requests":{"cpu":"2"}}}]"#;
        assert_eq!(
            held(spec, &format!("{{{statuses}}}")),
            5000,
            "5 wanted, 4 allocated, 5 set"
        );
        assert_eq!(held(spec, &format!("{{{statuses},{INFEASIBLE}}}")), 5000);
        let less = statuses.replace(r#""requests":{"cpu":"2"}"#, r#""requests":{"cpu":"1"}"#);
        assert_eq!(
            held(spec, &format!("{{{less},{INFEASIBLE}}}")),
            4000,
            "the node keeps what it gave"
        );
        // Containers that its node has not reported yet count as requested, unless the resize is impossible.
        let one = r#""containerStatuses":[{"name":"a","allocatedResources":{"cpu":"3"}}]"#;
        assert_eq!(held(spec, &format!("{{{one}}}")), 7000);
        assert_eq!(held(spec, &format!("{{{one},{INFEASIBLE}}}")), 3000);
    }

    #[test]
    fn sums_of_the_pod_replace_those_of_its_containers() {
        let spec = r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}]}"#;
        let pod = r#""resources":{"requests":{"cpu":"2"}},"allocatedResources":{"cpu":"3"}"#;
        let container = r#""containerStatuses":[{"name":"a","allocatedResources":{"cpu":"9"}}]"#;
        assert_eq!(held(spec, &format!("{{{pod},{container}}}")), 3000);
        let half = r#""resources":{"requests":{"cpu":"2"}}"#;
        assert_eq!(
            held(spec, &format!("{{{half},{container}}}")),
            9000,
            "one of both is missing"
        );
    }

    #[test]
    fn pod_level_requests_are_resized_like_those_of_containers() {
        let spec = r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}],"resources":{"requests":{"cpu":"2"}}}"#;
        assert_eq!(held(spec, "{}"), 2000);
        let shrinking =
            r#""resources":{"requests":{"cpu":"3"}},"allocatedResources":{"cpu":"4","example.com/gpu":"9"}"#;
        assert_eq!(held(spec, &format!("{{{shrinking}}}")), 4000);
        let growing = r#""resources":{"requests":{"cpu":"1500m"}},"allocatedResources":{"cpu":"1"}"#;
        assert_eq!(held(spec, &format!("{{{growing}}}")), 2000);
        assert_eq!(
            held(spec, &format!("{{{growing},{INFEASIBLE}}}")),
            1500,
            "what was asked for will not come"
        );
    }

    #[test]
    fn which_names_count() {
        for (name, expected) in [
            ("example.com/gpu", true),
            ("hugepages-2Mi", true),
            ("kubernetes.io/batch", true),
            ("attachable-volumes-aws-ebs", true),
            ("requests.example.com/gpu", false),
            ("storage", false),
            ("foo", false),
        ] {
            assert_eq!(is_scalar(name), expected, "{name}");
        }
    }
}
