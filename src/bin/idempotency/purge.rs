//! What has expired goes, from every table.

use std::time::Duration;

use idempotency::purge::Purger;
use idempotency::{Error, OutboxDialect};
use indicatif::ProgressBar;
use serde_json::json;
use sqlx::Pool;

use crate::arguments::{Arguments, PurgeArguments};
use crate::confirm::confirmed;
use crate::connect::Database;
use crate::failure::Failure;
use crate::place::Place;
use crate::{messages, output, progress, show};

/// How long is purged between two looks at the progress.
const STEP: Duration = Duration::from_secs(1);

pub(crate) async fn purge(arguments: &Arguments, wanted: &PurgeArguments) -> Result<(), Failure> {
    let database = Database::connect(arguments).await?;
    let mut tables = vec![
        ("keys", Purger::new().keys("keys", Place::of(database.clone(), arguments, false).await?.store)),
        ("leases", Purger::new().keys("leases", Place::of(database.clone(), arguments, true).await?.store)),
        ("inbox", inbox(database.clone(), arguments).await?),
    ];
    if let Some(age) = wanted.dead_letters {
        tables.push(("dead_letters", outbox(database, arguments, age).await?));
    }
    confirmed(arguments, &asked(wanted))?;
    let progress = progress::counting(arguments, "rows deleted");
    let (mut counts, mut failed) = (Vec::new(), None);
    for (name, purger) in tables {
        let (rows, error) = whole(purger.batch(wanted.batch).interval(STEP), &progress).await;
        counts.push((name, rows));
        failed = failed.or(error);
    }
    progress.finish_and_clear();
    let deleted: u64 = counts.iter().map(|(_, rows)| rows).sum();
    if arguments.json {
        let mut document = json!({ "deleted": deleted });
        counts.into_iter().for_each(|(name, rows)| document[name] = rows.into());
        output::line(document)?;
    } else {
        for (name, rows) in counts {
            output::line(format_args!("{:<12} {rows}", name.replace('_', " ")))?;
        }
        output::line(format_args!("{} deleted", show::number(deleted, "row")))?;
    }
    match failed {
        Some(error) => Err(error.into()),
        None if deleted == 0 => Err(Failure::NothingMatched),
        None => Ok(()),
    }
}

fn asked(wanted: &PurgeArguments) -> String {
    let letters = wanted.dead_letters.map(|age| format!(", and dead letters of {} and older", show::time(age)));
    format!("Delete every record that has expired{}?", letters.unwrap_or_default())
}

/// Until nothing is left. What failed in one table keeps no other from being purged; rows that went before it did are counted
/// but for those of its last step.
async fn whole(purger: Purger, progress: &ProgressBar) -> (u64, Option<Error>) {
    let mut deleted = 0;
    loop {
        match purger.purge_once().await {
            Ok(purged) => {
                deleted += purged.rows;
                progress.inc(purged.rows);
                if !purged.more {
                    return (deleted, None);
                }
            }
            Err(error) => return (deleted, Some(error)),
        }
    }
}

async fn inbox(database: Database, arguments: &Arguments) -> Result<Purger, Failure> {
    Ok(match database {
        Database::Sqlite(pool) => Purger::new().inbox("inbox", messages::sqlite_inbox(pool).await?),
        Database::Postgres(pool) => Purger::new().inbox("inbox", messages::postgres_inbox(pool, arguments).await?),
        Database::MySql(pool) => Purger::new().inbox("inbox", messages::mysql_inbox(pool, arguments).await?),
    })
}

/// How long the service keeps its dead letters is not known here.
async fn outbox(database: Database, arguments: &Arguments, age: Duration) -> Result<Purger, Failure> {
    match database {
        Database::Sqlite(pool) => letters(pool, arguments, age).await,
        Database::Postgres(pool) => letters(pool, arguments, age).await,
        Database::MySql(pool) => letters(pool, arguments, age).await,
    }
}

async fn letters<DB: OutboxDialect>(pool: Pool<DB>, arguments: &Arguments, age: Duration) -> Result<Purger, Failure> {
    let outbox = messages::outbox_builder(arguments).dead_retention(age).build(pool).await?;
    Ok(Purger::new().outbox("outbox", outbox))
}
