//! The answer of the claim's script.

use bytes::Bytes;
use redis::Value;

use crate::error::{Error, ErrorKind};
use crate::policy::State;

pub(super) enum Reply {
    /// The record is the asker's. `other_profile`: what it took over could not be compared (H18).
    Claimed { fence: u64, attempt: u64, other_profile: bool },
    /// The record stands, and decides.
    Seen(Seen),
    /// A late copy of a question that has been answered.
    Late,
}

pub(super) struct Seen {
    pub(super) state: State,
    pub(super) fingerprint: Vec<u8>,
    /// Whose record it is: what is read of it afterwards must be of the same one.
    pub(super) token: Vec<u8>,
    pub(super) answer: Stored,
}

pub(super) enum Stored {
    /// There is none, or it is not for this asker.
    Nothing,
    Here(Bytes),
    /// Too long for a script's answer (S25).
    ToFetch,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, Error> {
        let Value::Array(fields) = value else { return Err(unreadable()) };
        let mut fields = fields.into_iter();
        match int(fields.next().as_ref())? {
            0 => Ok(Self::Seen(Seen::read(fields)?)),
            1 => Ok(Self::Claimed {
                fence: int(fields.next().as_ref())?,
                attempt: int(fields.next().as_ref())?,
                other_profile: bytes(fields.next())? == b"other profile",
            }),
            2 => Ok(Self::Late),
            _ => Err(unreadable()),
        }
    }
}

impl Seen {
    fn read(mut fields: impl Iterator<Item = Value>) -> Result<Self, Error> {
        let letter = bytes(fields.next())?;
        let (ended, held) = (int(fields.next().as_ref())? == 1, int(fields.next().as_ref())? == 1);
        let state = state(&letter, ended, held).ok_or_else(unreadable)?;
        let (fingerprint, token) = (bytes(fields.next())?, bytes(fields.next())?);
        let length = int(fields.next().as_ref())?;
        let answer = match fields.next() {
            Some(Value::BulkString(answer)) => Stored::Here(answer.into()),
            _ if length > 0 => Stored::ToFetch,
            _ => Stored::Nothing,
        };
        Ok(Self { state, fingerprint, token, answer })
    }
}

/// Where a record stands, by its letter. A released one is nowhere.
pub(super) fn state(letter: &[u8], ended: bool, held: bool) -> Option<State> {
    match letter {
        b"r" => Some(State::of_lease(ended, held)),
        b"c" => Some(State::Completed),
        _ => None,
    }
}

pub(super) fn unreadable() -> Error {
    ErrorKind::Unreadable.into()
}

/// A whole number of a script's answer; all of ours are small enough.
pub(super) fn int(value: Option<&Value>) -> Result<u64, Error> {
    match value {
        Some(Value::Int(number)) => u64::try_from(*number).map_err(|_| unreadable()),
        _ => Err(unreadable()),
    }
}

pub(super) fn bytes(value: Option<Value>) -> Result<Vec<u8>, Error> {
    match value {
        Some(Value::BulkString(bytes)) => Ok(bytes),
        _ => Err(unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // In doubt an error: never a claim, never a replay.
    #[test]
    fn what_no_script_says_is_an_error() {
        let text = |text: &str| Value::BulkString(text.into());
        for value in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Int(1), Value::Int(-1), Value::Int(1), text("same")]),
            Value::Array(vec![Value::Int(3)]),
            Value::Array(vec![
                Value::Int(0),
                text("x"),
                Value::Int(0),
                Value::Int(0),
                text(""),
                text(""),
                Value::Int(0),
            ]),
            Value::Array(vec![Value::Int(0), text("c"), Value::Nil]),
        ] {
            assert!(Reply::read(value.clone()).is_err(), "{value:?}");
        }
    }
}
