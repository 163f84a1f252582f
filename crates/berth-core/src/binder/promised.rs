//! Keeps the accounts of capacity in flight ([`crate::promises`]) up to date, from the current claims, volumes and reports only. A
//! restarted scheduler reconstructs the same accounts from the objects.

use super::{Overlaid, VolumeBinder};
use crate::capacity::PoolKey;
use crate::model::{Claim, ClaimId, VolumeId};
use crate::promises::{Account, Made, Report};
use crate::symbols::Symbol;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Promised capacity of all pools.
#[derive(Clone, Debug, Default)]
pub(super) struct Promises {
    /// By capacity object (`namespace/name`).
    accounts: FxHashMap<Box<str>, Account>,
    /// The account that holds the promise to a claim, and the node that it is for.
    held: FxHashMap<ClaimId, (Box<str>, Symbol)>,
    /// The claims whose volumes exist.
    by_volume: FxHashMap<VolumeId, ClaimId>,
    /// Claims to re-examine.
    changed: FxHashSet<ClaimId>,
    /// Claims for which no pool is known yet.
    homeless: FxHashSet<ClaimId>,
    /// A pool or a node was added since those were examined.
    may_have_home: bool,
    /// By pool key: the largest request of any pod so far. Cached answers do not depend on the exact room of a pool
    /// that has more than that.
    most_asked: FxHashMap<PoolKey, i64>,
    /// Classes of pools that have more room than before.
    raised: SmallVec<[Symbol; 2]>,
    /// No promise expires before this time.
    next_end: Option<i64>,
}

crate::trace!(Promises {
    held, most_asked, raised;
    accounts, by_volume, changed, homeless, may_have_home, next_end
});

impl Promises {
    /// Forgets the requests for classes that are gone. No answers are cached for claims of those.
    pub(super) fn tidy(&mut self, is_known: impl Fn(Symbol) -> bool) {
        self.most_asked.retain(|key, _| match key {
            PoolKey::Class(class) | PoolKey::DriverClass { class, .. } => is_known(*class),
        });
    }
}

/// How far provisioning of a claim's volume is.
enum Stage {
    /// No volume needs to be provisioned.
    Nothing,
    /// Unknown until a volume is observed.
    Unknown,
    Asked,
    Made(Made),
}

impl VolumeBinder {
    /// A claim was added, changed or deleted.
    pub(super) fn promise_changed(&mut self, id: ClaimId) {
        let is_selected = self.claim(id).is_some_and(|claim| !claim.selected_node.is_empty());
        if is_selected || self.promises.held.contains_key(&id) || self.promises.homeless.contains(&id) {
            self.promises.changed.insert(id);
        }
    }

    /// A volume was added, changed or is about to be deleted.
    pub(super) fn promise_of_volume_changed(&mut self, id: VolumeId) {
        let reference = self.volume(id).and_then(|volume| volume.claim_ref.as_ref());
        let claim = reference.and_then(|found| self.claim_id(found.namespace, &found.name));
        if let Some(claim) = claim {
            self.promise_changed(claim);
        }
    }

    /// A volume is gone, and its space with it.
    pub(super) fn promise_of_volume_ended(&mut self, id: VolumeId) {
        if let Some(claim) = self.promises.by_volume.remove(&id) {
            self.forget_promise(claim);
        }
    }

    /// A node was added: claims without a pool may find one.
    pub(super) fn promises_may_have_home(&mut self) {
        self.promises.may_have_home = true;
    }

    /// Records how much a pod requests from the pools of a class.
    pub(super) fn note_asked(&mut self, key: PoolKey, bytes: i64) {
        let most = self.promises.most_asked.entry(key).or_default();
        *most = bytes.max(*most);
    }

    /// What was promised to these claims in a pool.
    pub(super) fn promised_to(&self, claims: impl Iterator<Item = ClaimId>) -> SmallVec<[(&str, i64); 2]> {
        let own = claims.filter_map(|claim| {
            let (pool, _) = self.promises.held.get(&claim)?;
            let bytes = self.promises.accounts.get(pool)?.promised_to(claim);
            Some((&**pool, bytes)).filter(|(_, bytes)| *bytes > 0)
        });
        own.collect()
    }

    /// Applies the changes since the last call. Returns the classes of pools that have more room than before.
    pub fn settle_promises(&mut self) -> impl Iterator<Item = Symbol> + use<> {
        self.settle_changed();
        if self.promises.next_end.is_some_and(|end| end <= self.now) {
            self.end_promises();
        }
        let mut raised = std::mem::take(&mut self.promises.raised);
        raised.sort_unstable();
        raised.dedup();
        raised.into_iter()
    }

