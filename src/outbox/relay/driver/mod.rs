//! Runs a relay: asks the scheduler, has it done, tells the scheduler.

mod crew;
mod member;
mod perform;
mod publish;
mod told;

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::plan::schedule::{Action, Counts, Owned, Scheduler};
use crate::db::OutboxDialect;
use crate::db::outbox::{Fence, Queue};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, Kind, Of, emit, emit_error};
use crate::outbox::Stats;
use crate::outbox::publish::Publisher;
use crate::series;
use crew::Crew;
use perform::bucket;
use told::{Load, Told};

pub(super) use member::Membership;
pub(super) use perform::Desk;

/// What a driver needs beside the scheduler's own settings.
pub(super) struct Timing {
    /// A publisher may take so long.
    pub(super) publish: Duration,
    /// What is out may take so long when the relay stops.
    pub(super) grace: Duration,
    /// Between looks for events that become due.
    pub(super) promote: Duration,
    /// Dead letters are kept so long.
    pub(super) dead_retention: Duration,
}

/// A relay at work.
pub(super) struct Driver<DB: OutboxDialect> {
    pub(super) desk: Desk<DB>,
    pub(super) publishers: HashMap<Arc<str>, Arc<dyn Publisher>>,
    pub(super) scheduler: Scheduler<Load>,
    pub(super) membership: Membership,
    pub(super) timing: Timing,
    began: Instant,
    crew: Crew,
    /// When it was told to stop.
    stopped: Option<Duration>,
    promoting: bool,
    next_promotion: Duration,
    next_purge: Duration,
    /// When the outbox is counted, by the relay that has the first bucket, and whether this one has done so last.
    next_count: Duration,
    counted: bool,
    /// What was told of each destination.
    reported: HashMap<Arc<str>, Counts>,
    /// An error that no waiting mends.
    fatal: Option<Error>,
}

impl<DB: OutboxDialect> Driver<DB> {
    pub(super) fn new(
        desk: Desk<DB>,
        publishers: HashMap<Arc<str>, Arc<dyn Publisher>>,
        scheduler: Scheduler<Load>,
        membership: Membership,
        timing: Timing,
    ) -> Self {
        Self {
            desk,
            publishers,
            scheduler,
            membership,
            timing,
            began: Instant::now(),
            crew: Crew::new(),
            stopped: None,
            promoting: false,
            next_promotion: Duration::ZERO,
            next_purge: Duration::ZERO,
            next_count: COUNT,
            counted: false,
            reported: HashMap::new(),
            fatal: None,
        }
    }

