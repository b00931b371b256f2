//! Requests at once.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::report::{Finding, Verdict};
use super::session::{Session, found, holds_if, not_applicable, wait_of};
use super::wire::{Answer, Lost};

/// So many requests at once.
const CROWD: usize = 16;
/// So often.
const ROUNDS: usize = 3;

pub(super) async fn check(session: &Session, findings: &mut Vec<Finding>) {
    let race = race(session).await;
    found(findings, "race", "of equal requests at once one runs; the others get its answer, or 409", race);
    found(
        findings,
        "race-mismatch",
        "of different requests with one key at once at most one runs",
        rivals(session).await,
    );
    let Some(slow) = session.samples.slow.clone() else {
        for (name, promise) in [IN_PROGRESS, RETRY_AFTER, MISMATCH_DURING] {
            found(findings, name, promise, Ok(not_applicable("no request is known that takes a while")));
        }
        return;
    };
    let during = match during(session, &slow).await {
        Ok(during) => during,
        Err(lost) => {
            found(findings, IN_PROGRESS.0, IN_PROGRESS.1, Err(lost));
            return;
        }
    };
    found(findings, IN_PROGRESS.0, IN_PROGRESS.1, Ok(during.in_progress()));
    found(findings, RETRY_AFTER.0, RETRY_AFTER.1, Ok(during.retry_after()));
    found(findings, MISMATCH_DURING.0, MISMATCH_DURING.1, Ok(during.mismatch(session)));
}

const IN_PROGRESS: (&str, &str) =
    ("in-progress", "a repetition while the first request runs is 409 or waits for its answer");
const RETRY_AFTER: (&str, &str) = ("in-progress-retry-after", "and that 409 says when to come back");
const MISMATCH_DURING: (&str, &str) = ("mismatch-during", "another request with the key of a running one is refused");

/// What says that a request was refused in favour of another one.
fn is_refusal(answer: &Answer) -> bool {
    matches!(answer.status.as_u16(), 400 | 409 | 422)
}

fn shown(answer: &Answer) -> String {
    format!("{} {}", answer.status.as_u16(), answer.excerpt())
}

async fn race(session: &Session) -> Result<Verdict, Lost> {
    for _ in 0..ROUNDS {
        let keys = session.key();
        let body = &session.samples.body;
        let answers = session.at_once(vec![(keys.clone(), body.clone()); CROWD]).await?;
        let last = session.succeed(&keys, body).await?;
        for answer in &answers {
            if answer.status.is_success() && (answer.status, &answer.body) != (last.status, &last.body) {
                let seen = format!("two answers to one key: {} and {}", shown(answer), shown(&last));
                return Ok(Verdict::Fails(seen));
            }
            if !answer.status.is_success() && answer.status != 409 {
                return Ok(Verdict::Fails(format!("{} to one of {CROWD} equal requests at once", shown(answer))));
            }
        }
    }
    if !session.tells_apart {
        return Ok(not_applicable("answers to two operations are equal: a second run could not be seen"));
    }
    Ok(Verdict::Holds)
}

async fn rivals(session: &Session) -> Result<Verdict, Lost> {
    let Some(other) = &session.samples.other else {
        return Ok(not_applicable("no other request is known"));
    };
    for _ in 0..ROUNDS {
        let keys = session.key();
        let request = |n: usize| if n.is_multiple_of(2) { session.samples.body.clone() } else { other.clone() };
        let answers = session.at_once((0..CROWD).map(|n| (keys.clone(), request(n))).collect()).await?;
        let mut made = answers.iter().filter(|answer| answer.status.is_success());
        if let Some(first) = made.next()
            && let Some(second) = made.find(|answer| answer.body != first.body)
        {
            return Ok(Verdict::Fails(format!("both were done: {} and {}", shown(first), shown(second))));
        }
        // Afterwards one of the two is the key's, and the other one is refused.
        let settled = [session.settle(&keys, &session.samples.body).await?, session.settle(&keys, other).await?];
        if settled.iter().filter(|answer| answer.status.is_success()).count() != 1 {
            return Ok(Verdict::Fails(format!("in the end {} and {}", shown(&settled[0]), shown(&settled[1]))));
        }
    }
    Ok(Verdict::Holds)
}

/// What was seen beside one request that takes its time.
struct During {
    repetition: Answer,
    other: Option<Answer>,
    first: Answer,
}

async fn during(session: &Session, slow: &Bytes) -> Result<During, Lost> {
    let keys = session.key();
    let beside = async {
        sleep(Duration::from_millis(300)).await;
        let other = match session.samples.other_slow().or_else(|| session.samples.other.clone()) {
            Some(other) => Some(session.send(&keys, &other).await?),
            None => None,
        };
        Ok::<_, Lost>((other, session.send(&keys, slow).await?))
    };
    let timed = async {
        let begin = Instant::now();
        session.send(&keys, slow).await.map(|answer| (answer, begin.elapsed()))
    };
    let ((first, took), (other, repetition)) = tokio::try_join!(timed, beside)?;
    if took < Duration::from_millis(600) {
        return Err(format!("the slow request took {} ms only", took.as_millis()).into());
    }
    Ok(During { repetition, other, first })
}

impl During {
    fn in_progress(&self) -> Verdict {
        let waited = self.repetition.status == self.first.status && self.repetition.body == self.first.body;
        holds_if(self.repetition.status == 409 || waited, || shown(&self.repetition))
    }

    fn retry_after(&self) -> Verdict {
        if self.repetition.status != 409 {
            return not_applicable("there was no 409");
        }
        holds_if(wait_of(&self.repetition).is_some_and(|wait| wait >= 1), || {
            "no whole seconds in Retry-After".to_owned()
        })
    }

    fn mismatch(&self, session: &Session) -> Verdict {
        match &self.other {
            None => not_applicable("no other request is known"),
            Some(other) => holds_if(is_refusal(other), || {
                format!("{} where {} or 409 was due", shown(other), session.profile.reused())
            }),
        }
    }
}
