//! Limit ranges: default requests of the containers in a namespace, and bounds on the requests of pods and claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use berth_core::quantity::{Bytes, Quantity, canonical};
use serde_json::Value;

use crate::admission::Admission;
use crate::columns::NAME_AND_TIME;
use crate::error::{FieldError, Refusal};
use crate::fields;
use crate::kind::Kind;
use crate::meta;
use crate::pod_spec::CONTAINER_LISTS;

/// Limit ranges.
pub const KIND: Kind = Kind {
    short_names: &["limits"],
    columns: NAME_AND_TIME,
    defaults: |range| {
        meta::items_mut(range, &["spec", "limits"])
            .iter_mut()
            .for_each(default_limit);
    },
    validate,
    ..Kind::namespaced("", "v1", "LimitRange", "limitranges")
};

/// Records on a pod what was filled in here.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// For containers, missing values are derived: the default from the maximum, the request from the default.
fn default_limit(limit: &mut Value) {
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        fields::canonicalize(limit, &[list]);
    }
    if limit["type"] != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let given = limit[from].clone();
        for (resource, quantity) in given.as_object().into_iter().flatten() {
            meta::default(limit, &[to, resource], quantity.clone());
        }
    }
}

/// A range that nothing can satisfy would keep everything out of its namespace.
fn validate(range: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut types = BTreeSet::new();
    for (index, limit) in meta::items(range, &["spec", "limits"]).iter().enumerate() {
        let at = format!("spec.limits[{index}]");
        let of = meta::text(limit, &["type"]);
        if !types.insert(of) {
            errors.push(FieldError::duplicate(format!("{at}.type"), &of.into()));
        }
        if of == "Pod" {
            for list in ["default", "defaultRequest"] {
                if !limit[list].is_null() {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(format!("{at}.{list}"), detail));
                }
            }
        }
        let bounds_storage = ["min", "max"].iter().any(|list| !limit[*list]["storage"].is_null());
        if of == "PersistentVolumeClaim" && !bounds_storage {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(format!("{at}.limits"), detail));
        }
        check_order(limit, &at, &mut errors);
    }
    errors
}

/// Which amount must not exceed which: list, wording, list, wording.
const IN_ORDER: [(&str, &str, &str, &str); 6] = [
    ("min", "min", "max", "max"),
    ("min", "min", "defaultRequest", "default request"),
    ("defaultRequest", "default request", "max", "max"),
    ("defaultRequest", "default request", "default", "default limit"),
    ("min", "min", "default", "default"),
    ("default", "default", "max", "max"),
];

/// The amounts of a limit must be in order, and its ratio must be possible with them.
fn check_order(limit: &Value, at: &str, errors: &mut Vec<FieldError>) {
    const RATIO: &str = "maxLimitRequestRatio";
    let lists = ["min", "max", "default", "defaultRequest", RATIO];
    let named = lists.iter().filter_map(|list| limit[*list].as_object());
    let resources: BTreeSet<&String> = named.flat_map(|amounts| amounts.keys()).collect();
    for resource in resources {
        let amount = |list: &str| fields::parse_quantity(&limit[list][resource.as_str()]);
        for (low, low_name, high, high_name) in IN_ORDER {
            if let (Some(least), Some(most)) = (amount(low), amount(high))
                && least > most
            {
                // Next to a bound, the other value is wrong; of two bounds, the lower one.
                let wrong = if high == "max" || low == "defaultRequest" {
                    low
                } else {
                    high
                };
                let value = &limit[wrong][resource.as_str()];
                let text = |list: &str| meta::text(limit, &[list, resource.as_str()]).to_owned();
                let detail = format!(
                    "{low_name} value {} is greater than {high_name} value {}",
                    text(low),
                    text(high)
                );
                errors.push(FieldError::invalid(format!("{at}.{wrong}[{resource}]"), value, &detail));
            }
        }
        if amount(RATIO).is_some_and(|ratio| ratio < Quantity::from_units(1)) {
            let value = &limit[RATIO][resource.as_str()];
            let detail = format!(
                "ratio {} is less than 1",
                meta::text(limit, &[RATIO, resource.as_str()])
            );
            errors.push(FieldError::invalid(format!("{at}.{RATIO}[{resource}]"), value, &detail));
        }
    }
}

