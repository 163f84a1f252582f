//! Reports, promises and doubt of one account.

use super::*;
use crate::slots::{SlotId, Slots};
use proptest::prelude::*;

fn ids(count: usize) -> Vec<SlotId> {
    let mut slots = Slots::default();
    (0..count).map(|_| slots.insert(())).collect()
}

fn made(id: SlotId, bytes: i64, version: u64) -> Made {
    Made {
        volume: VolumeId(id),
        bytes,
        version,
        created: 0,
    }
}

fn report(capacity: i64, version: u64) -> Report {
    Report {
        capacity,
        version,
        written: None,
    }
}

#[test]
fn a_report_settles_as_much_as_it_is_lower() {
    let ids = ids(3);
    let mut account = Account::new(report(10, 1));
    for (id, version) in ids.iter().zip(2..) {
        account.ask(ClaimId(*id), 2, 0, true);
        account.make(ClaimId(*id), made(*id, 2, version));
    }
    assert_eq!(account.room(), 4);
    // The driver was polled after it had created one of them.
    account.report(report(8, 9));
    assert_eq!((account.room(), account.promised()), (4, 4));
    account.report(report(4, 10));
    assert_eq!((account.room(), account.promised()), (4, 0));
}

#[test]
fn a_report_that_knows_of_a_volume_first_settles_it_when_it_comes() {
    let ids = ids(1);
    let mut account = Account::new(report(10, 1));
    account.ask(ClaimId(ids[0]), 2, 0, true);
    account.report(report(8, 2));
    assert_eq!(account.room(), 6, "somebody else may have taken it");
    account.make(ClaimId(ids[0]), made(ids[0], 2, 3));
    assert_eq!(account.room(), 8);
}

#[test]
fn what_is_lower_for_other_reasons_is_believed() {
    let ids = ids(1);
    let mut account = Account::new(report(10, 1));
    account.ask(ClaimId(ids[0]), 2, 0, true);
    account.report(report(3, 2));
    assert_eq!(account.room(), 1);
}

#[test]
fn after_something_was_given_back_the_next_report_settles() {
    let ids = ids(2);
    let mut account = Account::new(report(10, 1));
    for id in &ids {
        account.ask(ClaimId(*id), 2, 0, true);
    }
    account.make(ClaimId(ids[0]), made(ids[0], 2, 2));
    account.report(report(20, 5));
    assert_eq!(account.room(), 16, "the driver may have been asked before it was made");
    account.make(ClaimId(ids[1]), made(ids[1], 2, 6));
    account.report(report(21, 7));
    assert_eq!(account.room(), 19);
}

#[test]
fn a_report_that_is_written_twice_settles_once() {
    let ids = ids(2);
    let mut account = Account::new(report(10, 1));
    for (id, version) in ids.iter().zip(2..) {
        account.make(ClaimId(*id), made(*id, 2, version));
    }
    account.report(report(8, 4));
    account.report(report(8, 5));
    assert_eq!(account.room(), 6);
}

#[test]
fn promises_end_when_a_report_must_have_come() {
    let ids = ids(2);
    let mut account = Account::new(report(10, 1));
    account.ask(ClaimId(ids[0]), 2, 0, true);
    account.ask(ClaimId(ids[1]), 2, 0, true);
    account.make(ClaimId(ids[1]), made(ids[1], 2, 2));
    assert_eq!(account.next_end(0), Some(REPORT_DUE_SECONDS));
    assert_eq!(account.expired(REPORT_DUE_SECONDS - 1).count(), 0);
    assert_eq!(
        account.expired(REPORT_DUE_SECONDS).collect::<Vec<_>>(),
        [ClaimId(ids[1])]
    );
    assert_eq!(account.expired(ASKED_MAX_SECONDS).count(), 2);
}

#[test]
fn without_having_seen_it_a_volume_is_judged_by_when_it_was_written() {
    let id = ids(1)[0];
    // Until when a volume counts.
    let until = |written: Option<i64>, report_version: u64, created: i64| {
        let account = Account::new(Report {
            written,
            ..report(10, report_version)
        });
        let volume = Made {
            created,
            ..made(id, 2, 7)
        };
        (100..200).take_while(|now| account.may_lack(&volume, *now)).last()
    };
    assert_eq!(
        until(None, 8, 100),
        None,
        "the volume was last written before the report"
    );
    assert_eq!(until(Some(100), 0, 100), None, "a file");
    assert_eq!(
        until(Some(102), 5, 100),
        None,
        "it was bound after the report, and made long before"
    );
    assert_eq!(until(Some(98), 5, 100), Some(159), "nobody has asked since");
    assert_eq!(until(Some(100), 5, 100), Some(109), "of the same second");
    assert_eq!(
        until(Some(99), 5, 100),
        Some(109),
        "drivers are asked before the volume is written"
    );
    assert_eq!(
        until(Some(101), 8, 100),
        Some(109),
        "the driver was asked before the volume was made, and its answer written afterwards"
    );
    assert_eq!(until(None, 5, 100), Some(109));
}

