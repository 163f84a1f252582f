//! The arguments of plugins.

use super::file::{
    BalancedAllocationArgsFile, DefaultPreemptionArgsFile, DynamicResourcesArgsFile, InterPodAffinityArgsFile,
    NodeAffinityArgsFile, NodeResourcesFitArgsFile, PluginConfig, PodTopologySpreadArgsFile, ResourceFile,
    ScoringStrategyFile, ShapePointFile, VolumeBindingArgsFile,
};
use super::{API_VERSION, ConfigError, Reader, SchedulerProfile};
use berth_core::api::{DecodeError, Object, TopologySpreadConstraint};
use berth_core::score::Shape;
use berth_scheduler::profile::{DefaultSpread, Profile, ScoringForm, ShapePoint};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Duration;

impl Reader {
    pub(super) fn plugin_config(
        &mut self,
        at: &str,
        config: PluginConfig,
        profile: &mut SchedulerProfile,
    ) -> Result<(), ConfigError> {
        self.check_name(&format!("{at}.name"), &config.name, false)?;
        let at = format!("{at}.args");
        let args = self.bare_args(&at, &config.name, config.args)?;
        match config.name.as_str() {
            "VolumeBinding" => {
                let args = self.typed(&at, args)?;
                self.volume_binding(&at, args, profile)
            }
            "NodeResourcesFit" => {
                let args = self.typed(&at, args)?;
                self.resources_fit(&at, args, profile)
            }
            "NodeResourcesBalancedAllocation" => {
                let args = self.typed(&at, args)?;
                self.balanced_allocation(&at, args, &mut profile.profile)
            }
            "InterPodAffinity" => {
                let args = self.typed(&at, args)?;
                self.inter_pod_affinity(&at, &args, &mut profile.profile)
            }
            "PodTopologySpread" => {
                let args = self.typed(&at, args)?;
                self.topology_spread(&at, &args, &mut profile.profile)
            }
            "NodeAffinity" => {
                if let Some(added) = args.get("addedAffinity") {
                    self.check_affinity(&format!("{at}.addedAffinity"), added)?;
                }
                let args: NodeAffinityArgsFile = self.typed(&at, args)?;
                profile.profile.added_affinity = args.added_affinity;
                Ok(())
            }
            "DefaultPreemption" => self.typed::<DefaultPreemptionArgsFile>(&at, args).map(|_| ()),
            "DynamicResources" => {
                let args = self.typed(&at, args)?;
                self.dynamic_resources(&at, &args)
            }
            _ => match &args {
                Value::Object(fields) if fields.is_empty() => Ok(()),
                _ => Err(self.error(at, format!("plugin {} takes no arguments", config.name))),
            },
        }
    }

    /// Timeouts of kube-scheduler for allocating devices, which Berth does not: they only have to be durations.
    fn dynamic_resources(&self, at: &str, args: &DynamicResourcesArgsFile) -> Result<(), ConfigError> {
        for (field, text) in [
            ("filterTimeout", &args.filter_timeout),
            ("bindingTimeout", &args.binding_timeout),
        ] {
            if let Some(text) = text {
                crate::duration::duration(text)
                    .map_err(|problem| self.error(format!("{at}.{field}"), format!("found {text:?}: {problem}")))?;
            }
        }
        Ok(())
    }

    /// The arguments without kind and API version.
    fn bare_args(&self, at: &str, plugin: &str, args: Value) -> Result<Value, ConfigError> {
        let mut fields = match args {
            Value::Null => serde_json::Map::new(),
            Value::Object(fields) => fields,
            _ => return Err(self.error(at, "expected a map of arguments")),
        };
        for (field, expected) in [
            ("kind", format!("{plugin}Args")),
            ("apiVersion", API_VERSION.to_owned()),
        ] {
            if let Some(found) = fields.remove(field)
                && found != expected
            {
                return Err(self.error(format!("{at}.{field}"), format!("found {found}, expected {expected:?}")));
            }
        }
        Ok(Value::Object(fields))
    }

    fn volume_binding(
        &self,
        at: &str,
        args: VolumeBindingArgsFile,
        profile: &mut SchedulerProfile,
    ) -> Result<(), ConfigError> {
        if let Some(seconds) = args.bind_timeout_seconds {
            if seconds < 0 {
                let problem = format!("found {seconds}, expected 0 or more");
                return Err(self.error(format!("{at}.bindTimeoutSeconds"), problem));
            }
            profile.profile.volume_binding.bind_timeout = Duration::from_secs(seconds.unsigned_abs());
        }
        if let Some(points) = args.shape {
            let at = format!("{at}.shape");
            profile.profile.volume_binding.score.shape = Some(self.shape(&at, &points)?);
        }
        for (index, weights) in args.storage_class_weights.unwrap_or_default().iter().enumerate() {
            for (class, weight) in weights {
                let at = format!("{at}.storageClassWeights[{index}].{class}");
                let weight = self.class_weight(&at, weight)?;
                let weights = &mut profile.profile.volume_binding.score.class_weights;
                if weights.insert(class.as_str().into(), weight).is_some() {
                    return Err(self.error(at, "found the class a second time, expected one weight for a class"));
                }
            }
        }
        Ok(())
    }