/// The ranges in the namespace of an object, by name.
fn ranges(admission: &Admission<'_>, object: &Value) -> Vec<Value> {
    let ranges = admission.objects.within(&KIND, meta::namespace(object));
    let mut ranges: Vec<Value> = ranges.map(|range| range.into_owned()).collect();
    ranges.sort_by(|one, other| meta::name(one).cmp(meta::name(other)));
    ranges
}

fn limits<'a>(range: &'a Value, of: &'a str) -> impl Iterator<Item = &'a Value> {
    meta::items(range, &["spec", "limits"])
        .iter()
        .filter(move |limit| limit["type"] == of)
}

/// Sets default requests and limits on the containers of a new pod, and records it on the pod. Returns whether there were
/// any.
pub(crate) fn fill(admission: &Admission<'_>, pod: &mut Value) -> bool {
    let mut is_filled = false;
    for range in ranges(admission, pod) {
        let mut set = Vec::new();
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            for container in meta::items_mut(pod, &["spec", list]) {
                set.extend(fill_container(&range, container, what));
            }
        }
        if !set.is_empty() {
            is_filled = true;
            let note = format!("LimitRanger plugin set: {}", set.join("; "));
            meta::set(pod, &["metadata", "annotations", ANNOTATION], note.into());
        }
    }
    is_filled
}

/// Returns what was set.
fn fill_container(range: &Value, container: &mut Value, what: &str) -> Vec<String> {
    let name = meta::text(container, &["name"]).to_owned();
    let mut set = Vec::new();
    for (from, to, word) in [
        ("defaultRequest", "requests", "request"),
        ("default", "limits", "limit"),
    ] {
        // A later entry of a range overrides an earlier one.
        let entries = limits(range, "Container").filter_map(|limit| limit[from].as_object());
        let mut missing: BTreeMap<&String, &Value> = entries.flatten().collect();
        missing.retain(|resource, _| meta::at(container, &["resources", to, resource]).is_null());
        for (resource, quantity) in &missing {
            meta::set(container, &["resources", to, resource], (*quantity).clone());
        }
        if !missing.is_empty() {
            let resources: Vec<&str> = missing.keys().map(|resource| resource.as_str()).collect();
            set.push(format!("{} {word} for {what} {name}", resources.join(", ")));
        }
    }
    set
}

/// Refuses a pod whose requests are outside the bounds of its namespace.
pub(crate) fn check_pod(admission: &Admission<'_>, pod: &Value) -> Result<(), Refusal> {
    for range in ranges(admission, pod) {
        let mut wrong = Vec::new();
        for limit in meta::items(&range, &["spec", "limits"]) {
            match meta::text(limit, &["type"]) {
                "Container" => {
                    let lists = CONTAINER_LISTS.iter();
                    for container in lists.flat_map(|list| meta::items(pod, &["spec", list])) {
                        let requests = Amounts::of(&container["resources"]["requests"]);
                        wrong.extend(problems(
                            limit,
                            &requests,
                            &Amounts::of(&container["resources"]["limits"]),
                        ));
                    }
                }
                "Pod" => wrong.extend(problems(
                    limit,
                    &Amounts::of_pod(pod, "requests"),
                    &Amounts::of_pod(pod, "limits"),
                )),
                _ => {}
            }
        }
        refuse(wrong)?;
    }
    Ok(())
}

/// Refuses a claim whose requests are outside the bounds of its namespace.
pub(crate) fn check_claim(admission: &Admission<'_>, claim: &Value) -> Result<(), Refusal> {
    for range in ranges(admission, claim) {
        let requests = Amounts::of(&claim["spec"]["resources"]["requests"]);
        let mut wrong = Vec::new();
        for limit in limits(&range, "PersistentVolumeClaim") {
            for rule in Rule::all(limit, "min") {
                wrong.extend(rule.least(requests.get(rule.resource), None));
            }
            for rule in Rule::all(limit, "max") {
                wrong.extend(rule.most_requested(requests.get(rule.resource)));
            }
        }
        refuse(wrong)?;
    }
    Ok(())
}