    /// Works until it is told to stop, and then until nothing is out or the grace is over.
    pub(super) async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<Counts, Error> {
        let mut shutdown = pin!(shutdown);
        let outbox = self.desk.outbox.clone();
        loop {
            let now = self.now();
            self.proceed(now);
            self.report();
            if self.is_done(now) {
                break;
            }
            let wake = self.began + self.wake_at(now).min(LONGEST_SLEEP + now);
            tokio::select! {
                biased;
                () = &mut shutdown, if self.stopped.is_none() => self.stop(),
                Some(told) = self.crew.next(), if !self.crew.is_empty() => {
                    self.told(told);
                    // Together: what follows is decided once for all of them.
                    while let Some(told) = self.crew.try_next() {
                        self.told(told);
                    }
                }
                () = outbox.poke().notified(), if self.stopped.is_none() => self.scheduler.poke(),
                () = sleep_until(wake) => {}
            }
        }
        self.leave().await
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Begins whatever is due.
    fn proceed(&mut self, now: Duration) {
        if self.membership.begins_beat(now) {
            self.beat(now);
        }
        let mut trials = Vec::new();
        for action in self.scheduler.step(now) {
            match action {
                Action::RecordTrial(handout) => trials.push(handout),
                action => self.perform(action, now),
            }
        }
        if !trials.is_empty() {
            self.crew.perform(self.desk.clone().begin_attempts(trials));
        }
        let owner = self.desk.owner;
        let fence = |owned: Owned| {
            let bucket = bucket(owned.bucket).ok()?;
            Some(Fence { bucket, epoch: owned.epoch, owner })
        };
        let fences = self.membership.begins_releasing(&mut self.scheduler, fence);
        if !fences.is_empty() {
            let desk = self.desk.clone();
            self.crew.perform(async move {
                let released = desk.ask(async { desk.queue()?.release(&fences).await }).await;
                Told::Released { fences, released }
            });
        }
        if let Some(most) = self.membership.begins_taking() {
            let (desk, member) = (self.desk.clone(), self.membership.member.clone());
            let most = u32::try_from(most).unwrap_or(u32::MAX);
            self.crew
                .perform(async move { Told::Taken(desk.ask(async { desk.queue()?.take(&member, most).await }).await) });
        }
        self.keep_house(now);
    }

    fn beat(&mut self, asked: Duration) {
        let (desk, member) = (self.desk.clone(), self.membership.member.clone());
        let (lease, joined) = (self.membership.lease, self.membership.joined);
        self.crew.perform(async move {
            let beat = async {
                let queue = desk.queue()?;
                if joined { queue.beat(&member, lease).await } else { queue.join(&member, lease).await }
            };
            // A third of the lease, so that a beat that hangs is not the last one.
            let limit = (lease / 3).min(desk.limit);
            let beat = tokio::time::timeout(limit, beat).await.unwrap_or(Err(sqlx::Error::PoolTimedOut));
            Told::Beat { asked, beat }
        });
    }

    fn perform(&mut self, action: Action<Load>, now: Duration) {
        let desk = self.desk.clone();
        if let Action::Publish(handout) = action {
            let Some(publisher) = self.publishers.get(&handout.row.destination) else { return };
            let publisher = Arc::clone(publisher);
            self.crew.perform(publish::publish(desk.outbox, publisher, handout, self.timing.publish));
        } else {
            self.crew.perform(async move {
                // Publications have been dealt with.
                desk.perform(action, now).await.unwrap_or(Told::Promoted(Ok(0)))
            });
        }
    }

    /// Deferred events that are due, and dead letters that were kept long enough.
    fn keep_house(&mut self, now: Duration) {
        if self.promoting || self.stopped.is_some() || self.scheduler.held().is_empty() {
            return;
        }
        if now >= self.next_promotion {
            self.promoting = true;
            let desk = self.desk.clone();
            self.crew.perform(async move {
                Told::Promoted(desk.ask(async { desk.queue()?.promote(PROMOTED).await }).await)
            });
        } else if now >= self.next_purge && self.scheduler.held().contains(&0) {
            // Of all relays the one that has the first bucket.
            self.promoting = true;
            let (desk, retention) = (self.desk.clone(), self.timing.dead_retention);
            self.crew.perform(async move {
                Told::Purged(desk.ask(async { desk.queue()?.purge(retention, PURGED).await }).await)
            });
        } else if cfg!(feature = "metrics") && now >= self.next_count && self.scheduler.held().contains(&0) {
            self.promoting = true;
            let desk = self.desk.clone();
            self.crew.perform(async move { Told::Counted(desk.ask(async { desk.queue()?.stats().await }).await) });
        }
    }

    fn wake_at(&self, now: Duration) -> Duration {
        let wake = self.scheduler.wake_at(now).min(self.membership.next_beat());
        let wake = if self.promoting { wake } else { wake.min(self.next_promotion) };
        let wake = self.stopped.map_or(wake, |stopped| wake.min(stopped + self.timing.grace));
        wake.max(now + LEAST_SLEEP)
    }

    fn told(&mut self, told: Told) {
        let now = self.now();
        let scheduler = &mut self.scheduler;
        match told {
            Told::Answered { handout, reply, duplicate, error } => {
                scheduler.answered(&handout, reply, duplicate, &error, now);
            }
            Told::Trials { handouts, recorded } => {
                let recorded = heard::<DB, _>(recorded);
                for (number, handout) in handouts.into_iter().enumerate() {
                    let recorded = recorded.as_ref().map(|recorded| recorded.get(number).is_some_and(|done| *done));
                    if let Some(action) = self.scheduler.recorded_trial(handout, recorded, now) {
                        self.perform(action, now);
                    }
                }
            }
            Told::Recorded { failure, recorded } => scheduler.recorded(failure, heard::<DB, _>(recorded), now),
            Told::Buried { failure, buried } => scheduler.buried(failure, heard::<DB, _>(buried), now),
            Told::Deleted { batch, deleted } => scheduler.deleted(&batch, heard::<DB, _>(deleted).is_some(), now),
            Told::Polled { reading, polled } => scheduler.polled(reading, heard::<DB, _>(polled), now),
            Told::Late { reading, rows } => scheduler.late(reading, heard::<DB, _>(rows), now),
            Told::Due { reading, places, rows } => scheduler.due(reading, &places, heard::<DB, _>(rows), now),
            Told::Refilled { refill, rows } => scheduler.refilled(&refill, heard::<DB, _>(rows), now),
            Told::Listed { reading, owned, listed } => scheduler.listed(reading, &owned, heard::<DB, _>(listed), now),
            Told::Paused(paused) => {
                let paused = heard::<DB, _>(paused)
                    .map(|paused| paused.into_iter().map(|pause| (pause.destination, pause.key)).collect());
                scheduler.paused(paused, now);
            }
            Told::Writers { asked, writers } => scheduler.writers(asked, heard::<DB, _>(writers), now),
            Told::Beat { asked, beat } => self.beaten(asked, beat),
            Told::Taken(taken) => self.membership.taken(scheduler, heard::<DB, _>(taken).as_deref()),
            Told::Released { fences, released } => {
                self.membership.released(&fences, heard::<DB, _>(released).is_some());
            }
            Told::Promoted(promoted) => {
                self.promoting = false;
                let promoted = heard::<DB, _>(promoted).unwrap_or(0);
                if promoted > 0 {
                    scheduler.poke();
                }
                let more = promoted >= PROMOTED.into();
                self.next_promotion = if more { now } else { now + self.timing.promote };
            }
            Told::Purged(purged) => {
                self.promoting = false;
                let more = heard::<DB, _>(purged).is_some_and(|purged| purged >= PURGED.into());
                self.next_purge = now + if more { MORE_TO_PURGE } else { PURGE };
            }
            Told::Counted(stats) => {
                (self.promoting, self.next_count) = (false, now + COUNT);
                if let Some(stats) = heard::<DB, _>(stats) {
                    self.counted = true;
                    series::outbox(&stats);
                }
            }
        }
    }

    fn beaten(&mut self, asked: Duration, beat: Result<crate::db::outbox::Beat, sqlx::Error>) {
        let first = !self.membership.joined;
        let beat = match beat {
            Ok(beat) => Some(beat),
            Err(error) => {
                let error = DB::Queue::error(error);
                // Tables that are missing at the start will not appear by waiting.
                if first && error.kind() == ErrorKind::Setup {
                    self.fatal = Some(error);
                } else {
                    emit_error(Event::RelayBeatFailed, &error);
                }
                None
            }
        };
        self.membership.beaten(&mut self.scheduler, asked, beat);
        if self.membership.ousted && self.fatal.is_none() {
            emit(Event::RelayOusted);
            self.fatal = Some(Error::with_source(ErrorKind::LeaseLost, "another relay has taken this name"));
        }
        if self.fatal.is_some() {
            self.stop();
        }
    }

    /// Says what needs an operator since it last said so (M35).
    fn report(&mut self) {
        for (destination, counts) in self.scheduler.counts_of_each() {
            let reported = self.reported.get(destination).copied().unwrap_or_default();
            if reported == counts {
                continue;
            }
            let of = Of::Named(Kind::Destination, destination);
            (reported.blocked..counts.blocked).for_each(|_| of.emit(Event::OutboxEventBlocked));
            (reported.dead..counts.dead).for_each(|_| of.emit(Event::OutboxEventDead));
            series::relayed(destination, counts.published - reported.published, counts.failed - reported.failed);
            self.reported.insert(Arc::clone(destination), counts);
        }
        if self.counted && (self.stopped.is_some() || !self.scheduler.held().contains(&0)) {
            // Somebody else counts from now on, and a sum over processes is right.
            self.counted = false;
            series::outbox(&Stats::default());
        }
    }

    fn stop(&mut self) {
        if self.stopped.is_none() {
            self.stopped = Some(self.now());
            self.membership.leaving = true;
            self.scheduler.stop();
            self.scheduler.drain_all();
        }
    }

    fn is_done(&self, now: Duration) -> bool {
        let Some(stopped) = self.stopped else { return false };
        let quiet = self.scheduler.is_quiet() && self.scheduler.owned().is_empty() && !self.membership.releases();
        quiet || now >= stopped + self.timing.grace
    }

    /// Gives up what is left. What is out stays so, and the next owner publishes it again.
    async fn leave(mut self) -> Result<Counts, Error> {
        // Their answers come too late.
        while let Some(told) = self.crew.try_next() {
            self.told(told);
        }
        self.report();
        let counts = self.scheduler.counts();
        drop(std::mem::replace(&mut self.crew, Crew::new()));
        let (desk, member) = (self.desk.clone(), &self.membership.member);
        if !self.membership.ousted {
            let left = desk.ask(async { desk.queue()?.leave(member).await }).await;
            // Its lease ends by itself.
            let _ = heard::<DB, _>(left);
        }
        match self.fatal.take() {
            Some(error) => Err(error),
            None => Ok(counts),
        }
    }
}

impl<DB: OutboxDialect> Drop for Driver<DB> {
    fn drop(&mut self) {
        if self.counted {
            // Dropped at work: whoever follows counts from now on.
            series::outbox(&Stats::default());
        }
        if let Ok(queue) = self.desk.queue() {
            queue.vanish(&self.membership.member);
        }
    }
}

/// A call that has failed is made again, later; the error is reported.
fn heard<DB: OutboxDialect, T>(told: Result<T, sqlx::Error>) -> Option<T> {
    told.map_err(|error| emit_error(Event::RelayCallFailed, &DB::Queue::error(error))).ok()
}

const LEAST_SLEEP: Duration = Duration::from_millis(1);
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Deferred events moved at once.
const PROMOTED: u32 = 500;
/// Dead letters deleted at once, how long between such calls, and where there are more.
const PURGED: u32 = 1_000;
const PURGE: Duration = Duration::from_secs(60);
/// How often the outbox is counted.
const COUNT: Duration = Duration::from_secs(15);
const MORE_TO_PURGE: Duration = Duration::from_millis(200);
