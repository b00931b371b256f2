//! What the scheduler asks for, done by the engine.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Error;
use tokio::time::timeout;
use uuid::Uuid;

use super::super::plan::schedule::{Action, Failure, Handout, Listed, Owned, Poll, Polled};
use super::super::plan::{Note, Place, Row};
use super::told::{Load, Told};
use crate::db::OutboxDialect;
use crate::db::outbox::scan::{Lane, Scan, Span};
use crate::db::outbox::{Acked, Attempt, Cause, Fence, From, Queue};
use crate::outbox::{Bucket, Outbox, PendingEvent};

/// What the tasks of one relay share.
pub(crate) struct Desk<DB: OutboxDialect> {
    pub(crate) outbox: Outbox<DB>,
    pub(crate) owner: Uuid,
    /// A call of the database may take so long.
    pub(crate) limit: Duration,
}

impl<DB: OutboxDialect> Clone for Desk<DB> {
    fn clone(&self) -> Self {
        Self { outbox: self.outbox.clone(), ..*self }
    }
}

impl<DB: OutboxDialect> Desk<DB> {
    /// Nothing hangs on a database that has stopped answering.
    pub(super) async fn ask<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout(self.limit, call).await.unwrap_or(Err(Error::PoolTimedOut))
    }

    pub(super) fn queue(&self) -> Result<&DB::Queue, Error> {
        self.outbox.queue().map_err(|error| Error::Configuration(error.into()))
    }

    fn fence(&self, owned: Owned) -> Result<Fence, Error> {
        Ok(Fence { bucket: bucket(owned.bucket)?, epoch: owned.epoch, owner: self.owner })
    }

    /// Everything but attempts and what is recorded before them. `now`: when it was asked for, since the relay began.
    pub(super) async fn perform(self, action: Action<Load>, now: Duration) -> Option<Told> {
        let told = match action {
            Action::Publish(_) | Action::RecordTrial(_) => return None,
            Action::Record(failure) => {
                let recorded = self.ask(self.record(&failure)).await;
                Told::Recorded { failure, recorded }
            }
            Action::Bury(failure) => {
                let buried = self.ask(self.bury(&failure)).await;
                Told::Buried { failure, buried }
            }
            Action::Delete(batch) => {
                let deleted = self.ask(self.delete(&batch)).await;
                Told::Deleted { batch, deleted }
            }
            Action::Poll(poll) => {
                let reading = poll.reading;
                // Boxed: the largest of these futures, and the rarest.
                Told::Polled { reading, polled: self.ask(Box::pin(self.poll(poll))).await }
            }
            Action::Late(reading, places) => Told::Late { reading, rows: self.ask(self.read(&places)).await },
            Action::Due(reading, places) => {
                let rows = self.ask(self.read(&places)).await;
                Told::Due { reading, places, rows }
            }
            Action::Refill(refill) => {
                let lane = async {
                    let lane = Lane {
                        bucket: bucket(refill.owned.bucket)?,
                        destination: refill.lane.destination(),
                        key: refill.lane.key().map_or("", |key| key),
                        from: refill.from,
                        most: refill.most,
                    };
                    Ok(self.queue()?.lane(&lane).await?.into_iter().map(row).collect())
                };
                let rows = self.ask(lane).await;
                Told::Refilled { refill, rows }
            }
            Action::List(reading, owned) => {
                let listed = self.ask(self.list(&owned, now)).await;
                Told::Listed { reading, owned, listed }
            }
            Action::Paused => Told::Paused(self.ask(async { self.queue()?.paused().await }).await),
            Action::Writers { spans, newest, asked, owns } => {
                let writers = async {
                    let spans = spans.iter().map(span).collect::<Result<Vec<Span>, Error>>()?;
                    self.queue()?.writers(&spans).await
                };
                Told::Writers { asked: (newest, asked, owns), writers: self.ask(writers).await }
            }
        };
        Some(told)
    }

    /// Attempts that are about to be made, all at once.
    pub(super) async fn begin_attempts(self, handouts: Vec<Handout<Load>>) -> Told {
        let recorded = async {
            let events = handouts.iter().map(|handout| Ok((self.fence(handout.owned)?, handout.row.event.as_ref())));
            let events = events.collect::<Result<Vec<(Fence, &PendingEvent)>, Error>>()?;
            self.queue()?.begin_attempts(&events).await
        };
        let recorded = self.ask(recorded).await;
        Told::Trials { handouts, recorded }
    }

    async fn record(&self, failure: &Failure<Load>) -> Result<bool, Error> {
        let attempt = Attempt {
            event: &failure.row.event,
            count: failure.count,
            retry_in: failure.retry_in.unwrap_or_default(),
            blocked: failure.retry_in.is_none(),
            error: &failure.error,
        };
        Ok(self.queue()?.record(&self.fence(failure.owned)?, &attempt).await?.is_some())
    }

    async fn bury(&self, failure: &Failure<Load>) -> Result<bool, Error> {
        let event = &failure.row.event;
        let cause = Cause { attempts: failure.attempts, error: &failure.error };
        self.queue()?.park(&self.fence(failure.owned)?, event.place(), event.id(), &cause).await
    }

    async fn delete(&self, batch: &[(Place, Uuid)]) -> Result<(), Error> {
        let acked = batch.iter().map(|(at, id)| Ok(Acked { place: place(*at)?, id: *id }));
        self.queue()?.delete(&acked.collect::<Result<Vec<Acked>, Error>>()?).await.map(drop)
    }

    /// The order of the statements is what makes it safe, see [`Poll`].
    async fn poll(&self, poll: Poll) -> Result<Polled<Load>, Error> {
        let queue = self.queue()?;
        let newest = if poll.newest { queue.newest().await? } else { None };
        let rows = self.parts(queue, &poll.parts).await?;
        let passed = self.parts(queue, &poll.passes).await?;
        let present = if poll.spans.is_empty() {
            Vec::new()
        } else {
            let spans = poll.spans.iter().map(span).collect::<Result<Vec<Span>, Error>>()?;
            queue.present(&spans).await?.into_iter().map(planned).collect()
        };
        Ok(Polled { poll, newest, rows, passed, present })
    }

    async fn parts(
        &self,
        queue: &DB::Queue,
        parts: &[super::super::plan::schedule::Part],
    ) -> Result<Vec<Row<Load>>, Error> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let from = parts
            .iter()
            .map(|part| Ok(From { bucket: bucket(part.owned.bucket)?, after: part.after, most: part.most }))
            .collect::<Result<Vec<From>, Error>>()?;
        Ok(queue.poll(&from).await?.into_iter().map(row).collect())
    }

    async fn read(&self, places: &[Place]) -> Result<Vec<Row<Load>>, Error> {
        let places = places.iter().map(|at| place(*at)).collect::<Result<Vec<_>, Error>>()?;
        Ok(self.queue()?.read_all(&places).await?.into_iter().map(row).collect())
    }

    async fn list(&self, owned: &[Owned], now: Duration) -> Result<Vec<Listed>, Error> {
        let buckets = owned.iter().map(|owned| bucket(owned.bucket)).collect::<Result<Vec<Bucket>, Error>>()?;
        let failing = self.queue()?.failing(&buckets).await?;
        let listed = failing.into_iter().map(|failing| Listed {
            place: planned(failing.place),
            note: Note {
                id: failing.id,
                attempts: failing.attempts,
                again: (!failing.blocked).then(|| now.saturating_add(failing.retry_in)),
            },
        });
        Ok(listed.collect())
    }
}

pub(super) fn bucket(number: u8) -> Result<Bucket, Error> {
    Bucket::new(number).ok_or_else(|| Error::Configuration("there is no such bucket".into()))
}

fn place(at: Place) -> Result<crate::outbox::Place, Error> {
    Ok(crate::outbox::Place { bucket: bucket(at.bucket)?, seq: at.seq })
}

const fn planned(place: crate::outbox::Place) -> Place {
    Place { bucket: place.bucket.number(), seq: place.seq }
}

fn span(span: &super::super::plan::schedule::Span) -> Result<Span, Error> {
    Ok(Span { bucket: bucket(span.owned.bucket)?, after: span.after, upto: span.upto })
}

fn row(event: PendingEvent) -> Row<Load> {
    Row {
        place: planned(event.place()),
        id: event.id(),
        destination: Arc::from(event.event().destination()),
        key: event.event().key_ref().map(Arc::from),
        size: event.event().size(),
        event: Arc::new(event),
    }
}