fn refuse(wrong: Vec<String>) -> Result<(), Refusal> {
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Refusal::BeyondLimits(wrong)),
    }
}

/// Checks requests and limits of a container or a pod.
fn problems(limit: &Value, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let asked = |rule: &Rule<'_>| (requests.get(rule.resource), limits.get(rule.resource));
    let mut wrong = Vec::new();
    for rule in Rule::all(limit, "min") {
        let (request, limit) = asked(&rule);
        wrong.extend(rule.least(request, limit));
    }
    for rule in Rule::all(limit, "max") {
        let (request, limit) = asked(&rule);
        wrong.extend(rule.most(request, limit));
    }
    for rule in Rule::all(limit, "maxLimitRequestRatio") {
        let (request, limit) = asked(&rule);
        wrong.extend(rule.ratio(request, limit));
    }
    wrong
}

/// An amount of a resource, and whether it is written with binary suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    quantity: Quantity,
    is_binary: bool,
}

impl Amount {
    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            quantity: fields::parse_quantity(value)?,
            is_binary: value.as_str().is_some_and(|text| text.ends_with('i')),
        })
    }

    /// Whether it can be compared in thousandths without overflow.
    fn has_thousandths(self) -> bool {
        self.quantity.value() <= i64::MAX / 1000
    }

    fn is_below(self, other: Self) -> bool {
        if self.has_thousandths() && other.has_thousandths() {
            return self.quantity.milli_value() < other.quantity.milli_value();
        }
        self.quantity.value() < other.quantity.value()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_binary {
            return Bytes(self.quantity.value()).fmt(f);
        }
        let text = match self.has_thousandths() {
            true => format!("{}m", self.quantity.milli_value()),
            false => self.quantity.value().to_string(),
        };
        f.write_str(&canonical(&text).unwrap_or(text))
    }
}

/// Requests or limits by resource.
#[derive(Debug, Clone, Default)]
struct Amounts(BTreeMap<String, Amount>);

impl Amounts {
    fn of(map: &Value) -> Self {
        let entries = map.as_object().into_iter().flatten();
        let amounts = entries.filter_map(|(resource, value)| Some((resource.clone(), Amount::read(value)?)));
        Self(amounts.collect())
    }

    fn get(&self, resource: &str) -> Option<Amount> {
        self.0.get(resource).copied()
    }

    /// The amounts of a pod: the sum over its containers or the largest init step; amounts set on the pod itself take
    /// precedence.
    fn of_pod(pod: &Value, list: &str) -> Self {
        let mut all = Self::default();
        for container in meta::items(pod, &["spec", "containers"]) {
            all.add(&Self::of(&container["resources"][list]));
        }
        let (mut sidecars, mut start) = (Self::default(), Self::default());
        for container in meta::items(pod, &["spec", "initContainers"]) {
            let own = Self::of(&container["resources"][list]);
            let mut meanwhile = sidecars.clone();
            meanwhile.add(&own);
            if container["restartPolicy"] == "Always" {
                all.add(&own);
                sidecars.add(&own);
            }
            start.raise_to(&meanwhile);
        }
        all.raise_to(&start);
        let whole = Self::of(&pod["spec"]["resources"][list]).0.into_iter();
        all.0
            .extend(whole.filter(|(resource, _)| ["cpu", "memory"].contains(&resource.as_str())));
        all
    }

    fn add(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            match self.0.get_mut(resource) {
                Some(sum) => sum.quantity = sum.quantity + amount.quantity,
                None => {
                    self.0.insert(resource.clone(), *amount);
                }
            }
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            let known = self.0.entry(resource.clone()).or_insert(*amount);
            if known.quantity < amount.quantity {
                *known = *amount;
            }
        }
    }
}

