//! What is read from the table, and when (M36, M37).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::bucket::Bucket;
use super::super::{Admitted, BUCKETS, Place, Row};
use super::{Action, Owned, Part, Poll, Polled, Reading, Scheduler, Settled, Span};

impl<E> Scheduler<E> {
    pub(super) fn read(&mut self, now: Duration, actions: &mut Vec<Action<E>>) {
        if self.asking_paused.start(now) {
            actions.push(Action::Paused);
        }
        if !self.buckets.is_empty() && self.listing.start(now) {
            let owned = self.owned();
            actions.push(Action::List(Reading(self.acked.reading()), owned));
        }
        self.read_due(now, actions);
        self.refill(now, actions);
        if let Some((reading, places)) = self.polling.late.take() {
            actions.push(Action::Late(reading, places));
        }
        if let Some(poll) = self.poll(now) {
            actions.push(Action::Poll(poll));
        }
        if self.buckets.values().any(|bucket| bucket.positions.unsettled().is_some()) && self.asking_writers.start(now)
        {
            // In all buckets, up to what may be read before the answer is used.
            let all = self.buckets.iter().map(|(number, bucket)| Span {
                owned: Owned { bucket: *number, epoch: bucket.epoch },
                after: bucket.positions.settled(),
                upto: self.newest,
            });
            let spans = all.filter(|span| span.after < span.upto).collect();
            actions.push(Action::Writers { spans, newest: self.newest, asked: now, owns: self.owns });
        }
    }

    /// Where rows may appear late.
    fn spans(&self) -> Vec<Span> {
        let unsettled = |(number, bucket): (&u8, &Bucket<E>)| {
            let (after, upto) = bucket.positions.unsettled().filter(|_| !bucket.draining)?;
            Some(Span { owned: Owned { bucket: *number, epoch: bucket.epoch }, after, upto })
        };
        self.buckets.iter().filter_map(unsettled).collect()
    }

    fn poll(&mut self, now: Duration) -> Option<Poll> {
        if self.polling.under_way || now < self.polling.next {
            return None;
        }
        // Where no destination can be asked nothing is read for them either.
        if self.destinations.values().all(|destination| destination.is_away(now)) {
            self.polling.next = now + self.settings.poll_idle;
            return None;
        }
        let free = self.free();
        self.polling.starved = free.is_none();
        let Some(free) = free else {
            self.make_room(now);
            return None;
        };
        let ready: Vec<u8> = self
            .buckets
            .iter()
            .filter(|(_, bucket)| !bucket.draining && bucket.failing.is_some())
            .map(|(number, _)| *number)
            .collect();
        if ready.is_empty() {
            self.polling.next = now + self.settings.poll_idle;
            return None;
        }
        if self.passing.start(now) {
            let begin = |number: &u8| self.buckets.get_mut(number).map(|bucket| bucket.pass = Some(0));
            let _ = ready.iter().filter_map(begin).count();
        }
        let full = ready.iter().filter(|number| self.buckets.get(number).is_some_and(|bucket| bucket.full)).count();
        let (mut parts, mut passes) = (Vec::new(), Vec::new());
        for number in ready {
            let Some(bucket) = self.buckets.get(&number) else { continue };
            let owned = Owned { bucket: number, epoch: bucket.epoch };
            // One that had little left gets little: large events come in few rows.
            let most = (free / if bucket.full { full.max(1) } else { usize::from(BUCKETS) }).max(1);
            let most = most.min(if bucket.full { MOST } else { LEAST });
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            parts.push(Part { owned, after: bucket.positions.read(), most });
            if let Some(after) = bucket.pass
                && passes.len() < PASSES
            {
                passes.push(Part { owned, after, most: PASS });
            }
        }
        self.polling.under_way = true;
        self.polling.poked = false;
        let newest = parts.iter().any(|part| part.after == 0);
        let reading = Reading(self.acked.reading());
        Some(Poll { reading, parts, spans: self.spans(), newest, passes, settled: self.settled, known: self.newest })
    }

