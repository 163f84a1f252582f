//! Other ways to resolve a need: "…, or …". Each was tried, too.

use super::needs::Need;
use super::trial::Trial;
use super::words::{self, Members};
use super::{Advisor, Way};
use crate::explain::cause::Cause;
use crate::explain::claims::near_claim;
use crate::explain::details::Detail;
use crate::explain::layout::count;
use crate::explain::waiting;
use berth_scheduler::reason::Reason;

/// Maximum number of classes tried for a claim.
const CLASSES_TRIED: usize = 10;
/// Maximum number of choices tried of which pods to stop.
const STOPPED_TRIED: usize = 5;

impl Advisor<'_> {
    /// The other way to fix a claim, if nothing but what affects every node is needed; empty if there is none.
    pub(super) fn or_for_claim(&self, need: &Need, everywhere: &[Need]) -> String {
        let Need::Claim(index) = need else {
            return String::new();
        };
        let Some(claim) = self.report.claims.get(*index) else {
            return String::new();
        };
        let fits_after = |change: &dyn Fn(&mut Trial<'_>) -> bool| {
            let mut trial = self.trial();
            let mut others = everywhere.iter().filter(|other| *other != need);
            let done = others.all(|other| trial.meet(other, "")) && change(&mut trial);
            done && !trial.fitting(self.profile).is_empty()
        };
        let namespace = &self.pod.metadata.namespace;
        match claim.code {
            Cause::ClaimMissing => {
                let near = near_claim(self.world, namespace, &claim.claim);
                let near = near.filter(|near| fits_after(&|trial| trial.use_claim(&claim.claim, near)));
                near.map_or(String::new(), |near| {
                    format!(", or correct the name in the pod to {near}")
                })
            }
            Cause::ClaimLost | Cause::ClaimVolumeMissing => {
                let helps = fits_after(&|trial| trial.recreate(*index, None));
                let or = if helps { ", or recreate the claim" } else { "" };
                or.to_owned()
            }
            Cause::ClaimClassMissing | Cause::ClaimWaitsForProvisioner => {
                let classes = &self.world.objects.classes;
                let waiting = waiting::of_claim(self.world, self.pod, claim);
                let is_silent = waiting.is_some_and(|waiting| waiting.is_kept());
                let own = claim.class.as_ref().and_then(|class| classes.get(class));
                // A provisioner that does not serve this class serves no other one.
                let silent = own.filter(|_| is_silent).map(|class| class.provisioner.as_str());
                let others = classes.iter().filter(|(name, class)| {
                    claim.class.as_ref() != Some(*name) && silent != Some(class.provisioner.as_str())
                });
                let mut tried = others.take(CLASSES_TRIED).map(|(name, _)| name);
                let class = tried.find(|class| fits_after(&|trial| trial.recreate(*index, Some(class.as_str()))));
                class.map_or(String::new(), |class| {
                    format!(", or recreate claim {} with class {class}", claim.claim)
                })
            }
            _ => String::new(),
        }
    }

    /// The other way to resolve a need on a node; empty if there is none.
    pub(super) fn or_on_node(&self, way: &Way<'_>, need: &Need, nodes: &Members<'_>, everywhere: &[Need]) -> String {
        let fits_after = |node: &str, change: &dyn Fn(&mut Trial<'_>) -> bool| {
            let mut trial = self.trial();
            let mut others = way.needs.iter().filter(|other| *other != need);
            let done = self.meet_everywhere(&mut trial, everywhere)
                && others.all(|other| trial.meet(other, node))
                && change(&mut trial);
            done && trial.fitting(self.profile).contains(node)
        };
        match need {
            Need::Storage(index) => {
                // Another claim of the class may be about to take what one claim could have.
                let class = |index: usize| self.report.claims.get(index).map(|claim| &claim.class);
                let is_rival = |other: &Need| matches!(other, Need::Storage(other) if other != index && class(*other) == class(*index));
                if way.needs.iter().any(is_rival) {
                    return String::new();
                }
                let smaller = words::smaller_claim(self.report, *index, nodes);
                let smaller =
                    smaller.filter(|(_, node, bytes)| fits_after(node, &|trial| trial.shrink(*index, *bytes)));
                smaller.map_or(String::new(), |(claim, node, bytes)| {
                    words::ask_for_less(claim, node, bytes)
                })
            }
            Need::Inline(index) => {
                let largest = words::largest_pool(self.report, *index, nodes);
                let helps =
                    largest.is_some_and(|(node, bytes)| fits_after(node, &|trial| trial.shrink_inline(*index, bytes)));
                let or = if helps { "; or reduce the request to that" } else { "" };
                or.to_owned()
            }
            Need::OtherNodes(demands) if words::is_labelled(demands) => {
                let any_node = |trial: &mut Trial<'_>| {
                    trial.ask_for_any_node();
                    true
                };
                match fits_after(nodes.first(), &any_node) {
                    true => words::or_remove(demands),
                    false => String::new(),
                }
            }
            Need::Reason(Reason::PortsTaken) => {
                let free = |trial: &mut Trial<'_>| trial.stop_users_of_ports(nodes.first());
                let helps = fits_after(nodes.first(), &free);
                let or = if helps { ", or stop the pods that use them" } else { "" };
                or.to_owned()
            }
            Need::Reason(Reason::TooManyPods) => {
                let excess = nodes
                    .iter()
                    .filter_map(|node| match self.detail(&Reason::TooManyPods, node)? {
                        Detail::Pods { runs, of } => usize::try_from(runs + 1 - of).ok(),
                        _ => None,
                    });
                let excess = excess.max().unwrap_or(0);
                // Which of them does not matter, unless the pod has to be near one.
                let helps = (0..STOPPED_TRIED).any(|from| {
                    let stop = |trial: &mut Trial<'_>| trial.stop_pods_on(nodes.first(), from, excess);
                    fits_after(nodes.first(), &stop)
                });
                match helps {
                    true => format!(", or remove {}", count(excess, "pod", "pods")),
                    false => String::new(),
                }
            }
            _ => String::new(),
        }
    }
}
