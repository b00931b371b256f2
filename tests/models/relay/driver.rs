//! What a relay's driver does, on this world.

use std::sync::Arc;

use idempotency::outbox::relay::plan::schedule::{Action, Listed, Part, Poll, Polled};
use idempotency::outbox::relay::plan::{Note, Place, Reply, Row};
use uuid::Uuid;

use super::{BUCKET, EVENTS, Mistake, Stored, Way, World};

/// How something under way ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    Lost,
    Failed,
    Refused,
}

const fn place(seq: i64) -> Place {
    Place { bucket: BUCKET, seq }
}

fn row(seq: i64) -> Option<Row<()>> {
    let (_, key) = EVENTS.iter().find(|(number, _)| *number == seq)?;
    let id = Uuid::from_u128(seq.unsigned_abs().into());
    Some(Row { place: place(seq), id, destination: "broker".into(), key: Some((*key).into()), size: 1, event: () })
}

/// The bucket is this relay's now. Whoever had it did not give it up.
pub(super) fn own(world: &mut World, number: usize) {
    world.owner = number;
    world.epoch += 1;
    let owned = world.owned();
    if let Some(relay) = &mut world.relays[number] {
        relay.scheduler.own(owned, true);
    }
}

/// Has begun whatever the scheduler wants.
pub(super) fn proceed(world: &mut World, number: usize, mistake: Mistake) {
    for _ in 0..100 {
        let Some(relay) = &mut world.relays[number] else { return };
        let actions = relay.scheduler.step(relay.now);
        if actions.is_empty() {
            return;
        }
        for action in actions {
            begin(world, number, action, mistake);
        }
    }
    unreachable!("a scheduler wants something for ever");
}

fn begin(world: &mut World, number: usize, action: Action<()>, mistake: Mistake) {
    // In one snapshot, at this moment.
    let present: Vec<i64> = world.table.keys().copied().collect();
    let stored: Vec<(i64, Stored)> = world.table.iter().map(|(seq, stored)| (*seq, *stored)).collect();
    let late = !world.committed_late;
    let Some(relay) = &mut world.relays[number] else { return };
    let (scheduler, now) = (&mut relay.scheduler, relay.now);
    match action {
        Action::Publish(handout) => {
            if mistake == Mistake::DeletesBeforeAck {
                world.table.remove(&handout.row.place.seq);
            }
            relay.ways.push(Way::Publish(handout));
        }
        Action::RecordTrial(handout) => relay.ways.push(Way::RecordTrial(handout)),
        Action::Record(failure) => relay.ways.push(Way::Record(failure)),
        Action::Bury(failure) => relay.ways.push(Way::Bury(failure)),
        Action::Delete(batch) if mistake == Mistake::ReportsDeletionEarly => {
            scheduler.deleted(&batch, true, now);
            relay.ways.push(Way::DeleteLate(batch));
        }
        Action::Delete(batch) => relay.ways.push(Way::Delete(batch)),
        Action::Poll(poll) => {
            let reading = poll.reading;
            let polled = Box::new(read(poll, &present, mistake));
            relay.ways.push(Way::Polled(reading, polled));
        }
        Action::Late(reading, places) => scheduler.late(reading, Some(at(&places, &present)), now),
        Action::Due(reading, places) => scheduler.due(reading, &places, Some(at(&places, &present)), now),
        Action::Refill(refill) => {
            let rows = present.iter().filter(|seq| **seq >= refill.from).filter_map(|seq| row(*seq));
            let rows = rows.filter(|row| row.lane() == refill.lane).take(refill.most as usize).collect();
            scheduler.refilled(&refill, Some(rows), now);
        }
        Action::List(reading, owned) => {
            let failing = stored.into_iter().filter(|(_, stored)| stored.attempts > 0 || stored.blocked);
            let listed = failing.filter_map(|(seq, stored)| {
                let note =
                    Note { id: row(seq)?.id, attempts: stored.attempts, again: (!stored.blocked).then_some(now) };
                Some(Listed { place: place(seq), note })
            });
            scheduler.listed(reading, &owned, Some(listed.collect()), now);
        }
        Action::Paused => scheduler.paused(Some(Vec::new()), now),
        Action::Writers { newest, asked, owns, .. } => {
            let writers = late.then(|| "late".to_owned()).into_iter().collect();
            scheduler.writers((newest, asked, owns), Some(writers), now);
        }
    }
}

