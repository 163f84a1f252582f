//! The volume controller's state and steps for the loop for keyed work.

use super::Options;
use super::census::Census;
use super::metrics::{EffectLabels, Metrics};
use crate::announce;
use crate::api::Api;
use crate::executor::{Answer, Executor};
use crate::keyed::{Job, Live, Reconciler, Version, Work};
use crate::recorder::Recorder;
use berth_controller::{Reason, Settings, State, ephemeral, sync};
use berth_core::api::{Kind, Object};
use berth_core::effect::{Effect, Event, ObjectKey, Refusal};
use berth_core::names;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Claims, volumes, and the known state of the rest.
pub(crate) struct Volumes {
    state: State,
    settings: Settings,
    metrics: Metrics,
    census: Census,
    /// Whether a scheduler announces that it can bind delayed claims, if required.
    announced: watch::Receiver<bool>,
    _listening: JoinSet<()>,
}

impl Volumes {
    pub(super) fn new(api: &Api, options: &Options) -> Self {
        let metrics = options.metrics.clone();
        let mut settings = options.settings.clone();
        // A scheduler is assumed until the first grace period is over.
        let (fact, announced) = watch::channel(true);
        let mut listening = JoinSet::new();
        if let Some(required) = options.required_scheduler.clone() {
            settings.require_delayed_binding_scheduler = true;
            metrics.announced.set(1);
            listening.spawn(announce::listen(api.clone(), required, fact));
        }
        let mut state = State::default();
        state.set_delay_announced(true);
        Self {
            state,
            settings,
            census: Census::new(metrics.clone()),
            metrics,
            announced,
            _listening: listening,
        }
    }
}

/// An executor that counts the controller's writes.
pub(super) fn executor(api: Api, recorder: Recorder, metrics: Metrics) -> Executor {
    Executor::new(api, recorder).counting(move |effect, result| {
        let labels = EffectLabels {
            effect: match effect {
                Effect::Create(_) => "create_claim",
                other => other.name(),
            },
            result,
        };
        metrics.effects.get_or_create(&labels).inc();
        if result == "ok" && is_binding(effect) {
            metrics.bound.inc();
        }
        match (effect.name(), result) {
            ("assign_class", "ok") => {
                metrics.retroactive.inc();
            }
            ("assign_class", "error") => {
                metrics.retroactive_errors.inc();
            }
            _ => {}
        }
    })
}

fn is_binding(effect: &Effect) -> bool {
    let Effect::Patch(patch) = effect else { return false };
    let phase = patch.body.pointer("/status/phase").and_then(Value::as_str);
    patch.target.key.known_kind() == Some(Kind::PersistentVolumeClaim) && phase == Some("Bound")
}

/// The provisioner of a claim's class, or of a volume.
fn provisioner_of(key: &ObjectKey, state: &State) -> Option<String> {
    match key.known_kind()? {
        Kind::PersistentVolumeClaim => {
            let class = state.class(state.claim(key)?.class_name()?)?;
            Some(class.provisioner.clone())
        }
        _ => {
            let metadata = state.metadata(key)?;
            metadata.annotation(names::PROVISIONED_BY).map(str::to_owned)
        }
    }
}

impl Reconciler for Volumes {
    type Object = Object;
    type Answer = Answer;
    type Job = Job<()>;
    type Report = ();

    fn apply(&mut self, object: Object) -> Vec<ObjectKey> {
        self.census.apply(&object);
        self.state.apply(object)
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.census.remove(key);
        self.state.remove(key)
    }

    fn answered(&mut self, answer: &Answer) -> Vec<ObjectKey> {
        // An unknown object may already be deleted again, and no event would report it.
        match (self.state.metadata(&answer.key), answer.object()) {
            (Some(_), Some(object)) => self.state.apply(object),
            (None, _) | (_, None) => Vec::new(),
        }
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        self.state.metadata(key).map(Version::of)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<Job<()>> {
        self.metrics.steps.inc();
        let effects = sync(key, &self.state, &self.settings, now);
        let (census, state) = (&mut self.census, &self.state);
        census.told(key, &effects, || provisioner_of(key, state));
        let undelayed = Reason::DelayedBindingUnavailable.as_str();
        let told = |effect: &&Effect| matches!(effect, Effect::Event(event) if event.reason == undelayed);
        let count = effects.iter().filter(told).count();
        self.metrics.undelayed.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        Work::Effects(effects)
    }

    fn begun(&mut self, touched: &[ObjectKey]) {
        touched.iter().for_each(|key| self.state.hold(key));
    }

    fn ended(&mut self, touched: &[ObjectKey]) -> Vec<ObjectKey> {
        touched.iter().filter_map(|key| self.state.unhold(key)).collect()
    }

    fn refused(&mut self, effect: &Effect, refusal: &Refusal) -> Option<Event> {
        match effect {
            Effect::Create(claim) => ephemeral::create_refused(claim, refusal, &self.state),
            _ => None,
        }
    }
}

impl Live for Volumes {
    fn all_keys(&self) -> Vec<ObjectKey> {
        self.state.all_keys()
    }

    async fn news(&mut self) -> Vec<ObjectKey> {
        if self.announced.changed().await.is_err() {
            // No receiver: the assumption remains.
            return std::future::pending().await;
        }
        let announced = *self.announced.borrow_and_update();
        self.metrics.announced.set(i64::from(announced));
        self.state.set_delay_announced(announced)
    }

    fn measure(&self, waiting: usize, in_flight: usize) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.metrics.queue.set(count(waiting));
        self.metrics.in_flight.set(count(in_flight));
    }
}
