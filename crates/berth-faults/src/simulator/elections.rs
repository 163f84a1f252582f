//! Leases: leader election among replicas of a component.

use super::{Event, Life, Simulator};
use crate::chance::mix;
use crate::mutation::Mutation;
use crate::process::RENEW_DEADLINE;
use crate::story::{NetFault, PROCESSES};
use crate::world::Millis;

/// A leader that has not renewed for this long is replaced.
const LEASE: Millis = 15_000;
/// How often a lease is renewed or competed for.
const RETRY: Millis = 2_000;

/// A lease: its holder, and how often it was written.
#[derive(Debug, Default)]
pub(super) struct Lease {
    holder: Option<Life>,
    stamp: u64,
}

impl Simulator {
    /// Takes or renews a lease, if possible.
    pub(super) fn compete(&mut self, life: Life) {
        if self.elections_settled {
            return;
        }
        let (now, jitter, mutation) = (self.world.now, self.jitter, self.mutation);
        let number = life.process;
        let process = self.processes.get_mut(number);
        let Some(process) = process.filter(|process| Life::of(process) == life) else {
            return;
        };
        let election = process.role.election();
        let Some(lease) = election.and_then(|election| self.leases.get_mut(election)) else {
            return;
        };
        let stays = mutation == Some(Mutation::LeaderStays);
        if process.renewed.is_some_and(|renewed| now >= renewed + RENEW_DEADLINE) && !stays {
            // It has not renewed in time, and ends before another one can take over.
            self.trace.line(now, || format!("{} steps down", PROCESSES[number]));
            self.kill(number);
            return;
        }
        let is_mine = lease.holder.is_none_or(|holder| holder == life);
        let is_lost = matches!(
            process.faults.front(),
            Some(NetFault::LostBefore | NetFault::Busy | NetFault::Conflict)
        );
        let expired = process
            .observed
            .is_some_and(|(stamp, since)| stamp == lease.stamp && now >= since + LEASE)
            || process.observed.is_some() && mutation == Some(Mutation::LeaseNotAwaited);
        if is_lost {
            process.faults.pop_front();
        } else if is_mine || expired {
            let is_first = process.renewed.is_none();
            lease.holder = Some(life);
            lease.stamp += 1;
            process.renewed = Some(now);
            process.renewed_on_the_wall = i64::try_from(now)
                .unwrap_or(i64::MAX)
                .saturating_add(process.offset_millis);
            if is_first {
                self.trace.line(now, || format!("{} leads", PROCESSES[number]));
                self.start(life);
            }
        } else if process.renewed.is_some() && !stays {
            self.kill(number);
            return;
        } else if process.observed.is_none_or(|(stamp, _)| stamp != lease.stamp) {
            process.observed = Some((lease.stamp, now));
        }
        if self.calm && self.has_leaders() {
            self.settle_elections();
            return;
        }
        let next = now + RETRY + mix(&[jitter, 6, number as u64, now]) % 100;
        self.at(next, Event::Lease(life));
    }

    /// The process that leads instead of this one, if it lost its lease.
    pub(super) fn successor_of(&self, number: usize) -> Option<&'static str> {
        let election = self.processes.get(number)?.role.election()?;
        let holder = self.leases.get(election)?.holder?;
        PROCESSES
            .get(holder.process)
            .copied()
            .filter(|_| holder.process != number)
    }

    /// Time passes without renewals: no process loses its lease any more, except those that should have by now.
    fn settle_elections(&mut self) {
        self.elections_settled = true;
        for number in 0..self.processes.len() {
            let process = &mut self.processes[number];
            let Some(lease) = process.role.election().and_then(|election| self.leases.get(election)) else {
                continue;
            };
            if lease.holder == Some(Life::of(process)) {
                process.renewed = Some(Millis::MAX / 2);
                process.renewed_on_the_wall = i64::MAX / 2;
            } else if process.component.is_some() {
                self.kill(number);
            }
        }
    }

    /// Whether every election has a running leader.
    fn has_leaders(&self) -> bool {
        let runs = |holder: Life| {
            let process = self.processes.get(holder.process);
            process.is_some_and(|process| Life::of(process) == holder && process.component.is_some())
        };
        self.leases.iter().all(|lease| lease.holder.is_some_and(runs))
    }
}
