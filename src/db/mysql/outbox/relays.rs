//! Who relays. Nothing is decided in SQL: a bucket is taken by a compare-and-set of what was read.

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};
use uuid::Uuid;

use super::queue::execute;
use super::sql::Texts;
use super::text;
use crate::db::mysql::call::is_found;
use crate::db::mysql::says_duplicate;
use crate::db::outbox::columns::{bucket, json};
use crate::db::outbox::{Beat, Fence, Member, Taken};
use crate::outbox::Bucket;

/// A bucket as it was.
struct Seen {
    bucket: Bucket,
    owner: Option<Uuid>,
    epoch: i64,
    vanished: bool,
}

/// Says that the member lives. `false`: its name has another incarnation.
pub(super) async fn say(
    connection: &mut MySqlConnection,
    texts: &Texts,
    member: &Member,
    lease: i64,
    joins: bool,
) -> Result<bool, sqlx::Error> {
    let (name, token) = (member.name.as_bytes().to_vec(), member.token.as_bytes().to_vec());
    if joins {
        execute(connection, sqlx::query(texts.join.clone()).bind(name).bind(token).bind(lease)).await?;
        return Ok(true);
    }
    let beat = sqlx::query(texts.beat.clone()).bind(lease).bind(name.clone()).bind(token.clone());
    if is_found(&execute(connection, beat).await?) {
        return Ok(true);
    }
    match execute(connection, sqlx::query(texts.join_again.clone()).bind(name).bind(token).bind(lease)).await {
        Ok(_) => Ok(true),
        Err(error) if says_duplicate(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Who lives, and what the member owns.
pub(super) async fn look(
    connection: &mut MySqlConnection,
    texts: &Texts,
    member: &Member,
) -> Result<Beat, sqlx::Error> {
    let members: Result<Vec<String>, _> = live(connection, texts).await?.iter().map(|row| text(row, "name")).collect();
    let mut members = members?;
    if !members.contains(&member.name) {
        // A lease shorter than two statements.
        members.push(member.name.clone());
    }
    members.sort_unstable();
    let buckets = buckets(connection, texts).await?;
    let own = buckets.iter().filter(|seen| seen.owner == Some(member.token));
    Ok(Beat::Member { members, holdings: own.map(|seen| taken(seen, member)).collect() })
}

/// Takes what nobody owns who lives.
pub(super) async fn take(
    connection: &mut MySqlConnection,
    texts: &Texts,
    member: &Member,
    most: usize,
) -> Result<Vec<Taken>, sqlx::Error> {
    // Owners before members: who has joined and taken something in between is seen as living.
    let seen = buckets(connection, texts).await?;
    let tokens: Result<Vec<Uuid>, _> =
        live(connection, texts).await?.iter().map(|row| uuid(&row.try_get::<Vec<u8>, _>("token")?)).collect();
    let tokens = tokens?;
    if !tokens.contains(&member.token) {
        return Ok(Vec::new());
    }
    let is_free = |seen: &Seen| seen.owner.is_none_or(|owner| !tokens.contains(&owner));
    let free: Vec<Seen> = seen.into_iter().filter(is_free).take(most).collect();
    if free.is_empty() {
        return Ok(Vec::new());
    }
    let take = sqlx::query(texts.take.clone()).bind(triples(&free)).bind(member.token.as_bytes().to_vec());
    execute(connection, take).await?;
    let now = buckets(connection, texts).await?;
    let is_new = |now: &&Seen| now.owner == Some(member.token) && free.iter().any(|seen| seen.bucket == now.bucket);
    Ok(now.iter().filter(is_new).map(|now| taken(now, member)).collect())
}

/// Gives buckets up.
pub(super) async fn release(
    connection: &mut MySqlConnection,
    texts: &Texts,
    fences: &[Fence],
) -> Result<(), sqlx::Error> {
    let held =
        |fence: &Fence| Seen { bucket: fence.bucket, owner: Some(fence.owner), epoch: fence.epoch, vanished: false };
    let held: Vec<Seen> = fences.iter().map(held).collect();
    execute(connection, sqlx::query(texts.release.clone()).bind(triples(&held))).await.map(drop)
}

fn triples(seen: &[Seen]) -> String {
    let triple = |seen: &Seen| {
        let owner = seen.owner.map(|owner| owner.simple().to_string());
        serde_json::json!([seen.bucket.number(), seen.epoch, owner])
    };
    json(seen.iter().map(triple)).to_string()
}

fn taken(seen: &Seen, member: &Member) -> Taken {
    let fence = Fence { bucket: seen.bucket, epoch: seen.epoch, owner: member.token };
    Taken { fence, vanished: seen.vanished }
}

async fn live(connection: &mut MySqlConnection, texts: &Texts) -> Result<Vec<MySqlRow>, sqlx::Error> {
    sqlx::query(texts.live.clone()).fetch_all(connection).await
}

async fn buckets(connection: &mut MySqlConnection, texts: &Texts) -> Result<Vec<Seen>, sqlx::Error> {
    let rows = sqlx::query(texts.buckets.clone()).fetch_all(connection).await?;
    let seen = |row: &MySqlRow| {
        Ok(Seen {
            bucket: bucket(row.try_get("bucket")?)?,
            owner: row.try_get::<Option<Vec<u8>>, _>("owner")?.map(|owner| uuid(&owner)).transpose()?,
            epoch: row.try_get("epoch")?,
            vanished: row.try_get::<i16, _>("vanished")? != 0,
        })
    };
    rows.iter().map(seen).collect()
}

fn uuid(bytes: &[u8]) -> Result<Uuid, sqlx::Error> {
    Uuid::from_slice(bytes).map_err(|error| sqlx::Error::Decode(error.into()))
}
