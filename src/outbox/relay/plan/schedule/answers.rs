//! What publishers say (M34, M35).

use std::sync::Arc;
use std::time::Duration;

use super::super::{Facts, Note, Reply, State, Verdict, verdict};
use super::writing::Write;
use super::{Ack, Failure, Handout, Scheduler};

impl<E> Scheduler<E> {
    /// A publisher has answered. `duplicate`: it said that the destination had the event already. `error`: its words.
    pub fn answered(&mut self, handout: &Handout<E>, reply: Reply, duplicate: bool, error: &Arc<str>, now: Duration) {
        let Handout { owned, row, .. } = handout;
        let lane = row.lane();
        let Some(destination) = self.destinations.get_mut(&row.destination) else { return };
        destination.heard = now;
        if handout.trial {
            self.resolve_caution();
        }
        let Some(destination) = self.destinations.get_mut(&row.destination) else { return };
        let facts = Facts {
            keyed: row.key.is_some(),
            attempts: handout.attempts,
            acked_meanwhile: destination.acks > handout.acks,
        };
        let mut closes = false;
        match reply {
            Reply::Acked | Reply::Refused { .. } => closes = destination.breaker.answered(now),
            Reply::Unknown if facts.acked_meanwhile => {}
            Reply::Unknown | Reply::Unavailable { .. } => {
                let retry_after = if let Reply::Unavailable { retry_after } = reply { retry_after } else { None };
                let roll = self.dice.roll();
                destination.breaker.failed(handout.sent, now, retry_after, roll);
            }
        }
        if closes {
            self.polling.poke();
        }
        let verdict = verdict(reply, destination.destined.rules, facts);
        if verdict == Verdict::Done {
            destination.acks += 1;
            destination.counts.published += 1;
            destination.counts.duplicates += u64::from(duplicate);
            // It stays in the window until it is deleted.
            let ack = Ack { id: row.id, destination: Arc::clone(&row.destination), size: row.size };
            if !self.acked.acked(row.place, ack) {
                destination.window.leave(row.size);
            }
            if handout.trial {
                // It is on record as begun: a crash before its deletion would blame it.
                self.next_deletion = now;
            }
            if let Some(bucket) = self.bucket(*owned) {
                bucket.remove(row.place.seq);
            }
            self.wake_lane(owned.bucket, &lane);
            return;
        }
        destination.window.leave(row.size);
        let retry = destination.destined.retry;
        if self.bucket(*owned).is_none() {
            return;
        }
        let roll = self.dice.roll();
        let (attempts, retry_in) = match verdict {
            Verdict::Done => return,
            Verdict::Away { .. } => (handout.attempts, None),
            Verdict::Retry { attempts } => (attempts, Some(retry.wait(attempts, roll))),
            Verdict::Block { attempts } | Verdict::Park { attempts } | Verdict::Bury { attempts } => (attempts, None),
        };
        let again = retry_in.map(|wait| now.saturating_add(wait));
        let note = Note { id: row.id, attempts, again };
        let counted = attempts > handout.attempts;
        let count = i32::from(counted) - i32::from(handout.trial);
        let failure =
            Failure { owned: *owned, row: Arc::clone(row), attempts, count, retry_in, again, error: Arc::clone(error) };
        match verdict {
            Verdict::Done => {}
            Verdict::Away { .. } => self.put_back(handout, failure),
            Verdict::Retry { .. } => {
                self.count(&row.destination, |counts| counts.failed += 1);
                if let Some(again) = again {
                    self.timers.insert((again, row.place));
                }
                self.hold(note, failure);
            }
            Verdict::Block { .. } | Verdict::Park { .. } => {
                self.count(&row.destination, |counts| {
                    counts.failed += 1;
                    counts.blocked += 1;
                });
                self.hold(note, failure);
            }
            Verdict::Bury { .. } => {
                self.count(&row.destination, |counts| counts.failed += 1);
                // Out until it is gone: its key goes on then.
                self.writes.push_back(Write::Bury(failure));
            }
        }
        self.wake_lane(owned.bucket, &lane);
    }

    fn hold(&mut self, note: Note, failure: Failure<E>) {
        if let Some(bucket) = self.bucket(failure.owned) {
            bucket.hold(failure.row.place.seq, note);
        }
        self.writes.push_back(Write::Record(failure));
    }

    /// The destination is to blame: the row waits for it in its place.
    fn put_back(&mut self, handout: &Handout<E>, failure: Failure<E>) {
        let Some(bucket) = self.bucket(handout.owned) else { return };
        bucket.lane(&handout.row.lane(), |lane, _| {
            if let Some(slot) = lane.slot(handout.row.place.seq) {
                slot.state = State::Ready;
            }
        });
        if handout.trial {
            // The attempt that was recorded beforehand has ended and does not count.
            let retry_in = Some(Duration::ZERO);
            self.writes.push_back(Write::Record(Failure { retry_in, ..failure }));
        }
    }
}
