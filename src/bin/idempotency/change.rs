//! What a person decides about a key.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use idempotency::record::{Answer, AnswerBody};
use idempotency::store::{Entry, Kept, Operate, Operated};

use crate::arguments::{AnswerArguments, Arguments, KeyArguments};
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::look::records;
use crate::place::{Kind, Place};
use crate::show;

/// The one record that is meant.
async fn record(place: &Place, arguments: &Arguments, named: &KeyArguments) -> Result<Entry, Failure> {
    let mut entries = records(place, arguments, named).await?;
    match entries.len() {
        0 => Err(Failure::NothingMatched),
        1 => Ok(entries.remove(0)),
        several => {
            show::list(&entries, &[], arguments.json);
            Err(Failure::Refused(format!("the key has {several} records: name the --endpoint of one")))
        }
    }
}

fn done(arguments: &Arguments, what: &str, operated: Operated) -> Result<(), Failure> {
    match operated {
        Operated::Done => {
            show::done(arguments.json, what);
            Ok(())
        }
        Operated::InProgress => Err(Failure::Refused("an attempt is running".to_owned())),
        Operated::Changed => Err(Failure::Refused(
            "the record is in a state that this is not for, or has changed: look again".to_owned(),
        )),
    }
}

pub(crate) async fn release(
    place: &Place,
    arguments: &Arguments,
    named: &KeyArguments,
    terminate: bool,
) -> Result<(), Failure> {
    let entry = record(place, arguments, named).await?;
    if !terminate {
        confirmed(arguments, &format!("{}\nFree it, so that the next request runs?", show::line(&entry)))?;
        return done(arguments, "released", place.store.release(&entry).await?);
    }
    let (Kind::Postgres(store), Some(holder)) = (&place.kind, &entry.holder) else {
        return Err(Failure::Refused("no database session holds this key".to_owned()));
    };
    confirmed(arguments, &format!("{}\nEnd that session, which undoes its work?", show::line(&entry)))?;
    if store.terminate(holder).await? {
        show::done(arguments.json, "terminated");
        return Ok(());
    }
    Err(Failure::Refused("the session has ended, or is in another transaction by now: look again".to_owned()))
}

pub(crate) async fn settle(
    place: &Place,
    arguments: &Arguments,
    named: &KeyArguments,
    answer: &AnswerArguments,
) -> Result<(), Failure> {
    let kept = Kept { answer: read(answer)?, retention: answer.retention };
    let entry = record(place, arguments, named).await?;
    let what = format!("{}\nGive it the answer {} for good?", show::line(&entry), answer.status);
    confirmed(arguments, &what)?;
    done(arguments, "settled", place.store.settle_as(&entry, kept).await?)
}

pub(crate) async fn forget(place: &Place, arguments: &Arguments, named: &KeyArguments) -> Result<(), Failure> {
    let entry = record(place, arguments, named).await?;
    confirmed(arguments, &format!("{}\nDelete it, so that the key is new again?", show::line(&entry)))?;
    done(arguments, "forgotten", place.store.forget(&entry).await?)
}

/// The answer that the arguments describe.
fn read(arguments: &AnswerArguments) -> Result<Answer, Failure> {
    let mut headers = HeaderMap::new();
    for header in &arguments.headers {
        let wrong = || Failure::usage(format!("no header field: {header}"));
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
    }
    let body = match &arguments.body {
        Some(file) => std::fs::read(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?,
        None => Vec::new(),
    };
    let status = StatusCode::from_u16(arguments.status).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Answer { status, headers, body: AnswerBody::Kept(body.into()), trailers: None })
}