/// One bound of a limit range.
struct Rule<'a> {
    /// The limited object: `Pod`, `Container` or `PersistentVolumeClaim`.
    of: &'a str,
    resource: &'a str,
    bound: Amount,
}

impl<'a> Rule<'a> {
    fn all(limit: &'a Value, list: &str) -> impl Iterator<Item = Self> {
        let entries = limit[list].as_object().into_iter().flatten();
        entries.filter_map(|(resource, value)| {
            Some(Self {
                of: meta::text(limit, &["type"]),
                resource,
                bound: Amount::read(value)?,
            })
        })
    }

    fn usage(&self, word: &str) -> String {
        format!("{word} {} usage per {} is {}", self.resource, self.of, self.bound)
    }

    fn least(&self, request: Option<Amount>, limit: Option<Amount>) -> Option<String> {
        let usage = self.usage("minimum");
        match (request, limit) {
            (None, _) => Some(format!("{usage}.  No request is specified")),
            (Some(request), _) if request.is_below(self.bound) => Some(format!("{usage}, but request is {request}")),
            (_, Some(limit)) if limit.is_below(self.bound) => Some(format!("{usage}, but limit is {limit}")),
            _ => None,
        }
    }

    fn most(&self, request: Option<Amount>, limit: Option<Amount>) -> Option<String> {
        let usage = self.usage("maximum");
        match (request, limit) {
            (_, None) => Some(format!("{usage}.  No limit is specified")),
            (_, Some(limit)) if self.bound.is_below(limit) => Some(format!("{usage}, but limit is {limit}")),
            (Some(request), _) if self.bound.is_below(request) => Some(format!("{usage}, but request is {request}")),
            _ => None,
        }
    }

    fn most_requested(&self, request: Option<Amount>) -> Option<String> {
        let usage = self.usage("maximum");
        match request {
            None => Some(format!("{usage}.  No request is specified")),
            Some(request) if self.bound.is_below(request) => Some(format!("{usage}, but request is {request}")),
            Some(_) => None,
        }
    }

