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
        .filter(|(name, _)| matches!(*name, "cpu" | "memory") || name.starts_with("hugepages-"))
}

fn sum<'a>(pod: &'a api::Pod, defaults: &[(&'a str, Quantity)], with_pod_level: bool) -> Amounts<'a> {
    let mut total = Amounts::new();
    for container in &pod.spec.containers {
        add(&mut total, &held_requests(pod, container, defaults));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in &pod.spec.init_containers {
        let mut requests;
        if container.is_sidecar() {
            requests = held_requests(pod, container, defaults);
            add(&mut total, &requests);
            add(&mut sidecars, &requests);
            requests.clone_from(&sidecars);
        } else {
            requests = with_defaults(listed(&container.resources.requests).collect(), defaults);
            add(&mut requests, &sidecars);
        }
        raise(&mut peak, &requests);
    }
    raise(&mut total, &peak);
    if with_pod_level {
        total.extend(pod_level(pod));
    }
    for (name, amount) in &pod.spec.overhead {
        let entry = total.entry(name).or_default();
        *entry = *entry + *amount;
    }
    total
}

fn listed(list: &api::ResourceList) -> impl Iterator<Item = (&str, Quantity)> {
    list.iter().map(|(name, amount)| (name.as_str(), *amount))
}

/// The requests of a container that runs as long as the pod: its allocated resources count if they exceed its requests.
fn held_requests<'a>(
    pod: &'a api::Pod,
    container: &'a api::Container,
    defaults: &[(&'a str, Quantity)],
) -> Amounts<'a> {
    let mut requests: Amounts<'a> = listed(&container.resources.requests).collect();
    let status = &pod.status;
    let mut statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
    let running = statuses.find(|status| status.name == container.name);
    if let Some((running, resources)) = running.and_then(|running| Some((running, running.resources.as_ref()?))) {
        if pod.has_infeasible_resize() {
            requests.clear();
        }
        raise(&mut requests, &listed(&resources.requests).collect());
        raise(&mut requests, &listed(&running.allocated_resources).collect());
    }
    with_defaults(requests, defaults)
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
