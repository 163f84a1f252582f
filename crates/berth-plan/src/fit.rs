//! How many more replicas of a pod or workload fit on a cluster.
//!
//! `n` replicas fit if all of them run and no other pod stops running because of them. Simulations with many replicas show how many
//! of them run, which is nearly always the answer: it is checked by one simulation with that number and one with one more.

use crate::oracle::{Halt, Oracle, Played};
use berth_cluster::workloads::KINDS;
use berth_cluster::{field, key_of, objects};
use berth_core::effect::ObjectKey;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The first number of replicas to try, and the factor for the next one: simulating replicas that fit takes time, so the last of
/// these tries takes most of it.
const FIRST: usize = 8;
const GROWTH: usize = 8;

/// The maximum number of replicas to count.
const MOST: usize = 100_000;

/// What is replicated.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// The pod, or the workload without additional replicas.
    template: Value,
    /// Claims that every replica of a pod needs separately.
    claims: Vec<Value>,
    /// The current number of replicas.
    replicas: usize,
}

/// Why nothing can be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// There is no pod and no workload.
    #[error("expected a Pod, Deployment, StatefulSet, ReplicaSet or ReplicationController, found none")]
    Nothing,
    /// There are several.
    #[error("expected one Pod or workload, found {} and {}", .0[0], .0[1])]
    Several(Box<[ObjectKey; 2]>),
    /// It has no number of replicas.
    #[error(
        "{0} has no number of replicas; expected a Pod, Deployment, StatefulSet, ReplicaSet or ReplicationController"
    )]
    NotScalable(ObjectKey),
    /// It does not exist.
    #[error("there is no {0} in the input")]
    Missing(ObjectKey),
}

impl Subject {
    /// A workload of the cluster.
    ///
    /// # Errors
    /// If it does not exist, or has no replicas.
    pub fn of_cluster(objects: &[Value], key: &ObjectKey) -> Result<Self, SubjectError> {
        let found = objects.iter().find(|object| key_of(object) == *key);
        let found = found.ok_or_else(|| SubjectError::Missing(key.clone()))?;
        if !is_scalable(found) {
            return Err(SubjectError::NotScalable(key.clone()));
        }
        let replicas = field::count(found, "/spec/replicas").unwrap_or(1);
        Ok(Self {
            template: found.clone(),
            claims: Vec::new(),
            replicas: usize::try_from(replicas).unwrap_or(0),
        })
    }

    /// The only pod or workload of a file. Claims of the file that a pod uses are created for every replica; all other objects of
    /// the file are added to the cluster once.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn of_file(file: Vec<Value>, objects: &mut Vec<Value>) -> Result<Self, SubjectError> {
        let (mut templates, mut others): (Vec<Value>, Vec<Value>) = file
            .into_iter()
            .partition(|object| is_pod(object) || is_workload(object));
        if let [first, second, ..] = templates.as_slice() {
            return Err(SubjectError::Several(Box::new([key_of(first), key_of(second)])));
        }
        let template = templates.pop().ok_or(SubjectError::Nothing)?;
        if !is_pod(&template) && !is_scalable(&template) {
            return Err(SubjectError::NotScalable(key_of(&template)));
        }
        let mut claims = Vec::new();
        if is_pod(&template) {
            let named: BTreeSet<_> = objects::claims_of(&template).collect();
            let is_own = |object: &Value| {
                field::kind(object) == "PersistentVolumeClaim"
                    && field::namespace(object) == field::namespace(&template)
                    && named.contains(field::name(object))
            };
            (claims, others) = others.into_iter().partition(is_own);
        }
        objects.extend(others);
        Ok(Self {
            template,
            claims,
            replicas: 0,
        })
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        key_of(&self.template)
    }

    /// Its current number of replicas.
    #[must_use]
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    /// The objects of a cluster with this many more replicas.
    #[must_use]
    pub fn added_to(&self, objects: &[Value], count: usize) -> Vec<Value> {
        let mut all = objects.to_vec();
        if is_pod(&self.template) {
            all.extend((1..=count).flat_map(|number| self.copy(number)));
            return all;
        }
        let mut workload = self.template.clone();
        field::set(&mut workload, &["spec", "replicas"], json!(self.replicas + count));
        let key = self.key();
        match all.iter_mut().find(|object| key_of(object) == key) {
            Some(found) => *found = workload,
            None => all.push(workload),
        }
        all
    }

    /// A copy of the pod and its claims with unique names.
    fn copy(&self, number: usize) -> Vec<Value> {
        let mut pod = renamed(&self.template, number);
        field::unset(&mut pod, &["spec", "nodeName"]);
        let own: BTreeSet<&str> = self.claims.iter().map(field::name).collect();
        let volumes = pod.pointer_mut("/spec/volumes").and_then(Value::as_array_mut);
        for volume in volumes.into_iter().flatten() {
            if let Some(Value::String(claim)) = volume.pointer_mut("/persistentVolumeClaim/claimName")
                && own.contains(claim.as_str())
            {
                *claim = format!("{claim}-{number}");
            }
        }
        let claims = self.claims.iter().map(|claim| renamed(claim, number));
        claims.chain([pod]).collect()
    }
}

