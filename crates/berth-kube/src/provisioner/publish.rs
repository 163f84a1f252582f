//! Writes published capacity, in each of its forms.

use super::capacity::{CapacityForm, CapacityOptions, Publication};
use super::effects::Worker;
use super::metrics::EffectLabels;
use crate::api::ApiError;
use berth_core::effect::{Effect, Refusal};
use berth_core::names;
use berth_provisioner::capacity::pools::{self, Pool, PoolClass};

/// A field manager has at most so many letters.
const MANAGER_LENGTH: usize = 128;

impl Worker {
    /// Writes published capacity. `false` if it was not written.
    pub(super) async fn publish(&self, options: &CapacityOptions, driver: &str, publication: &Publication) -> bool {
        let written = match publication {
            Publication::Object(effect) => self.publish_effect(effect).await,
            Publication::Report(class, pool) => self.publish_pool(options, driver, class, Ok(pool)).await,
            Publication::Withdraw(class, name) => self.publish_pool(options, driver, class, Err(name)).await,
        };
        if let Err(problem) = &written {
            tracing::warn!(problem, "capacity was not written");
        }
        written.is_ok()
    }

    async fn publish_effect(&self, effect: &Effect) -> Result<(), String> {
        let written = self.executor.carry_out(std::slice::from_ref(effect)).await;
        written
            .refused
            .map_or(Ok(()), |refused| Err(refused.refusal.to_string()))
    }

    /// Reports one pool of a driver and touches no other; or takes away the one of this name.
    async fn publish_pool(
        &self,
        options: &CapacityOptions,
        driver: &str,
        class: &PoolClass,
        pool: Result<&Pool, &String>,
    ) -> Result<(), String> {
        let driver = names::driver_object(driver);
        match options.form {
            CapacityForm::Objects => Ok(()),
            CapacityForm::DriverStatus => {
                let effect = match pool {
                    Ok(pool) if options.announce => pools::announce(&driver, class, pool),
                    Ok(pool) => pools::report(&driver, class, pool),
                    Err(name) => pools::withdraw(&driver, class, name),
                };
                if options.announce {
                    self.announce(&driver, &effect).await
                } else {
                    self.publish_effect(&effect).await
                }
            }
            CapacityForm::CustomResource => {
                let applied = self.apply_pool(&driver, class, pool).await;
                self.count_applied(if pool.is_ok() { "report_pool" } else { "withdraw_pool" }, &applied);
                applied.map_err(|error| error.to_string())
            }
        }
    }

    /// Patches the status of a driver whose object is made where there is none.
    async fn announce(&self, driver: &str, effect: &Effect) -> Result<(), String> {
        let missing = |refusal: &Refusal| matches!(refusal, Refusal::NotFound(_));
        let written = self.executor.carry_out(std::slice::from_ref(effect)).await;
        match written.refused {
            Some(refused) if missing(&refused.refusal) => {
                // If somebody else makes it at the same time, that is as good.
                self.executor.carry_out(&[pools::driver(driver)]).await;
                self.publish_effect(effect).await
            }
            Some(refused) => Err(refused.refusal.to_string()),
            None => Ok(()),
        }
    }

    /// Applies one pool to the custom resource under a field manager of its own: the server merges the lists of custom
    /// resources by owner alone, which no patch of an effect can say.
    async fn apply_pool(&self, driver: &str, class: &PoolClass, pool: Result<&Pool, &String>) -> Result<(), ApiError> {
        let name = pool.map_or_else(String::as_str, |pool| &pool.name);
        let manager = format!("berth-{}-{name}", class.name().trim_matches(['<', '>']));
        let manager: String = manager.chars().take(MANAGER_LENGTH).collect();
        let path = format!(
            "/apis/{}/csidrivercapacities/{driver}?fieldManager={manager}&force=true",
            pools::CUSTOM_API_VERSION
        );
        let body = pools::apply(driver, class, pool.ok());
        let api = self.executor.api();
        let applied = api.patch_path(&path, "application/apply-patch+yaml", &body).await;
        applied.map(|_| ())
    }

    fn count_applied(&self, effect: &'static str, result: &Result<(), ApiError>) {
        let result = ApiError::result_label(result);
        self.metrics
            .effects
            .get_or_create(&EffectLabels { effect, result })
            .inc();
    }
}
