//! What a person decides about a key.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use idempotency::policy::State;
use idempotency::record::{Answer, AnswerBody, HeaderFilter};
use idempotency::store::{Entry, Kept, Operate, Operated};

use crate::arguments::{AnswerArguments, Arguments};
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::look::{Named, records};
use crate::place::{Kind, Place};
use crate::{output, show};

/// The one record that is meant.
async fn record(place: &Place, arguments: &Arguments, named: &Named) -> Result<Entry, Failure> {
    let mut entries = records(place, named).await?;
    match entries.len() {
        0 => Err(Failure::NothingMatched),
        1 => Ok(entries.remove(0)),
        several => {
            show::list(&entries, &[], arguments.json)?;
            Err(Failure::Refused(format!("the key has {several} records: name the --endpoint of one")))
        }
    }
}

/// A key that an attempt runs is refused at once: nobody need be asked about it.
fn stands_still(entry: &Entry) -> Result<(), Failure> {
    match entry.state {
        State::Running => {
            output::remark(show::line(entry));
            let way = if entry.holder.is_some() { " (`release --terminate` ends its session)" } else { "" };
            Err(Failure::Refused(format!("an attempt is running{way}")))
        }
        _ => Ok(()),
    }
}

/// The same for one that has its answer.
fn waits(entry: &Entry) -> Result<(), Failure> {
    stands_still(entry)?;
    match entry.state {
        State::Completed => {
            output::remark(show::line(entry));
            Err(Failure::Refused("the key has its answer: only `forget` takes it away".to_owned()))
        }
        _ => Ok(()),
    }
}

fn done(arguments: &Arguments, what: &str, operated: Operated) -> Result<(), Failure> {
    match operated {
        Operated::Done => show::done(arguments.json, what),
        Operated::InProgress => Err(Failure::Refused("an attempt is running".to_owned())),
        Operated::Changed => Err(Failure::Refused(
            "the record is in a state that this is not for, or has changed: look again".to_owned(),
        )),
    }
}

pub(crate) async fn release(
    place: &Place,
    arguments: &Arguments,
    named: &Named,
    terminate: bool,
) -> Result<(), Failure> {
    let entry = record(place, arguments, named).await?;
    if !terminate {
        waits(&entry)?;
        confirmed(arguments, &format!("{}\nFree it, so that the next request runs?", show::line(&entry)))?;
        return done(arguments, "released", place.store.release(&entry).await?);
    }
    let (Kind::Postgres(store), Some(holder)) = (&place.kind, &entry.holder) else {
        return Err(Failure::Refused("no database session holds this key".to_owned()));
    };
    confirmed(arguments, &format!("{}\nEnd that session, which undoes its work?", show::line(&entry)))?;
    if store.terminate(holder).await? {
        return show::done(arguments.json, "terminated");
    }
    Err(Failure::Refused("the session has ended, or is in another transaction by now: look again".to_owned()))
}

pub(crate) async fn settle(place: &Place, arguments: &Arguments, named: &Named, answer: Kept) -> Result<(), Failure> {
    let entry = record(place, arguments, named).await?;
    waits(&entry)?;
    let (status, retention) = (answer.answer.status.as_u16(), show::time(answer.retention));
    confirmed(arguments, &format!("{}\nGive it the answer {status}, kept for {retention}?", show::line(&entry)))?;
    // Stores count from the day that the operation was accepted, which may be long ago.
    let kept = Kept { retention: answer.retention.saturating_add(entry.age), ..answer };
    done(arguments, "settled", place.store.settle_as(&entry, kept).await?)
}

pub(crate) async fn forget(place: &Place, arguments: &Arguments, named: &Named) -> Result<(), Failure> {
    let entry = record(place, arguments, named).await?;
    stands_still(&entry)?;
    confirmed(arguments, &format!("{}\nDelete it, so that the key is new again?", show::line(&entry)))?;
    done(arguments, "forgotten", place.store.forget(&entry).await?)
}

/// The answer that the arguments describe, and how long it is kept from now on.
pub(crate) fn answer(arguments: &AnswerArguments) -> Result<Kept, Failure> {
    let mut headers = HeaderMap::new();
    for header in &arguments.headers {
        let wrong = || Failure::usage(format!("no header field: {header}"));
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
    }
    // Whoever asks for a field gets it, but for those that would break the message that it is sent in.
    let filter = headers.keys().cloned().fold(HeaderFilter::default(), HeaderFilter::keep);
    if filter.filter(&headers).len() < headers.len() {
        return Err(Failure::usage("connection, framing and Retry-After are no part of an answer that is kept"));
    }
    let body = match &arguments.body {
        Some(file) => std::fs::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?,
        None => Vec::new(),
    };
    let status = StatusCode::from_u16(arguments.status).map_err(|error| Failure::usage(error.to_string()))?;
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) && !body.is_empty() {
        return Err(Failure::usage(format!("an answer with status {} has no body", status.as_u16())));
    }
    let answer = Answer { status, headers, body: AnswerBody::Kept(body.into()), trailers: None };
    Ok(Kept { answer, retention: arguments.retention })
}
