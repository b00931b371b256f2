//! Rows of leases in Rust types.

use bytes::Bytes;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::db::lease::{Found, Granted, Seen, checkpoint};

pub(super) fn seen(row: &MySqlRow) -> Result<Seen, sqlx::Error> {
    Ok(Seen {
        completed: row.try_get::<i16, _>("state")? == 1,
        fingerprint: row.try_get("fingerprint")?,
        token: row.try_get("token")?,
        held: row.try_get::<i16, _>("held")? != 0,
        expired: row.try_get::<i64, _>("expired")? != 0,
        ended: row.try_get::<i64, _>("ended")? != 0,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        granted: granted(row)?,
    })
}

pub(super) fn granted(row: &MySqlRow) -> Result<Granted, sqlx::Error> {
    Ok(Granted {
        fence: row.try_get("fence")?,
        attempt: row.try_get("attempt")?,
        checkpoint: checkpoint(step(row)?, row.try_get("checkpoint")?),
    })
}

pub(super) fn found(row: &MySqlRow) -> Result<Found, sqlx::Error> {
    Ok(Found {
        lookup: [text(row, "scope")?, text(row, "id_key")?, text(row, "endpoint")?],
        completed: row.try_get::<i16, _>("state")? == 1,
        token: row.try_get("token")?,
        fence: row.try_get("fence")?,
        attempt: row.try_get("attempt")?,
        held: row.try_get::<i16, _>("held")? != 0,
        age: row.try_get("age")?,
        expires_in: row.try_get("expires_in")?,
        lease_left: row.try_get("lease_left")?,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(Bytes::from),
        step: step(row)?,
    })
}

fn step(row: &MySqlRow) -> Result<Option<String>, sqlx::Error> {
    row.try_get::<Option<Vec<u8>>, _>("checkpoint_step")?.map(of_bytes).transpose()
}

/// Of a column that compares byte for byte.
pub(in crate::db::mysql) fn text(row: &MySqlRow, column: &str) -> Result<String, sqlx::Error> {
    of_bytes(row.try_get(column)?)
}

fn of_bytes(bytes: Vec<u8>) -> Result<String, sqlx::Error> {
    String::from_utf8(bytes).map_err(|error| sqlx::Error::Decode(error.into()))
}