    fn ratio(&self, request: Option<Amount>, limit: Option<Amount>) -> Option<String> {
        let most = format!(
            "{} max limit to request ratio per {} is {}",
            self.resource, self.of, self.bound
        );
        let known = |amount: Option<Amount>| amount.filter(|amount| amount.quantity != Quantity::default());
        let Some(request) = known(request) else {
            return Some(format!("{most}, but no request is specified or request is 0"));
        };
        let Some(limit) = known(limit) else {
            return Some(format!("{most}, but no limit is specified or limit is 0"));
        };
        let in_thousandths = request.has_thousandths() && limit.has_thousandths();
        let count = |amount: Amount| match in_thousandths {
            true => amount.quantity.milli_value() as f64,
            false => amount.quantity.value() as f64,
        };
        let found = count(limit) / count(request);
        let (scaled, allowed) = match self.bound.has_thousandths() {
            true => (found * 1000.0, self.bound.quantity.milli_value() as f64),
            false => (found, self.bound.quantity.value() as f64),
        };
        (scaled > allowed).then(|| format!("{most}, but provided ratio is {found:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::admission::{Lookup, complete};

    /// A cluster that contains only limit ranges.
    struct Ranges(Vec<Value>);

    impl Lookup for Ranges {
        fn get(&self, _: &Kind, _: &str, _: &str) -> Option<Cow<'_, Value>> {
            None
        }

        fn all<'a>(&'a self, kind: &Kind) -> Box<dyn Iterator<Item = Cow<'a, Value>> + 'a> {
            let is_asked = kind.name == KIND.name;
            let ranges = self.0.iter().filter(move |_| is_asked);
            Box::new(ranges.map(Cow::Borrowed))
        }
    }

    fn range(limit: Value) -> Value {
        let mut range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r", "namespace": "shop"},
            "spec": {"limits": [limit]}});
        (KIND.defaults)(&mut range);
        range
    }

    fn admitted(range: Value, mut object: Value, restores: bool) -> Result<Value, String> {
        let ranges = Ranges(vec![range]);
        let admission = Admission {
            restores,
            ..Admission::new(&ranges, Timestamp::UNIX_EPOCH)
        };
        complete(&mut object, &admission).map_err(|why| why.to_string())?;
        Ok(object)
    }

    fn pod(namespace: &str, containers: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace},
            "spec": {"containers": containers, "initContainers": [{"name": "first"}]}})
    }

    #[test]
    fn containers_get_what_they_do_not_say() {
        let limit = json!({"type": "Container", "max": {"memory": "1024Mi"}, "defaultRequest": {"cpu": "0.1"}, "default": {"cpu": "1"}});
        let own = json!([{"name": "own", "resources": {"requests": {"cpu": "200m"}, "limits": {"memory": "1Mi"}}}]);
        let completed = admitted(range(limit.clone()), pod("shop", own.clone()), false).unwrap();
        let [first, own_container] = [
            &completed["spec"]["initContainers"][0],
            &completed["spec"]["containers"][0],
        ];
        let expected = json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(first["resources"], expected);
        let expected = json!({"requests": {"cpu": "200m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}});
        assert_eq!(own_container["resources"], expected);
        let note = "LimitRanger plugin set: cpu limit for container own; cpu, memory request for init container first; \
                    cpu, memory limit for init container first";
        assert_eq!(meta::annotation(&completed, ANNOTATION), note);
        assert_eq!(completed["status"]["qosClass"], "Burstable");

        let elsewhere = admitted(range(limit.clone()), pod("other", own.clone()), false).unwrap();
        assert_eq!(elsewhere["spec"]["initContainers"][0]["resources"], json!({}));
        let mut with_past = pod("shop", own);
        with_past["spec"]["priority"] = json!(0);
        let with_past = admitted(range(limit), with_past, true).unwrap();
        assert_eq!(
            with_past["spec"]["initContainers"][0]["resources"],
            json!({}),
            "it was let in before"
        );
    }

    #[test]
    fn pods_beyond_the_limits_are_refused() {
        fn check(limit: Value, resources: Value, expected: &str) {
            let pod = pod("shop", json!([{"name": "a", "resources": resources}]));
            assert_eq!(admitted(range(limit), pod, false).unwrap_err(), expected);
        }
        check(
            json!({"type": "Container", "min": {"cpu": "200m"}}),
            json!({"requests": {"cpu": "100m"}}),
            "minimum cpu usage per Container is 200m, but request is 100m",
        );
        check(
            json!({"type": "Container", "max": {"memory": "1Gi"}}),
            json!({"limits": {"memory": "2Gi"}}),
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        );
        check(
            json!({"type": "Pod", "max": {"memory": "1Gi", "cpu": "1"}}),
            json!({"limits": {"memory": "1536Mi"}}),
            "[maximum cpu usage per Pod is 1.  No limit is specified, maximum memory usage per Pod is 1Gi, but limit is 1536Mi]",
        );
        check(
            json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
        );
    }

    #[test]
    fn containers_of_a_pod_are_added_up_and_its_start_is_not() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": "512Mi"}}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"spec": {"containers": [container("500m"), container("250m")],
            "initContainers": [sidecar, {"resources": {"requests": {"cpu": "2"}}}]}});
        let sums = Amounts::of_pod(&pod, "requests");
        assert_eq!(
            sums.get("cpu").unwrap().to_string(),
            "3",
            "the sidecar and the second step"
        );
        assert_eq!(sums.get("memory").unwrap().to_string(), "1Gi");
    }

    #[test]
    fn claims_beyond_the_limits_are_refused() {
        fn check(limit: Value, expected: &str) {
            let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "shop"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}});
            assert_eq!(admitted(range(limit), claim, true).unwrap_err(), expected);
        }
        let of = |list: &str, storage: &str| json!({"type": "PersistentVolumeClaim", list: {"storage": storage}});
        check(
            of("min", "10Gi"),
            "minimum storage usage per PersistentVolumeClaim is 10Gi, but request is 5Gi",
        );
        check(
            of("max", "1Gi"),
            "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 5Gi",
        );
    }
}