fn is_pod(object: &Value) -> bool {
    field::kind(object) == "Pod"
}

fn is_workload(object: &Value) -> bool {
    KINDS.contains(&field::kind(object))
}

fn is_scalable(object: &Value) -> bool {
    matches!(
        field::kind(object),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController"
    )
}

/// A new object like this one.
fn renamed(object: &Value, number: usize) -> Value {
    let mut copy = object.clone();
    let name = format!("{}-{number}", field::name(object));
    field::set(&mut copy, &["metadata", "name"], json!(name));
    field::unset(&mut copy, &["metadata", "uid"]);
    field::unset(&mut copy, &["status"]);
    copy
}

/// How many more replicas fit.
#[derive(Debug)]
pub struct Fit {
    /// The number that fits.
    pub fits: usize,
    /// The cluster with them. `None` if none fits.
    pub with_all: Option<Played>,
    /// The cluster with one more, which does not fit. `None` if not known.
    pub with_one_more: Option<Played>,
    /// The cluster without additional replicas.
    pub before: Played,
    /// Whether the search ended because time ran out.
    pub time_up: bool,
}

/// Finds how many more replicas fit.
///
/// # Errors
/// If an object cannot be created.
pub fn fit(oracle: &mut Oracle<'_>, objects: &[Value], subject: &Subject) -> Result<Fit, Halt> {
    let before = oracle.play_first(subject.added_to(objects, 0))?;
    let mut with = |count: usize| oracle.play(subject.added_to(objects, count));
    let mut found = Fit {
        fits: 0,
        with_all: None,
        with_one_more: None,
        time_up: !before.is_at_rest,
        before,
    };
    if found.time_up {
        return Ok(found);
    }
    let allowed = found.before.standing.unrun;
    let mut too_many: Option<usize> = None;
    // Likely numbers, the most likely last.
    let mut hints: Vec<usize> = Vec::new();
    loop {
        let is_open = |count: &usize| *count > found.fits && too_many.is_none_or(|end| *count < end);
        let hint = std::iter::from_fn(|| hints.pop()).find(is_open);
        let count = match (hint, too_many) {
            (Some(hint), _) => hint,
            (None, Some(end)) if end == found.fits + 1 => break,
            (None, Some(end)) => found.fits.midpoint(end),
            (None, None) if found.fits >= MOST => break,
            (None, None) => (found.fits * GROWTH).clamp(FIRST, MOST),
        };
        let played = match with(count) {
            Ok(played) => played,
            Err(Halt::TimeUp) => {
                found.time_up = true;
                break;
            }
            Err(refused) => return Err(refused),
        };
        let lacking = played.standing.unrun.saturating_sub(allowed);
        if lacking == 0 {
            found.fits = count;
            found.with_all = Some(played);
        } else {
            too_many = Some(count);
            let run = count.saturating_sub(lacking);
            hints = vec![run + 1, run];
            found.with_one_more = Some(played);
        }
    }
    if too_many != Some(found.fits + 1) {
        found.with_one_more = None;
    }
    Ok(found)
}
