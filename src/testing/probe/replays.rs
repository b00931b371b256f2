//! The same request again.

use http::{HeaderMap, HeaderName};

use super::report::{Finding, Verdict};
use super::session::{Session, found, holds_if, not_applicable};
use super::wire::{Answer, Lost};
use crate::layer::IDEMPOTENT_REPLAYED;
use crate::record::HeaderFilter;

pub(super) async fn check(session: &Session, findings: &mut Vec<Finding>) {
    let keys = session.key();
    let body = &session.samples.body;
    let pair: Result<_, Lost> =
        async { Ok((session.succeed(&keys, body).await?, session.settle(&keys, body).await?)) }.await;
    let of = |judge: fn(&Session, &Answer, &Answer) -> Verdict| match &pair {
        Ok((first, replay)) => Ok(judge(session, first, replay)),
        Err(lost) => Err(Lost::from(ToString::to_string(lost))),
    };
    found(findings, "replay-body", "a repeated request gets status and bytes of the first answer", of(same_body));
    found(findings, "replay-headers", "and its header fields", of(same_headers));
    found(findings, "replay-marker", "a replay is marked, and a first answer is not", of(marked));
    found(findings, "keys-apart", "another key is another operation", Ok(apart(session)));
    found(
        findings,
        "same-meaning",
        "JSON with its members in another order is the same request",
        reordered(session).await,
    );
}

fn same_body(_: &Session, first: &Answer, replay: &Answer) -> Verdict {
    holds_if(first.status == replay.status && first.body == replay.body, || {
        format!("{} {} and then {} {}", first.status, first.excerpt(), replay.status, replay.excerpt())
    })
}

fn same_headers(_: &Session, first: &Answer, replay: &Answer) -> Verdict {
    // What is left out of a stored answer for a reason may differ: dates, cookies, ids of requests.
    let lasting = |headers: &HeaderMap| {
        let mut headers = HeaderFilter::default().filter(headers);
        headers.remove(IDEMPOTENT_REPLAYED);
        headers
    };
    let (first, replay) = (lasting(&first.headers), lasting(&replay.headers));
    let differs = |name: &&HeaderName| !first.get_all(*name).iter().eq(replay.get_all(*name));
    let names: Vec<&str> = first.keys().filter(differs).map(HeaderName::as_str).collect();
    holds_if(names.is_empty(), || format!("these differ or are missing: {}", names.join(", ")))
}

fn marked(session: &Session, first: &Answer, replay: &Answer) -> Verdict {
    let marker = |answer: &Answer| answer.headers.get(IDEMPOTENT_REPLAYED).map(|value| value.as_bytes().to_vec());
    match (marker(first), marker(replay)) {
        (None, Some(value)) => holds_if(value == b"true", || "its value is not `true`".to_owned()),
        (Some(_), _) => Verdict::Fails("the first answer is marked as a replay".to_owned()),
        (None, None) if session.profile.marks_replays() => Verdict::Fails("a replay has no mark".to_owned()),
        (None, None) => not_applicable("the draft names no such field"),
    }
}

fn apart(session: &Session) -> Verdict {
    if session.tells_apart {
        return Verdict::Holds;
    }
    not_applicable("answers to two operations are equal, so they tell nothing apart")
}

/// The same members, the last one first.
async fn reordered(session: &Session) -> Result<Verdict, Lost> {
    let Ok(document) = serde_json::from_slice::<serde_json::Map<_, _>>(&session.samples.body) else {
        return Ok(not_applicable("the body is no JSON object"));
    };
    let reversed: Vec<String> = document
        .iter()
        .rev()
        .map(|(name, value): (&String, &serde_json::Value)| {
            format!("{}:{value}", serde_json::Value::from(name.as_str()))
        })
        .collect();
    let reversed = format!("{{{}}}", reversed.join(" , "));
    let keys = session.key();
    let first = session.succeed(&keys, &session.samples.body).await?;
    let second = session.settle(&keys, &reversed.into()).await?;
    if second.status.as_u16() == session.profile.reused() {
        return Ok(not_applicable("the service compares bytes"));
    }
    Ok(same_body(session, &first, &second))
}
