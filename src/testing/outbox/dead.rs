//! Dead letters.

use std::time::Duration;

use uuid::Uuid;

use super::Harness;
use super::support::{Owner, done, enqueued, event, failed, only, payloads, pending, queue};
use crate::db::outbox::{Cause, Queue};
use crate::outbox::{DeadLetters, Event, Outbox};

const CAUSE: Cause<'_> = Cause { attempts: 5, error: "refused" };

/// Enqueues the events and gives each up at once.
async fn dead<H: Harness>(harness: &H, outbox: &Outbox<H::DB>, owner: &Owner, events: &[Event]) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for event in events {
        let id = enqueued(harness, outbox, event).await;
        let read = pending(outbox).await;
        let pending = read.iter().find(|pending| pending.id() == id).unwrap_or(&read[0]);
        assert!(done(queue(outbox).park(owner.fence(pending), pending.place(), id, &CAUSE)).await);
        ids.push(id);
    }
    ids
}

/// A dead letter is the event with what is known of its end, out of the way of what is pending (M35, case B36).
pub async fn a_parked_event_is_a_dead_letter<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let owner = Owner::of_all(&outbox, "one").await;
    let written = event("k").header("h", "v");
    let id = enqueued(harness, &outbox, &written).await;
    let before = only(&outbox).await;
    done(queue(&outbox).record(owner.fence(&before), &failed(&before))).await;
    assert!(done(queue(&outbox).park(owner.fence(&before), before.place(), id, &CAUSE)).await);
    // Said once more, after an answer that was lost.
    assert!(!done(queue(&outbox).park(owner.fence(&before), before.place(), id, &CAUSE)).await);
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.failing, stats.blocked, stats.dead), (0, 0, 0, 1));
    let letter = done(outbox.dead_letters(&DeadLetters::all(), 10)).await.remove(0);
    assert_eq!(letter.event, before);
    assert_eq!((letter.attempts, letter.error.as_str()), (5, "refused"));
    assert!(letter.dead_for < Duration::from_secs(60));
}

/// A redrive puts the event at the end of its key, with its id, its time and another name for the broker's window (M35, case
/// B39).
pub async fn a_redrive_keeps_the_id<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let owner = Owner::of_all(&outbox, "one").await;
    let id = dead(harness, &outbox, &owner, &[event("k").bytes("first")]).await[0];
    let letter = done(outbox.dead_letters(&DeadLetters::with_id(id), 1)).await.remove(0).event;
    enqueued(harness, &outbox, &event("k").bytes("second")).await;
    assert!(done(outbox.redrive(id)).await);
    assert!(!done(outbox.redrive(id)).await);
    let read = pending(&outbox).await;
    assert_eq!(payloads(&read), ["second", "first"]);
    let back = &read[1];
    assert_eq!((back.id(), back.event(), back.occurred_at()), (id, letter.event(), letter.occurred_at()));
    assert_eq!((back.redrives(), back.delivery_id()), (1, format!("{id}#1")));
    assert!(done(queue(&outbox).park(owner.fence(back), back.place(), id, &CAUSE)).await);
    assert!(done(outbox.redrive(id)).await);
    assert_eq!(pending(&outbox).await[1].delivery_id(), format!("{id}#2"));
}