fn at(places: &[Place], present: &[i64]) -> Vec<Row<()>> {
    places.iter().filter(|place| present.contains(&place.seq)).filter_map(|place| row(place.seq)).collect()
}

fn read(poll: Poll, present: &[i64], mistake: Mistake) -> Polled<()> {
    let rows = |parts: &[Part]| -> Vec<Row<()>> {
        let of = |part: &Part| {
            let (after, most) = (part.after, part.most as usize);
            present.iter().filter(move |seq| **seq > after).take(most).filter_map(|seq| row(*seq))
        };
        parts.iter().flat_map(of).collect()
    };
    let below = mistake != Mistake::NoLookBelow;
    let within = |seq: &i64| below && poll.spans.iter().any(|span| *seq > span.after && *seq <= span.upto);
    Polled {
        newest: poll.newest.then_some(3),
        rows: rows(&poll.parts),
        passed: if below { rows(&poll.passes) } else { Vec::new() },
        present: present.iter().filter(|seq| within(seq)).map(|seq| place(*seq)).collect(),
        poll,
    }
}

/// Something under way comes to an end, and the relay goes on.
pub(super) fn finish(world: &mut World, (number, way): (usize, usize), ending: Ending, mistake: Mistake) {
    let Some(relay) = &mut world.relays[number] else { return };
    let way = relay.ways.remove(way);
    let done = ending != Ending::Failed;
    let told = ending == Ending::Done;
    match way {
        Way::Publish(handout) => {
            let seq = handout.row.place.seq;
            let reply = match ending {
                Ending::Done => {
                    world.log.push(seq);
                    if world.owner == number && world.epoch == handout.owned.epoch {
                        world.acked.push(seq);
                    }
                    Reply::Acked
                }
                Ending::Lost => {
                    world.adrift.push(seq);
                    world.adrift.sort_unstable();
                    if mistake == Mistake::UnknownIsAcked { Reply::Acked } else { Reply::Unknown }
                }
                Ending::Failed => Reply::Unavailable { retry_after: None },
                Ending::Refused => Reply::Refused { permanent: true },
            };
            relay.scheduler.answered(&handout, reply, false, &Arc::from("no"), relay.now);
        }
        Way::RecordTrial(handout) => {
            let seq = handout.row.place.seq;
            let there = world.owns(number, handout.owned) && world.table.contains_key(&seq);
            if let Some(stored) = world.table.get_mut(&seq).filter(|_| there && done) {
                stored.attempts += 1;
            }
            let Some(relay) = &mut world.relays[number] else { return };
            if let Some(action) = relay.scheduler.recorded_trial(handout, told.then_some(there), relay.now) {
                begin(world, number, action, mistake);
            }
        }
        Way::Record(failure) => {
            let seq = failure.row.place.seq;
            let there = world.owns(number, failure.owned) && world.table.contains_key(&seq);
            if let Some(stored) = world.table.get_mut(&seq).filter(|_| there && done) {
                stored.attempts = stored.attempts.saturating_add_signed(failure.count);
                stored.blocked = failure.retry_in.is_none();
            }
            let Some(relay) = &mut world.relays[number] else { return };
            relay.scheduler.recorded(failure, told.then_some(there), relay.now);
        }
        Way::Bury(failure) => {
            let seq = failure.row.place.seq;
            let fenced = world.owns(number, failure.owned) || mistake == Mistake::BuriesWithoutEpoch;
            let there = fenced && world.table.contains_key(&seq);
            if there && done {
                world.table.remove(&seq);
                world.dead.push(seq);
                world.overruled |= world.acked.contains(&seq);
            }
            let Some(relay) = &mut world.relays[number] else { return };
            relay.scheduler.buried(failure, told.then_some(there), relay.now);
        }
        Way::Delete(batch) => {
            if done {
                delete(world, &batch);
            }
            let Some(relay) = &mut world.relays[number] else { return };
            relay.scheduler.deleted(&batch, told, relay.now);
        }
        Way::DeleteLate(batch) => delete(world, &batch),
        Way::Polled(reading, polled) => relay.scheduler.polled(reading, told.then_some(*polled), relay.now),
    }
    proceed(world, number, mistake);
}

fn delete(world: &mut World, batch: &[(Place, Uuid)]) {
    world.table.retain(|seq, _| batch.iter().all(|(place, _)| place.seq != *seq));
}
