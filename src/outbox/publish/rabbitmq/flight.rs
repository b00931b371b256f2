//! Events that are out on a channel, and what is heard of them.

use std::mem::replace;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation};
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::batch::{Member, Outgoing, Tell, Word};
use super::channels::Way;
use super::judge::{self, Heard, Judgement};
use super::wary::Wary;
use crate::outbox::publish::Answer;

/// After so long, a batch that is not confirmed holds up no other one, and none of its own events.
const PATIENCE: Duration = Duration::from_millis(100);

/// Events on a channel that nobody else has. Whoever holds it listens, for its own event and for the others. Dropped before all are
/// answered, it goes to one that waits still: nobody's answer depends on the patience of somebody else.
pub(super) struct Flight(Option<Box<State>>);

struct State {
    confirms: FuturesUnordered<BoxFuture<'static, (usize, lapin::Result<Confirmation>)>>,
    ids: Vec<Uuid>,
    heard: Vec<Heard>,
    /// `None`: it was told, or does not wait.
    tells: Vec<Option<Tell>>,
    /// Until it is given back.
    way: Option<Way>,
    wary: Arc<Wary>,
    blamed: bool,
}

impl Flight {
    /// Sends these, as soon as it is listened to.
    pub(super) fn new(way: Way, exchange: &ShortString, members: Vec<Member>, wary: Arc<Wary>) -> Self {
        let ids: Vec<_> = members.iter().map(|member| member.outgoing.id()).collect();
        let heard = ids.iter().map(|_| None).collect();
        let (confirms, tells) = (members.into_iter().enumerate())
            .map(|(n, Member { outgoing, tell })| {
                let (channel, exchange) = (Arc::clone(&way.channel), exchange.clone());
                (async move { (n, one(&channel, exchange, outgoing).await) }.boxed(), Some(tell))
            })
            .unzip();
        Self(Some(Box::new(State { confirms, ids, heard, tells, way: Some(way), wary, blamed: false })))
    }

    /// Listens until all are confirmed or failed, or take their time. `turn` is given back then.
    pub(super) async fn hear_soon<T>(&mut self, turn: T) {
        if let Some(state) = &mut self.0 {
            let _ = timeout(PATIENCE, state.hear_all()).await;
        }
        drop(turn);
    }

    /// Listens until `own` is answered, or its time is up.
    pub(super) async fn listen(mut self, own: Receiver<Word>, until: Instant) -> Answer {
        match &mut self.0 {
            Some(state) => state.listen(own, until).await,
            None => Answer::Unknown,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut left = self.0.take();
        while let Some(mut state) = left.take() {
            let mut waiting = state.tells.iter_mut();
            let Some(place) = waiting.find(|tell| tell.is_some()) else { return state.end() };
            let (again, answer) = oneshot::channel();
            let Some(tell) = place.replace(again) else { return };
            if let Err(Word::Listen(gone, mut flight)) = tell.send(Word::Listen(answer, Self(Some(state)))) {
                drop(gone);
                left = flight.0.take();
                if let Some(state) = &mut left {
                    state.forget_who_is_gone();
                }
            }
        }
    }
}

impl State {
    async fn hear_all(&mut self) {
        while let Some((n, result)) = self.confirms.next().await {
            self.heard[n] = Some(result);
        }
    }

    /// All that is in by now: what came back may be in the confirm of another one, and in an earlier one. So often, since it may
    /// yield.
    fn hear_what_is_in(&mut self) {
        for _ in 0..=self.confirms.len() {
            if let Some(Some((n, result))) = self.confirms.next().now_or_never() {
                self.heard[n] = Some(result);
            }
        }
    }

    async fn listen(&mut self, mut own: Receiver<Word>, until: Instant) -> Answer {
        let mut in_time = true;
        loop {
            self.hear_what_is_in();
            self.tell();
            match own.try_recv() {
                Ok(Word::Answer(answer)) => return answer,
                _ if in_time => {}
                _ => return Answer::Unknown,
            }
            match timeout_at(until, self.confirms.next()).await {
                Ok(Some((n, result))) => self.heard[n] = Some(result),
                Ok(None) | Err(_) => in_time = false,
            }
        }
    }