#[test]
fn a_request_of_which_reports_were_missed_is_judged_by_when_its_volume_was_written() {
    let id = ids(1)[0];
    for (seen, until) in [(true, 160), (false, 110)] {
        let mut account = Account::new(Report {
            written: Some(100),
            ..report(8, 5)
        });
        assert_eq!((account.is_known_since(6), account.is_known_since(4)), (true, false));
        account.ask(ClaimId(id), 2, 0, seen);
        let volume = Made {
            created: 100,
            ..made(id, 2, 7)
        };
        account.make(ClaimId(id), volume);
        account.resolve(100);
        assert_eq!((account.next_end(100), account.room()), (Some(until), 6));
    }
}

/// A volume of the same second as the first report, and one that was requested after it.
fn in_doubt() -> (Account, Vec<SlotId>) {
    let ids = ids(3);
    let written = Some(0);
    let mut account = Account::new(Report {
        written,
        ..report(9, 5)
    });
    account.make(ClaimId(ids[0]), made(ids[0], 1, 6));
    account.ask(ClaimId(ids[1]), 1, 0, true);
    (account, ids)
}

fn written_at(second: i64, capacity: i64, version: u64) -> Report {
    let written = Some(second);
    Report {
        written,
        ..report(capacity, version)
    }
}

#[test]
fn a_decrease_that_is_explained_in_two_ways_settles_only_one_of_them() {
    let (mut account, ids) = in_doubt();
    // Of the volume in doubt, or of the one that is not seen yet.
    account.report(written_at(5, 8, 8));
    let second = Made {
        created: 6,
        ..made(ids[1], 1, 9)
    };
    account.make(ClaimId(ids[1]), second);
    for now in [6, 15] {
        account.resolve(now);
        assert_eq!((now, account.room()), (now, 7));
    }
    // If it had been the one in doubt, there would have been another report by now.
    assert_eq!(account.next_end(15), Some(10), "the first one has expired");
    account.resolve(16);
    assert_eq!(account.room(), 8);
}

#[test]
fn a_decrease_that_no_other_volume_explains_ends_doubt() {
    let (mut account, ids) = in_doubt();
    account.report(written_at(5, 8, 8));
    account.make(
        ClaimId(ids[1]),
        Made {
            created: 6,
            ..made(ids[1], 1, 9)
        },
    );
    account.report(written_at(7, 7, 10));
    account.resolve(7);
    assert_eq!((account.room(), account.promised()), (7, 0));
}

#[test]
fn a_later_report_ends_doubt_if_it_includes_every_volume() {
    let (mut account, ids) = in_doubt();
    account.make(
        ClaimId(ids[1]),
        Made {
            created: 2,
            ..made(ids[1], 1, 7)
        },
    );
    assert_eq!(account.promised_to(ClaimId(ids[0])), 1);
    account.report(written_at(4, 8, 8));
    account.resolve(4);
    assert_eq!((account.room(), account.promised()), (8, 0));
}

proptest! {
    /// A driver creates volumes in any order and reports its free space at any time. Each report describes an earlier moment
    /// than the one at which it is written, but reports never go backwards. However late they are, no more is promised than
    /// there is; and once everything is reported, no less.
    #[test]
    fn what_is_promised_is_there(
        total in 1..30_i64,
        steps in proptest::collection::vec((0..4_u8, 1..4_i64, 0..5_usize), 1..60),
    ) {
        let ids = ids(60);
        let mut account = Account::new(report(total, 1));
        // The driver's free space after each volume that it created.
        let mut left = vec![total];
        let (mut asked, mut unseen) = (Vec::new(), Vec::new());
        let (mut version, mut reported) = (1, 0);
        for (number, (what, bytes, pick)) in steps.into_iter().enumerate() {
            version += 1;
            match what {
                0 if account.room() >= bytes => {
                    account.ask(ClaimId(ids[number]), bytes, 0, true);
                    asked.push((ids[number], bytes));
                }
                1 if !asked.is_empty() => {
                    let (id, bytes) = asked.remove(pick % asked.len());
                    let now = left[left.len() - 1] - bytes;
                    prop_assert!(now >= 0, "the driver is asked for more than it has");
                    left.push(now);
                    unseen.push((id, bytes));
                }
                2 if !unseen.is_empty() => {
                    let (id, bytes) = unseen.remove(0);
                    account.make(ClaimId(id), made(id, bytes, version));
                }
                3 => {
                    reported = reported.max(left.len().saturating_sub(1 + pick));
                    account.report(report(left[reported], version));
                }
                _ => {}
            }
        }
        for (id, bytes) in unseen {
            version += 1;
            account.make(ClaimId(id), made(id, bytes, version));
        }
        account.report(report(left[left.len() - 1], version + 1));
        let open: i64 = asked.iter().map(|(_, bytes)| bytes).sum();
        prop_assert_eq!(account.room(), left[left.len() - 1] - open);
    }
}