    /// Drops expired promises, and resolves doubt.
    fn end_promises(&mut self) {
        let now = self.now;
        let is_due = |account: &Account| account.is_in_doubt() || account.expired(now).next().is_some();
        let accounts = self.promises.accounts.iter().filter(|(_, account)| is_due(account));
        let due: Vec<Box<str>> = accounts.map(|(pool, _)| pool.clone()).collect();
        for pool in due {
            let account = self.promises.accounts.get(&pool);
            let ended: Vec<ClaimId> = account.into_iter().flat_map(|account| account.expired(now)).collect();
            for claim in ended {
                self.forget_promise(claim);
            }
            self.change_account(&pool, |_| {});
        }
        let accounts = self.promises.accounts.values();
        self.promises.next_end = accounts.filter_map(|account| account.next_end(now)).min();
    }

    /// End of the list of classes that [`Self::settle_promises`] will return.
    #[must_use]
    pub fn bookmark_promises(&mut self) -> usize {
        self.settle_changed();
        self.promises.raised.len()
    }

    /// Truncates the list of classes to a bookmark: everything assumed since is reverted, and no room was freed by
    /// that.
    pub fn return_to_promises(&mut self, bookmark: usize) {
        self.settle_changed();
        self.promises.raised.truncate(bookmark);
    }

    /// Finds pools for claims that had none, if pools may have been added. Many pools may be added between two decisions, so this is
    /// left to the next decision.
    pub(super) fn house_promises(&mut self) {
        self.settle_changed();
        if std::mem::take(&mut self.promises.may_have_home) {
            self.promises.changed = std::mem::take(&mut self.promises.homeless);
            self.settle_changed();
        }
    }

    /// Seconds until the next promise may expire.
    #[must_use]
    pub fn seconds_to_promise_end(&self) -> Option<u64> {
        let end = self.promises.next_end?;
        Some(end.saturating_sub(self.now).max(0).unsigned_abs())
    }

    pub(super) fn settle_changed(&mut self) {
        // Ages are unknown until the time is known.
        if self.now == 0 {
            return;
        }
        for claim in std::mem::take(&mut self.promises.changed) {
            self.settle_promise(claim);
        }
    }

    fn settle_promise(&mut self, id: ClaimId) {
        self.promises.homeless.remove(&id);
        let Some(claim) = self.claim(id) else {
            // A provisioned volume takes room until it is deleted.
            if self.made_for(id).is_none() {
                self.forget_promise(id);
            }
            return;
        };
        let (stage, node) = (self.stage_of(claim), claim.selected_node);
        let moved = self.promises.held.get(&id).is_some_and(|(_, held)| *held != node);
        match stage {
            Stage::Unknown => {}
            Stage::Nothing => self.forget_promise(id),
            Stage::Asked => {
                if moved {
                    self.forget_promise(id);
                }
                if !self.promises.held.contains_key(&id) {
                    self.promise(id, None);
                }
            }
            Stage::Made(made) => match self.promises.held.get(&id) {
                Some((pool, _)) => {
                    let pool = pool.clone();
                    self.change_account(&pool, |account| account.make(id, made));
                    self.promises.by_volume.insert(made.volume, id);
                    self.note_end(&pool, id);
                }
                None => self.promise(id, Some(made)),
            },
        }
    }

    fn made_for(&self, claim: ClaimId) -> Option<VolumeId> {
        let (pool, _) = self.promises.held.get(&claim)?;
        self.promises.accounts.get(pool)?.made_for(claim)
    }

    fn stage_of(&self, claim: &Claim) -> Stage {
        if claim.selected_node.is_empty() {
            return Stage::Nothing;
        }
        let named = self.volume_id(&claim.volume_name);
        let held = || {
            let volumes = self.reserved.get(&claim.namespace)?.get(&claim.name)?;
            volumes.iter().copied().find(|id| {
                let volume = self.volume(*id);
                volume.is_some_and(|volume| volume.is_for(claim))
            })
        };
        let found = named.or_else(held).and_then(|id| Some((id, self.volume(id)?)));
        match found {
            Some((id, volume)) => Stage::Made(Made {
                volume: id,
                bytes: volume.capacity,
                version: volume.version,
                // The clocks of two machines differ.
                created: volume.created.min(self.now),
            }),
            // The volume watch lags behind the claim watch.
            None if claim.is_bound() => Stage::Unknown,
            None => Stage::Asked,
        }
    }

