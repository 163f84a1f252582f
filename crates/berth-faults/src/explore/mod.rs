//! Explores every order in which messages can arrive, up to a bound, in a minimal cluster.
//!
//! Two schedulers that both assume to lead, a volume controller, pods with claims for local volumes, and a user. A step is the arrival of
//! one message: a change at a watch, a request at the server, a response at its sender, or a user action. Messages arrive in the order in
//! which they were sent, except for a number of them that are overtaken: that number bounds the search, and every order within the bound
//! is explored. (This is delay-bounded scheduling, Emmi, Qadeer and Rakamarić, POPL 2011.) The user acts at any moment and overtakes no
//! one.
//!
//! Two paths lead to the same state if they leave the same objects and the same messages in flight, if every process received the same
//! changes of each kind, and if each of its jobs sent the same requests and received the same responses: the order in which it learnt and
//! acted shows in what it did. Time passes only when no message is in flight.

mod system;

use crate::story::Action;
use std::collections::HashMap;
use system::{Choice, System};

/// What is explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Number of schedulers.
    pub schedulers: usize,
    /// Number of pods, each with its own claim.
    pub pods: usize,
    /// Maximum number of messages overtaken on one path. A message that three others overtake counts three times.
    pub overtaken: usize,
    /// What the user does, at any time: nothing, or one of these.
    user: Vec<Action>,
}

impl Scenario {
    /// This many schedulers and pods. The user deletes or labels a pod, deletes a claim, or reserves a volume.
    #[must_use]
    pub fn new(schedulers: usize, pods: usize, overtaken: usize, has_user: bool) -> Self {
        let user = [
            Action::DeletePod { pod: POD },
            Action::LabelPod { pod: POD },
            Action::DeleteClaim { claim: CLAIM },
            Action::Prebind {
                volume: 0,
                claim: OTHER_CLAIM,
            },
        ];
        Self {
            schedulers,
            pods,
            overtaken,
            user: if has_user { user.to_vec() } else { Vec::new() },
        }
    }
}

/// The pod with one claim for a local volume, its claim, and the claim of the second pod.
const POD: usize = 1;
const CLAIM: usize = 0;
const OTHER_CLAIM: usize = 4;

/// The result of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Distinct states.
    pub states: usize,
    /// Messages that arrived.
    pub steps: usize,
    /// Ends of paths with nothing in flight.
    pub ends: usize,
    /// Every order within the bound was explored.
    pub complete: bool,
    /// What went wrong, and after which messages.
    pub failure: Option<(Vec<String>, String)>,
}

/// A path still to be followed.
struct Branch {
    path: Vec<Choice>,
    /// How many messages may still be overtaken.
    left: usize,
}

/// Explores all orders within the bound, or up to this many states.
#[must_use]
pub fn explore(scenario: &Scenario, most: usize) -> Explored {
    let mut explored = Explored {
        complete: true,
        ..Explored::default()
    };
    // States, and how many messages could still be overtaken there: with no more than that there is nothing new.
    let mut seen: HashMap<u64, usize> = HashMap::new();
    let mut open = vec![Branch {
        path: Vec::new(),
        left: scenario.overtaken,
    }];
    while let Some(Branch { mut path, left }) = open.pop() {
        let mut system = System::new(scenario);
        path.iter().for_each(|choice| {
            // Called at each step, as on the path that branched off here: messages keep their order.
            system.messages();
            system.happen(*choice);
        });
        loop {
            if let Some(why) = system.failure() {
                explored.failure = Some((retell(scenario, &path), why));
                return explored;
            }
            let before = seen.insert(system.fingerprint(), left);
            if let Some(before) = before.filter(|before| *before >= left) {
                seen.insert(system.fingerprint(), before);
                break;
            }
            explored.states = seen.len();
            if explored.states >= most {
                explored.complete = false;
                return explored;
            }
            let messages = system.messages();
            for (overtaken, message) in messages.iter().enumerate().skip(1).take(left) {
                open.push(branch(&path, *message, left - overtaken));
            }
            for choice in system.user_choices() {
                open.push(branch(&path, choice, left));
            }
            let Some(first) = messages.first() else {
                explored.ends += 1;
                break;
            };
            explored.steps += 1;
            path.push(*first);
            system.happen(*first);
        }
    }
    explored
}

/// The messages of a path and what was written, line by line.
fn retell(scenario: &Scenario, path: &[Choice]) -> Vec<String> {
    let mut system = System::new(scenario);
    for choice in path {
        system.messages();
        let words = system.words(*choice);
        system.lines.get_or_insert_default().push(words);
        system.happen(*choice);
    }
    system.lines.unwrap_or_default()
}

fn branch(path: &[Choice], choice: Choice, left: usize) -> Branch {
    let mut path = path.to_vec();
    path.push(choice);
    Branch { path, left }
}

#[cfg(test)]
mod tests {
    use super::{Scenario, explore};

    #[test]
    fn no_order_within_the_bound_goes_wrong() {
        let explored = explore(&Scenario::new(2, 2, 1, false), 100_000);
        assert_eq!(explored.failure, None);
        assert!(explored.complete && explored.ends > 1, "{explored:?}");
    }

    #[test]
    fn a_user_may_act_at_any_moment() {
        for (schedulers, pods) in [(1, 1), (2, 2)] {
            let explored = explore(&Scenario::new(schedulers, pods, 0, true), 100_000);
            assert_eq!(explored.failure, None);
            assert!(explored.complete && explored.ends > 4, "{explored:?}");
        }
    }
}
