//! DynamicResources: pods that need devices allocated.
//!
//! Nothing here allocates devices. Scheduling such a pod as if it needed none would start it without them, so it is
//! refused with a message that says which scheduler can handle it.

use crate::framework::{PluginName, PreFilter, Refusal};
pub use crate::plugins::stateless::State;
use crate::pod::Pod;
use crate::reason::Reason;

/// Refuses the pods that cannot be handled here; skips all others.
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
