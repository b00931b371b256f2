//! A record as operators see it.

use std::time::Duration;

use http::StatusCode;
use redis::Value;

use super::reply::{int, state, unreadable};
use crate::error::Error;
use crate::lookup::LookupKey;
use crate::store::{Entry, Fence, Token};

/// The fields of a record that an entry is made of. All but the answer.
pub(super) const FIELDS: [&str; 11] = ["s", "t", "l", "h", "n", "e", "a", "x", "z", "k", "p"];
/// The status of the stored answer, read beside them.
pub(super) const STATUS: &str = "u";

/// The live record in these fields, at this instant by the server's clock in microseconds. `None` where there is none.
pub(super) fn read(now: u64, fields: Value) -> Result<Option<Entry>, Error> {
    let Value::Array(fields) = fields else { return Err(unreadable()) };
    let fields = fields.into_iter().map(text).collect::<Result<Vec<_>, Error>>()?;
    let Ok([letter, token, lease_ends, held, attempt, fence, accepted, ends, scope, key, endpoint, status]) =
        <[Option<Vec<u8>>; FIELDS.len() + 1]>::try_from(fields)
    else {
        return Err(unreadable());
    };
    let (lease_ends, ends) = (number(lease_ends.as_deref())?, number(ends.as_deref())?);
    let ended = lease_ends <= now;
    let Some(state) = state(&letter.unwrap_or_default(), ended, held.as_deref() == Some(b"1")) else {
        return Ok(None);
    };
    let is_completed = state == crate::policy::State::Completed;
    let last = if is_completed { ends } else { ends.max(lease_ends) };
    if last <= now {
        return Ok(None);
    }
    let part = |part: Option<Vec<u8>>| String::from_utf8(part.unwrap_or_default()).map_err(|_| unreadable());
    let lookup = LookupKey::from_stored(&part(scope)?, &part(key)?, &part(endpoint)?).ok_or_else(unreadable)?;
    let token = token.and_then(|token| <[u8; 16]>::try_from(token).ok()).ok_or_else(unreadable)?;
    let mut entry = Entry::new(lookup, state, Token::from_bytes(token));
    entry.attempt = number(attempt.as_deref())?;
    entry.fence = Some(Fence(number(fence.as_deref())?));
    entry.age = Duration::from_micros(now.saturating_sub(number(accepted.as_deref())?));
    entry.expires_in = Duration::from_micros(last - now);
    entry.lease_left = (!is_completed && !ended).then(|| Duration::from_micros(lease_ends - now));
    entry.status = u16::try_from(number(status.as_deref())?).ok().and_then(|status| StatusCode::from_u16(status).ok());
    Ok(Some(entry))
}

/// The answer of `TIME`, in microseconds.
pub(super) fn instant(time: Value) -> Result<u64, Error> {
    let Value::Array(parts) = time else { return Err(unreadable()) };
    let parts = parts.into_iter().map(text).collect::<Result<Vec<_>, Error>>()?;
    let [seconds, micros] = parts.as_slice() else { return Err(unreadable()) };
    let (seconds, micros) = (number(seconds.as_deref())?, number(micros.as_deref())?);
    seconds.checked_mul(1_000_000).and_then(|whole| whole.checked_add(micros)).ok_or_else(unreadable)
}

/// The answer of the script that looks at one record.
pub(super) fn looked(answer: Value) -> Result<Option<Entry>, Error> {
    let Value::Array(parts) = answer else { return Err(unreadable()) };
    let mut parts = parts.into_iter();
    let now = int(parts.next().as_ref())?;
    read(now, parts.next().ok_or_else(unreadable)?)
}

fn text(value: Value) -> Result<Option<Vec<u8>>, Error> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        _ => Err(unreadable()),
    }
}

/// A number that a script has stored; a missing one is 0.
fn number(digits: Option<&[u8]>) -> Result<u64, Error> {
    let Some(digits) = digits else { return Ok(0) };
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or_else(unreadable)
}
