//! DynamicResources: pods whose devices would have to be allocated.
//!
//! Nothing here allocates devices. To place such a pod as if it needed none would start it without them, so it is
//! refused in words that say who can place it.

use crate::framework::{PluginName, PreFilter, Refusal};
pub use crate::plugins::stateless::State;
use crate::pod::Pod;
use crate::reason::Reason;

/// Refuses the pods that nothing here can place; skips all others.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    if pod.has_resource_claims {
        PreFilter::Refused(Refusal::unresolvable(
            PluginName::DynamicResources,
            Reason::ResourceClaims,
        ))
    } else {
        PreFilter::Skip
    }
}
