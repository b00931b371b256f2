//! The tables.

use idempotency::{MySqlStore, PostgresStore, SqliteStore};

use crate::arguments::{Arguments, Engine};
use crate::confirm::confirmed;
use crate::failure::Failure;
use crate::place::Place;
use crate::{output, show};

pub(crate) async fn migrate(place: &Place, arguments: &Arguments) -> Result<(), Failure> {
    confirmed(arguments, "Bring the tables to the newest version?")?;
    place.migrate().await?;
    show::done(arguments.json, "migrated")
}

/// Prints the text of one migration, or of all. Nothing is connected to.
pub(crate) fn print(arguments: &Arguments, engine: Option<Engine>, version: Option<usize>) -> Result<(), Failure> {
    let named = || arguments.database.as_deref().and_then(Engine::of);
    let engine = engine.or_else(named).ok_or_else(|| Failure::usage("name the --engine, or a database"))?;
    let schema = arguments.schema.as_deref();
    let text = |version| match engine {
        Engine::Sqlite => SqliteStore::schema_sql(version).map(str::to_owned),
        Engine::Postgres => PostgresStore::schema_sql(version, schema),
        Engine::Mysql => MySqlStore::schema_sql(version, schema),
    };
    let texts: Vec<String> = match version {
        Some(version) => text(version).into_iter().collect(),
        None => (1..).map_while(text).collect(),
    };
    let texts: Vec<String> = texts.iter().map(|text| ended(text)).collect();
    if texts.is_empty() {
        return Err(Failure::NothingMatched);
    }
    if arguments.json { output::line(serde_json::json!(texts)) } else { output::line(texts.join("\n")) }
}

/// Clients read on until a statement ends.
fn ended(text: &str) -> String {
    format!("{};\n", text.trim_end().trim_end_matches(';'))
}
