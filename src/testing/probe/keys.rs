//! Which keys are taken.

use http::HeaderValue;

use super::Profile;
use super::report::{Finding, Verdict};
use super::session::{Session, found, holds_if, not_applicable};
use super::wire::Lost;

pub(super) async fn check(session: &Session, findings: &mut Vec<Finding>) {
    found(findings, "missing-key", "a request without a key is 400", missing(session).await);
    found(findings, "malformed-key", "a malformed key is 400, and nothing is done", malformed(session).await);
    found(findings, "long-key", "a key of 255 bytes is taken, one of 256 is 400", long(session).await);
    found(findings, "quoted-key", "a key in quotes and the same one bare are one key", quoted(session).await);
    found(findings, "bytes-of-key", "keys are compared byte for byte", bytes(session).await);
}

fn value(text: &str) -> HeaderValue {
    // All texts of this file are header values.
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

async fn missing(session: &Session) -> Result<Verdict, Lost> {
    let answer = session.send(&[], &session.samples.body).await?;
    if !session.profile.needs_key() {
        return Ok(not_applicable("the key may be left out"));
    }
    Ok(holds_if(answer.status == 400, || format!("{} {}", answer.status.as_u16(), answer.excerpt())))
}

async fn malformed(session: &Session) -> Result<Verdict, Lost> {
    let mut cases = vec![("an empty field", vec![value("")])];
    if session.profile == Profile::Ietf {
        let two = [session.key(), session.key()].concat();
        cases.extend([
            ("an empty string", vec![value("\"\"")]),
            ("a quote that is not closed", vec![value("\"abc")]),
            ("text behind the quotes", vec![value("\"abc\"def")]),
            ("two keys", two),
        ]);
    }
    for (name, keys) in cases {
        let answer = session.send(&keys, &session.samples.body).await?;
        if answer.status != 400 {
            return Ok(Verdict::Fails(format!("{name}: {} {}", answer.status.as_u16(), answer.excerpt())));
        }
    }
    Ok(Verdict::Holds)
}

async fn long(session: &Session) -> Result<Verdict, Lost> {
    let id = uuid::Uuid::new_v4().simple().to_string();
    let text = |length: usize| format!("{id}{}", "k".repeat(length - id.len()));
    let fits = session.settle(&session.profile.value(&text(255)), &session.samples.body).await?;
    let too_long = session.send(&session.profile.value(&text(256)), &session.samples.body).await?;
    Ok(holds_if(fits.status.is_success() && too_long.status == 400, || {
        format!("255 bytes: {}, 256 bytes: {}", fits.status.as_u16(), too_long.status.as_u16())
    }))
}

async fn quoted(session: &Session) -> Result<Verdict, Lost> {
    if session.profile != Profile::Ietf {
        return Ok(not_applicable("keys are written without quotes"));
    }
    let id = uuid::Uuid::new_v4().to_string();
    let first = session.succeed(&[value(&format!("\"{id}\""))], &session.samples.body).await?;
    let bare = session.settle(&[value(&id)], &session.samples.body).await?;
    if bare.status == 400 {
        return Ok(not_applicable("keys without quotes are refused"));
    }
    Ok(holds_if(bare.body == first.body, || format!("two answers: {} and {}", first.excerpt(), bare.excerpt())))
}

/// Two keys that a careless comparison takes for one.
async fn bytes(session: &Session) -> Result<Verdict, Lost> {
    if !session.tells_apart {
        return Ok(not_applicable("answers to two operations are equal"));
    }
    let id = format!("probe-{}", uuid::Uuid::new_v4());
    let lower = session.succeed(&session.profile.value(&id), &session.samples.body).await?;
    let upper = session.succeed(&session.profile.value(&id.to_uppercase()), &session.samples.body).await?;
    Ok(holds_if(lower.body != upper.body, || {
        "a key in capitals got the answer of the same in small letters".to_owned()
    }))
}