    /// Tells everybody what is certain by now.
    fn tell(&mut self) {
        let Judgement { answers, suspects } = judge::all(&self.ids, &self.heard);
        if !suspects.is_empty() && !replace(&mut self.blamed, true) {
            self.wary.closed(suspects.into_iter());
        }
        // One that still owes a confirm is not used again.
        if self.heard.iter().all(|heard| matches!(heard, Some(Ok(_)))) {
            if let Some(way) = self.way.take() {
                way.give_back();
            }
            if let [id] = self.ids[..] {
                self.wary.confirmed(id);
            }
        }
        for (tell, answer) in self.tells.iter_mut().zip(answers) {
            if let Some(answer) = answer
                && let Some(tell) = tell.take()
            {
                // Whoever is gone has called it unknown.
                let _ = tell.send(Word::Answer(answer));
            }
        }
    }

    /// Nobody waits any more.
    fn end(&self) {
        if self.heard.iter().any(|heard| matches!(heard, Some(Ok(_)))) {
            let left = self.heard.iter().zip(&self.ids).filter(|(heard, _)| heard.is_none());
            self.wary.slow(left.map(|(_, id)| *id));
        }
    }

    fn forget_who_is_gone(&mut self) {
        self.tells.iter_mut().for_each(|tell| *tell = tell.take().filter(|tell| !tell.is_closed()));
    }
}

async fn one(channel: &Channel, exchange: ShortString, out: Outgoing) -> lapin::Result<Confirmation> {
    let Outgoing { event, routing_key, properties } = out;
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let payload = event.event().payload_ref();
    channel.basic_publish(exchange, routing_key, options, payload, properties).await?.await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::super::judge::tests::with;
    use super::*;
    use crate::outbox::publish::Reason;

    /// Events 0, 1, … of which this is heard at once; `None` is never heard.
    fn flight(heard: Vec<Heard>) -> (Flight, Vec<Receiver<Word>>, Arc<Wary>) {
        let wary = Arc::new(Wary::default());
        let (tells, answers): (Vec<_>, Vec<_>) = heard.iter().map(|_| oneshot::channel()).unzip();
        let state = State {
            ids: (0..heard.len() as u128).map(Uuid::from_u128).collect(),
            heard: heard.iter().map(|_| None).collect(),
            tells: tells.into_iter().map(Some).collect(),
            confirms: (heard.into_iter().enumerate())
                .map(|(n, heard)| match heard {
                    Some(result) => ready((n, result)).boxed(),
                    None => pending().boxed(),
                })
                .collect(),
            way: None,
            wary: Arc::clone(&wary),
            blamed: false,
        };
        (Flight(Some(Box::new(state))), answers, wary)
    }

    fn ack() -> Heard {
        Some(Ok(Confirmation::Ack(None)))
    }

    // Case B20: the message came back with the confirm of another one, and before its own.
    #[tokio::test]
    async fn nothing_is_told_before_all_that_is_in_was_heard() {
        let (flight, mut answers, _) = flight(vec![ack(), with(0), None]);
        let answer = flight.listen(answers.remove(0), Instant::now()).await;
        assert_eq!(answer, Answer::refused(Reason::Unroutable));
    }

    // M34
    #[tokio::test(start_paused = true)]
    async fn whoever_waits_still_listens_and_whoever_was_slow_is_remembered() {
        let (mut flight, mut answers, wary) = flight(vec![None, ack(), None, None]);
        let began = Instant::now();
        flight.hear_soon(()).await;
        assert_eq!(began.elapsed(), PATIENCE);
        let [zero, mut one, two, three] = [(); 4].map(|()| answers.remove(0));
        drop(zero);
        let until = began + Duration::from_secs(1);
        assert_eq!(flight.listen(three, until).await, Answer::Unknown);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert!(matches!(one.try_recv(), Ok(Word::Answer(Answer::ACKED))), "it was told long before");
        let Ok(Word::Listen(two, flight)) = two.await else { panic!("nobody listens") };
        assert!(!wary.of(Uuid::from_u128(0)), "one waits still");
        let listens = flight.listen(two, until + Duration::from_secs(9));
        assert!(timeout(Duration::from_secs(1), listens).await.is_err(), "its own time counts");
        let slow = [0, 1, 2, 3].map(|n| wary.of(Uuid::from_u128(n)));
        assert_eq!(slow, [true, false, true, true]);
    }
}