    /// How many more rows may be read ahead; `None` where there is not room enough to make it worth a poll.
    fn free(&self) -> Option<usize> {
        let (rows, bytes) =
            self.buckets.values().map(Bucket::loaded).fold((0, 0), |sum, loaded| (sum.0 + loaded.0, sum.1 + loaded.1));
        let (most_rows, most_bytes) = (self.settings.ahead, self.settings.window_bytes.saturating_mul(2));
        let (rows, bytes) = (most_rows.saturating_sub(rows), most_bytes.saturating_sub(bytes));
        let enough = rows >= most_rows / 4 && bytes >= most_bytes / 4;
        enough.then(|| rows.min(bytes / self.polling.average.max(1)).max(1))
    }

    /// Rows of destinations that cannot be asked make room for others.
    fn make_room(&mut self, now: Duration) {
        if self.destinations.len() < 2 {
            return;
        }
        let away: Vec<Arc<str>> = self
            .destinations
            .iter()
            .filter(|(_, destination)| destination.is_away(now))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in away {
            // Some stay: with one of them the destination is tried again.
            let mut keep = self.settings.kept;
            self.buckets.values_mut().for_each(|bucket| bucket.evict(&name, &mut keep));
        }
    }

    /// The table was read. `None`: the database has failed.
    pub fn polled(&mut self, reading: Reading, polled: Option<Polled<E>>, now: Duration) {
        let Some(polled) = polled else {
            self.end_poll(reading, false, now);
            self.database_failed(now);
            return;
        };
        self.database_works();
        let late: Vec<Place> = polled
            .poll
            .spans
            .iter()
            .filter_map(|span| Some((span, self.buckets.get(&span.owned.bucket)?)))
            .filter(|(span, bucket)| bucket.epoch == span.owned.epoch && !bucket.draining)
            .flat_map(|(span, bucket)| {
                polled.present.iter().filter(move |place| place.bucket == span.owned.bucket && !bucket.knows(place.seq))
            })
            .filter(|place| !self.acked.contains(**place))
            .copied()
            .collect();
        if late.is_empty() {
            self.admit_all(polled, now);
        } else {
            self.polling.late = Some((reading, late));
            self.polling.withheld = Some(polled);
        }
    }

    /// Rows that appeared late were read. `None`: the database has failed.
    pub fn late(&mut self, reading: Reading, rows: Option<Vec<Row<E>>>, now: Duration) {
        let Some(polled) = self.polling.withheld.take() else { return };
        let Some(rows) = rows else {
            // Nothing of this reading counts, so the next one finds the same.
            self.end_poll(reading, false, now);
            self.database_failed(now);
            return;
        };
        self.database_works();
        for row in rows {
            // A bucket that was rewound, or lost and taken again meanwhile, is read from there.
            let part = polled.poll.parts.iter().find(|part| part.owned.bucket == row.place.bucket);
            if part.is_some_and(|part| self.is_current(part)) {
                self.admit(row, now);
            }
        }
        self.admit_all(polled, now);
    }

    /// Whether a bucket still stands where a reading began: otherwise what it brought might overtake what was passed over.
    fn is_current(&mut self, part: &Part) -> bool {
        self.bucket(part.owned).is_some_and(|bucket| !bucket.draining && bucket.positions.read() == part.after)
    }

    fn admit_all(&mut self, polled: Polled<E>, now: Duration) {
        let Polled { poll, newest, rows, passed, .. } = polled;
        let drawn = poll.known.max(newest.unwrap_or(0));
        let mut read = drawn;
        let mut found = false;
        let mut by_bucket: BTreeMap<u8, Vec<Row<E>>> = BTreeMap::new();
        for row in rows {
            read = read.max(row.place.seq);
            self.polling.average = (self.polling.average * 15 + row.size) / 16;
            by_bucket.entry(row.place.bucket).or_default().push(row);
        }
        let mut more = false;
        for part in &poll.parts {
            let rows = by_bucket.remove(&part.owned.bucket).unwrap_or_default();
            if !self.is_current(part) {
                more = true;
                continue;
            }
            let full = rows.len() >= part.most as usize;
            let last = rows.last().map_or(part.after, |row| row.place.seq);
            found |= !rows.is_empty();
            for row in rows {
                self.admit(row, now);
            }
            if let Some(bucket) = self.bucket(part.owned) {
                // What was drawn before and is not here is not there, or appears late.
                bucket.positions.advance(if full { last } else { last.max(drawn) });
                bucket.full = full;
                bucket.careful &= full;
                if poll.settled.owns >= bucket.born {
                    bucket.positions.settle(poll.settled.seq);
                }
                more |= full;
            }
        }
        self.newest = self.newest.max(read);
        self.admit_pass(&poll, passed, now);
        self.end_poll(poll.reading, found, now);
        if more {
            self.polling.next = now;
        }
    }