/// By id, destination, topic, type, key and age; counting first changes nothing (M35).
pub async fn dead_letters_are_chosen_by_what_they_are<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let owner = Owner::of_all(&outbox, "one").await;
    let events = [
        Event::new("a", "t", "x", "/s").key("k"),
        Event::new("a ", "t", "x", "/s").key("k "),
        Event::new("b", "t", "y", "/s"),
        Event::new("b", "u", "x", "/s").key(""),
    ];
    let ids = dead(harness, &outbox, &owner, &events).await;
    let all = DeadLetters::all;
    for (which, expected) in [
        (all(), vec![0, 1, 2, 3]),
        (DeadLetters::with_id(ids[2]), vec![2]),
        (all().destination("a"), vec![0]),
        (all().destination("b"), vec![2, 3]),
        (all().topic("t"), vec![0, 1, 2]),
        (all().kind("x"), vec![0, 1, 3]),
        (all().kind("x").topic("t").destination("a "), vec![1]),
        (all().key("k"), vec![0]),
        (all().key(""), vec![3]),
        (all().older_than(Duration::ZERO), vec![0, 1, 2, 3]),
        (all().older_than(Duration::from_secs(3600)), vec![]),
        (all().destination("A"), vec![]),
    ] {
        assert_eq!(done(outbox.count_dead(&which, 100)).await, expected.len() as u64, "{which:?}");
        let letters = done(outbox.dead_letters(&which, 100)).await;
        let found: Vec<Uuid> = letters.iter().map(|letter| letter.event.id()).collect();
        assert_eq!(found, expected.iter().map(|n: &usize| ids[*n]).collect::<Vec<_>>(), "{which:?}");
    }
    assert_eq!(done(outbox.count_dead(&all(), 3)).await, 3);
    assert_eq!(done(outbox.dead_letters(&all(), 2)).await.len(), 2);
    assert_eq!(done(outbox.redrive_dead(&all().kind("x"), 2)).await, 2);
    let back: Vec<Uuid> = pending(&outbox).await.iter().map(crate::outbox::PendingEvent::id).collect();
    assert!(back.len() == 2 && back.contains(&ids[0]) && back.contains(&ids[1]));
    assert_eq!(done(outbox.discard_dead(&all().destination("b"), 1)).await, 1);
    assert_eq!(done(outbox.dead_letters(&all(), 10)).await[0].event.id(), ids[3]);
    assert!(done(outbox.discard(ids[3])).await);
    assert_eq!(done(outbox.count_dead(&all(), 10)).await, 0);
}

/// A purge takes old dead letters, a bounded number of them, and nothing else (cases B29, B35 and B36).
pub async fn dead_letters_outlive_the_purge_until_they_are_old<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let owner = Owner::of_all(&outbox, "one").await;
    let events: Vec<Event> = (0..3).map(|n| event(&format!("k{n}"))).collect();
    dead(harness, &outbox, &owner, &events).await;
    enqueued(harness, &outbox, &event("k")).await;
    let blocked = only(&outbox).await;
    done(queue(&outbox).record(owner.fence(&blocked), &failed(&blocked))).await;
    assert_eq!(done(outbox.purge(100)).await, 0);
    let brief = harness.build(Outbox::builder().dead_retention(Duration::ZERO)).await;
    assert_eq!(done(brief.purge(2)).await, 2);
    assert_eq!(done(brief.purge(2)).await, 1);
    assert_eq!(done(brief.purge(2)).await, 0);
    let stats = done(outbox.stats()).await;
    assert_eq!((stats.pending, stats.failing, stats.dead), (1, 1, 0));
}

/// The id names one event: dead, pending and dead again.
pub async fn an_event_that_dies_again_is_one_dead_letter<H: Harness>(harness: &H) {
    let outbox = harness.outbox().await;
    let owner = Owner::of_all(&outbox, "one").await;
    let id = Uuid::now_v7();
    let twins = [event("k").id(id).bytes("1"), event("k").id(id).bytes("2")];
    dead(harness, &outbox, &owner, &twins).await;
    let letters = done(outbox.dead_letters(&DeadLetters::all(), 10)).await;
    assert_eq!((letters.len(), &letters[0].event.event().payload_ref()[..]), (1, &b"2"[..]));
    // Pending again by the application's hand: the redrive has nothing to add.
    enqueued(harness, &outbox, &event("k").id(id).bytes("3")).await;
    assert!(done(outbox.redrive(id)).await);
    assert_eq!(payloads(&pending(&outbox).await), ["3"]);
    assert_eq!(done(outbox.stats()).await.dead, 0);
}
