//! GangScheduling: pods that must be scheduled together with others, or not at all.
//!
//! Pods are scheduled one by one here. A part of a group that runs alone takes room that others need, so such a pod is
//! refused with a message that says which scheduler can handle it.

use crate::framework::{PluginName, PreFilter, Refusal};
pub use crate::plugins::stateless::State;
use crate::pod::Pod;
use crate::reason::Reason;

/// Refuses the pods that cannot be handled here; skips all others.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    if pod.is_in_gang {
        PreFilter::Refused(Refusal::unresolvable(PluginName::GangScheduling, Reason::Gang))
    } else {
        PreFilter::Skip
    }
}
