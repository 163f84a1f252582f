//! Writes of published capacity.

use super::pools::{self, Pool, PoolClass};
use super::{CapacityForm, CapacityOptions, Item};
use berth_core::effect::{Effect, Refusal};
use berth_core::names;

/// What is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Publication {
    /// An object, or a pool in the status of a driver.
    Effect(Effect),
    /// A pool in the status of a driver whose object is created if missing.
    Announce {
        /// The write.
        pool: Effect,
        /// The provisioner that the driver belongs to.
        provisioner: String,
    },
    /// A pool in the custom resource. The server merges lists of custom resources only by owner, so this is a
    /// server-side apply, which no effect can express.
    Apply {
        /// The name of the driver.
        driver: String,
        /// Which volumes the pool serves.
        class: PoolClass,
        /// The name of the pool.
        name: String,
        /// The pool; `None` if it is removed.
        pool: Option<Pool>,
    },
}

impl Publication {
    /// Reports a pool of a driver; `None` for the form that has no pools.
    pub(super) fn report(options: &CapacityOptions, driver: &str, class: PoolClass, pool: Pool) -> Option<Self> {
        match options.form {
            CapacityForm::Objects => None,
            CapacityForm::DriverStatus if options.announce => Some(Self::Announce {
                pool: pools::announce(driver, &class, &pool),
                provisioner: driver.to_owned(),
            }),
            CapacityForm::DriverStatus => Some(Self::Effect(pools::report(driver, &class, &pool))),
            CapacityForm::CustomResource => Some(Self::Apply {
                driver: names::driver_object(driver).into_owned(),
                class,
                name: pool.name.clone(),
                pool: Some(pool),
            }),
        }
    }

    /// Removes a pool of a driver; `None` for the form that has no pools.
    pub(super) fn withdraw(options: &CapacityOptions, driver: &str, class: PoolClass, name: String) -> Option<Self> {
        match options.form {
            CapacityForm::Objects => None,
            CapacityForm::DriverStatus => Some(Self::Effect(pools::withdraw(driver, &class, &name))),
            CapacityForm::CustomResource => Some(Self::Apply {
                driver: names::driver_object(driver).into_owned(),
                class,
                name,
                pool: None,
            }),
        }
    }

    /// The object that must be created before a refused write is repeated. If another process creates it at the same
    /// time, that is fine.
    #[must_use]
    pub fn missing(&self, refusal: &Refusal) -> Option<Effect> {
        match (self, refusal) {
            (Self::Announce { provisioner, .. }, Refusal::NotFound(_)) => Some(pools::driver(provisioner)),
            _ => None,
        }
    }
}

/// The target of a write. Two writes to the same target are never concurrent: the older could arrive last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub(super) driver: String,
    pub(super) class: String,
    pub(super) name: String,
}

/// A waiting write, and its item if it must be retried.
#[derive(Clone, Debug)]
pub struct Write {
    /// What is written.
    pub publication: Publication,
    /// Its target.
    pub subject: Subject,
    /// The item, if it is published again after a failure.
    pub item: Option<Item>,
}
