//! The tables of messages on each engine.

use idempotency::OutboxDialect;
use idempotency::inbox::{Inbox, InboxBuilder, InboxDialect, InboxStats};
use idempotency::outbox::{Outbox, OutboxBuilder};
use serde_json::json;
use sqlx::{MySqlPool, PgPool, Pool, SqlitePool};

use crate::arguments::{Arguments, InboxCommand, OutboxCommand};
use crate::connect::Database;
use crate::failure::Failure;
use crate::{events, output, progress, show, stats};

/// An inbox has a consumer; what is counted is that of all.
const CONSUMER: &str = "operator";

pub(crate) async fn outbox(arguments: &Arguments, command: &OutboxCommand) -> Result<(), Failure> {
    events::check(command)?;
    match Database::connect(arguments).await? {
        Database::Sqlite(pool) => events::run(&outbox_of(pool, arguments).await?, arguments, command).await,
        Database::Postgres(pool) => events::run(&outbox_of(pool, arguments).await?, arguments, command).await,
        Database::MySql(pool) => events::run(&outbox_of(pool, arguments).await?, arguments, command).await,
    }
}

pub(crate) async fn inbox(arguments: &Arguments, command: &InboxCommand) -> Result<(), Failure> {
    let InboxCommand::Stats { exact } = command;
    match Database::connect(arguments).await? {
        Database::Sqlite(pool) => shown(&sqlite_inbox(pool).await?, arguments, *exact).await,
        Database::Postgres(pool) => shown(&postgres_inbox(pool, arguments).await?, arguments, *exact).await,
        Database::MySql(pool) => shown(&mysql_inbox(pool, arguments).await?, arguments, *exact).await,
    }
}

pub(crate) async fn sqlite_inbox(pool: SqlitePool) -> Result<Inbox<sqlx::Sqlite>, Failure> {
    Ok(Inbox::builder(pool, CONSUMER).build().await?)
}

pub(crate) async fn postgres_inbox(pool: PgPool, arguments: &Arguments) -> Result<Inbox<sqlx::Postgres>, Failure> {
    let builder = Inbox::builder(pool, CONSUMER);
    Ok(arguments.schema.iter().fold(builder, InboxBuilder::<sqlx::Postgres>::schema).build().await?)
}

pub(crate) async fn mysql_inbox(pool: MySqlPool, arguments: &Arguments) -> Result<Inbox<sqlx::MySql>, Failure> {
    let builder = Inbox::builder(pool, CONSUMER);
    Ok(arguments.schema.iter().fold(builder, InboxBuilder::<sqlx::MySql>::schema).build().await?)
}

pub(crate) fn outbox_builder<DB: OutboxDialect>(arguments: &Arguments) -> OutboxBuilder<DB> {
    arguments.schema.iter().fold(Outbox::builder(), OutboxBuilder::schema)
}

async fn outbox_of<DB: OutboxDialect>(pool: Pool<DB>, arguments: &Arguments) -> Result<Outbox<DB>, Failure> {
    Ok(outbox_builder(arguments).build(pool).await?)
}

async fn shown<DB: InboxDialect>(inbox: &Inbox<DB>, arguments: &Arguments, exact: bool) -> Result<(), Failure> {
    let progress = progress::waiting(arguments, "counting");
    let counted = inbox.stats(stats::most(exact)).await;
    progress.finish_and_clear();
    let InboxStats { marks, expired, overdue, failing, consumers, .. } = counted?;
    // A name of a consumer may be any bytes.
    let named = consumers.iter().map(|consumer| {
        let name = std::str::from_utf8(&consumer.name).map(str::to_owned);
        (name.unwrap_or_else(|_| consumer.name.escape_ascii().to_string()), consumer.marks)
    });
    if arguments.json {
        let consumers: Vec<_> =
            named.map(|(name, marks)| json!({ "name": name, "marks": show::count(marks) })).collect();
        let document = json!({
            "marks": show::count(marks),
            "expired": show::count(expired),
            "overdue_seconds": overdue.map(|overdue| overdue.as_secs_f64()),
            "failing": show::count(failing),
            "consumers": consumers,
        });
        return output::line(document);
    }
    output::line(format_args!("marks      {marks}"))?;
    output::line(format_args!("expired    {expired}{}", stats::overdue(overdue)))?;
    output::line(format_args!("failing    {failing}"))?;
    for (name, marks) in named {
        output::line(format_args!("consumer   {name:?}: {marks}"))?;
    }
    if consumers.len() == InboxStats::MOST_CONSUMERS {
        output::remark(format_args!("idempotency: no more than {} consumers are shown", InboxStats::MOST_CONSUMERS));
    }
    Ok(())
}