    fn class_weight(&self, at: &str, weight: &Value) -> Result<i64, ConfigError> {
        let number = match weight {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let number = number.filter(|number| (0..=i64::from(i32::MAX)).contains(number));
        number.ok_or_else(|| {
            self.error(
                at,
                format!("found {weight}, expected a whole number from 0 up, such as \"5\""),
            )
        })
    }

    fn shape(&self, at: &str, points: &[ShapePointFile]) -> Result<Shape, ConfigError> {
        if points.is_empty() {
            return Err(self.error(at, "expected at least one point"));
        }
        let mut before = None;
        for (index, point) in points.iter().enumerate() {
            let at = format!("{at}[{index}]");
            if !(0..=100).contains(&point.utilization) {
                let problem = format!("found {}, expected 0 to 100", point.utilization);
                return Err(self.error(format!("{at}.utilization"), problem));
            }
            if !(0..=10).contains(&point.score) {
                let problem = format!("found {}, expected 0 to 10", point.score);
                return Err(self.error(format!("{at}.score"), problem));
            }
            if before.is_some_and(|before| before >= point.utilization) {
                let problem = format!("found {}, expected more than at the point before", point.utilization);
                return Err(self.error(format!("{at}.utilization"), problem));
            }
            before = Some(point.utilization);
        }
        let points = points.iter().map(|point| ShapePoint {
            utilization: point.utilization,
            score: point.score,
        });
        Shape::new(&points.collect::<Vec<_>>()).map_err(|error| self.error(at, error.to_string()))
    }

    fn resources(&self, at: &str, resources: Vec<ResourceFile>) -> Result<Vec<(String, i64)>, ConfigError> {
        let mut weights = Vec::new();
        for (index, resource) in resources.into_iter().enumerate() {
            let weight = resource.weight.filter(|weight| *weight != 0).unwrap_or(1);
            if !(1..=100).contains(&weight) {
                let problem = format!("found {weight}, expected 1 to 100");
                return Err(self.error(format!("{at}[{index}].weight"), problem));
            }
            if resource.name.is_empty() {
                return Err(self.error(format!("{at}[{index}].name"), "expected the name of a resource"));
            }
            weights.push((resource.name, weight));
        }
        Ok(weights)
    }

    /// Added affinity is validated like a pod's own.
    fn check_affinity(&self, at: &str, added: &Value) -> Result<(), ConfigError> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"},
                         "spec": {"affinity": {"nodeAffinity": added}}});
        match Object::decode(&pod) {
            Ok(_) => Ok(()),
            Err(DecodeError::Field { field, problem, .. }) => {
                let field = field.strip_prefix("spec.affinity.nodeAffinity").unwrap_or(&field);
                Err(self.error(format!("{at}{field}"), problem))
            }
            Err(error @ DecodeError::NotAnObject { .. }) => Err(self.error(at, error.to_string())),
        }
    }

    fn resources_fit(
        &self,
        at: &str,
        args: NodeResourcesFitArgsFile,
        profile: &mut SchedulerProfile,
    ) -> Result<(), ConfigError> {
        profile.profile.ignored_resources = args.ignored_resources;
        profile.profile.ignored_resource_groups = args.ignored_resource_groups;
        let Some(strategy) = args.scoring_strategy else {
            return Ok(());
        };
        self.scoring_strategy(&format!("{at}.scoringStrategy"), strategy, &mut profile.profile)
    }

    fn scoring_strategy(&self, at: &str, file: ScoringStrategyFile, profile: &mut Profile) -> Result<(), ConfigError> {
        let strategy = &mut profile.scoring_strategy;
        strategy.form = match file.form.as_deref().unwrap_or("LeastAllocated") {
            "LeastAllocated" => ScoringForm::LeastAllocated,
            "MostAllocated" => ScoringForm::MostAllocated,
            "RequestedToCapacityRatio" => {
                let points = file.requested_to_capacity_ratio.unwrap_or_default().shape;
                ScoringForm::RequestedToCapacityRatio(
                    self.shape(&format!("{at}.requestedToCapacityRatio.shape"), &points)?,
                )
            }
            found => {
                let problem =
                    format!("found {found:?}, expected LeastAllocated, MostAllocated or RequestedToCapacityRatio");
                return Err(self.error(format!("{at}.type"), problem));
            }
        };
        if let Some(resources) = file.resources.filter(|resources| !resources.is_empty()) {
            strategy.resources = self.resources(&format!("{at}.resources"), resources)?;
        }
        Ok(())
    }

    fn balanced_allocation(
        &self,
        at: &str,
        args: BalancedAllocationArgsFile,
        profile: &mut Profile,
    ) -> Result<(), ConfigError> {
        let Some(resources) = args.resources.filter(|resources| !resources.is_empty()) else {
            return Ok(());
        };
        let at = format!("{at}.resources");
        let resources = self.resources(&at, resources)?;
        if let Some(index) = resources.iter().position(|(_, weight)| *weight != 1) {
            return Err(self.error(
                format!("{at}[{index}].weight"),
                "expected 1: all resources count alike here",
            ));
        }
        profile.balanced_resources = resources.into_iter().map(|(name, _)| name).collect();
        Ok(())
    }

    fn inter_pod_affinity(
        &self,
        at: &str,
        args: &InterPodAffinityArgsFile,
        profile: &mut Profile,
    ) -> Result<(), ConfigError> {
        if let Some(weight) = args.hard_pod_affinity_weight {
            if !(0..=100).contains(&weight) {
                let problem = format!("found {weight}, expected 0 to 100");
                return Err(self.error(format!("{at}.hardPodAffinityWeight"), problem));
            }
            profile.hard_pod_affinity_weight = weight;
        }
        profile.ignore_preferred_terms_of_existing_pods = args.ignore_preferred_terms_of_existing_pods;
        Ok(())
    }

    fn topology_spread(
        &self,
        at: &str,
        args: &PodTopologySpreadArgsFile,
        profile: &mut Profile,
    ) -> Result<(), ConfigError> {
        profile.default_spread = match args.defaulting_type.as_deref().unwrap_or("System") {
            "System" if args.default_constraints.is_empty() => DefaultSpread::system(),
            "System" => {
                let problem = "expected none with `defaultingType: System`; set it to List";
                return Err(self.error(format!("{at}.defaultConstraints"), problem));
            }
            "List" => {
                self.check_default_constraints(at, &args.default_constraints)?;
                DefaultSpread::list(args.default_constraints.clone())
            }
            found => {
                let problem = format!("found {found:?}, expected System or List");
                return Err(self.error(format!("{at}.defaultingType"), problem));
            }
        };
        Ok(())
    }

    fn check_default_constraints(&self, at: &str, constraints: &[TopologySpreadConstraint]) -> Result<(), ConfigError> {
        let mut seen = HashSet::new();
        for (index, constraint) in constraints.iter().enumerate() {
            let (key, action) = (&constraint.topology_key, &constraint.when_unsatisfiable);
            let fail = |field: &str, problem: String| {
                Err(self.error(format!("{at}.defaultConstraints[{index}]{field}"), problem))
            };
            if constraint.max_skew < 1 {
                return fail(".maxSkew", format!("found {}, expected 1 or more", constraint.max_skew));
            }
            if key.is_empty() {
                return fail(".topologyKey", "expected the name of a node label".to_owned());
            }
            if !matches!(&**action, "DoNotSchedule" | "ScheduleAnyway") {
                let problem = format!("found {action:?}, expected DoNotSchedule or ScheduleAnyway");
                return fail(".whenUnsatisfiable", problem);
            }
            if constraint.label_selector.is_some() {
                let problem = "expected none: the pods that count are those of the pod's services and its owner";
                return fail(".labelSelector", problem.to_owned());
            }
            if constraint
                .min_domains
                .is_some_and(|domains| domains < 1 || action != "DoNotSchedule")
            {
                let problem = "expected 1 or more, and only with `whenUnsatisfiable: DoNotSchedule`";
                return fail(".minDomains", problem.to_owned());
            }
            let policies = [
                (".nodeAffinityPolicy", &constraint.node_affinity_policy),
                (".nodeTaintsPolicy", &constraint.node_taints_policy),
            ];
            for (field, policy) in policies {
                if let Some(policy) = policy
                    .as_deref()
                    .filter(|policy| !matches!(*policy, "Honor" | "Ignore"))
                {
                    return fail(field, format!("found {policy:?}, expected Honor or Ignore"));
                }
            }
            if !seen.insert((key, action)) {
                return fail("", format!("{key} with {action} is listed twice; keep one"));
            }
        }
        Ok(())
    }
}