    /// Charges a claim to the pool that its volume will be created in: the one with the most room among those that its node can
    /// reach. An existing volume is charged only if it is newer than the pool's report.
    fn promise(&mut self, id: ClaimId, made: Option<Made>) {
        let Some(claim) = self.claim(id) else {
            return;
        };
        let (node_name, bytes) = (claim.selected_node, claim.shape.request);
        let key = PoolKey::Class(claim.class.unwrap_or(Symbol::EMPTY));
        let pools = self.nodes.id(node_name).into_iter().flat_map(|node| {
            let reachable = self.pools.reachable(&self.nodes, key, node, self.now);
            reachable.filter_map(move |pool| Some((pool.holds(bytes), pool.room()?, &pool.name)))
        });
        let Some((.., pool)) = pools.max() else {
            self.promises.homeless.insert(id);
            return;
        };
        let pool: Box<str> = (**pool).into();
        let Some(account) = self.promises.accounts.get(&pool) else {
            return;
        };
        if made.is_some_and(|made| !account.may_lack(&made, self.now)) {
            return;
        }
        let (now, seen) = (self.now, account.is_known_since(self.selected_at(id)));
        self.change_account(&pool, |account| match made {
            Some(made) => account.make(id, made),
            None => account.ask(id, bytes, now, seen),
        });
        if let Some(made) = made {
            self.promises.by_volume.insert(made.volume, id);
        }
        self.note_end(&pool, id);
        self.promises.held.insert(id, (pool, node_name));
    }

    /// The version of a claim with which its node was selected; 0 if this scheduler is about to do so.
    fn selected_at(&self, id: ClaimId) -> u64 {
        let watched = self.claims.get(id.0).map(Overlaid::watched);
        let selected = watched.filter(|claim| !claim.selected_node.is_empty());
        selected.map_or(0, |claim| claim.version)
    }

    fn note_end(&mut self, pool: &str, claim: ClaimId) {
        let end = self
            .promises
            .accounts
            .get(pool)
            .and_then(|account| account.end_of(claim));
        let ends = [self.promises.next_end, end];
        self.promises.next_end = ends.into_iter().flatten().min();
    }

    fn forget_promise(&mut self, claim: ClaimId) {
        self.promises.homeless.remove(&claim);
        if let Some(volume) = self.made_for(claim) {
            self.promises.by_volume.remove(&volume);
        }
        if let Some((pool, _)) = self.promises.held.remove(&claim) {
            self.change_account(&pool, |account| account.forget(claim));
        }
    }

    /// Changes an account and the remaining room in its pool.
    fn change_account(&mut self, pool: &str, change: impl FnOnce(&mut Account)) {
        let Some(account) = self.promises.accounts.get_mut(pool) else {
            return;
        };
        change(account);
        account.resolve(self.now);
        let promised = account.promised();
        if account.is_in_doubt() {
            let ends = [self.promises.next_end, account.next_end(self.now)];
            self.promises.next_end = ends.into_iter().flatten().min();
        }
        let Some(Some((key, nodes))) = self.capacities.get(pool).copied() else {
            return;
        };
        let Some(found) = self.pools.get_mut(key, nodes, pool) else {
            return;
        };
        let before = found.room();
        found.promised = promised;
        let after = found.room();
        if before == after {
            return;
        }
        if after > before
            && let PoolKey::Class(class) = key
        {
            self.promises.raised.push(class);
        }
        let most_asked = self.promises.most_asked.get(&key).copied();
        let is_plenty = |room: Option<i64>| room.is_none_or(|room| most_asked.is_none_or(|most| room >= most));
        if !(is_plenty(before) && is_plenty(after)) {
            self.pool_changed(nodes);
        }
    }

    /// Applies a report about a pool of a class. Returns the amount to subtract from it.
    pub(super) fn take_report(&mut self, pool: &str, class: Symbol, report: Option<Report>) -> i64 {
        let Some(report) = report else {
            self.close_account(pool);
            return 0;
        };
        match self.promises.accounts.get_mut(pool) {
            Some(account) => {
                let before = account.room();
                account.report(report);
                account.resolve(self.now);
                // Even a lower report can leave more room than was certain before.
                if account.room() > before {
                    self.promises.raised.push(class);
                }
                account.promised()
            }
            None => {
                self.promises.accounts.insert(pool.into(), Account::new(report));
                self.promises.may_have_home = true;
                0
            }
        }
    }

    /// A pool is gone: its promises move to other pools, if there are any.
    pub(super) fn close_account(&mut self, pool: &str) {
        let Some(account) = self.promises.accounts.remove(pool) else {
            return;
        };
        for claim in account.claims() {
            self.promises.held.remove(&claim);
            self.promises.changed.insert(claim);
        }
        let gone: FxHashSet<ClaimId> = account.claims().collect();
        self.promises.by_volume.retain(|_, claim| !gone.contains(claim));
    }
}
