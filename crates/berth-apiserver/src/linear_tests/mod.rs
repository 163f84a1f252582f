//! Whether the API is linearizable while power fails: clients write, read and watch at the same time on a disk that tears and loses what was not
//! synced, again and again, and one order must explain everything that any of them was told.
//!
//! `clients` records, `history` is the record, and `check` judges it. Planted defects show that it can find them.

mod check;
mod clients;
mod history;

use std::sync::Arc;

use check::{Checked, check};
use clients::{Client, Clock, Defect};
use history::{Change, Life, Snapshot};

use crate::Server;
use crate::store::torn_disk::{Disk, Random};
use crate::store::{EventKind, Journal, JournalError, Limits, PageQuery, Record, Store};

const TABLE: &str = "configmaps";
const CLIENTS: usize = 6;
const WATCHERS: usize = 2;

/// A journal that confirms a batch before it stores it.
struct WriteBehind {
    journal: Box<dyn Journal>,
    behind: Vec<Record>,
}

impl Journal for WriteBehind {
    fn commit(&mut self, batch: &[Record]) -> Result<(), JournalError> {
        let stored = match self.behind.is_empty() {
            true => Ok(()),
            false => self.journal.commit(&self.behind),
        };
        self.behind = batch.to_vec();
        stored
    }
}

/// What is planted, and how often the power is cut.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cuts: usize,
    write_behind: bool,
    defect: Defect,
}

const SOUND: Plan = Plan {
    cuts: 10,
    write_behind: false,
    defect: Defect::None,
};

fn serve(disk: &Disk, plan: Plan) -> Server {
    let (journal, snapshot) = disk.journal();
    let mut journal: Box<dyn Journal> = Box::new(journal);
    if plan.write_behind {
        let behind = Vec::new();
        journal = Box::new(WriteBehind { journal, behind });
    }
    let store = Store::with_journal(journal, snapshot, Limits::default()).unwrap();
    Server::builder().token("token").build_on(store).unwrap()
}

fn found(store: &Store) -> Snapshot {
    let page = store.list(TABLE, &PageQuery::all("")).unwrap();
    let objects = page.objects.iter().map(|object| clients::named_state(&object.value()));
    Snapshot {
        version: page.version,
        objects: objects.collect(),
    }
}

/// What the server published since a version. It is asked after its end: no client could.
fn published(store: &Store, since: u64) -> Vec<(Change, Option<u64>)> {
    let batch = store.watch(TABLE, since).unwrap().poll_batch(usize::MAX).unwrap();
    let change = |event: &Arc<crate::store::Event>| {
        let (name, mut state) = clients::named_state(&event.object.value());
        state.version = event.version();
        let previous = event.previous.as_ref().map(|previous| previous.version());
        let kind = event.kind;
        (Change { kind, name, state }, previous)
    };
    batch.events.iter().map(change).collect()
}

/// Plays one life of a server, until the power is cut.
async fn live(disk: &Disk, plan: Plan, clock: &Clock, random: &mut Random) -> Life {
    let server = serve(disk, plan);
    let mut life = Life {
        first: found(server.store()),
        ..Life::default()
    };
    disk.cut_after(200 + random.below(2000), random.below(2) == 0);
    let mut client = || Client {
        service: server.service(),
        off: disk.off(),
        clock: clock.clone(),
        random: Random(random.below(usize::MAX) as u64 | 1),
        defect: plan.defect,
        calls: Vec::new(),
    };
    let workers: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(client().work())).collect();
    let followers: Vec<_> = (0..WATCHERS).map(|_| tokio::spawn(client().follow())).collect();
    for worker in workers {
        life.calls.extend(worker.await.unwrap());
    }
    for follower in followers {
        let (calls, watches) = follower.await.unwrap();
        life.calls.extend(calls);
        life.watches.extend(watches);
    }
    life.published = published(server.store(), life.first.version);
    life
}

/// A history of several lives, on a runtime with several threads.
fn play(seed: u64, plan: Plan) -> Vec<Life> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let (clock, mut random) = (Clock::default(), Random(seed));
        let (mut disk, mut lives) = (Disk::formatted(), Vec::new());
        for _ in 0..plan.cuts {
            lives.push(live(&disk, plan, &clock, &mut random).await);
            disk = disk.after_cut(disk.steps(), &mut random);
        }
        let server = serve(&disk, plan);
        let first = found(server.store());
        lives.push(Life {
            first,
            ..Life::default()
        });
        lives
    })
}

#[test]
fn one_order_explains_what_every_client_was_told() {
    let mut unknown_applied = 0;
    for seed in [0x2545_F491_4F6C_DD1D, 0x9E37_79B9_7F4A_7C15, 0xD1B5_4A32_D192_ED03] {
        let checked = check(&play(seed, SOUND)).unwrap_or_else(|problem| panic!("seed {seed:#x}: {problem}"));
        let Checked {
            writes,
            reads,
            refusals,
            unknown,
            delivered,
            ..
        } = checked;
        assert!(
            writes > 200 && reads > 200 && refusals > 50 && unknown > 10 && delivered > 200,
            "{checked:?}"
        );
        unknown_applied += checked.unknown_applied;
    }
    assert!(unknown_applied > 0, "no write without an answer was found after a cut");
}

#[test]
fn planted_defects_are_found() {
    let defects = [Defect::StaleReads, Defect::WatchGaps, Defect::WatchRepeats];
    let plans = defects.map(|defect| Plan {
        defect,
        cuts: 2,
        ..SOUND
    });
    let behind = Plan {
        write_behind: true,
        ..SOUND
    };
    for (plan, expected) in plans.into_iter().chain([behind]).zip([
        "fits none of the versions",
        "a watch from",
        "a watch from",
        "came back as",
    ]) {
        let problem = check(&play(0x2545_F491_4F6C_DD1D, plan)).expect_err("it was not found");
        assert!(problem.contains(expected), "{plan:?}: {problem}");
    }
}

/// Each defect of a write, in a history that is otherwise sound.
#[test]
fn a_write_that_is_lost_repeated_or_out_of_order_is_found() {
    use history::{Answer, Asked, Call, State};
    let state = |version| State { version, mark: version };
    let create = |name: &str, mark, invoked, answer| Call {
        name: name.to_owned(),
        asked: Asked::Create { mark },
        invoked,
        returned: invoked + 1,
        answer,
    };
    let added = |name: &str, version| {
        let (kind, name) = (EventKind::Added, name.to_owned());
        let state = state(version);
        (Change { kind, name, state }, None)
    };
    let sound = Life {
        published: vec![added("a", 1), added("b", 2)],
        calls: vec![
            create("a", 1, 10, Answer::Is(state(1))),
            create("b", 2, 20, Answer::Is(state(2))),
        ],
        ..Life::default()
    };
    check(std::slice::from_ref(&sound)).unwrap();
    let broken = |change: &dyn Fn(&mut Life)| {
        let mut life = sound.clone();
        change(&mut life);
        check(&[life]).expect_err("it was not found")
    };
    let problem = broken(&|life| drop(life.published.pop()));
    assert!(problem.contains("was not published"), "{problem}");
    let problem = broken(&|life| life.calls[1].answer = Answer::Exists);
    assert!(problem.contains("has no cause"), "{problem}");
    let problem = broken(&|life| life.published.push((added("c", 3).0, None)));
    assert!(problem.contains("has no cause"), "{problem}");
    let problem = broken(&|life| {
        life.calls[1].invoked = 1;
        life.calls[1].returned = 2;
    });
    assert!(problem.contains("invoked later"), "{problem}");
}
