//! GangScheduling: pods that are to be placed together with others, or not at all.
//!
//! Pods are placed one by one here. A part of a group that runs alone holds room that others need, so such a pod is
//! refused in words that say who can place it.

use crate::framework::{PluginName, PreFilter, Refusal};
pub use crate::plugins::stateless::State;
use crate::pod::Pod;
use crate::reason::Reason;

/// Refuses the pods that nothing here can place; skips all others.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    if pod.is_in_gang {
        PreFilter::Refused(Refusal::unresolvable(PluginName::GangScheduling, Reason::Gang))
    } else {
        PreFilter::Skip
    }
}
