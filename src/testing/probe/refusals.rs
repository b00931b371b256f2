//! What is refused, and how.

use http::header::{CONTENT_TYPE, RETRY_AFTER};

use super::Profile;
use super::report::{Finding, Verdict};
use super::session::{Session, found, holds_if, not_applicable};
use super::wire::{Answer, Lost};

pub(super) async fn check(session: &Session, findings: &mut Vec<Finding>) {
    let Some(mismatch) = mismatch(session).await.transpose() else {
        for (name, promise) in [MISMATCH, NO_RETRY, BODIES] {
            found(findings, name, promise, Ok(not_applicable("no other request is known")));
        }
        return;
    };
    let of = |judge: fn(&Session, &Mismatch) -> Verdict| match &mismatch {
        Ok(mismatch) => Ok(judge(session, mismatch)),
        Err(lost) => Err(Lost::from(ToString::to_string(lost))),
    };
    found(findings, MISMATCH.0, MISMATCH.1, of(refused));
    found(findings, NO_RETRY.0, NO_RETRY.1, of(without_retry_after));
    found(findings, BODIES.0, BODIES.1, of(explained));
}

const MISMATCH: (&str, &str) =
    ("mismatch-after", "a key that was used for another request is refused, and keeps its answer");
const NO_RETRY: (&str, &str) = ("no-retry-after", "a refusal that waiting does not help has no Retry-After");
const BODIES: (&str, &str) = ("problem-bodies", "refusals say what is wrong in the form of the convention");

struct Mismatch {
    first: Answer,
    refusal: Answer,
    after: Answer,
}

async fn mismatch(session: &Session) -> Result<Option<Mismatch>, Lost> {
    let Some(other) = &session.samples.other else { return Ok(None) };
    let keys = session.key();
    let first = session.succeed(&keys, &session.samples.body).await?;
    let refusal = session.send(&keys, other).await?;
    let after = session.settle(&keys, &session.samples.body).await?;
    Ok(Some(Mismatch { first, refusal, after }))
}

fn refused(session: &Session, seen: &Mismatch) -> Verdict {
    let due = session.profile.reused();
    if seen.refusal.status.as_u16() != due {
        let status = seen.refusal.status.as_u16();
        return Verdict::Fails(format!("{status} where {due} was due: {}", seen.refusal.excerpt()));
    }
    holds_if(seen.after.body == seen.first.body, || "the key has lost its answer".to_owned())
}

fn without_retry_after(_: &Session, seen: &Mismatch) -> Verdict {
    holds_if(!seen.refusal.headers.contains_key(RETRY_AFTER), || {
        format!("{} with Retry-After", seen.refusal.status.as_u16())
    })
}

fn explained(session: &Session, seen: &Mismatch) -> Verdict {
    let refusal = &seen.refusal;
    let kind = refusal.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(&refusal.body) else {
        return Verdict::Fails(format!("the body is no JSON: {}", refusal.excerpt()));
    };
    let text =
        |member: &str| document.get(member).and_then(serde_json::Value::as_str).is_some_and(|text| !text.is_empty());
    match session.profile {
        Profile::Ietf => {
            let status = document.get("status").and_then(serde_json::Value::as_u64);
            let right = status.is_none_or(|status| status == u64::from(refusal.status.as_u16()));
            holds_if(essence == "application/problem+json" && text("title") && right, || {
                format!("no problem document (RFC 9457): {kind} {}", refusal.excerpt())
            })
        }
        Profile::Acp => holds_if(text("type") && text("code") && text("message"), || {
            format!("no object with type, code and message: {}", refusal.excerpt())
        }),
        Profile::Stripe => holds_if(document.is_object(), || format!("no JSON object: {}", refusal.excerpt())),
    }
}
