//! The tables of messages on each engine.

use idempotency::OutboxDialect;
use idempotency::inbox::{Inbox, InboxBuilder, InboxDialect, InboxStats};
use idempotency::outbox::{Outbox, OutboxBuilder};
use serde_json::json;
use sqlx::Pool;

use crate::arguments::{Arguments, InboxCommand, OutboxCommand};
use crate::connect::Database;
use crate::failure::Failure;
use crate::{events, progress, show, stats};

/// An inbox has a consumer; what is counted is that of all.
const CONSUMER: &str = "operator";

pub(crate) async fn outbox(arguments: &Arguments, command: &OutboxCommand) -> Result<(), Failure> {
    match connect(arguments, "an outbox").await? {
        Database::Sqlite(pool) => events::run(&outbox_of(pool, arguments).await?, arguments, command).await,
        Database::Postgres(pool) => events::run(&outbox_of(pool, arguments).await?, arguments, command).await,
        Database::MySql(pool) => events::run(&outbox_of(pool, arguments).await?, arguments, command).await,
    }
}

pub(crate) async fn inbox(arguments: &Arguments, command: &InboxCommand) -> Result<(), Failure> {
    let InboxCommand::Stats { exact } = command;
    let schema = arguments.schema.iter();
    match connect(arguments, "an inbox").await? {
        Database::Sqlite(pool) => shown(Inbox::builder(pool, CONSUMER), arguments, *exact).await,
        Database::Postgres(pool) => {
            let builder = schema.fold(Inbox::builder(pool, CONSUMER), InboxBuilder::<sqlx::Postgres>::schema);
            shown(builder, arguments, *exact).await
        }
        Database::MySql(pool) => {
            let builder = schema.fold(Inbox::builder(pool, CONSUMER), InboxBuilder::<sqlx::MySql>::schema);
            shown(builder, arguments, *exact).await
        }
    }
}

async fn connect(arguments: &Arguments, what: &str) -> Result<Database, Failure> {
    if arguments.store.is_some() || arguments.leases {
        return Err(Failure::usage(format!("{what} is in a database: --store and --leases are for keys")));
    }
    Database::connect(arguments).await
}

async fn outbox_of<DB: OutboxDialect>(pool: Pool<DB>, arguments: &Arguments) -> Result<Outbox<DB>, Failure> {
    Ok(arguments.schema.iter().fold(Outbox::builder(), OutboxBuilder::schema).build(pool).await?)
}

async fn shown<DB: InboxDialect>(builder: InboxBuilder<DB>, arguments: &Arguments, exact: bool) -> Result<(), Failure> {
    let inbox = builder.build().await?;
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
        println!("{document}");
        return Ok(());
    }
    println!("marks      {marks}");
    println!("expired    {expired}{}", stats::overdue(overdue));
    println!("failing    {failing}");
    for (name, marks) in named {
        println!("consumer   {name:?}: {marks}");
    }
    if consumers.len() == InboxStats::MOST_CONSUMERS {
        println!("           no more than {} consumers are shown", InboxStats::MOST_CONSUMERS);
    }
    Ok(())
}