    fn admit_pass(&mut self, poll: &Poll, rows: Vec<Row<E>>, now: Duration) {
        let mut by_bucket: BTreeMap<u8, Vec<Row<E>>> = BTreeMap::new();
        for row in rows {
            by_bucket.entry(row.place.bucket).or_default().push(row);
        }
        for part in &poll.passes {
            let rows = by_bucket.remove(&part.owned.bucket).unwrap_or_default();
            let Some(bucket) = self.bucket(part.owned) else { continue };
            // Beyond the position it is the polls' matter.
            let read = bucket.positions.read();
            let last = rows.last().map(|row| row.place.seq);
            bucket.pass = last.filter(|last| *last < read && rows.len() >= part.most as usize);
            for row in rows.into_iter().filter(|row| row.place.seq <= read) {
                self.admit(row, now);
            }
        }
        if self.passing.is_under_way() && self.buckets.values().all(|bucket| bucket.pass.is_none() || bucket.draining) {
            self.passing.end(now);
        }
    }

    fn end_poll(&mut self, reading: Reading, found: bool, now: Duration) {
        self.acked.read(reading.0);
        self.polling.under_way = false;
        let rest = if found { self.settings.poll_least } else { self.polling.rest.saturating_mul(2) };
        self.polling.rest = rest.clamp(self.settings.poll_least, self.settings.poll_idle);
        self.polling.earliest = now + self.settings.wake_least;
        self.polling.next = if self.polling.poked { self.polling.earliest } else { now + self.polling.rest };
    }

    /// A row was read, wherever.
    pub(super) fn admit(&mut self, row: Row<E>, now: Duration) {
        let place = row.place;
        let Some(bucket) = self.buckets.get_mut(&place.bucket).filter(|bucket| !bucket.draining) else { return };
        if self.acked.contains(place) {
            return;
        }
        let destination = self.destinations.get(&row.destination);
        let known = bucket.lane_of(place.seq).is_some();
        // One that nobody here serves, or that cannot be asked and has enough rows here, or whose rows before were passed
        // over.
        let behind = bucket.is_behind(&row.destination)
            || destination
                .is_none_or(|destination| destination.is_away(now) && destination.ready.len() >= self.settings.kept);
        if behind && !known {
            bucket.leave_behind(&row.destination, place.seq);
            return;
        }
        let (admitted, lane) = bucket.admit(row, now);
        if admitted == Admitted::Kept
            && let Some(again) = bucket.again(place.seq)
        {
            self.timers.insert((again, place));
        }
        self.wake_lane(place.bucket, &lane);
    }

    /// Who may still commit rows up to `newest`. `None`: the database has failed.
    pub fn writers(
        &mut self,
        (newest, asked, owns): (i64, Duration, u64),
        writers: Option<Vec<String>>,
        now: Duration,
    ) {
        self.asking_writers.end(now);
        let Some(writers) = writers else {
            self.horizon.reset();
            self.database_failed(now);
            return;
        };
        self.database_works();
        if owns == self.owns
            && let Some(seq) = self.horizon.writers(asked, newest, writers)
        {
            self.settled = Settled { seq: seq.max(self.settled.seq), owns };
        }
    }
}

/// Rows of a bucket that had none left at the last poll.
const LEAST: usize = 16;
/// Rows of a bucket at once.
const MOST: usize = 512;
/// Buckets of a full pass in one poll, and rows of each.
const PASSES: usize = 4;
const PASS: u32 = 128;
