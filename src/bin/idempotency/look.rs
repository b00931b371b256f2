//! What is there.

use std::time::Duration;

use idempotency::store::{Entry, Operate};
use idempotency::{Endpoint, Key, ScopeId};

use crate::arguments::{Arguments, KeyArguments};
use crate::failure::Failure;
use crate::place::{Kind, Place};
use crate::show;

/// The records of a key, as somebody has named it.
pub(crate) async fn records(place: &Place, arguments: &Arguments, named: &KeyArguments) -> Result<Vec<Entry>, Failure> {
    let key = Key::parse(named.key.as_bytes()).map_err(|error| Failure::usage(format!("no key: {error}")))?;
    let scope = match &arguments.scope {
        Some(text) => ScopeId::new(text).ok_or_else(|| Failure::usage("a scope is not empty"))?,
        None => ScopeId::shared(),
    };
    let endpoint = named.endpoint.as_deref().map(endpoint);
    if endpoint.is_none() && matches!(place.kind, Kind::Redis) {
        return Err(Failure::usage("on Redis a key is found with its --endpoint only"));
    }
    let found = place.store.find(&scope, &key, endpoint.as_ref()).await?;
    if found.is_empty() && endpoint.is_none() && matches!(place.kind, Kind::Postgres(_)) {
        // Only the lock of a whole look-up key can be asked for.
        eprintln!("idempotency: a key that runs just now is found with its --endpoint only");
    }
    Ok(found)
}

/// A method and a path, or a name.
fn endpoint(text: &str) -> Endpoint {
    let parts = text.split_once(' ').and_then(|(method, path)| Some((method.parse().ok()?, path)));
    match parts {
        Some((method, path)) if path.starts_with('/') => Endpoint::new(&method, path),
        _ if text.is_empty() => Endpoint::none(),
        _ => Endpoint::named(text),
    }
}

pub(crate) async fn find(place: &Place, arguments: &Arguments, named: &KeyArguments) -> Result<(), Failure> {
    shown(&records(place, arguments, named).await?, arguments)
}

pub(crate) async fn list_stuck(
    place: &Place,
    arguments: &Arguments,
    older_than: Duration,
    limit: u32,
) -> Result<(), Failure> {
    let entries = place.store.list_stuck(older_than, limit).await?;
    // On transactional Postgres a running key shows as the session that holds it, and not by its name.
    let holders = match &place.kind {
        Kind::Postgres(store) => store.holders(older_than, limit).await?,
        _ => Vec::new(),
    };
    let known = |pid: i64| entries.iter().any(|entry| entry.holder.as_ref().is_some_and(|holder| holder.pid == pid));
    let holders: Vec<_> = holders.into_iter().filter(|holder| !known(holder.pid)).collect();
    if entries.is_empty() && holders.is_empty() {
        return shown(&[], arguments);
    }
    show::list(&entries, &holders, arguments.json);
    Ok(())
}

fn shown(entries: &[Entry], arguments: &Arguments) -> Result<(), Failure> {
    if arguments.json || !entries.is_empty() {
        show::list(entries, &[], arguments.json);
    }
    if entries.is_empty() { Err(Failure::NothingMatched) } else { Ok(()) }
}
